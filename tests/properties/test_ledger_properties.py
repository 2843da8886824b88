# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger: one encoding for each entry, whatever is appended verifies, and nothing that is done to it hides."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.rules import decision
from handfast.rules.ledger import (
    admission,
    verification,
)
from handfast.rules.ledger import (
    entries as ledger_entries,
)
from handfast.rules.ledger import (
    segments as ledger,
)

INSTANTS = st.datetimes(
    min_value=datetime.datetime(1970, 1, 1),
    max_value=datetime.datetime(2200, 1, 1),
    timezones=st.just(datetime.UTC),
).map(lambda instant: instant.replace(microsecond=0))
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
LONG = st.builds(lambda text, times: text * times, TEXTS, st.sampled_from((1, 20, 300)))
ENTRIES = st.builds(
    ledger_entries.Entry,
    issued_at=INSTANTS,
    not_after=INSTANTS,
    names=st.lists(TEXTS, max_size=3).map(tuple),
    **dict.fromkeys(
        ("signer", "requester", "authenticated_by", "token_id", "key_fingerprint", "serial", "rule", "request"), TEXTS
    ),
    certificate=TEXTS,
)
BATCHES = st.lists(st.lists(ENTRIES, min_size=1, max_size=3), min_size=2, max_size=5)


def written(batches: list[list[ledger_entries.Entry]]) -> list[ledger.Segment]:
    """A segment for each batch but the last two, which share an open one; every write is one that is let through."""
    done: list[ledger.Segment] = []
    current = ledger.following(None)
    for number, batch in enumerate(batches):
        grown = ledger.extended(current, map(ledger_entries.encode, batch))
        assert isinstance(admission.judge_update(current, grown), decision.Approve)
        current = grown
        if number < len(batches) - 2:
            done.append(ledger.sealed(current))
            current = ledger.following(done[-1])
    return [*done, current]


@given(ENTRIES)
@settings(max_examples=100)
def test_one_encoding(entry: ledger_entries.Entry) -> None:
    line = ledger_entries.encode(entry)
    assert ledger_entries.decode(line) == entry
    assert "\n" not in line


@given(ENTRIES, st.lists(LONG, max_size=5), LONG, LONG)
@settings(max_examples=100)
def test_an_entry_has_a_bound(entry: ledger_entries.Entry, names: list[str], requester: str, rule: str) -> None:
    long = dataclasses.replace(entry, names=tuple(names), requester=requester, rule=rule)
    line = ledger_entries.encode(long)
    assert len(line) <= ledger_entries.MAX_LINE
    assert ledger_entries.encode(ledger_entries.decode(line)) == line


@given(BATCHES)
@settings(max_examples=50)
def test_what_is_appended_verifies(batches: list[list[ledger_entries.Entry]]) -> None:
    segments = written(batches)
    assert verification.verify(segments, segments[-1].last_link) == ()


@given(BATCHES, st.data())
@settings(max_examples=100)
def test_nothing_that_is_done_hides(batches: list[list[ledger_entries.Entry]], data: Any) -> None:
    """One entry is changed, removed, repeated or swapped with another, anywhere but at the open end."""
    segments = written(batches)
    head = segments[-1].last_link
    place = data.draw(st.integers(0, len(segments) - 1))
    entries = list(segments[place].entries)
    at = data.draw(st.integers(0, len(entries) - 1))
    deed = data.draw(st.sampled_from(("change", "remove", "repeat", "swap")))
    if deed == "change":
        position = data.draw(st.integers(0, len(entries[at]) - 1))
        character = data.draw(st.sampled_from("0x}"))
        entries[at] = entries[at][:position] + character + entries[at][position + 1 :]
    elif deed == "remove":
        del entries[at]
    elif deed == "repeat":
        entries.insert(at, entries[at])
    else:
        other = data.draw(st.integers(0, len(entries) - 1))
        entries[at], entries[other] = entries[other], entries[at]
    after = dataclasses.replace(segments[place], entries=tuple(entries))
    found = verification.verify([*segments[:place], after, *segments[place + 1 :]], head)
    assert bool(found) == (after != segments[place])
    if after != segments[place]:
        assert isinstance(admission.judge_update(segments[place], after), decision.Deny)
