# SPDX-License-Identifier: Apache-2.0
"""The node graph after any events equals one built from what is left, and answers as a walk over the objects does."""

from __future__ import annotations

import collections
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.rules.nodes import graph as node_graph
from handfast.rules.nodes import references as node_references
from handfast.rules.nodes.references import CLAIMS, CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS, VOLUMES

NODES = ["", "a", "b", "c"]
NAMESPACES = ["x", "y"]
NAMES = ["m", "n"]

references = st.frozensets(
    st.tuples(st.sampled_from([SECRETS, CONFIG_MAPS, CLAIMS, SERVICE_ACCOUNTS]), st.sampled_from(NAMES)), max_size=5
)
pods = st.builds(
    node_references.Pod,
    namespace=st.sampled_from(NAMESPACES),
    name=st.sampled_from([*NAMES, "o"]),
    node=st.sampled_from(NODES),
    references=references,
)
places = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
claimed = st.builds(
    node_references.Volume,
    name=st.sampled_from([*NAMES, "o"]),
    claim=places,
    secrets=st.frozensets(places, max_size=3).map(lambda found: tuple(sorted(found))),
)
volumes = claimed | st.builds(node_references.Volume, name=st.sampled_from([*NAMES, "o"]))
attachments = st.tuples(st.sampled_from(NAMES), st.sampled_from(NODES))
events = st.one_of(
    st.tuples(st.sampled_from(["set pod", "remove pod"]), pods),
    st.tuples(st.sampled_from(["set pv", "remove pv"]), volumes),
    st.tuples(st.sampled_from(["set attachment", "remove attachment"]), attachments),
)


class World:
    """The objects there are."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], node_references.Pod] = {}
        self.volumes: dict[str, node_references.Volume] = {}
        self.attachments: dict[str, str] = {}

    def apply(self, graph: node_graph.NodeGraph, event: str, told: Any) -> None:
        """One event, here and in the graph."""
        match event:
            case "set pod":
                self.pods[told.namespace, told.name] = told
                graph.set_pod(told)
            case "remove pod":
                self.pods.pop((told.namespace, told.name), None)
                graph.remove_pod(told.namespace, told.name)
            case "set pv":
                self.volumes[told.name] = told
                graph.set_pv(told)
            case "remove pv":
                self.volumes.pop(told.name, None)
                graph.remove_pv(told.name)
            case "set attachment":
                self.attachments[told[0]] = told[1]
                graph.set_attachment(*told)
            case _:
                self.attachments.pop(told[0], None)
                graph.remove_attachment(told[0])

    def rebuilt(self) -> node_graph.NodeGraph:
        graph = node_graph.NodeGraph()
        for volume in self.volumes.values():
            graph.set_pv(volume)
        for pod in self.pods.values():
            graph.set_pod(pod)
        for name, node in self.attachments.items():
            graph.set_attachment(name, node)
        return graph

    def leads(self) -> dict[tuple[str, str, str], set[str]]:
        """Every object and the nodes it leads to, by walking from the nodes."""
        found: dict[tuple[str, str, str], set[str]] = collections.defaultdict(set)
        for pod in self.pods.values():
            if pod.node:
                for kind, name in (*pod.references, (PODS, pod.name)):
                    found[kind, pod.namespace, name].add(pod.node)
        through: dict[tuple[str, str, str], set[str]] = collections.defaultdict(set)
        for volume in self.volumes.values():
            if volume.claim is not None:
                nodes = found.get((CLAIMS, *volume.claim), set())
                for key in ((VOLUMES, "", volume.name), *((SECRETS, *secret) for secret in volume.secrets)):
                    through[key] |= nodes
        for key, nodes in through.items():
            found[key] |= nodes
        for name, node in self.attachments.items():
            found[node_references.ATTACHMENTS, "", name] |= {node} - {""}
        return found


def held(graph: node_graph.NodeGraph) -> dict[str, Any]:
    """Everything a graph holds, in a form without order: equal for equal objects, whatever led there."""
    return {
        "pods": {
            (namespace, name): (placed.node, {vertex.key for vertex in placed.vertices})
            for namespace, pods in graph._pods.items()
            for name, placed in pods.items()
        },
        "namespaces": set(graph._pods),
        "volumes": graph._volumes,
        "attachments": graph._attachments,
        "counts": {
            key: ({vertex.node: vertex.count} if vertex.node else {}) | (vertex.others or {})
            for key, vertex in graph._vertices.items()
        },
        "sources": {key: sorted(sources) for key, sources in graph._sources.items()},
    }


@given(st.lists(events, max_size=25))
@settings(max_examples=120)
def test_any_events_come_to_the_same_as_starting_over(told: list[tuple[str, Any]]) -> None:
    world, graph = World(), node_graph.NodeGraph()
    for event in told:
        world.apply(graph, *event)
    assert held(graph) == held(world.rebuilt())


@given(st.lists(events, max_size=25))
@settings(max_examples=100)
def test_it_answers_as_a_walk_does(told: list[tuple[str, Any]]) -> None:
    world, graph = World(), node_graph.NodeGraph()
    for event in told:
        world.apply(graph, *event)
    expected = world.leads()
    kinds = [SECRETS, CONFIG_MAPS, CLAIMS, SERVICE_ACCOUNTS, PODS, VOLUMES, node_references.ATTACHMENTS]
    for kind in kinds:
        for namespace in ("", *NAMESPACES):
            for name in (*NAMES, "o"):
                nodes = {node for node in NODES if graph.reaches(kind, namespace, name, node)}
                assert nodes == expected.get((kind, namespace, name), set()), (kind, namespace, name)


@given(st.lists(events, max_size=25))
@settings(max_examples=50)
def test_nothing_is_left_of_what_is_gone(told: list[tuple[str, Any]]) -> None:
    world, graph = World(), node_graph.NodeGraph()
    for event in told:
        world.apply(graph, *event)
    for namespace, name in world.pods:
        graph.remove_pod(namespace, name)
    for name in world.volumes:
        graph.remove_pv(name)
    for name in world.attachments:
        graph.remove_attachment(name)
    assert not any(vars(graph).values())


FIELDS = st.sampled_from(
    [
        "metadata",
        "annotations",
        "kubernetes.io/config.mirror",
        "spec",
        "nodeName",
        "volumes",
        "name",
        "secret",
        "secretName",
        "configMap",
        "projected",
        "sources",
        "csi",
        "nodePublishSecretRef",
        "ephemeral",
        "containers",
        "env",
        "valueFrom",
        "secretKeyRef",
        "envFrom",
        "secretRef",
        "claimRef",
        "namespace",
        "rbd",
        "azureFile",
        "resourceClaims",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "status",
        "resourceClaimStatuses",
    ]
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=6),
    max_leaves=25,
)


@given(documents, documents)
@settings(max_examples=100)
def test_no_document_is_too_odd(document: Any, spec: Any) -> None:
    for odd in (document, {"spec": spec}, {"spec": {"nodeName": "a", "volumes": [spec], "containers": [document]}}):
        pod = node_references.pod("ns", "p", odd)
        assert all(type(part) is str and part != "" for reference in pod.references for part in reference)
        volume = node_references.volume("v", odd)
        assert all(type(part) is str and part != "" for secret in volume.secrets for part in secret)
        assert isinstance(node_references.attachment(odd), str)
