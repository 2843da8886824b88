# SPDX-License-Identifier: Apache-2.0
"""Empties a namespace that is being deleted, then lets it go.

1. Every kind of namespaced object, built in or custom, is deleted from it.
2. As long as anything remains (objects with finalizers), the namespace says so in its conditions.
3. When nothing is left, the finalizer `kubernetes` is taken off its spec, and the server removes it.

It does not keep anyone from adding objects meanwhile: the server refuses that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from handfast import errors
from handfast.api import objects, resources, status
from handfast.client import api
from handfast.controllers import loop, served, views
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

NAME = "namespace-controller"
_FINALIZER = "kubernetes"
# No watch tells when a namespace has become empty, so it is looked at again, at most this many seconds later.
_RETRY = backoff.Schedule(initial=0.1, cap=10.0)

_FAILURE = "NamespaceDeletionContentFailure"
_REMAINING = "NamespaceContentRemaining"
_FINALIZERS = "NamespaceFinalizersRemaining"
_DELETED = ("ContentDeleted", "All content successfully deleted, may be waiting on finalization")
_REMOVED = ("ContentRemoved", "All content successfully removed")
_FINISHED = ("ContentHasNoFinalizers", "All content-preserving finalizers finished")


class _HeldMeta(msgspec.Struct, gc=False):
    # Whatever it is: an object that is odd is still there, and a namespace that holds it must not go.
    finalizers: object = None


class _Held(msgspec.Struct, gc=False):
    """An object, of which only counts that it is there and what holds it."""

    metadata: _HeldMeta

    def finalizers(self) -> list[str]:
        found = self.metadata.finalizers
        return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


_lists = msgspec.json.Decoder(api.Listing[_Held])
_definitions = msgspec.json.Decoder(api.Listing[served.Definition])


class Left(msgspec.Struct):
    """What is still in a namespace: objects by resource, finalizers on them, and what could not be deleted."""

    remaining: dict[str, int] = msgspec.field(default_factory=dict)
    finalizers: dict[str, int] = msgspec.field(default_factory=dict)
    failures: list[str] = msgspec.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.remaining or self.failures)

    def conditions(self, before: Mapping[str, Mapping[str, str]], now: str) -> Mapping[str, Mapping[str, str]]:
        """The three conditions by type; those that say what they said before are returned unchanged."""
        resources = "Some resources are remaining: " + _counts(self.remaining, "has {} resource instances")
        holders = "Some content in the namespace has finalizers remaining: " + _counts(
            self.finalizers, "in {} resource instances"
        )
        rows = (
            # type, reason and message if so, reason and message if not
            (_FAILURE, self.failures, ("ContentDeletionFailed", "; ".join(self.failures)), _DELETED),
            (_REMAINING, self.remaining, ("SomeResourcesRemain", resources), _REMOVED),
            (_FINALIZERS, self.finalizers, ("SomeFinalizersRemain", holders), _FINISHED),
        )
        by_type: dict[str, Mapping[str, str]] = {}
        for name, problem, if_so, if_not in rows:
            reason, message = if_so if problem else if_not
            old = before.get(name, {})
            state = "True" if problem else "False"
            since = old.get("lastTransitionTime", now) if old.get("status") == state else now
            by_type[name] = {
                "type": name,
                "status": state,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message,
            }
        return by_type


class Namespaces:
    """Handles one namespace, by name."""

    def __init__(self, client: api.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock

    async def reconcile(self, name: str) -> None:
        namespace = await self._client.find(resources.NAMESPACES, name)
        if namespace is None:
            return
        finalizers = (namespace.get("spec") or {}).get("finalizers") or []
        if namespace["metadata"].get("deletionTimestamp") is None or _FINALIZER not in finalizers:
            return
        left = await self._clear(name)
        if left:
            await self._explain(namespace, left)
            raise loop.NotYet(f"the namespace {name} is not empty: {left.remaining or left.failures}")
        namespace["spec"]["finalizers"] = [entry for entry in finalizers if entry != _FINALIZER]
        await self._client.update(resources.NAMESPACES, namespace, subresource="finalize")

    async def _clear(self, namespace: str) -> Left:
        """Delete everything that can be deleted; returns what stayed."""
        left = Left()
        for resource in await self._resources():
            name = status.qualified(resource.plural, resource.group)
            try:
                items = await self._empty(resource, namespace)
            except errors.Refused as error:
                left.failures.append(f"{name}: {error.message}")
                continue
            if items:
                left.remaining[name] = len(items)
            for item in items:
                for finalizer in item.finalizers():
                    left.finalizers[finalizer] = left.finalizers.get(finalizer, 0) + 1
        return left

    async def _resources(self) -> Sequence[served.Served]:
        rows = [*(row for row in served.builtin() if row.namespaced), *served.own()]
        async for page in self._client.pages(resources.CUSTOM_RESOURCE_DEFINITIONS, api.EVERYTHING, _definitions):
            custom = (definition.served() for definition in page.items)
            rows += [row for row in custom if row is not None and row.namespaced]
        return tuple(dict.fromkeys(rows))

    async def _empty(self, resource: served.Served, namespace: str) -> list[_Held]:
        """Delete what there is; returns what is still there then."""
        scope = api.Scope(namespace=namespace)
        try:
            if not await self._list(resource, scope):
                return []
            await self._client.delete_collection(resource, scope)
            return await self._list(resource, scope)
        except status.StatusError as error:
            # A custom resource whose definition has just gone, or one that a cluster does not serve.
            if error.reason in {"NotFound", "MethodNotAllowed"}:
                return []
            raise

    async def _list(self, resource: served.Served, scope: api.Scope) -> list[_Held]:
        items: list[_Held] = []
        async for page in self._client.pages(resource, scope, _lists, metadata=True):
            items += page.items
        return items

    async def _explain(self, namespace: objects.Document, left: Left) -> None:
        """Write the conditions, if they say anything new."""
        state = namespace.get("status") or {}
        before = {row["type"]: row for row in state.get("conditions") or ()}
        after = {**before, **left.conditions(before, objects.timestamp(self._clock.now()))}
        if after != before:
            namespace["status"] = {**state, "conditions": list(after.values())}
            await self._client.update_status(resources.NAMESPACES, namespace)


def _counts(numbers: dict[str, int], form: str) -> str:
    return ", ".join(f"{name} {form.format(number)}" for name, number in sorted(numbers.items()))


def build(context: loop.Context) -> loop.Controller[str]:
    namespaces = context.informers.get(views.ALL_NAMESPACES)
    handler = Namespaces(context.client, context.clock)
    controller: loop.Controller[str] = loop.Controller(
        NAME, handler.reconcile, clock=context.clock, workers=2, schedule=_RETRY
    )
    controller.watches(namespaces, lambda item: [item.metadata.name] if item.terminating else [])
    return controller
