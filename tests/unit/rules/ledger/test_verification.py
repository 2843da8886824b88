# SPDX-License-Identifier: Apache-2.0
"""Every way round the chain is named. The table of `ledger_verification.py` is here."""

from __future__ import annotations

import dataclasses

from handfast.rules.ledger import segments as ledger
from handfast.rules.ledger import verification
from tests.unit.rules.ledger_cases import chain, lines, mesh


def findings(*segments: ledger.Segment, noted: str = "") -> list[tuple[str, int, str]]:
    return [(found.segment[-1:], found.entry, found.reason) for found in verification.verify(segments, noted)]


def test_a_good_ledger():
    first, second, third = chain()
    assert findings(third, first, second) == []
    assert findings() == []


def test_a_later_beginning():
    _, second, third = chain()
    # After retention the chain begins later. Whether it was that, a hash says that was noted before.
    for noted in (second.previous, second.hash, third.last_link):
        assert findings(second, third, noted=noted) == []
    assert findings(second, third) == [("2", 0, "Shortened")]
    assert findings(second, third, noted="1" * 64) == [("2", 0, "Shortened"), ("3", 0, "Rewritten")]
    # Numbered anew, the first names another than none, and every first entry was chained under another number.
    cut = [dataclasses.replace(segment, sequence=segment.sequence - 1) for segment in (second, third)]
    assert findings(*cut) == [("1", 0, "Removed"), ("1", 1, "Changed"), ("2", 1, "Changed")]
    forged = dataclasses.replace(cut[0], previous=ledger.GENESIS)
    assert findings(forged, cut[1]) == [("1", 1, "Changed"), ("2", 1, "Changed")]


def changed(segment: ledger.Segment, *entries: str) -> ledger.Segment:
    return dataclasses.replace(segment, entries=entries)


def test_what_was_done_is_named():
    first, second, third = chain()
    a, b, c, d = second.entries
    cases = [
        (changed(second, a, b.replace("nodeclient", "nobody"), c, d), [("2", 2, "Changed")]),
        (changed(second, a, b, c, "f" * 64 + d[64:]), [("2", 4, "Changed"), ("2", 4, "Removed")]),
        (changed(second, a, c, d), [("2", 2, "Removed")]),
        (changed(second, a, d), [("2", 2, "Removed")]),
        (changed(second, b, c, d), [("2", 1, "Removed")]),
        (changed(second, a, b, c), [("2", 3, "Removed")]),
        (changed(second, a, c, b, d), [("2", 2, "Removed"), ("2", 3, "OutOfOrder"), ("2", 4, "Changed")]),
        (changed(second, a, b, b, c, d), [("2", 3, "OutOfOrder")]),
        (changed(second, a, "", b, c, d), [("2", 2, "OutOfOrder"), ("2", 3, "Changed")]),
        (changed(second, a, "x ² y", b, c, d), [("2", 2, "OutOfOrder"), ("2", 3, "Changed")]),
        # No number is so long, and Python refuses to read one of so many digits.
        (changed(second, a, f"x {'9' * 5000} y", b, c, d), [("2", 2, "OutOfOrder"), ("2", 3, "Changed")]),
        (dataclasses.replace(second, sealed=False), [("2", 0, "Unsealed")]),
        (dataclasses.replace(second, previous="1" * 64), [("1", 0, "Changed"), ("2", 1, "Changed")]),
    ]
    for broken, expected in cases:
        assert findings(first, broken, third) == expected
    assert findings(first, third) == [("3", 0, "Removed")]
    assert findings(first, second, second, third) == [("2", 0, "OutOfOrder")]
    # Somebody who computed a whole segment anew is betrayed by the next.
    forged = ledger.sealed(ledger.extended(ledger.following(first), lines(5, 6, 7)))
    assert findings(first, forged, third) == [("2", 0, "Changed")]


def test_the_words_of_a_finding():
    _, second, _ = chain()
    (found,) = verification.verify([changed(second, *second.entries[2:])], second.previous)
    assert found.sentence == "entries 1 to 2 of segment-0000000002 were removed"
    (found,) = verification.verify([changed(second, *second.entries[1:])], second.previous)
    assert found.sentence == "entry 1 of segment-0000000002 was removed"
    first, second, third = chain()
    a, b, *rest = second.entries
    forged = changed(second, a, b.replace("nodeclient", "nobody"), *rest)
    (found,) = verification.verify([first, forged, third], "")
    assert found.sentence == "entry 2 of segment-0000000002 is not what was written: its link does not fit"
    later = dataclasses.replace(third, sequence=5)
    found = verification.verify([first, later], "")[0]
    assert found.sentence == "segments 2 to 4 are missing between segment-0000000001 and segment-0000000005"
    found = verification.verify([first, second, second, third], "")[0]
    assert found.sentence == "there are two segments with the sequence 2"


def test_a_noted_hash():
    first, second, third = chain()
    for noted in (first.hash, second.hash, third.last_link, first.previous, second.entries[1][:64]):
        assert findings(first, second, third, noted=noted) == []
    assert findings(first, second, noted=third.last_link) == [("2", 0, "Rewritten")]
    assert findings(noted=first.hash) == [("", 0, "Rewritten")]
    assert findings(first, noted=first.hash[:10]) == [("1", 0, "Rewritten")]


def test_each_chain_is_verified_by_itself():
    closed = ledger.sealed(mesh(1))
    second = mesh(2, before=closed)
    both = [*chain(), closed, second]
    assert verification.verify_all(both) == ()
    heads = (chain()[-1].last_link, second.last_link)
    assert verification.verify_all(both, heads) == ()
    # The chain of the mesh begins later: only a hash of its own tells that it is still the same.
    later = [*chain(), second]
    assert [each.reason for each in verification.verify_all(later, heads[:1])] == [verification.SHORTENED]
    assert verification.verify_all(later, heads) == ()
    assert [each.reason for each in verification.verify_all(both, ("1" * 64,))] == ["Rewritten"]
