# SPDX-License-Identifier: Apache-2.0
"""Which Nodes and which MachineConfigs a pool selects."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import machine_config_kinds
from handfast.rules.machine_config import members, names, pools
from handfast.rules.nodes import restriction
from tests.unit.rules.machine_config.config_cases import V0, V1, pool

MASTER, WORKER, INFRA, INFRA2 = pool("master"), pool("worker"), pool("infra"), pool("infra2")


def labelled(name: str, *roles: str, **labels: str) -> members.Node:
    return members.Node(name=name, labels={**{f"node-role/{role}": "" for role in roles}, **labels})


# OpenShift's TestGetPrimaryPoolForNode.
@pytest.mark.parametrize(
    ("all_pools", "node", "name"),
    [
        pytest.param([MASTER, WORKER], members.Node(name="0", labels={"node-role": ""}), None, id="case#0"),
        pytest.param([MASTER, WORKER], labelled("0", "master"), "master", id="case#1"),
        pytest.param([MASTER, WORKER], labelled("0", "master", "worker"), "master", id="case#2"),
        pytest.param([MASTER, WORKER, INFRA], labelled("0", "worker", "infra"), "infra", id="case#3"),
        pytest.param([MASTER, WORKER, INFRA], labelled("0", "master", "infra"), "master", id="case#4"),
        pytest.param(
            [MASTER, WORKER, INFRA, INFRA2], labelled("0", "infra", "infra2"), ("infra", "infra2"), id="case#5"
        ),
        pytest.param(
            [pool(f"pool-{number}", labels={"node-role/master": ""}) for number in (1, 2)],
            members.Node(name="0", labels={"node-role": "master"}),
            None,
            id="case#6",
        ),
        pytest.param([WORKER], labelled("0", "worker", **{"kubernetes.io/os": "windows"}), None, id="case#7"),
        pytest.param([MASTER, WORKER], labelled("0", "worker"), "worker", id="a worker"),
        pytest.param([INFRA], labelled("0", "infra"), "infra", id="a pool of the operator's own alone"),
    ],
)
def test_get_primary_pool_for_node(all_pools: list[pools.Pool], node: members.Node, name: Any) -> None:
    chosen = pools.primary(all_pools, node)
    expected = pools.Contested(name) if isinstance(name, tuple) else name
    assert (chosen.name if isinstance(chosen, pools.Pool) else chosen) == expected


# OpenShift's TestGetNodesForPool.
@pytest.mark.parametrize(
    ("mine", "nodes", "count"),
    [
        pytest.param(
            MASTER, [members.Node(name="0", labels={"node-role": ""}), labelled("1", "worker")], 0, id="case#0"
        ),
        pytest.param(
            MASTER, [labelled("0", "master"), labelled("1", "master"), labelled("2", "worker")], 2, id="case#1"
        ),
        pytest.param(
            INFRA, [labelled("0", "master"), *(labelled(str(n), "worker", "infra") for n in (1, 2, 3))], 3, id="case#2"
        ),
        pytest.param(
            WORKER,
            [labelled("0", "worker"), labelled("w", "worker", **{"kubernetes.io/os": "windows"})],
            1,
            id="case#3",
        ),
        pytest.param(WORKER, [labelled("w", **{"kubernetes.io/os": "windows"})], 0, id="case#4"),
    ],
)
def test_get_nodes_for_pool(mine: pools.Pool, nodes: list[members.Node], count: int) -> None:
    assert len(pools.membership([mine], nodes).nodes[mine.name]) == count


def test_a_node_of_two_pools_is_in_none_and_both_are_named() -> None:
    both, alone = labelled("0", "infra", "infra2", "worker"), labelled("1")
    membership = pools.membership([WORKER, INFRA2, INFRA], [both, alone])
    assert not any(membership.nodes.values())
    assert membership.elsewhere == [alone]
    assert [(node.name, contested.sentence) for node, contested in membership.contested] == [
        ("0", "the pools infra, infra2 all select it: it is in none of them")
    ]


def test_annotations_move_no_node_into_a_pool() -> None:
    annotations = {names.CURRENT: "rendered-master-1", names.DESIRED: "rendered-master-1", "node-role/master": ""}
    node = members.read({"metadata": {"name": "0", "labels": {"node-role/worker": ""}, "annotations": annotations}})
    assert pools.primary([MASTER, WORKER], node) == WORKER


@pytest.mark.parametrize("role", machine_config_kinds.ROLES)
def test_the_pools_of_a_fleet_select_by_labels_that_no_node_may_write(role: str) -> None:
    selector = pools.read(machine_config_kinds.pool(role)).nodes.labels
    keys = [requirement.key for requirement in selector.requirements]
    assert keys
    assert not any(map(restriction.may_label, keys))


@pytest.mark.parametrize("selector", [{}, None, {"matchLabels": {}}, "x"])
def test_an_empty_selector_selects_none(selector: Any) -> None:
    empty = pools.read({"metadata": {"name": "all"}, "spec": {"nodeSelector": selector}})
    assert pools.primary([empty], labelled("0", "worker")) is None


def test_a_selector_that_cannot_be_read_selects_none_and_says_why() -> None:
    wrong = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    odd = pools.read({"metadata": {"name": "odd"}, "spec": {"nodeSelector": wrong, "machineConfigSelector": wrong}})
    assert pools.primary([odd], labelled("0", "worker")) is None
    assert "Like" in odd.nodes.trouble
    with pytest.raises(pools.NoConfigs, match=r"spec\.machineConfigSelector: .*Like") as refused:
        pools.configs_for(odd, [])
    assert refused.value.reason == pools.SELECTOR_UNREADABLE


def config(name: str, role: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {f"node-role/{role}": ""}, "annotations": annotations}}


CONFIGS = [config("05-extra-master", "master"), config("00-master", "master"), config("00-worker", "worker")]


def test_get_machine_configs_for_pool() -> None:
    """OpenShift's TestGetMachineConfigsForPool; but a pool that never had one is rendered from none."""
    chosen = pools.configs_for(MASTER, CONFIGS)
    assert [document["metadata"]["name"] for document in chosen] == ["00-master", "05-extra-master"]
    assert pools.configs_for(WORKER, CONFIGS[:2]) == []


def test_a_pool_that_was_rendered_from_something_is_never_rendered_from_nothing() -> None:
    had = pool("worker", configuration={"name": V0, "source": [{"name": "00-worker"}]})
    with pytest.raises(pools.NoConfigs, match="no MachineConfig has node-role/worker= any more") as refused:
        pools.configs_for(had, CONFIGS[:2])
    assert refused.value.reason == pools.NO_CONFIGS


def test_a_pool_without_a_selector_selects_no_machine_config() -> None:
    with pytest.raises(pools.NoConfigs, match="it names no label"):
        pools.configs_for(pools.read({"metadata": {"name": "all"}, "spec": {}}), CONFIGS)


def test_what_was_rendered_is_never_rendered_again() -> None:
    rendered = config("rendered-master-1", "master", **{names.CONFIGURATION: "sha256:11"})
    assert pools.configs_for(MASTER, [*CONFIGS, rendered]) == pools.configs_for(MASTER, CONFIGS)


def test_a_pool_is_read_as_it_is_written() -> None:
    document = {
        "metadata": {"name": "worker", "uid": "u", "resourceVersion": "5", "generation": 2},
        "spec": {
            "paused": True,
            "maxUnavailable": "50%",
            "configuration": {"name": V1, "source": [{"name": "00-worker"}, {"name": "99-x"}]},
        },
        "status": {"configuration": {"name": V0}},
    }
    read = pools.read(document)
    assert (read.target, read.sources) == (V1, ("00-worker", "99-x"))
    assert read == pools.Pool(
        name="worker",
        uid="u",
        version="5",
        generation=2,
        paused=True,
        max_unavailable="50%",
        configuration={"name": V1, "source": [{"name": "00-worker"}, {"name": "99-x"}]},
        settled=V0,
        status={"configuration": {"name": V0}},
    )
