# SPDX-License-Identifier: Apache-2.0
"""Counts what the objects of a namespace use, and keeps the status of its ResourceQuotas right.

Admission adds to `status.used` before an object is stored. What goes away is found here. A count may only ever say too much:

1. What is limited changed, or was never counted: it is counted at once, and again after a moment, since objects may have been
   stored before the first count was known to admission.
2. Otherwise the use is noted first. After a moment everything that was reserved until then is stored, or never will be. Only then it is
   counted; of what was reserved in the meantime nobody knows whether it was counted, so that it counts in any case.
3. The status is written at the version that was read, so that no reservation is lost.
4. It is counted anew when something that a quota limits is deleted, when a Pod, Service or claim changes, a minute after
   admission has reserved something, and every five minutes.

Only what some quota limits is followed. It refuses nothing: that is `apiserver.admission.quotas`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from handfast.api import jsonpath, objects, resources, status
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop, served
from handfast.rules import quotas
from handfast.runtime import clock as clocks

NAME = "resourcequota-controller"
# Longer than a write takes from its reservation to the store.
SETTLE_SECONDS = 1.0
_RESERVED_SECONDS = 60.0
_EVERY_SECONDS = 300.0
_TRIES = 5
_AT_ONCE = 100


class _Amounts(msgspec.Struct, frozen=True, gc=False):
    hard: dict[str, Any] | None = None


class Quota(msgspec.Struct, frozen=True, gc=False):
    """A ResourceQuota: what it limits."""

    metadata: partial.Meta = partial.Meta()
    spec: _Amounts = _Amounts()
    status: _Amounts = _Amounts()

    @property
    def is_counted(self) -> bool:
        return (self.spec.hard or {}) == (self.status.hard or {})

    def limited(self) -> set[tuple[str, str]]:
        """The resources that it is about."""
        return {quotas.counted_resource(name) for name in self.spec.hard or ()}


_SOURCE = watch.Source(resource=resources.RESOURCE_QUOTAS, view=Quota)
_DEFINITIONS = watch.Source(resource=resources.CUSTOM_RESOURCE_DEFINITIONS, view=served.Definition)


class _Noted(msgspec.Struct, frozen=True):
    """What was used at an instant of the monotonic clock."""

    at: float
    used: Mapping[str, Decimal]


class Counter:
    """Handles one quota, by namespace and name."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        quotas_: cache.Informer[Quota],
        definitions: cache.Informer[served.Definition],
    ) -> None:
        self._client = client
        self._clock = clock
        self._quotas = quotas_
        self._definitions = definitions
        self._noted: dict[partial.Key, _Noted] = {}

    async def reconcile(self, key: partial.Key) -> float | None:
        document = await self._client.find(resources.RESOURCE_QUOTAS, key[1], namespace=key[0])
        if document is None:
            self._noted.pop(key, None)
            return None
        # 1. never counted, or not all of it
        if jsonpath.mapping(document, "status", "hard") != jsonpath.mapping(document, "spec", "hard"):
            self._noted.pop(key, None)
            await self._write(key, document, await self.counted(document), {})
            return SETTLE_SECONDS
        # 2. noted first
        noted = self._noted.get(key)
        if noted is None:
            self._noted[key] = _Noted(self._clock.monotonic(), quotas.read(document).used)
            return SETTLE_SECONDS
        left = noted.at + SETTLE_SECONDS - self._clock.monotonic()
        if left > 0:
            return left
        counted = await self.counted(document)
        used = await self._write(key, document, counted, noted.used)
        self._noted.pop(key, None)
        # What was reserved meanwhile is known at the next count.
        return _EVERY_SECONDS if used == counted else SETTLE_SECONDS

    async def _write(
        self, key: partial.Key, document: objects.Document, counted: Mapping[str, Decimal], noted: Mapping[str, Decimal]
    ) -> Mapping[str, Decimal]:
        """Write what was counted, and what was reserved since it was noted; what is used now."""
        for attempt in range(_TRIES):
            current: objects.Document | None = document
            if attempt or noted:
                current = await self._client.find(resources.RESOURCE_QUOTAS, key[1], namespace=key[0])
            if current is None or _limits(current) != _limits(document):
                return counted
            used = quotas.recounted(counted, noted, quotas.read(current).used)
            state = {"hard": _limits(current), "used": quotas.written(used)}
            if current.get("status") == state:
                return used
            try:
                # 3. at the version that was read
                await self._client.update_status(resources.RESOURCE_QUOTAS, {**current, "status": state})
            except status.StatusError as error:
                if error.reason not in loop.RACES:
                    raise
            else:
                return used
        raise loop.NotYet(f"the quota {key[1]} changes all the time")

    async def counted(self, document: objects.Document) -> dict[str, Decimal]:
        """What the objects of the namespace use of what a quota limits."""
        totals = {name: Decimal(0) for name in _limits(document)}
        by_resource: dict[tuple[str, str], set[str]] = {}
        for name in totals:
            by_resource.setdefault(quotas.counted_resource(name), set()).add(name)
        required = quotas.requirements(document)
        namespace = document["metadata"]["namespace"]
        for resource, names in by_resource.items():
            found = self._served(resource)
            if found is None:
                continue
            if resource not in quotas.CHANGING:
                # No scope is about anything else.
                number = 0 if required else await self._client.count(found, api.Scope(namespace=namespace))
                totals.update(dict.fromkeys(names, Decimal(number)))
            else:
                await self._add(totals, names, found, document)
        return totals

    async def _add(
        self, totals: dict[str, Decimal], names: Iterable[str], row: served.Served, document: objects.Document
    ) -> None:
        required, now = quotas.requirements(document), self._clock.now()
        resource = (row.group, row.plural)
        there = await self._client.list(row, api.Scope(namespace=document["metadata"]["namespace"]))
        for number, item in enumerate(there, start=1):
            # Signers and approvers get their turn, however many Pods a tenant has.
            if not number % _AT_ONCE:
                await self._clock.sleep(0)
            if quotas.fits(required, resource, item):
                used = quotas.usage(resource, item, now)
                for name in names:
                    totals[name] += used.get(name, 0)

    def _served(self, resource: tuple[str, str]) -> served.Served | None:
        for row in (*served.builtin(), *served.own()):
            if (row.group, row.plural) == resource and row.namespaced:
                return row
        for definition in self._definitions:
            custom = definition.served()
            if custom is not None and custom.namespaced and (custom.group, custom.plural) == resource:
                return custom
        return None

    def followed(self) -> dict[tuple[str, str], served.Served]:
        """What some quota is about and the server has."""
        wanted = {resource for quota in self._quotas for resource in quota.limited()}
        return {resource: row for resource in wanted if (row := self._served(resource)) is not None}


def _limits(document: objects.Document) -> dict[str, Any]:
    return jsonpath.mapping(document, "spec", "hard")


class _Sink:
    """Hears of one resource: what is gone, and of Pods, Services and claims also what has changed."""

    def __init__(self, resource: tuple[str, str], changed: Callable[[tuple[str, str], str | None], None]) -> None:
        self._resource = resource
        self._changed = changed
        self._listing = True

    def begin(self) -> None:
        self._listing = True

    def put(self, item: partial.Partial) -> None:
        if not self._listing and self._resource in quotas.CHANGING:
            self._changed(self._resource, item.metadata.namespace)

    def remove(self, item: partial.Partial) -> None:
        self._changed(self._resource, item.metadata.namespace)

    def end(self) -> None:
        """Something may have gone while nobody listened."""
        self._listing = False
        self._changed(self._resource, None)


class _Watches:
    """Follows what some quota limits, for as long as one does."""

    def __init__(
        self, informers: cache.Informers, counter: Counter, changed: Callable[[tuple[str, str], str | None], None]
    ) -> None:
        self._informers = informers
        self._counter = counter
        self._changed = changed
        self._following: dict[tuple[str, str], cache.Following] = {}

    def adjust(self, _old: object = None, _new: object = None) -> None:
        wanted = self._counter.followed()
        for resource in self._following.keys() - wanted.keys():
            self._following.pop(resource).stop()
        for resource, row in wanted.items():
            if resource not in self._following:
                source = watch.Source(resource=row, view=partial.Partial, metadata=True, if_served=True)
                self._following[resource] = self._informers.follow(source, _Sink(resource, self._changed))


def build(context: loop.Context) -> loop.Controller[partial.Key]:
    informer = context.informers.get(_SOURCE)
    definitions = context.informers.get(_DEFINITIONS)
    counter = Counter(context.client, context.clock, informer, definitions)
    controller: loop.Controller[partial.Key] = loop.Controller(NAME, counter.reconcile, clock=context.clock, workers=4)

    def gone(resource: tuple[str, str], namespace: str | None) -> None:
        for quota in informer:
            if namespace in {None, quota.metadata.namespace} and resource in quota.limited():
                controller.queue.add(quota.metadata.key)

    def changed(old: Quota | None, new: Quota | None) -> None:
        if new is not None and old is not None and new.is_counted:
            # 4. what admission reserved may never have been stored
            controller.queue.add_after(new.metadata.key, _RESERVED_SECONDS)
        elif new is not None:
            controller.queue.add(new.metadata.key)

    watches = _Watches(context.informers, counter, gone)
    informer.subscribe(changed)
    informer.subscribe(watches.adjust)
    definitions.subscribe(watches.adjust)
    controller.needs(informer)
    controller.needs(definitions)
    return controller
