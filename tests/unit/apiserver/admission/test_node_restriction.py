# SPDX-License-Identifier: Apache-2.0
"""The plugin asks the rule with what the server knows, and answers as Kubernetes. The rule has tests of its own."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import status
from handfast.apiserver import identity
from handfast.apiserver.admission import node_restriction, plugin
from handfast.rules import access, decision
from tests.unit.apiserver import admission_world
from tests.unit.apiserver.admission_world import JANE, NODE

PODS = ("", "pods")
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "mynode", "uid": "mynode-uid", "controller": True}
MIRROR = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [OWNER],
    },
    "spec": {"nodeName": "mynode"},
}


@pytest.fixture
def world() -> admission_world.World:
    made = admission_world.World()
    made.put(("", "nodes"), "mynode")
    made.put(PODS, "mine", "ns", spec={"nodeName": "mynode"})
    made.put(PODS, "other", "ns", spec={"nodeName": "othernode"})
    return made


@pytest.mark.parametrize(
    "operation, facts",
    [
        pytest.param(plugin.CREATE, {"document": MIRROR, "name": "p"}, id="a mirror Pod, with the Node's UID"),
        pytest.param(plugin.DELETE, {"name": "mine"}, id="an own Pod"),
        pytest.param(plugin.CREATE, {"subresource": "eviction", "name": "mine", "document": {}}, id="an eviction"),
        pytest.param(plugin.CREATE, {"document": {"metadata": {}}, "user": JANE}, id="not a node"),
    ],
)
def test_what_is_the_nodes_own_is_admitted(world: admission_world.World, operation: str, facts: Any) -> None:
    asked = admission_world.write_of(operation, PODS, namespace="ns", **facts)
    node_restriction.admit(asked, world.context)


@pytest.mark.parametrize(
    "operation, resource, facts, why, message",
    [
        pytest.param(
            plugin.DELETE,
            PODS,
            {"name": "other"},
            "OtherNode",
            'pods "other" is forbidden: node "mynode" can only delete pods with spec.nodeName set to itself',
            id="another's Pod",
        ),
        pytest.param(
            plugin.CREATE,
            ("coordination.k8s.io", "leases"),
            {"name": "x", "document": {"metadata": {"name": "x"}}},
            "OtherNamespace",
            'leases.coordination.k8s.io "x" is forbidden: can only access leases in the "kube-node-lease" system '
            "namespace",
            id="a lease elsewhere",
        ),
        pytest.param(plugin.DELETE, PODS, {"name": "gone"}, "", 'pod "gone" not found', id="no such Pod"),
        pytest.param(
            plugin.CREATE,
            ("", "configmaps"),
            {"name": "c", "document": {}, "user": identity.User("x", ("system:nodes",))},
            "UnknownNode",
            'configmaps "c" is forbidden: could not determine node from user "x"',
            id="half a node",
        ),
    ],
)
def test_what_is_not_the_nodes_own_is_refused(
    world: admission_world.World, operation: str, resource: Any, facts: Any, why: str, message: str
) -> None:
    asked = admission_world.write_of(operation, resource, namespace="ns", **facts)
    with pytest.raises(status.StatusError) as refused:
        node_restriction.admit(asked, world.context)
    assert refused.value.message == message
    assert refused.value.code == (403 if why else 404)
    assert getattr(refused.value, "why", "") == why


def test_what_is_missing_is_named_in_the_details(world: admission_world.World) -> None:
    with pytest.raises(status.StatusError) as refused:
        node_restriction.admit(
            admission_world.write_of(plugin.DELETE, PODS, namespace="ns", name="gone"), world.context
        )
    assert refused.value.document()["details"] == {"name": "gone", "kind": "pod"}


@pytest.mark.parametrize("allowed", [True, False])
def test_the_authorizer_is_asked_for_audiences(allowed: bool) -> None:
    def decide(attributes: access.Attributes) -> decision.Decision:
        assert (attributes.user, attributes.verb, attributes.plural) == (
            NODE.name,
            "request-serviceaccounts-token-audience",
            "foo",
        )
        return decision.Approve("Test", "yes", "test") if allowed else admission_world.refuses(attributes)

    world = admission_world.World(decide)
    world.put(PODS, "mine", "ns", spec={"nodeName": "mynode"})
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": "mine-uid"}
    asked = admission_world.write_of(
        plugin.CREATE,
        ("", "serviceaccounts"),
        subresource="token",
        namespace="ns",
        name="robot",
        document={"spec": {"audiences": ["foo"], "boundObjectRef": bound}},
    )
    if allowed:
        node_restriction.admit(asked, world.context)
        return
    with pytest.raises(status.StatusError, match='not authorized to request tokens for audience "foo"'):
        node_restriction.admit(asked, world.context)


async def test_the_row_looks_at_every_write(world: admission_world.World) -> None:
    chain = plugin.Chain((node_restriction.ROW,), world.context)
    half = identity.User("x", ("system:nodes",))
    for operation in (plugin.CREATE, plugin.UPDATE, plugin.DELETE):
        for resource in (PODS, ("apps", "deployments")):
            with pytest.raises(status.StatusError, match="could not determine node"):
                await chain.run(admission_world.write_of(operation, resource, user=half))
