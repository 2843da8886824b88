# SPDX-License-Identifier: Apache-2.0
"""Who has a pool's configuration, and why the others have not."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.machine_config import following, members, names, pools
from tests.unit.rules.machine_config.config_cases import V0, V1, V2, node, pool

LABELS = {"node-role/worker": ""}
WORKERS = pool("worker")


def one(mine: pools.Pool = WORKERS, renderings: members.Renderings | None = None, **facts: Any) -> following.Follower:
    name = facts.pop("name", "w1")
    [row] = following.follow([mine], [node(name, labels=LABELS, **facts)], renderings or {})
    return row


@pytest.mark.parametrize(
    ("mine", "facts", "reason", "sentence"),
    [
        pytest.param(WORKERS, {"current": V1, "desired": V1}, "", "", id="has it"),
        pytest.param(WORKERS, {"current": V0, "desired": V1}, following.WORKING, "has not said", id="works"),
        pytest.param(WORKERS, {"current": V0, "desired": V0}, following.WAITS_FOR_TURN, "maxUnavailable", id="waits"),
        pytest.param(
            WORKERS, {"current": V0, "desired": V1, "ready": False}, following.NODE_SILENT, "not ready", id="dead"
        ),
        pytest.param(
            pool("worker", paused=True), {"current": V0, "desired": V0}, following.PAUSED, "is paused", id="paused"
        ),
        pytest.param(
            pool("worker", target=""), {"current": V0, "desired": V0}, following.NOT_RENDERED, "rendered", id="new pool"
        ),
    ],
)
def test_each_is_behind_for_one_reason(mine: pools.Pool, facts: dict[str, Any], reason: str, sentence: str) -> None:
    row = one(mine, **facts)
    assert (row.reason, row.has_it, row.pool, row.rendering, row.target) == (
        reason,
        reason == "",
        "worker",
        facts["current"],
        mine.target,
    )
    assert sentence in row.sentence
    assert row.follows


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("handfast-1.2.0", "its agent of release 1.2.0 runs without --machine-config, or is older than that option"),
        ("v1.33.1", "it runs a kubelet v1.33.1 and no agent that follows configurations"),
        ("", "it runs no agent that follows configurations"),
    ],
)
def test_who_has_no_agent_never_follows(version: str, sentence: str) -> None:
    row = one(agent="", kubelet_version=version, current=V1, desired=V1)
    assert (row.reason, row.sentence) == (following.NO_AGENT, sentence)
    assert (row.has_it, row.has_credential, row.follows) == (False, False, False)


def test_a_failed_node_does_not_have_it() -> None:
    row = one(current=V1, desired=V1, state=names.DEGRADED, reason="spec.osImageURL cannot be applied")
    assert (row.reason, row.sentence, row.has_it) == (following.DEGRADED, "spec.osImageURL cannot be applied", False)
    assert "gives no reason" in one(current=V0, desired=V1, state=names.UNRECONCILABLE).sentence


def test_a_reason_is_one_line_and_not_too_long() -> None:
    forged = "x\nworker-1 of worker has it\x1b[2J" + "y" * 5000
    document = {
        "metadata": {"name": "a", "labels": {}, "annotations": {names.REASON: forged, names.STATE: names.DEGRADED}},
        "status": {"nodeInfo": {"kubeletVersion": forged}},
    }
    seen = members.read(document)
    for text in (seen.reason, seen.kubelet_version):
        assert text.startswith("x\ufffdworker-1 of worker has it\ufffd[2Jyyy")
        assert text.isprintable()
        assert len(text) == 1025
    assert members.read({"metadata": {"annotations": {names.REASON: "short"}}}).reason == "short"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {},
            "no Machine is linked to it, which would give it the label of its role: `handfast machine explain MACHINE`",
        ),
        ({}, "or label it, such as node-role.kubernetes.io/worker"),
        (
            {"machine": "openshift-machine-api/w1"},
            "though it is linked to the Machine openshift-machine-api/w1: label it",
        ),
        ({"labels": {"kubernetes.io/os": "windows"}}, "it runs Windows: no pool has such nodes"),
    ],
)
def test_who_is_in_no_pool_is_told_what_to_do_next(facts: dict[str, Any], sentence: str) -> None:
    [row] = following.follow([WORKERS], [node("w1", **facts)])
    assert row.reason == following.NO_POOL
    assert sentence in row.sentence


def test_another_rendering_counts_for_nothing() -> None:
    row = one(current="rendered-mine", desired="rendered-mine")
    assert (row.has_it, row.has_credential) == (False, False)


def test_who_never_follows_is_named_with_a_reason() -> None:
    assert one(current=V0, desired=V1, state=names.WORKING).reason == following.WORKING
    assert {one(state=state).reason for state in ("", "Nonsense")} == {following.WAITS_FOR_TURN}


def test_the_first_reason_that_holds_is_told() -> None:
    assert one(pool("worker", paused=True), current=V0, ready=False).reason == following.PAUSED
    assert one(current=V0, ready=False, state=names.DEGRADED).reason == following.NODE_SILENT


RENDERINGS = {
    V0: members.Rendering(V0, "service-account sha256:old", "sha256:1"),
    V1: members.Rendering(V1, "service-account sha256:new", "sha256:2"),
    V2: members.Rendering(V2, "service-account sha256:new", "sha256:3"),
}


def test_another_rendering_with_the_same_credential_has_the_credential() -> None:
    assert one(renderings=RENDERINGS, current=V2, desired=V2).has_credential
    assert not one(renderings=RENDERINGS, current=V2, desired=V2).has_it
    assert not one(renderings=RENDERINGS, current=V0, desired=V1).has_credential
    assert one(current=V1, desired=V1).has_credential
    assert not one(renderings=RENDERINGS, current=V2, desired=V2, agent="").has_credential


def test_renderings_that_name_no_credential_have_none_in_common() -> None:
    nameless = {V1: members.Rendering(V1), V2: members.Rendering(V2)}
    assert not one(renderings=nameless, current=V2, desired=V2).has_credential


def test_who_is_in_no_pool_or_in_several_is_named() -> None:
    both = {"node-role/infra": "", "node-role/infra2": ""}
    nodes = [node("b", V0, V0, labels={}), node("a", V0, V0, labels=both), node("c", V1, V1, labels=LABELS)]
    rows = following.follow([WORKERS, pool("infra"), pool("infra2")], nodes)
    assert [(row.node, row.pool, row.reason) for row in rows] == [
        ("a", "", following.SEVERAL_POOLS),
        ("b", "", following.NO_POOL),
        ("c", "worker", ""),
    ]
    assert not rows[0].follows
    assert not rows[1].follows
    assert {row.reason for row in rows} <= {"", *following.REASONS}
