# SPDX-License-Identifier: Apache-2.0
"""How far a credential has come, and whom it is worth waiting for."""

from __future__ import annotations

import dataclasses

import pytest

from handfast.api import machine_config_kinds
from handfast.rules.machine_config import credential, following, members, names, pools, rollout_progress

SEEN = credential.Seen(
    trusted=True,
    masters_kubeconfig=None,
    shared=credential.Token(text="a.token", ca=b"ca"),
    server="https://api-int.example:6443",
)
CHOSEN = credential.choose("worker", SEEN)
assert isinstance(CHOSEN, credential.Credential)
WANTED = f"{CHOSEN.kind} {CHOSEN.digest}"
NEW, OTHER, OLD = "rendered-worker-new", "rendered-worker-other", "rendered-worker-old"
RENDERINGS = {
    NEW: members.Rendering(NEW, WANTED, "sha256:c1"),
    OTHER: members.Rendering(OTHER, WANTED, "sha256:c0"),
    OLD: members.Rendering(OLD, "service-account sha256:before", "sha256:c1"),
}


def pool(name="worker", target=NEW, *, paused=False):
    spec = {**machine_config_kinds.pool(name)["spec"], "paused": paused, "configuration": {"name": target}}
    return pools.read({"metadata": {"name": name}, "spec": spec})


def node(name, current=NEW, *, role="worker", agent="v1", silent=False, state=names.DONE, desired=NEW):
    labels = {f"node-role.kubernetes.io/{role}": ""}
    return members.Node(
        name=name, labels=labels, current=current, desired=desired, state=state, agent=agent, silent=silent
    )


def one(pools_, nodes, seen=SEEN):
    (progress,) = rollout_progress.of(pools_, nodes, RENDERINGS, seen).pools
    return progress


def of(rows):
    return [row.node for row in rows]


def test_who_has_it_who_can_follow_and_who_cannot():
    progress = one(
        [pool()],
        [
            node("done"),
            node("elsewhere", OTHER),
            node("late", OLD),
            node("silent", OLD, silent=True),
            node("stock", "", agent=""),
        ],
    )
    assert progress.rendered
    assert of(progress.have) == ["done", "elsewhere"]
    assert of(progress.without) == ["late", "silent", "stock"]
    assert of(progress.expected) == ["late", "silent"]
    assert of(progress.able) == ["late"]
    assert of(progress.unable) == ["silent", "stock"]
    assert progress.state == rollout_progress.UPDATING


def test_nobody_has_it_before_the_pool_is_rendered_with_it():
    progress = one([pool(target=OLD)], [node("done", OLD, desired=OLD)])
    assert (progress.rendered, of(progress.have), of(progress.expected)) == (False, [], ["done"])
    assert progress.state == rollout_progress.UPDATING
    assert progress.waits(patient=False)


@pytest.mark.parametrize(
    ("nodes", "paused", "at_once", "patient"),
    [
        ([node("a")], False, False, False),
        ([node("a"), node("late", OLD)], False, True, True),
        ([node("a"), node("silent", OLD, silent=True)], False, False, True),
        ([node("late", OLD)], True, False, True),
        ([node("stock", agent="")], False, False, False),
        ([], False, False, False),
    ],
    ids=["all have it", "one is late", "one is silent", "paused", "no agent", "no nodes"],
)
def test_revoking_at_once_waits_for_those_who_can_and_patience_for_all_with_an_agent(nodes, paused, at_once, patient):
    progress = one([pool(paused=paused)], nodes)
    assert progress.waits(patient=False) is at_once
    assert progress.waits(patient=True) is patient


def test_a_pool_that_nobody_renders_is_waited_for_by_nobody():
    progress = one([pool(target="")], [node("a", "")])
    assert not progress.waits(patient=True)
    assert progress.state == rollout_progress.NOT_RENDERED


@pytest.mark.parametrize(
    ("nodes", "paused", "state"),
    [
        ([node("a")], False, "updated"),
        ([node("a")], True, "paused"),
        ([node("a", OLD)], False, "updating"),
        ([node("a", OLD, state=names.DEGRADED)], False, "degraded"),
        ([node("a"), node("b", "", agent="")], False, "not followed by all"),
    ],
)
def test_the_state_of_a_pool(nodes, paused, state):
    # What is wrong with the pool itself comes first, though every machine has its rendering.
    degraded = dataclasses.replace(one([pool(paused=paused)], nodes), trouble="RenderDegraded: MachineConfig 99-x")
    assert degraded.state == "degraded"
    assert one([pool(paused=paused)], nodes).state == state


def test_without_a_credential_it_is_told_why():
    progress = one([pool()], [node("a")], credential.Seen())
    assert (progress.kind, progress.rendered) == ("", False)
    assert "node-bootstrapper-token has no token" in progress.missing


def test_which_pools_a_credential_concerns():
    fleet = rollout_progress.Fleet(
        (
            rollout_progress.Progress(pool="infra", kind=names.SERVICE_ACCOUNT),
            rollout_progress.Progress(pool="master", kind=names.CERTIFICATE),
            rollout_progress.Progress(pool="worker"),
        )
    )
    assert [each.pool for each in fleet.concerned("master")] == ["master"]
    assert [each.pool for each in fleet.concerned("worker")] == ["infra", "worker"]


def test_pools_are_in_order_and_nodes_of_no_pool_are_told_apart():
    fleet = rollout_progress.of([pool(), pool("master")], [node("x", role="other"), node("m", role="master")], {}, SEEN)
    assert [each.pool for each in fleet.pools] == ["master", "worker"]
    assert [(row.node, row.reason) for row in fleet.outside] == [("x", following.NO_POOL)]


def test_what_is_foreseen_names_those_who_could_not_follow():
    nodes = [node("a"), node("silent", silent=True), node("stock", agent="")]
    (progress,) = rollout_progress.foreseen([pool()], nodes, SEEN).pools
    assert of(progress.able) == ["a"]
    # What there is, not the name of what would be.
    assert progress.rendering == NEW
    assert {row.node: row.reason for row in progress.unable} == {"silent": "NodeSilent", "stock": "NoAgent"}
    (progress,) = rollout_progress.foreseen([pool(paused=True)], nodes, SEEN).pools
    assert [row.reason for row in progress.unable] == ["Paused", "Paused", "NoAgent"]


def test_who_may_see_no_credential_is_told_what_the_rendering_names():
    fleet = rollout_progress.as_rendered(
        [pool(), pool("master", target="gone")], [node("a"), node("b", OLD)], RENDERINGS
    )
    master, worker = fleet.pools
    assert (worker.kind, worker.rendered, worker.missing) == (names.SERVICE_ACCOUNT, True, "")
    assert of(worker.late) == ["b"]
    assert (master.kind, master.rendered) == ("", False)
