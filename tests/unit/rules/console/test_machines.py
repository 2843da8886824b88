# SPDX-License-Identifier: Apache-2.0
"""The Machines page: who waits and why, in which order, and how far the pools are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from handfast.rules.console import machines, questions
from handfast.rules.machine_config import following, rollout_progress
from handfast.rules.machines import inventory
from handfast.rules.nodes import overview
from tests.unit.rules.console import ledgers

NOW, HOUR = ledgers.NOW, ledgers.HOUR


def machine(name: str = "m-1", **more: Any) -> inventory.Machine:
    values: dict[str, Any] = {
        "group": inventory.OPENSHIFT,
        "namespace": "fleet",
        "name": name,
        "created": NOW - HOUR,
        "addresses": (inventory.Address("InternalDNS", f"{name}.example"), inventory.Address("InternalIP", "10.0.0.7")),
        "role": "worker",
    }
    return inventory.Machine(**{**values, **more})


def nobody(_name: str) -> Sequence[overview.Request]:
    return ()


def rows(
    *known: inventory.Machine, nodes: set[str] | None = None, waiting: machines.Waiting = nobody
) -> list[machines.Row]:
    there = {"n-1"} if nodes is None else nodes
    return machines.all_rows(known, there.__contains__, waiting, NOW)


@pytest.mark.parametrize(
    ("more", "state", "problem", "step"),
    [
        ({"node": "n-1"}, "joined", "", ""),
        ({"node": "n-2"}, "node gone", "its Node n-2 is gone", "handfast machine readmit fleet/m-1"),
        ({"phase": "Failed"}, "failed", "its provider says that it has failed", "make another Machine"),
        ({"approved_key": "ff"}, "approved", "a key was approved for it", "handfast machine explain fleet/m-1"),
        ({"addresses": ()}, "no name", "it has no InternalDNS name", "handfast machine explain fleet/m-1"),
        ({}, "waiting", "nobody has asked in its name yet", "handfast machine explain fleet/m-1"),
        (
            {"created": NOW - 3 * HOUR},
            "waiting",
            "nobody has asked in its name, and",
            "handfast machine explain fleet/m-1",
        ),
        ({"deleting": True}, "deleting", "", ""),
    ],
)
def test_a_machine_says_what_it_waits_for(more, state, problem, step):
    (row,) = rows(machine(**more))
    assert (row.state, row.next_step) == (state, step)
    assert row.problem.startswith(problem)
    assert bool(row.problem) == bool(problem)


def test_a_request_in_its_name_says_what_it_waits_for():
    asked = overview.Request("csr-1", "system:serviceaccount:x:y", NOW, "the address is another's")
    (row,) = rows(machine(), waiting={"m-1.example": (asked,)}.__getitem__)
    assert (row.problem, row.next_step) == ("the address is another's (csr-1)", "handfast csr explain csr-1")
    asked = overview.Request("csr-1", "jane", NOW, "")
    (row,) = rows(machine(), waiting={"m-1.example": (asked,)}.__getitem__)
    assert row.problem == "jane asks for its certificate, and nobody has decided (csr-1)"


def test_where_nodes_may_not_be_read_none_is_gone():
    (row,) = machines.all_rows([machine(node="n-2")], None, nobody, NOW)
    assert row.state == "joined"


def test_those_that_need_somebody_come_first():
    known = [
        machine("a", node="n-1"),
        machine("b"),
        machine("c", phase="Failed"),
        machine("d", node="gone"),
        machine("e"),
    ]
    assert [row.machine.name for row in rows(*known)] == ["c", "d", "b", "e", "a"]


def test_rows_are_found_by_words_and_by_state_and_sorted():
    known = rows(
        machine("a", node="n-1", role="master", annotations={inventory.MAC: "aa:bb:cc:dd:ee:ff"}),
        machine("b", created=NOW),
        machine("c", created=NOW - 9 * HOUR),
    )

    def asked(**query: str) -> list[str]:
        return [row.machine.name for row in machines.page(known, questions.read("/machines", query)).items]

    assert asked() == ["b", "c", "a"]
    assert asked(filter="AA:BB") == ["a"]
    assert asked(filter="fleet/b") == ["b"]
    assert asked(state="joined") == ["a"]
    assert asked(sort="name") == ["a", "b", "c"]
    assert asked(sort="created") == ["c", "a", "b"]
    assert asked(sort="role") == ["a", "b", "c"]
    assert asked(sort="-state") == ["c", "b", "a"]
    assert known[0].addresses == ("b.example", "10.0.0.7")


def follower(name: str, reason: str = "") -> following.Follower:
    return following.Follower(node=name, pool="worker", has_it=not reason, reason=reason, sentence="because")


def test_a_pool_says_how_many_have_it_and_who_is_behind_by_reason():
    late = [follower(f"n-{number}", following.WAITS_FOR_TURN) for number in range(7)]
    nodes = (follower("done"), follower("broken", following.DEGRADED), *late)
    fleet = rollout_progress.Fleet((rollout_progress.Progress(pool="worker", rendering="r-1", nodes=nodes),))
    (pool,) = machines.pools(fleet)
    assert (pool.machines, pool.have, pool.done) == (9, 1, 111.1)
    assert [(each.reason, each.count, len(each.some)) for each in pool.behind] == [
        (following.DEGRADED, 1, 1),
        (following.WAITS_FOR_TURN, 7, 5),
    ]


def test_a_pool_without_machines_is_at_nothing():
    (pool,) = machines.pools(rollout_progress.Fleet((rollout_progress.Progress(pool="empty"),)))
    assert (pool.machines, pool.done, pool.behind) == (0, 0.0, ())
