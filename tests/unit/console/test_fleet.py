# SPDX-License-Identifier: Apache-2.0
"""Keepers hand objects on and forget them; after a list what was not in it is gone; a Lease in time is not told of."""

from __future__ import annotations

import datetime

import pytest

from handfast.client import partial
from handfast.console import fleet, needs, unread
from handfast.rules.nodes import overview
from tests.unit.rules.console import ledgers
from tests.world.clock import MovableClock


def node(name: str) -> needs.Labelled:
    return needs.Labelled(partial.LabelledMeta(name=name, labels={"zone": "a"}))


def lease(name: str, at: datetime.datetime) -> needs.Lease:
    spec = needs.LeaseSpec(renew_time=at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), lease_duration_seconds=40)
    return needs.Lease(needs.Meta(name=name), spec)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def left_out() -> unread.Unread:
    return unread.Unread()


@pytest.fixture
def made(told: list[str], clock: MovableClock, left_out: unread.Unread) -> fleet.Fleet:
    return fleet.Fleet(clock, told.append, left_out)


def names(made: fleet.Fleet) -> list[str]:
    made.look()
    return sorted(record.name for record in made.table.ordered)


def test_after_a_list_what_was_not_in_it_is_gone(made: fleet.Fleet):
    keeper = made.keepers["nodes"]
    for listed in (("a", "b"), ("b", "c")):
        keeper.begin()
        for name in listed:
            keeper.put(node(name))
        keeper.end()
        assert names(made) == sorted(listed)
    keeper.remove(node("b"))
    assert (names(made), keeper.synced) == (["c"], True)


def test_a_lease_that_is_renewed_in_time_is_not_told_of(made: fleet.Fleet, told: list[str], clock: MovableClock):
    made.keepers["nodes"].put(node("a"))
    leases = made.keepers["leases"]
    leases.begin()
    leases.put(lease("a", clock.now()))
    leases.end()
    made.look()
    told.clear()
    leases.put(lease("a", clock.now() + datetime.timedelta(seconds=10)))
    assert told == []
    leases.remove(lease("a", clock.now()))
    assert told == ["leases"]


def test_what_is_forbidden_is_no_trouble_of_a_node(made: fleet.Fleet):
    made.keepers["nodes"].put(node("a"))
    made.keepers["leases"].end()
    made.keepers["ledger"].end()
    assert names(made) == ["a"]
    assert (made.table.leases_read, made.table.ledger_read) == (True, False)
    made.keepers["leases"].refused("you may not")
    assert not made.table.leases_read


def test_segments_are_kept_packed(made: fleet.Fleet):
    first, last = ledgers.chain([ledgers.entry("a")], [ledgers.entry("b")])
    keeper = made.keepers["ledger"]
    for each in (first, last):
        spec = needs.SegmentSpec(each.sequence, each.previous, each.entries, each.sealed, each.hash, each.chain)
        keeper.put(needs.Segment(needs.Meta(name=each.name), spec))
    assert [kept.lines() for kept in made.ledger.kept()] == [first.entries, last.entries]
    keeper.end()
    assert made.table.ledger_read
    keeper.remove(needs.Segment(needs.Meta(name=first.name)))
    assert list(made.ledger.names()) == [last.name]


def test_an_object_that_no_rule_can_read_is_left_out_and_counted(
    made: fleet.Fleet, left_out: unread.Unread, monkeypatch: pytest.MonkeyPatch
):
    keeper = made.keepers["nodes"]
    keeper.put(node("b"))
    put = made.table.put_node

    def put_or_not(name: str, labels: dict[str, str]) -> None:
        if name == "b":
            raise KeyError(name)
        put(name, labels)

    monkeypatch.setattr(made.table, "put_node", put_or_not)
    for name in ("a", "b", "c"):
        keeper.put(node(name))
    assert (names(made), len(left_out)) == (["a", "c"], 1)
    # Mended, or gone, it counts no more.
    monkeypatch.undo()
    keeper.put(node("b"))
    assert (names(made), len(left_out)) == (["a", "b", "c"], 0)


def test_a_node_that_no_rule_can_judge_is_counted_until_it_can_be(
    made: fleet.Fleet, left_out: unread.Unread, monkeypatch: pytest.MonkeyPatch
):
    judge = overview.judge

    def judge_or_not(name: str, facts: overview.Facts, now: datetime.datetime) -> overview.Row:
        if name == "b":
            raise OverflowError("date value out of range")
        return judge(name, facts, now)

    monkeypatch.setattr(overview, "judge", judge_or_not)
    for name in ("a", "b", "c"):
        made.keepers["nodes"].put(node(name))
    assert (names(made), len(left_out)) == (["a", "c"], 1)
    made.keepers["nodes"].remove(node("b"))
    assert (names(made), len(left_out)) == (["a", "c"], 0)


def test_after_a_list_what_cannot_be_read_and_is_gone_counts_no_more(made: fleet.Fleet, left_out: unread.Unread):
    made.keepers["nodes"].put(node("b"))
    left_out.failed("nodes", "", "b", KeyError("b"))
    made.keepers["nodes"].begin()
    made.keepers["nodes"].end()
    assert len(left_out) == 0
