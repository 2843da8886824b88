# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger: segments there and back, and when they close."""

from __future__ import annotations

import datetime

from handfast.rules.ledger import entries, segments
from tests.unit.rules.ledger_cases import HOUR, NOW, lines, opened


def test_documents_there_and_back():
    for segment in (opened(1, 2), segments.sealed(opened(1)), segments.following(None)):
        assert segments.read({"spec": segments.spec_of(segment)}) == segment


def test_a_segment_closes_when_it_is_full():
    many = [line for number in range(segments.MAX_ENTRIES + 5) for line in lines(number)]
    taken = segments.fitting(segments.following(None), many)
    assert len(taken) == segments.MAX_ENTRIES == 64
    full = segments.extended(segments.following(None), taken)
    assert full.sealed
    assert (
        full.hash == full.last_link == segments.chained(full.start, (line.partition(" ")[2] for line in full.entries))
    )
    assert segments.fitting(full, many) == []
    assert segments.following(full) == segments.Segment(sequence=2, previous=full.hash)


def test_a_segment_closes_when_it_is_large():
    large = lines(*range(60), names=tuple(f"DNS:{'a' * 60}.example" for _ in range(18)))
    taken = segments.fitting(segments.following(None), large)
    assert len(taken) < len(large)
    assert segments.MAX_BYTES <= sum(map(len, taken)) < segments.MAX_BYTES + entries.MAX_LINE
    assert segments.extended(segments.following(None), taken).sealed


def test_a_sealed_segment_takes_nothing_however_small_it_is():
    small = segments.sealed(opened(1))
    assert segments.room(small) == 0
    assert segments.fitting(small, lines(2)) == []


def test_a_segment_closes_after_its_hour():
    assert not segments.is_over(segments.following(None), NOW + 2 * HOUR)
    assert not segments.is_over(opened(1), NOW + HOUR - datetime.timedelta(seconds=1))
    assert segments.is_over(opened(1), NOW + HOUR)
