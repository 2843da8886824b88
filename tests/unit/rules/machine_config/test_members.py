# SPDX-License-Identifier: Apache-2.0
"""What a Node tells of its configuration."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.machine_config import members, names
from tests.unit.rules.machine_config.config_cases import V0, V1, V2, node

READY_TRUE = {"type": "Ready", "status": "True"}
READY_FALSE = {"type": "Ready", "status": "False"}
PRESSED = {"type": "DiskPressure", "status": "True"}
UNPRESSED = {"type": "DiskPressure", "status": "False"}
CUT_OFF = {"type": "NetworkUnavailable", "status": "True"}


# OpenShift's TestIsNodeReady.
@pytest.mark.parametrize(
    ("conditions", "cordoned", "ready"),
    [
        pytest.param([READY_TRUE], None, True, id="node1"),
        pytest.param([READY_FALSE], None, False, id="node2"),
        pytest.param([PRESSED], None, False, id="node3"),
        pytest.param([UNPRESSED], None, True, id="node4"),
        pytest.param([READY_TRUE, PRESSED], None, False, id="node5"),
        pytest.param([READY_TRUE, UNPRESSED], None, True, id="node6"),
        pytest.param([READY_FALSE, PRESSED], None, False, id="node7"),
        pytest.param([READY_FALSE, UNPRESSED], None, False, id="node8"),
        pytest.param([], True, False, id="node9"),
        pytest.param([], False, True, id="node10"),
        pytest.param([], None, True, id="node11"),
        pytest.param([READY_TRUE, CUT_OFF], None, False, id="without a network"),
    ],
)
def test_is_node_ready(conditions: list[Any], cordoned: bool | None, ready: bool) -> None:
    document = {"metadata": {"name": "a"}, "spec": {"unschedulable": cordoned}, "status": {"conditions": conditions}}
    assert members.read(document).ready is ready


def test_a_node_is_read_as_it_is_written() -> None:
    annotations = {
        names.CURRENT: V0,
        names.DESIRED: V1,
        names.STATE: names.DEGRADED,
        names.REASON: "no room",
        names.AGENT: "v1",
        "machine.openshift.io/machine": "openshift-machine-api/w1",
    }
    metadata = {
        "name": "a",
        "uid": "u",
        "resourceVersion": "5",
        "creationTimestamp": "2030-01-01T00:00:00Z",
        "labels": {"kubernetes.io/os": "windows"},
        "annotations": annotations,
    }
    status = {"conditions": [READY_FALSE], "nodeInfo": {"kubeletVersion": "v1.33.1"}}
    read = members.read({"metadata": metadata, "status": status})
    assert read == members.Node(
        name="a",
        uid="u",
        version="5",
        created="2030-01-01T00:00:00Z",
        labels={"kubernetes.io/os": "windows"},
        current=V0,
        desired=V1,
        state=names.DEGRADED,
        reason="no room",
        agent="v1",
        ready=False,
        silent=True,
        kubelet_version="v1.33.1",
        machine="openshift-machine-api/w1",
    )
    assert (read.follows, read.windows, read.done, read.degraded, read.failing) == (True, True, False, True, True)


@pytest.mark.parametrize("document", [{}, {"metadata": {"annotations": [], "labels": 3}, "status": {"conditions": 1}}])
def test_what_has_another_shape_counts_as_absent(document: dict[str, Any]) -> None:
    assert members.read(document) == members.Node(name="")


# OpenShift's TestGetUnavailableMachines, but for those with images.
@pytest.mark.parametrize(
    ("nodes", "unavailable"),
    [
        pytest.param([], [], id="no nodes"),
        pytest.param([node("0", V0, V0), node("1", V1, V1), node("2", V0, V1)], ["2"], id="1 in progress"),
        pytest.param(
            [node("0", V0, V0), node("1", V1, V1, ready=False), node("2", V0, V1)],
            ["1", "2"],
            id="1 unavail, 1 in progress",
        ),
        pytest.param(
            [node("0", V0, V1), node("1", V2, V2), node("2", V0, V2)],
            ["0", "2"],
            id="1 node updated, 1 updating, 1 updating but not v2 and is ready",
        ),
        pytest.param(
            [node("0", V0, V1, ready=False), node("1", V2, V2), node("2", V0, V2)],
            ["0", "2"],
            id="1 node updated, 1 updating, 1 updating but not v2 and is not ready",
        ),
        pytest.param(
            [node("0", V0, V1), node("1", V1, V1), node("2", V1, V1, ready=False)],
            ["0", "2"],
            id="2 node updated, 1 updating, but one updated node is NotReady",
        ),
        pytest.param([node("0", V0, V1, state=names.UNRECONCILABLE)], [], id="one that gave up can be sent elsewhere"),
        pytest.param([node("0", V0, ""), node("1")], [], id="who was never told anything works at nothing"),
    ],
)
def test_get_unavailable_machines(nodes: list[members.Node], unavailable: list[str]) -> None:
    assert [each.name for each in nodes if members.unavailable(each, {})] == unavailable


SAME = {
    V0: members.Rendering(V0, "service-account sha256:aa", "sha256:11"),
    V1: members.Rendering(V1, "service-account sha256:bb", "sha256:11"),
    V2: members.Rendering(V2, "service-account sha256:bb", "sha256:22"),
}


def test_a_new_credential_makes_nobody_unavailable() -> None:
    assert not members.unavailable(node("0", V0, V1), SAME)
    assert members.unavailable(node("0", V0, V1, ready=False), SAME)
    assert members.unavailable(node("0", V1, V2), SAME)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [(V0, V1, True), (V1, V0, True), (V1, V2, False), (V2, V2, True), (V0, "gone", False), ("gone", V0, False)],
)
def test_two_renderings_are_alike_when_the_digest_without_the_credential_is(one: str, other: str, alike: bool) -> None:
    assert members.alike(one, other, SAME) is alike


def test_renderings_without_a_digest_are_alike_in_nothing() -> None:
    empty = {V0: members.Rendering(V0), V1: members.Rendering(V1)}
    assert not members.alike(V0, V1, empty)


def test_a_rendering_is_read_by_its_annotations() -> None:
    annotations = {names.CREDENTIAL: "certificate sha256:aa", names.CONFIGURATION: "sha256:11"}
    owners = [{"kind": "Other", "name": "x"}, {"kind": "MachineConfigPool", "name": "master"}]
    document = {"metadata": {"name": V0, "annotations": annotations, "ownerReferences": owners}}
    assert members.read_rendering(document) == members.Rendering(V0, "certificate sha256:aa", "sha256:11", "master")
    assert members.read_rendering({}) == members.Rendering("")


def test_sort_node_list() -> None:
    """OpenShift's TestSortNodeList."""

    def born(name: str, created: str, zone: str | None) -> members.Node:
        labels = {} if zone is None else {"topology.kubernetes.io/zone": zone}
        return members.Node(name=name, created=created, labels=labels)

    old, newer, newest = "1970-01-01T00:00:00Z", "1970-01-01T00:01:40Z", "1970-01-01T00:25:00Z"
    ordered = [
        born("node-1", old, "QQQ"),
        born("node-2", old, "RRR"),
        born("node-3", newer, "RRR"),
        born("node-4", old, "ZZZ"),
        born("node-5", newer, "ZZZ"),
        born("node-6", newest, "ZZZ"),
        born("node-7", old, None),
        born("node-8", newer, None),
        born("node-9", newest, None),
    ]
    assert sorted(ordered[4:] + ordered[:4], key=lambda each: each.order) == ordered
