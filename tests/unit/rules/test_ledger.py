# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger: segments there and back, and when they close."""

from __future__ import annotations

import datetime

from handfast.rules import ledger, ledger_entries
from tests.unit.rules.ledger_cases import HOUR, NOW, lines, opened


def test_documents_there_and_back():
    for segment in (opened(1, 2), ledger.sealed(opened(1)), ledger.following(None)):
        assert ledger.read({"spec": ledger.spec_of(segment)}) == segment


def test_a_segment_closes_when_it_is_full():
    many = [line for number in range(ledger.MAX_ENTRIES + 5) for line in lines(number)]
    taken = ledger.fitting(ledger.following(None), many)
    assert len(taken) == ledger.MAX_ENTRIES == 64
    full = ledger.extended(ledger.following(None), taken)
    assert full.sealed
    assert full.hash == full.last_link == ledger.chained(full.start, (line.partition(" ")[2] for line in full.entries))
    assert ledger.fitting(full, many) == []
    assert ledger.following(full) == ledger.Segment(sequence=2, previous=full.hash)


def test_a_segment_closes_when_it_is_large():
    large = lines(*range(60), names=tuple(f"DNS:{'a' * 60}.example" for _ in range(18)))
    taken = ledger.fitting(ledger.following(None), large)
    assert len(taken) < len(large)
    assert ledger.MAX_BYTES <= sum(map(len, taken)) < ledger.MAX_BYTES + ledger_entries.MAX_LINE
    assert ledger.extended(ledger.following(None), taken).sealed


def test_a_sealed_segment_takes_nothing_however_small_it_is():
    small = ledger.sealed(opened(1))
    assert ledger.room(small) == 0
    assert ledger.fitting(small, lines(2)) == []


def test_a_segment_closes_after_its_hour():
    assert not ledger.is_over(ledger.following(None), NOW + 2 * HOUR)
    assert not ledger.is_over(opened(1), NOW + HOUR - datetime.timedelta(seconds=1))
    assert ledger.is_over(opened(1), NOW + HOUR)
