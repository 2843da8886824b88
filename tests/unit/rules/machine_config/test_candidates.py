# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to be sent to a pool's rendering."""

from __future__ import annotations

import pytest

from handfast.rules.machine_config import candidates, members, names
from tests.unit.rules.machine_config.config_cases import V0, V1, V2, node, pool

POOL = pool(target=V1)
FAILED = names.DEGRADED
WAS_DONE = names.DONE


def dead(name: str, current: str, desired: str) -> members.Node:
    return node(name, current, desired, ready=False)


# OpenShift's TestGetCandidateMachines, but for those with images.
@pytest.mark.parametrize(
    ("nodes", "limit", "in_turn", "waiting", "capacity"),
    [
        pytest.param(
            [node("0", V1, V1), node("1", V1, V1), node("2", V1, V1)], 1, "", "", 1, id="no progress - capacity 1"
        ),
        pytest.param(
            [node("0", V1, V1), node("1", V1, V1), dead("2", V1, V1)], 1, "", "", 0, id="no progress - capacity 0"
        ),
        pytest.param(
            [node("0", V1, V1), dead("1", V1, V1), node("2", V0, V1)],
            1,
            "",
            "",
            0,
            id="no progress because we have an unavailable node",
        ),
        pytest.param(
            [dead("0", V0, V0), node("1", V0, V0), node("2", V0, V0)],
            2,
            "1",
            "2",
            1,
            id="node-0 is unavailable and should be skipped over",
        ),
        pytest.param(
            [node("0", V1, V1), dead("1", V1, V1), node("2", V0, V1), node("3", V0, V0), node("4", V0, V0)],
            3,
            "3",
            "4",
            1,
            id="node-2 is going to change config, so we can only progress one more",
        ),
        pytest.param(
            [node("0", V1, V1), node("1", V1, V1), node("2", V0, V1), node("3", V0, V0), node("4", V0, V0)],
            1,
            "",
            "34",
            0,
            id="We have a node working, don't start anything else",
        ),
        pytest.param(
            [node("0", V1, V1), node("1", "v0.1", "v0.2", state=FAILED), node("2", V0, V0)],
            1,
            "1",
            "2",
            1,
            id="progress on old stuck node",
        ),
        pytest.param(
            [node("0", V1, V1), node("1", V1, V1, state=FAILED), node("2", V0, V0)],
            1,
            "",
            "2",
            0,
            id="Don't change a degraded node to same config, but also don't start another",
        ),
        pytest.param(
            [node("0", V1, V1), node("1", V1, V1), node("2", V1, V2, state=FAILED), node("3", V1, V1)],
            1,
            "2",
            "",
            1,
            id="Must be able to roll back",
        ),
        pytest.param(
            [node("0", V1, V1), node("2", V1, V2, state=WAS_DONE), node("3", V1, V1)],
            1,
            "",
            "2",
            0,
            id="Validate we also don't affect nodes which haven't started work",
        ),
        pytest.param(
            [
                node("0", V1, V1),
                dead("1", V1, V1),
                node("2", V0, V1),
                *(node(name, V0, V0) for name in "3456"),
                node("7", V1, V1),
                node("8", V1, V1),
            ],
            4,
            "34",
            "56",
            2,
            id="More nodes in mixed order",
        ),
    ],
)
def test_get_candidate_machines(
    nodes: list[members.Node], limit: int, in_turn: str, waiting: str, capacity: int
) -> None:
    plan = candidates.plan(POOL, nodes, {}, limit)
    assert plan == candidates.Plan((), tuple(in_turn), tuple(waiting), capacity)
    assert plan.sent == tuple(in_turn)


def test_who_failed_at_this_rendering_takes_a_place() -> None:
    nodes = [node("0", V0, V1, state=FAILED), node("1", V0, V0)]
    assert candidates.plan(POOL, nodes, {}, 1).in_turn == ()
    assert candidates.plan(POOL, nodes, {}, 2).in_turn == ("1",)


@pytest.mark.parametrize("limit", [None, 1])
def test_paused_pools_send_nobody(limit: int | None) -> None:
    """OpenShift's TestPaused: nobody is sent; a new credential is no exception."""
    nodes = [node("0", V1, V1), node("1", V0, V0), node("2", V2, V2), node("3")]
    assert candidates.plan(pool(target=V1, paused=True), nodes, SAME, limit) == candidates.Plan()


def test_empty_current_machine_config() -> None:
    """OpenShift's TestEmptyCurrentMachineConfig: a pool without a rendering sends nobody."""
    assert candidates.plan(pool(target=""), [node("0", V0, V0)], {}, 1) == candidates.Plan()


# V1 is V0 with a new credential; V2 is another configuration.
SAME = {
    V0: members.Rendering(V0, "service-account sha256:aa", "sha256:11"),
    V1: members.Rendering(V1, "service-account sha256:bb", "sha256:11"),
    V2: members.Rendering(V2, "service-account sha256:bb", "sha256:22"),
}


@pytest.mark.parametrize("limit", [None, 1])
def test_a_new_credential_goes_to_all_at_once(limit: int | None) -> None:
    nodes = [node(f"{number:03}", V0, V0) for number in range(300)]
    nodes += [dead("dead", V0, V0), node("failed", V0, V0, state=FAILED)]
    assert len(candidates.plan(POOL, nodes, SAME, limit).at_once) == 302


def test_a_new_credential_does_not_hold_up_a_configuration() -> None:
    nodes = [node("0", V0, V1), node("1", V2, V2)]
    assert candidates.plan(POOL, nodes, SAME, 1) == candidates.Plan((), ("1",), (), 1)


def test_a_node_that_is_never_done_keeps_no_credential_from_others() -> None:
    nodes = [node("liar", V2, V0), node("0", V0, V0), node("1", V0, V0)]
    assert candidates.plan(POOL, nodes, SAME, 1).at_once == ("0", "1", "liar")


def test_nobody_has_a_turn_while_max_unavailable_cannot_be_read() -> None:
    nodes = [node("0", V2, V2), node("1"), node("2", V0, V0)]
    plan = candidates.plan(POOL, nodes, SAME, None)
    assert (plan.at_once, plan.in_turn) == (("2",), ())
    assert set(plan.waiting) == {"0", "1"}


def test_who_has_nothing_gets_it_at_once_as_at_the_first_boot() -> None:
    nodes = [node(str(number)) for number in range(3)]
    assert candidates.plan(POOL, nodes, {}, 1).at_once == ("0", "1", "2")


def test_who_has_it_already_is_told_so_at_once() -> None:
    nodes = [node("0", V1, ""), node("1", V0, "")]
    assert candidates.plan(POOL, nodes, {}, 1) == candidates.Plan(("0",), ("1",), (), 1)


def test_who_has_no_agent_is_never_sent_and_holds_nobody_up() -> None:
    nodes = [node("0", V0, V2, agent=""), node("1", V0, V0)]
    assert candidates.plan(POOL, nodes, {}, 1).sent == ("1",)


def test_a_node_that_writes_its_own_desired_config_is_sent_back() -> None:
    for desired in (V0, "rendered-master-1", "../x"):
        assert candidates.plan(POOL, [node("0", desired, desired), node("1", V1, V1)], {}, 1).in_turn == ("0",)


def test_a_lie_about_being_done_lets_no_more_through_than_the_liar() -> None:
    others = [node(str(number), V0, V0) for number in range(5)]
    for liars in ([node("liar", V1, V1)], [node("liar", V0, V1, state=WAS_DONE)], [node("liar", V1, V1, ready=False)]):
        assert len(candidates.plan(POOL, [*liars, *others], {}, 1).sent) <= 1


def test_who_says_it_has_nothing_moves_only_itself() -> None:
    before = [node("liar"), node("0", V0, V0), node("1", V0, V0)]
    assert candidates.plan(POOL, before, {}, 1).sent == ("liar", "0")
    after = [node("liar", "", V1), node("0", V0, V1), node("1", V0, V0)]
    assert candidates.plan(POOL, after, {}, 2).sent == ()
