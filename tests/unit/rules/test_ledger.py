# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger: one encoding, one chain, and every way round it named. The table of `ledger.py` is here."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from typing import Any

import pytest

from handfast import errors
from handfast.pki import names
from handfast.rules import decision, ledger

NOW = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def entry(number: int = 1, **more: Any) -> ledger.Entry:
    given: dict[str, Any] = {
        "issued_at": NOW,
        "signer": "kubernetes.io/kube-apiserver-client-kubelet",
        "requester": "system:bootstrap:abcdef",
        "authenticated_by": "bootstrap-token",
        "token_id": "abcdef",
        "key_fingerprint": f"{number:064x}",
        "serial": f"{number:032x}",
        "names": (f"CN=system:node:node-{number}", "O=system:nodes"),
        "not_after": NOW + 24 * HOUR,
        "rule": "nodeclient",
        "request": f"node-csr-{number}",
        "certificate": f"{number + 1000:064x}",
    }
    return ledger.Entry(**{**given, **more})


def lines(*numbers: int, **more: Any) -> list[str]:
    return [ledger.encode(entry(number, **more)) for number in numbers]


def opened(*numbers: int) -> ledger.Segment:
    return ledger.extended(ledger.following(None), lines(*numbers))


def chain() -> list[ledger.Segment]:
    """Three segments of four entries; the last is open."""
    found: list[ledger.Segment] = []
    before: ledger.Segment | None = None
    for first in (1, 5, 9):
        segment = ledger.extended(ledger.following(before), lines(*range(first, first + 4)))
        before = ledger.sealed(segment)
        found.append(before if first < 9 else segment)
    return found


def reason(verdict: decision.Approve | decision.Deny) -> str:
    return "" if isinstance(verdict, decision.Approve) else verdict.reason


# --- entries


def test_there_and_back():
    one = entry(names=("CN=Jürgen", "DNS:a.example"))
    assert ledger.decode(ledger.encode(one)) == one
    assert ledger.encode(one).isascii()
    assert list(json.loads(ledger.encode(one))) == sorted(json.loads(ledger.encode(one)))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "nonsense",
        "{}",
        "[" * 100_000,
        lines(1)[0].replace('"serial"', '"cereal"'),
        lines(1)[0] + " ",
        lines(1)[0].replace('"rule":"nodeclient"', '"rule":1'),
        lines(1)[0].replace('"CN=system:node:node-1"', "7"),
        lines(1)[0].replace('"names":["CN=system:node:node-1","O=system:nodes"]', '"names":7'),
        lines(1)[0].replace("2030-01-01T12:00:00Z", "yesterday"),
        lines(1)[0].replace("2030-01-01T12:00:00Z", "2030-01-01T12:00:00+00:00"),
        lines(1)[0].replace('"2030-01-01T12:00:00Z"', "7"),
    ],
)
def test_one_encoding_only(line: str):
    with pytest.raises(errors.Refused) as refused:
        ledger.decode(line)
    assert refused.value.reason == "MalformedEntry"


def test_the_names_of_a_certificate():
    subject = names.Subject(common_name="system:node:a", organizations=("system:nodes",))
    sans = names.make_sans(dns=["a.example"], ip=["192.0.2.1"])
    assert ledger.names_of(subject, sans) == ("CN=system:node:a", "O=system:nodes", "DNS:a.example", "IP:192.0.2.1")


@pytest.mark.parametrize(
    ("user", "credential", "found"),
    [
        ("system:bootstrap:abcdef", None, ("bootstrap-token", "abcdef")),
        # A certificate may name anybody; the server says that it was one.
        ("system:bootstrap:abcdef", "X509SHA256=00ff", ("x509", "00ff")),
        ("system:bootstrap:abcdef", "JTI=1-2", ("service-account", "1-2")),
        ("system:serviceaccount:a:b", "X509SHA256=00ff", ("x509", "00ff")),
        ("system:node:a", "X509SHA256=00ff", ("x509", "00ff")),
        ("system:node-recovery:a", "X509SHA256=00ff", ("node-recovery", "00ff")),
        ("system:serviceaccount:a:b", "JTI=1-2", ("service-account", "1-2")),
        ("system:serviceaccount:a:b", None, ("service-account", "")),
        ("jane", None, ("unknown", "")),
        ("jane", "other=1", ("unknown", "")),
    ],
)
def test_how_somebody_authenticated(user: str, credential: str | None, found: tuple[str, str]):
    extra = {} if credential is None else {"authentication.kubernetes.io/credential-id": [credential]}
    assert ledger.authenticated_by(user, ("system:node-recovery", "system:authenticated"), extra) == found


def test_only_the_server_says_that_a_node_recovers():
    extra = {"authentication.kubernetes.io/credential-id": ["X509SHA256=00ff"]}
    found = ledger.authenticated_by("system:node-recovery:a", ("system:authenticated",), extra)
    assert found == ("x509", "00ff")


WORST = "\U0001f600" * 50_000


def test_an_entry_has_a_bound():
    texts = [field.name for field in dataclasses.fields(ledger.Entry) if field.type == "str"]
    assert len(texts) == 9
    for worst in (WORST, "a" * 47_000, "\x01" * 47_000):
        every = entry(1, names=(worst, *["DNS:a.example"] * 5000), **dict.fromkeys(texts, worst))
        line = ledger.encode(every)
        assert len(line) <= ledger.MAX_LINE
        assert ledger.decode(line) == ledger.bounded(every) == ledger.bounded(ledger.bounded(every))
    # The bound of each text is what the whole is made of.
    full = entry(1, names=("a" * 504, ""), **dict.fromkeys(texts, "a" * 94))
    full = dataclasses.replace(full, requester="a" * 278, request="a" * 254)
    assert ledger.bounded(full) == full
    assert len(ledger.encode(full)) <= ledger.MAX_LINE


def test_what_is_too_long_is_its_digest():
    name = "CN=system:node:" + "a" * 253
    many = tuple(f"DNS:n{number}.example" for number in range(200))
    found = ledger.decode(ledger.encode(entry(names=(name, "O=system:nodes", *many), request="r" * 253)))
    # A node is found by its name, whatever else is in the certificate; and others are other names.
    assert found.names[:3] == (name, "O=system:nodes", "DNS:n0.example")
    assert found.names[-1].startswith("sha256:")
    assert (len(found.names), found.request) == (11, "r" * 253)
    other = ledger.decode(ledger.encode(entry(names=(name, "O=system:nodes", *many[:-1], "DNS:x"), request="r" * 253)))
    assert found.names[:-1] == other.names[:-1]
    assert found.names != other.names
    # Who asks may be anybody.
    by = ledger.decode(ledger.encode(entry(requester="u" * 3000)))
    assert by.requester == "sha256:" + hashlib.sha256(f'"{"u" * 3000}"'.encode()).hexdigest()
    assert by.names == entry().names
    # In a line with room nothing is shortened.
    long = entry(names=tuple(f"DNS:n{number}.example" for number in range(60)), rule="r" * 200)
    assert ledger.decode(ledger.encode(long)) == long


def test_a_longer_line_is_not_taken():
    line = lines(1)[0].replace('"rule":"nodeclient"', f'"rule":"{"r" * 2000}"')
    with pytest.raises(errors.Refused, match="in another way"):
        ledger.decode(line)


def test_signers_of():
    stored = (*opened(1, 2).entries, "x 3 {}")
    other = ledger.stored_lines(ledger.following(None), lines(1, signer="example.com/a"))
    assert ledger.signers_of((*stored, *other)) == ["example.com/a", entry().signer]
    assert ledger.signers_of(()) == []


# --- segments


def test_documents_there_and_back():
    for segment in (opened(1, 2), ledger.sealed(opened(1)), ledger.following(None)):
        assert ledger.read({"spec": ledger.spec_of(segment)}) == segment


def test_a_segment_closes_when_it_is_full():
    many = [line for number in range(ledger.MAX_ENTRIES + 5) for line in lines(number)]
    taken = ledger.fitting(ledger.following(None), many)
    assert len(taken) == ledger.MAX_ENTRIES
    full = ledger.extended(ledger.following(None), taken)
    assert full.sealed
    assert full.hash == full.last_link == ledger.chained(full.start, (line.partition(" ")[2] for line in full.entries))
    assert ledger.fitting(full, many) == []
    assert ledger.following(full) == ledger.Segment(sequence=2, previous=full.hash)


def test_a_segment_closes_when_it_is_large():
    large = lines(*range(60), names=tuple(f"DNS:{'a' * 60}.example" for _ in range(18)))
    taken = ledger.fitting(ledger.following(None), large)
    assert len(taken) < len(large)
    assert ledger.MAX_BYTES <= sum(map(len, taken)) < ledger.MAX_BYTES + ledger.MAX_LINE
    assert ledger.extended(ledger.following(None), taken).sealed


def test_a_segment_closes_after_its_hour():
    assert not ledger.is_over(ledger.following(None), NOW + 2 * HOUR)
    assert not ledger.is_over(opened(1), NOW + HOUR - datetime.timedelta(seconds=1))
    assert ledger.is_over(opened(1), NOW + HOUR)


# --- verdicts


def test_a_new_segment_continues_the_chain():
    first, second, _ = chain()

    def judge(new: ledger.Segment, before: ledger.Segment | None, name: str = "", **more: Any) -> str:
        first_of_all = more.get("is_first", False)
        return reason(ledger.judge_create(name or new.name, new, before, is_first=first_of_all))

    assert judge(opened(1), None, is_first=True) == ""
    assert judge(first, None, is_first=True) == ""
    assert judge(second, first) == ""
    assert judge(second, first, "segment-0000000003") == "WrongName"
    assert judge(opened(1), None) == "NotNext"
    assert judge(second, None, is_first=True) == "NotNext"
    assert judge(dataclasses.replace(opened(1), previous="1" * 64), None, is_first=True) == "NotNext"
    assert judge(second, dataclasses.replace(first, sealed=False)) == "NotNext"
    assert judge(dataclasses.replace(second, previous="1" * 64), first) == "NotNext"
    assert judge(dataclasses.replace(second, entries=first.entries), first) == "BrokenChain"


def test_entries_are_only_added():
    old, new = opened(1, 2), opened(1, 2, 3)

    def judge(old: ledger.Segment, new: ledger.Segment, **changed: Any) -> str:
        return reason(ledger.judge_update(old, dataclasses.replace(new, **changed)))

    assert judge(old, new) == judge(old, old) == judge(old, ledger.sealed(new)) == judge(old, ledger.sealed(old)) == ""
    assert judge(ledger.sealed(old), ledger.sealed(old)) == ""
    assert judge(ledger.sealed(old), new) == "Sealed"
    assert judge(ledger.sealed(old), old) == "Sealed"
    assert judge(old, new, sequence=2) == "SegmentMoved"
    assert judge(old, new, previous="1" * 64) == "SegmentMoved"
    assert judge(new, old) == "EntriesChanged"
    assert judge(old, new, entries=new.entries[1:]) == "EntriesChanged"
    assert judge(old, new, entries=(*old.entries, old.entries[1])) == "BrokenChain"
    assert judge(old, new, entries=(*old.entries, "x 3 {}")) == "MalformedEntry"
    assert judge(old, new, sealed=True) == "WrongHash"
    assert judge(old, new, hash="1" * 64) == "WrongHash"
    empty = ledger.following(None)
    assert judge(empty, empty, sealed=True, hash=empty.previous) == "WrongHash"


def test_only_the_oldest_may_be_deleted():
    oldest = chain()[0]
    later = NOW + 25 * HOUR

    def judge(gone: ledger.Segment, at: datetime.datetime = later, *, oldest: bool = True, newest: bool = False) -> str:
        return reason(ledger.judge_delete(gone, at, is_oldest=oldest, is_newest=newest))

    assert judge(oldest) == ""
    assert judge(oldest, oldest=False) == "NotOldest"
    assert judge(oldest, newest=True) == "Newest"
    assert judge(opened(1)) == "Newest"
    assert judge(oldest, NOW + 24 * HOUR) == "StillInForce"
    assert judge(dataclasses.replace(oldest, entries=("x 1 {}",))) == "StillInForce"
    assert judge(dataclasses.replace(oldest, entries=())) == "StillInForce"


# --- verification


def findings(*segments: ledger.Segment, noted: str = "") -> list[tuple[str, int, str]]:
    return [(found.segment[-1:], found.entry, found.reason) for found in ledger.verify(segments, noted)]


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
    (found,) = ledger.verify([changed(second, *second.entries[2:])], second.previous)
    assert found.sentence == "entries 1 to 2 of segment-0000000002 were removed"
    (found,) = ledger.verify([changed(second, *second.entries[1:])], second.previous)
    assert found.sentence == "entry 1 of segment-0000000002 was removed"


def test_a_noted_hash():
    first, second, third = chain()
    for noted in (first.hash, second.hash, third.last_link, first.previous, second.entries[1][:64]):
        assert findings(first, second, third, noted=noted) == []
    assert findings(first, second, noted=third.last_link) == [("2", 0, "Rewritten")]
    assert findings(noted=first.hash) == [("", 0, "Rewritten")]
    assert findings(first, noted=first.hash[:10]) == [("1", 0, "Rewritten")]
