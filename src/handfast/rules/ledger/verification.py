# SPDX-License-Identifier: Apache-2.0
"""What was changed in an issuance ledger after it was written: every finding, named.

It finds changes that went round `ledger.admission`, through the store's file. It prevents nothing and reads nothing
itself.

Where somebody computed every link anew, up to the newest, only a hash noted elsewhere shows it: `verify` takes one, too.
Without one that fits, a ledger that does not begin with segment 1 is a finding: its oldest segments may have gone
because all in them had expired, or somebody may have taken them away.

| who | holding | tries | stopped by | shown in tests/unit/rules/ledger/test_verification.py |
|---|---|---|---|---|
| who writes the store's file | the file | change, remove or move an entry | `verify` | test_what_was_done_is_named |
| who writes the store's file | the file | remove the oldest segments | `verify` with a noted hash | test_a_later_beginning |
| … | … | … and number the others anew | `verify` | test_a_later_beginning |
| who writes the store's file | the file | write the past anew, links and all | `verify` with a noted hash | test_a_noted_hash |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from handfast.rules.ledger import segments as ledger

# What `verify` says of a ledger that begins later, with nothing noted to compare it with.
SHORTENED: Final = "Shortened"


class Finding(msgspec.Struct, frozen=True):
    """What is wrong with the ledger: where (`entry` counts from 1; 0: the segment as a whole) and what was done."""

    segment: str
    entry: int
    reason: str
    sentence: str


def verify_all(segments: Iterable[ledger.Segment], noted: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Everything that is wrong with any chain; each of the noted hashes must be in one of them."""
    every = tuple(segments)
    findings: list[Finding] = []
    left = set(noted)
    for chain in ledger.CHAINS:
        own = [segment for segment in every if segment.chain == chain]
        known = [text for text in noted if _has(own, text)]
        left.difference_update(known)
        findings += verify(own, next(iter(known), ""))
    return (*findings, *(_rewritten(text, "") for text in noted if text in left))


def verify(segments: Iterable[ledger.Segment], noted: str = "") -> tuple[Finding, ...]:
    """Everything that is wrong with one chain, oldest segment first; `noted` is a hash or link that must be in it."""
    findings: list[Finding] = []
    before: ledger.Segment | None = None
    ordered = sorted(segments, key=lambda segment: segment.sequence)
    for segment in ordered:
        if before is not None:
            findings += between(before, segment)
        findings += within(segment)
        before = segment
    known = not noted or _has(ordered, noted)
    if not known:
        findings.append(_rewritten(noted, "" if before is None else before.name))
    return (*beginning(ordered[:1], is_noted=bool(noted) and known), *findings)


def _has(segments: Iterable[ledger.Segment], noted: str) -> bool:
    return any(
        noted == segment.previous or any(line.startswith(f"{noted} ") for line in segment.entries)
        for segment in segments
    )


def _rewritten(noted: str, segment: str) -> Finding:
    text = f"the hash {noted} that was noted before is not in the ledger: its end was cut off, or it was written anew"
    return Finding(segment, 0, "Rewritten", text)


def beginning(first: Sequence[ledger.Segment], *, is_noted: bool) -> Iterable[Finding]:
    """What is wrong with the oldest segment of a chain as its beginning."""
    for segment in first:
        if segment.sequence == 1 and segment.previous != ledger.GENESIS:
            text = f"{segment.name} continues another segment: those before it were removed, and it was numbered anew"
            yield Finding(segment.name, 0, "Removed", text)
        # Then what is left is what was written, and its numbers too.
        elif segment.sequence != 1 and not is_noted:
            text = (
                f"the ledger begins with {segment.name}: those before it were deleted because all in them had expired, or "
                "were removed, which only a hash that was noted before can tell"
            )
            yield Finding(segment.name, 0, SHORTENED, text)


def between(before: ledger.Segment, segment: ledger.Segment) -> Iterable[Finding]:
    """What is wrong between a segment and the next one that is there; the entries of neither are looked at."""
    if segment.sequence != before.sequence + 1:
        gone = f"{before.sequence + 1} to {segment.sequence - 1}"
        text = f"segments {gone} are missing between {before.name} and {segment.name}"
        if segment.sequence == before.sequence:
            text = f"there are two segments with the sequence {segment.sequence}"
        yield Finding(segment.name, 0, "Removed" if segment.sequence > before.sequence else "OutOfOrder", text)
        return
    if not before.sealed:
        yield Finding(before.name, 0, "Unsealed", f"{before.name} is open although {segment.name} follows it")
    elif segment.previous != before.hash:
        text = f"{segment.name} continues another {before.name} than the one that is there: that one was written anew"
        yield Finding(before.name, 0, "Changed", text)


def within(segment: ledger.Segment) -> Iterable[Finding]:
    """What is wrong with the entries of one segment."""
    link, expected = segment.start, 1
    for position, stored in enumerate(segment.entries, 1):
        said, _, rest = stored.partition(" ")
        text = rest.partition(" ")[0]
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if number != expected:
            yield _misplaced(segment, position, number, expected)
        elif ledger.chained(link, (rest,)) != said:
            sentence = f"entry {position} of {segment.name} is not what was written: its link does not fit"
            yield Finding(segment.name, position, "Changed", sentence)
        link, expected = said, max(number, expected - 1) + 1
    if segment.sealed and segment.hash != link:
        sentence = (
            f"{segment.name} was sealed with another last entry: entries after {len(segment.entries)} were removed"
        )
        yield Finding(segment.name, len(segment.entries), "Removed", sentence)


def _misplaced(segment: ledger.Segment, position: int, number: int, expected: int) -> Finding:
    if number > expected:
        one = number == expected + 1
        gone = (
            f"entry {expected} of {segment.name} was"
            if one
            else (f"entries {expected} to {number - 1} of {segment.name} were")
        )
        return Finding(segment.name, expected, "Removed", f"{gone} removed")
    sentence = f"entry {number} of {segment.name} stands in place {position}: it was moved or repeated"
    return Finding(segment.name, position, "OutOfOrder", sentence)
