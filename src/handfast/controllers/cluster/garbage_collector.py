# SPDX-License-Identifier: Apache-2.0
"""Deletes objects whose owners are gone, and carries out foreground and orphaning deletion.

Before an object is deleted,

1. it is read from the server itself, and what follows is judged by that reading alone;
2. each of its owners is known to be absent by a read from the server at the place the reference names: not found
   there, or found with another uid;
3. owners of kinds nobody here knows, and namespaced owners of cluster-scoped objects, count as present; of the
   latter a Warning tells;
4. the deletion holds only for the uid and resource version that were read.

An object that has some owners left loses only its references to the others. Which objects to look at, the graph
(`ownership`) says.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from handfast import errors
from handfast.api import objects, resources
from handfast.client import api, cache, events, memory, partial, watch
from handfast.controllers import loop, served
from handfast.controllers.cluster import ownership

NAME = "garbage-collector-controller"


class Owner(enum.Enum):
    """What became of an owner."""

    SOLID = "solid"
    DANGLING = "dangling"
    WAITING = "waiting"


_log = structlog.get_logger("handfast.garbage-collector")

_metas = msgspec.json.Decoder(partial.OwnedPartial)
_lists = msgspec.json.Decoder(api.Listing[partial.OwnedPartial])
# From this many owners of one kind on, a list of the kind costs less than a read of each.
_MANY = 50
# How long an orphaning deletion waits for what was written just before it to be seen.
_SETTLE_SECONDS = 1.0
# Until a server that does not have Handfast's own kinds is asked for them again.
_WITHOUT_SECONDS = 60.0
_OWN = frozenset(served.own())


class GarbageCollector:
    """Handles one object, by uid."""

    def __init__(
        self, client: api.Client, graph: ownership.Graph, recorder: events.Recorder, again: Callable[[str], None]
    ) -> None:
        self._client = client
        self._graph = graph
        self._recorder = recorder
        self._again = again
        self._resources: dict[tuple[str, str], served.Served] = {}
        self._orphaning = memory.Memory(ownership.REMEMBERED)

    def know(self, resource: served.Served) -> None:
        """Owner references to this kind can be followed."""
        self._resources[resource.group, resource.kind] = resource

    def unknow(self, resource: served.Served) -> None:
        self._resources.pop((resource.group, resource.kind), None)

    async def prime(self) -> None:
        """Learn from a list or two which owners are there, instead of by a read for each of thousands."""
        missing: dict[served.Served, set[str]] = {}
        for node in self._graph.nodes.values():
            for ref in node.owners:
                resource = self._resource(ref)
                if resource is not None and ref.uid not in self._graph.present:
                    missing.setdefault(resource, set()).add(ref.uid)
        for resource, uids in missing.items():
            if len(uids) >= _MANY:
                await self._prime(resource)

    async def _prime(self, resource: served.Served) -> None:
        losses = self._graph.losses
        try:
            async for page in self._client.pages(resource, api.EVERYTHING, _lists, metadata=True):
                # Whoever went while the page was on its way may still be on it.
                if losses == self._graph.losses:
                    for item in page.items:
                        self._graph.saw(resource, item.metadata)
                losses = self._graph.losses
        except (errors.Refused, errors.Unavailable) as error:
            _log.info("owners are looked up one by one", resource=resource.plural, error=error.message)

    async def reconcile(self, uid: str) -> float | None:
        node = self._graph.nodes.get(uid)
        if node is None or (node.deleting and not node.foreground and not node.orphan):
            return None
        # The usual case, and without a read: nothing is wrong with the owners that the picture shows.
        if not node.deleting and not await self._lost(node.place, node.owners):
            return None
        live = await self._read(node.place)
        if live is None:
            self._graph.removed(uid)
            return None
        finalizers = live.finalizers or ()
        if live.deletion_timestamp is None:
            await self._judge(node.place, live)
        elif objects.FINALIZER_ORPHAN in finalizers:
            # Dependents come by other watches, which may be behind; one that is overlooked would be deleted later.
            if uid not in self._orphaning:
                self._orphaning.add(uid)
                return _SETTLE_SECONDS
            await self._orphan(node.place)
        elif objects.FINALIZER_FOREGROUND in finalizers:
            await self._foreground(node.place)
        return None

    async def _read(self, place: ownership.Place) -> partial.OwnedMeta | None:
        """The metadata of the object at a place, or None if there is none of this uid."""
        with api.MISSING_OK:
            view = await self._client.view(place.resource, place.name, _metas, namespace=place.namespace, metadata=True)
            return view.metadata if view.metadata.uid == place.uid else None
        return None

    async def _judge(self, place: ownership.Place, live: partial.OwnedMeta) -> None:
        """Delete the object, cut it loose from some of its owners, or leave it."""
        references = live.owner_references or ()
        lost = await self._lost(place, references)
        if not lost:
            return
        if any(ref.uid not in lost for ref in references):
            await self._edit(place, "ownerReferences", lambda rows: [row for row in rows if row.get("uid") not in lost])
        elif Owner.WAITING in lost.values() and (dependents := self._graph.dependents(place.uid)):
            # A circle of foreground deletions would wait for itself.
            if any(node.foreground for node in dependents):
                await self._edit(place, "ownerReferences", _unblocked)
                self._again(place.uid)
                return
            await self._delete(place, live, api.FOREGROUND)
        else:
            await self._delete(place, live, _propagation(live))

    async def _delete(self, place: ownership.Place, live: partial.OwnedMeta, propagation: str) -> None:
        with api.MISSING_OK:
            await self._client.delete(
                place.resource,
                place.name,
                namespace=place.namespace,
                uid=place.uid,
                resource_version=live.resource_version,
                propagation=propagation,
            )

    async def _lost(self, place: ownership.Place, references: Sequence[partial.OwnerReference]) -> Mapping[str, Owner]:
        """The owners, by uid, that are gone or wait for their dependents to go."""
        states = {ref.uid: await self._owner(place, ref) for ref in references}
        return {uid: state for uid, state in states.items() if state is not Owner.SOLID}

    async def _owner(self, place: ownership.Place, ref: partial.OwnerReference) -> Owner:
        resource = self._resource(ref)
        if resource is None:
            return Owner.SOLID
        if resource.namespaced and not place.namespace:
            await self._warn(place, ref)
            return Owner.SOLID
        owner = ownership.Place(resource, place.namespace if resource.namespaced else "", ref.name, ref.uid)
        if owner in self._graph.absent:
            return Owner.DANGLING
        if self._graph.present.get(ref.uid) == owner:
            node = self._graph.nodes.get(ref.uid)
            return Owner.WAITING if node is not None and node.foreground else Owner.SOLID
        losses = self._graph.losses
        meta = await self._read(owner)
        if meta is None:
            self._graph.absent.add(owner)
            return Owner.DANGLING
        if losses == self._graph.losses:
            self._graph.saw(resource, meta)
        waits = meta.deletion_timestamp is not None and objects.FINALIZER_FOREGROUND in (meta.finalizers or ())
        return Owner.WAITING if waits else Owner.SOLID

    def _resource(self, ref: partial.OwnerReference) -> served.Served | None:
        return self._resources.get((ref.api_version.rpartition("/")[0], ref.kind))

    async def _warn(self, place: ownership.Place, ref: partial.OwnerReference) -> None:
        resource = place.resource
        regarding = events.Regarding(
            api_version=f"{resource.group}/{resource.version}" if resource.group else resource.version,
            kind=resource.kind,
            name=place.name,
            uid=place.uid,
        )
        await self._recorder.record(
            regarding,
            "OwnerRefInvalidNamespace",
            f"the owner {ref.api_version}/{ref.kind} {ref.name} (uid {ref.uid}) is namespaced, so it cannot own a "
            "cluster-scoped object; the reference is ignored",
            severity=events.WARNING,
        )

    async def _foreground(self, place: ownership.Place) -> None:
        """Let the object go when no dependent holds it back; until then see to those that do."""
        blocking = [node for node in self._graph.dependents(place.uid) if node.blocks(place.uid)]
        if not blocking:
            await self._edit(
                place, "finalizers", lambda rows: [row for row in rows if row != objects.FINALIZER_FOREGROUND]
            )
        for node in blocking:
            if not node.deleting:
                self._again(node.place.uid)

    async def _orphan(self, place: ownership.Place) -> None:
        """Cut every dependent loose, then let the object go."""
        for node in self._graph.dependents(place.uid):
            await self._edit(
                node.place, "ownerReferences", lambda rows: [row for row in rows if row.get("uid") != place.uid]
            )
        await self._edit(place, "finalizers", lambda rows: [row for row in rows if row != objects.FINALIZER_ORPHAN])

    async def _edit(self, place: ownership.Place, field: str, change: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        """Change one list of an object's metadata, if it is still the same object and still to be changed."""
        with api.MISSING_OK:
            document = await self._client.get(place.resource, place.name, namespace=place.namespace, metadata=True)
            meta = document["metadata"]
            # An object from before nulls were settled may hold one, which means nothing.
            before = [row for row in meta.get(field) or () if row is not None]
            after = change(before)
            if meta.get("uid") != place.uid or list(after) == before:
                return
            patch = {
                "metadata": {
                    "uid": place.uid,
                    "resourceVersion": meta["resourceVersion"],
                    field: list(after) or None,
                }
            }
            await self._client.patch(place.resource, place.name, patch, namespace=place.namespace)


def _unblocked(rows: Sequence[Any]) -> Sequence[Any]:
    return [{**row, "blockOwnerDeletion": False} if row.get("blockOwnerDeletion") else row for row in rows]


def _propagation(live: partial.OwnedMeta) -> str:
    """Dependents of a dependent go the way its own finalizers ask for."""
    finalizers = live.finalizers or ()
    if objects.FINALIZER_ORPHAN in finalizers:
        return api.ORPHAN
    return api.FOREGROUND if objects.FINALIZER_FOREGROUND in finalizers else api.BACKGROUND


class _Primer:
    """Makes the controller wait until the owners are known; it comes after everything it looks at."""

    def __init__(self, collector: GarbageCollector) -> None:
        self._collector = collector

    async def wait_synced(self) -> None:
        await self._collector.prime()


class _CustomResources:
    """Follows what CustomResourceDefinitions serve, while they serve it."""

    def __init__(self, informers: cache.Informers, graph: ownership.Graph, collector: GarbageCollector) -> None:
        self._informers = informers
        self._graph = graph
        self._collector = collector
        self._following: dict[served.Served, cache.Following] = {}

    def changed(self, old: served.Definition | None, new: served.Definition | None) -> None:
        before = old.served() if old is not None else None
        after = new.served() if new is not None else None
        # Handfast's own are followed in any case.
        if before == after or before in _OWN or after in _OWN:
            return
        if before is not None:
            self._following.pop(before).stop()
            self._collector.unknow(before)
            self._graph.forget_resource(before)
        if after is not None:
            self._collector.know(after)
            sink = ownership.ResourceSink(self._graph, after)
            self._following[after] = self._informers.follow(source(after), sink)


def source(resource: served.Served) -> watch.Source[partial.OwnedPartial]:
    return watch.Source(
        resource=resource,
        view=partial.OwnedPartial,
        metadata=True,
        if_served=resource in _OWN,
        without_seconds=_WITHOUT_SECONDS,
    )


def definitions() -> watch.Source[served.Definition]:
    return watch.Source(resource=resources.CUSTOM_RESOURCE_DEFINITIONS, view=served.Definition)


def build(context: loop.Context) -> loop.Controller[str]:
    def changed(uid: str) -> None:
        controller.queue.add(uid)

    graph = ownership.Graph(changed)
    recorder = events.Recorder(context.client, context.clock, NAME)
    collector = GarbageCollector(context.client, graph, recorder, changed)
    controller: loop.Controller[str] = loop.Controller(NAME, collector.reconcile, clock=context.clock, workers=16)
    for resource in (*served.builtin(), *served.own()):
        # Nothing owns Events and they own nothing; they are also the most numerous.
        if resource.plural != "events":
            collector.know(resource)
            sink = ownership.ResourceSink(graph, resource)
            context.informers.follow(source(resource), sink)
            controller.needs(sink)
    informer = context.informers.get(definitions())
    informer.subscribe(_CustomResources(context.informers, graph, collector).changed)
    controller.needs(informer)
    controller.needs(_Primer(collector))
    return controller
