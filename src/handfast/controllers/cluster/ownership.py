# SPDX-License-Identifier: Apache-2.0
"""Who owns whom, by uid: the garbage collector's picture of all objects.

Kept are objects that have owners, and objects whose deletion waits for their dependents; an ordinary object leaves
no trace here, so a flood of those costs a decode and two look-ups each. The picture may lag behind the server:
nothing is deleted because of it alone. It decides nothing and asks the server nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from handfast.api import objects
from handfast.client import memory, partial
from handfast.controllers import served

# How many uids are remembered at once.
REMEMBERED = 4096


class Place(msgspec.Struct, frozen=True):
    """Where an object with this uid is, or is said to be by an owner reference."""

    resource: served.Served
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Node:
    """An object that has owners or waits for its dependents."""

    place: Place
    owners: tuple[partial.OwnerReference, ...]
    deleting: bool
    foreground: bool
    orphan: bool

    def blocks(self, owner: str) -> bool:
        """Whether the owner of this uid, being deleted in the foreground, must wait for this object."""
        return any(ref.uid == owner and ref.block_owner_deletion for ref in self.owners)


class Graph:
    """All nodes, and the owners they name. `changed(uid)` is called for every node that should be looked at."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self.nodes: dict[str, Node] = {}
        # By uid of the owner, whether or not anything else is known of it.
        self._dependents: dict[str, set[str]] = {}
        # Owners that were seen; a uid leaves when its deletion is seen.
        self.present: dict[str, Place] = {}
        # How many owners were lost so far: an answer that was under way meanwhile must not put one back.
        self.losses = 0
        # A uid never comes back, so what was found absent once stays so.
        self.absent = memory.Memory(REMEMBERED)

    def dependents(self, uid: str) -> Sequence[Node]:
        return [self.nodes[dependent] for dependent in self._dependents.get(uid, ())]

    def saw(self, resource: served.Served, meta: partial.Meta) -> bool:
        """An object is there; returns whether anyone names it as an owner."""
        if meta.uid not in self._dependents:
            return False
        if meta.uid not in self.present:
            self.present[meta.uid] = Place(resource, meta.namespace, meta.name, meta.uid)
        return True

    def store(self, node: Node) -> None:
        """A node is new or may have changed."""
        uid = node.place.uid
        old = self.nodes.get(uid)
        if old == node:
            return
        self.nodes[uid] = node
        self._link(uid, old.owners if old is not None else (), node.owners)
        self._changed(uid)
        if node.foreground and (old is None or not old.foreground):
            self._changed_all(self._dependents.get(uid, ()))

    def drop(self, uid: str) -> None:
        """An object has no owners any more, or is gone."""
        node = self.nodes.pop(uid, None)
        if node is not None:
            self._link(uid, node.owners, ())

    def removed(self, uid: str) -> None:
        """An object is gone: its owners may have waited for it, and its dependents have lost it."""
        self.drop(uid)
        self.present.pop(uid, None)
        if uid in self._dependents:
            self.losses += 1
            self._changed_all(self._dependents[uid])

    def _link(
        self, uid: str, before: Iterable[partial.OwnerReference], after: Iterable[partial.OwnerReference]
    ) -> None:
        old, new = {ref.uid for ref in before}, {ref.uid for ref in after}
        for owner in old - new:
            self._dependents[owner].discard(uid)
            if not self._dependents[owner]:
                del self._dependents[owner]
                self.present.pop(owner, None)
        for owner in new - old:
            self._dependents.setdefault(owner, set()).add(uid)
        # Also when only a blocking reference stopped blocking.
        self._changed_all(owner for owner in old if owner in self.nodes and self.nodes[owner].foreground)

    def _changed_all(self, uids: Iterable[str]) -> None:
        for uid in tuple(uids):
            self._changed(uid)

    def forget_resource(self, resource: served.Served, seen: set[str] | None = None) -> None:
        """Objects of this resource that are not among those seen are gone."""
        seen = seen or set()
        places = [node.place for node in self.nodes.values()] + list(self.present.values())
        for uid in {place.uid for place in places if place.resource == resource} - seen:
            self.removed(uid)


class ResourceSink:
    """Feeds the graph from one resource."""

    def __init__(self, graph: Graph, resource: served.Served) -> None:
        self._graph = graph
        self._resource = resource
        self._seen: set[str] | None = None
        self._synced = asyncio.Event()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def begin(self) -> None:
        self._seen = set()

    def put(self, item: partial.OwnedPartial) -> None:
        meta, graph = item.metadata, self._graph
        uid = meta.uid
        kept = bool(meta.owner_references) or (meta.deletion_timestamp is not None and bool(meta.finalizers))
        if kept:
            graph.store(_node(self._resource, meta))
        elif uid in graph.nodes:
            graph.drop(uid)
        kept = graph.saw(self._resource, meta) or kept
        if kept and self._seen is not None:
            self._seen.add(uid)

    def remove(self, item: partial.OwnedPartial) -> None:
        self._graph.removed(item.metadata.uid)

    def end(self) -> None:
        seen, self._seen = self._seen, None
        self._graph.forget_resource(self._resource, seen)
        self._synced.set()


def _node(resource: served.Served, meta: partial.OwnedMeta) -> Node:
    deleting = meta.deletion_timestamp is not None
    finalizers = meta.finalizers or ()
    return Node(
        Place(resource, meta.namespace, meta.name, meta.uid),
        meta.owner_references or (),
        deleting,
        deleting and objects.FINALIZER_FOREGROUND in finalizers,
        deleting and objects.FINALIZER_ORPHAN in finalizers,
    )
