# SPDX-License-Identifier: Apache-2.0
"""Which objects lead to which node: kept current event by event, and asked in constant time. It decides no access.

Edges point toward nodes:

    Pod → node                              VolumeAttachment → node
    Secret, ConfigMap, PersistentVolumeClaim, ServiceAccount, ResourceClaim → Pod
    PersistentVolume → PersistentVolumeClaim        Secret → PersistentVolume

Every object that leads anywhere has a count per node: how many of the objects it points to lead to that node. Only a
count that leaves or reaches zero is passed on, to what points here. So a question is one look-up however large the
cluster, and a Pod's event costs what the Pod refers to, however many others share it. An object that leads nowhere is
not kept: what only a Pod of the past referred to costs nothing.

Edges of a Pod last until the Pod is deleted, not until it has ended: the kubelet still has to clean up.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from handfast.rules.nodes import references

# Plural, namespace, name.
Key = tuple[str, str, str]


class Vertex(msgspec.Struct, gc=False):
    """How often one object leads to each node.

    Most lead to one node only (a claim of one Pod): that one is held without a dictionary, which would be most of the
    memory. There are no cycles from here, so the collector need not look at hundreds of thousands of them.
    """

    key: Key
    node: str = ""
    count: int = 0
    others: dict[str, int] | None = None

    def gain(self, node: str) -> bool:
        """Count one more; true if it is the first for this node."""
        if node == self.node:
            self.count += 1
            return False
        others = self.others
        if others is not None and node in others:
            others[node] += 1
            return False
        if not self.node:
            self.node, self.count = node, 1
        elif others is None:
            self.others = {node: 1}
        else:
            others[node] = 1
        return True

    def lose(self, node: str) -> bool:
        """Count one less; true if it was the last for this node."""
        if node == self.node:
            self.count -= 1
            if self.count:
                return False
            self.node = ""
            return True
        others = self.others or {}
        others[node] -= 1
        if others[node]:
            return False
        del others[node]
        if not others:
            self.others = None
        return True

    def leads_to(self, node: str) -> bool:
        return node == self.node or (self.others is not None and node in self.others)

    def nodes(self) -> Iterator[str]:
        if self.node:
            yield self.node
        if self.others is not None:
            yield from self.others


class _Placed(msgspec.Struct, frozen=True, gc=False):
    """A Pod on its node, and the objects it makes lead there."""

    node: str
    vertices: tuple[Vertex, ...]


class NodeGraph:
    """The graph. The strings it is given are kept: whoever feeds it should give the same one for the same name."""

    def __init__(self) -> None:
        # By namespace, then by name: one dictionary with pairs as keys would take a tuple more for every Pod.
        self._pods: dict[str, dict[str, _Placed]] = {}
        self._volumes: dict[str, references.Volume] = {}
        self._attachments: dict[str, str] = {}
        # Claims, volumes, and everything Pods refer to: those that lead to a node now.
        self._vertices: dict[Key, Vertex] = {}
        # Which volumes point to a claim, and which Secrets to a volume, whether they lead to a node or not.
        self._sources: dict[Key, tuple[Key, ...]] = {}

    def reaches(self, kind: str, namespace: str, name: str, node: str) -> bool:
        """Whether an object (plural, namespace, name) leads to a node; no object leads to a node without a name."""
        if kind == references.PODS:
            pods = self._pods.get(namespace)
            placed = None if pods is None else pods.get(name)
            return placed is not None and placed.node == node
        if kind == references.ATTACHMENTS:
            return not namespace and node != "" and self._attachments.get(name) == node
        vertex = self._vertices.get((kind, namespace, name))
        return vertex is not None and node != "" and vertex.leads_to(node)

    def set_pod(self, pod: references.Pod) -> None:
        """Take a Pod as it is now, whatever was known of it."""
        if not pod.node:
            self.remove_pod(pod.namespace, pod.name)
            return
        namespace, node = pod.namespace, pod.node
        # First what is new, then what is old: what stays never drops to zero, and nothing is passed on for it.
        vertices = tuple(self._gain((kind, namespace, name), node) for kind, name in pod.references)
        pods = self._pods.get(namespace)
        if pods is None:
            pods = self._pods[namespace] = {}
        before = pods.get(pod.name)
        pods[pod.name] = _Placed(node, vertices)
        if before is not None:
            self._release(before)

    def remove_pod(self, namespace: str, name: str) -> None:
        """Forget a Pod; one that is not known is no error."""
        pods = self._pods.get(namespace)
        before = None if pods is None else pods.pop(name, None)
        if pods is None or before is None:
            return
        if not pods:
            del self._pods[namespace]
        self._release(before)

    def _release(self, placed: _Placed) -> None:
        for vertex in placed.vertices:
            self._lose(vertex, placed.node)

    def set_pv(self, volume: references.Volume) -> None:
        """Take a PersistentVolume as it is now; nothing is done when its claim and Secrets are as they were."""
        if self._volumes.get(volume.name) == volume:
            return
        self.remove_pv(volume.name)
        if volume.claim is None:
            return
        self._volumes[volume.name] = volume
        own, claim = _keys(volume.name, volume.claim)
        if volume.secrets:
            self._sources[own] = tuple((references.SECRETS, *secret) for secret in volume.secrets)
        self._sources[claim] = (*self._sources.get(claim, ()), own)
        found = self._vertices.get(claim)
        if found is not None:
            for node in found.nodes():
                self._gain(own, node)

    def remove_pv(self, name: str) -> None:
        """Forget a PersistentVolume; one that is not known is no error."""
        before = self._volumes.pop(name, None)
        if before is None or before.claim is None:
            return
        own, claim = _keys(name, before.claim)
        found = self._vertices.get(claim)
        if found is not None:
            for node in found.nodes():
                self._lose(self._vertices[own], node)
        rest = tuple(source for source in self._sources[claim] if source != own)
        if rest:
            self._sources[claim] = rest
        else:
            del self._sources[claim]
        self._sources.pop(own, None)

    def set_attachment(self, name: str, node: str) -> None:
        """Take a VolumeAttachment as it is now."""
        if node:
            self._attachments[name] = node
        else:
            self.remove_attachment(name)

    def remove_attachment(self, name: str) -> None:
        """Forget a VolumeAttachment; one that is not known is no error."""
        self._attachments.pop(name, None)

    def _gain(self, key: Key, node: str) -> Vertex:
        vertex = self._vertices.get(key)
        if vertex is None:
            vertex = self._vertices[key] = Vertex(key)
        if vertex.gain(node):
            for source in self._sources.get(vertex.key, ()):
                self._gain(source, node)
        return vertex

    def _lose(self, vertex: Vertex, node: str) -> None:
        if not vertex.lose(node):
            return
        for source in self._sources.get(vertex.key, ()):
            self._lose(self._vertices[source], node)
        if not vertex.node and vertex.others is None:
            del self._vertices[vertex.key]


def _keys(name: str, claim: tuple[str, str]) -> tuple[Key, Key]:
    """Of a volume, and of its claim."""
    return (references.VOLUMES, "", name), (references.CLAIMS, *claim)
