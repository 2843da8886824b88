# SPDX-License-Identifier: Apache-2.0
"""The ledger is only continued. The table of `ledger_admission.py` is here."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from handfast.api import signer_names
from handfast.rules import decision
from handfast.rules.ledger import admission, segments, verification
from tests.unit.rules.ledger_cases import HOUR, NOW, chain, lines, mesh, opened


def reason(verdict: decision.Approve | decision.Deny) -> str:
    return "" if isinstance(verdict, decision.Approve) else verdict.reason


def test_a_new_segment_continues_the_chain():
    first, second, _ = chain()

    def judge(new: segments.Segment, before: segments.Segment | None, name: str = "", **more: Any) -> str:
        first_of_all = more.get("is_first", False)
        return reason(admission.judge_create(name or new.name, new, before, is_first=first_of_all))

    assert judge(opened(1), None, is_first=True) == ""
    assert judge(first, None, is_first=True) == ""
    assert judge(second, first) == ""
    assert judge(second, first, "segment-0000000003") == "WrongName"
    assert judge(opened(1), None) == "NotNext"
    assert judge(second, None, is_first=True) == "NotNext"
    # A ledger begins with 1: whoever begins it later would have had something to hide.
    assert judge(dataclasses.replace(opened(), sequence=2), None, is_first=True) == "NotNext"
    assert judge(dataclasses.replace(opened(), sequence=0), None, is_first=True) == "NotNext"
    assert judge(dataclasses.replace(opened(1), previous="1" * 64), None, is_first=True) == "NotNext"
    assert judge(second, dataclasses.replace(first, sealed=False)) == "NotNext"
    assert judge(dataclasses.replace(second, previous="1" * 64), first) == "NotNext"
    assert judge(dataclasses.replace(second, entries=first.entries), first) == "BrokenChain"


def test_which_segment_is_missing_is_told():
    _, second, _ = chain()
    verdict = admission.judge_create(second.name, second, None, is_first=False)
    assert verdict.sentence == "segment 1 is not there, or is not sealed"


def test_entries_are_only_added():
    old, new = opened(1, 2), opened(1, 2, 3)

    def judge(old: segments.Segment, new: segments.Segment, **changed: Any) -> str:
        return reason(admission.judge_update(old, dataclasses.replace(new, **changed)))

    assert (
        judge(old, new) == judge(old, old) == judge(old, segments.sealed(new)) == judge(old, segments.sealed(old)) == ""
    )
    assert judge(segments.sealed(old), segments.sealed(old)) == ""
    assert judge(segments.sealed(old), new) == "Sealed"
    assert judge(segments.sealed(old), old) == "Sealed"
    assert judge(old, new, sequence=2) == "SegmentMoved"
    assert judge(old, new, previous="1" * 64) == "SegmentMoved"
    assert judge(new, old) == "EntriesChanged"
    assert judge(old, new, entries=new.entries[1:]) == "EntriesChanged"
    assert judge(old, new, entries=(*old.entries, old.entries[1])) == "BrokenChain"
    assert judge(old, new, entries=(*old.entries, "x 3 {}")) == "MalformedEntry"
    assert judge(old, new, sealed=True) == "WrongHash"
    assert judge(old, new, hash="1" * 64) == "WrongHash"
    empty = segments.following(None)
    assert judge(empty, empty, sealed=True, hash=empty.previous) == "WrongHash"


def test_only_the_oldest_may_be_deleted():
    oldest = chain()[0]
    later = NOW + 25 * HOUR

    def judge(
        gone: segments.Segment, at: datetime.datetime = later, *, oldest: bool = True, newest: bool = False
    ) -> str:
        return reason(admission.judge_delete(gone, at, is_oldest=oldest, is_newest=newest))

    assert judge(oldest) == ""
    assert judge(oldest, oldest=False) == "NotOldest"
    assert judge(oldest, newest=True) == "Newest"
    assert judge(opened(1)) == "Newest"
    assert judge(oldest, NOW + 24 * HOUR) == "StillInForce"
    assert judge(dataclasses.replace(oldest, entries=("x 1 {}",))) == "StillInForce"
    assert judge(dataclasses.replace(oldest, entries=())) == "StillInForce"


def test_a_signer_writes_in_its_own_chain():
    ordinary, own = opened(1), mesh(1)
    assert reason(admission.judge_create(own.name, own, None, is_first=True)) == ""
    assert reason(admission.judge_update(own, mesh(1, 2))) == ""
    other = segments.extended(segments.following(None, segments.MESH), lines(1))
    assert reason(admission.judge_create(other.name, other, None, is_first=True)) == "WrongChain"
    stray = segments.extended(segments.following(None), lines(1, signer=signer_names.MESH_IDENTITY))
    assert reason(admission.judge_create(stray.name, stray, None, is_first=True)) == "WrongChain"
    moved = dataclasses.replace(segments.extended(ordinary, lines(2)), chain=segments.MESH)
    assert reason(admission.judge_update(ordinary, moved)) == "SegmentMoved"


def test_a_segment_of_one_chain_is_none_of_the_other():
    closed = segments.sealed(mesh(1))
    second = mesh(2, before=closed)
    assert (closed.name, second.name) == ("mesh-0000000001", "mesh-0000000002")
    assert reason(admission.judge_create(second.name, second, closed, is_first=False)) == ""
    assert segments.read({"spec": segments.spec_of(second)}) == second
    renamed = dataclasses.replace(closed, chain=segments.ORDINARY)
    assert [each.reason for each in verification.verify([renamed])] == ["Changed"]
