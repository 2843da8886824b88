# SPDX-License-Identifier: Apache-2.0
"""Certificate requests as the approver, the signer and the cleaner see them, from one watch for all three.

It decides nothing, and writes nothing on its own. Only requests that still need something are kept in memory, whole,
so that whoever is done with one can send it back with its version, without reading it again.

1. A request is kept as long as it is open: until it has a certificate, was denied or has failed.
2. What one of the three wrote counts at once, unless the watch was faster. Older versions that the watch shows afterwards
   are ignored. Where versions are no numbers, they cannot be compared, and only the watch counts.
3. The request inside is parsed, and its signature verified, once for all three, for as long as its spec is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from handfast.api import resources, signing_requests
from handfast.client import api, events, partial, watch
from handfast.controllers import loop
from handfast.rules.certificates import kubelet

SOURCE = watch.Source(resource=resources.SIGNING_REQUESTS, view=signing_requests.Request)


async def write(client: api.Client, update: signing_requests.Update, subresource: str) -> signing_requests.Request:
    """Send it back; what came of it."""
    return await client.replace(
        resources.SIGNING_REQUESTS, update.metadata.name, update, signing_requests.DECODER, subresource=subresource
    )


def regarding(item: signing_requests.Request) -> events.Regarding:
    """A request, as Events name it."""
    meta = item.metadata
    return events.Regarding(
        api_version=signing_requests.API_VERSION, kind=signing_requests.KIND, name=meta.name, uid=meta.uid
    )


class Requests:
    """The open requests, by name; `subscribe` to hear of every request that changes, open or not."""

    def __init__(self) -> None:
        self._open: dict[str, signing_requests.Request] = {}
        self._facts: dict[str, tuple[signing_requests.Spec, kubelet.Facts]] = {}
        self._written: dict[str, int] = {}
        self._newest = 0
        self._on_changed: list[Callable[[signing_requests.Request], None]] = []
        self._on_deleted: list[Callable[[str], None]] = []
        self._unseen: set[str] | None = None
        self._synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[signing_requests.Request]:
        """The open requests."""
        return iter(tuple(self._open.values()))

    def get(self, name: str) -> signing_requests.Request | None:
        """The request, if it is open."""
        return self._open.get(name)

    def facts(self, item: signing_requests.Request) -> kubelet.Facts:
        """The facts that are decided by (3); errors.Refused when the request inside cannot be read."""
        known = self._facts.get(item.metadata.name)
        if known is not None and known[0] == item.spec:
            return known[1]
        facts = kubelet.read(item.document())
        self._facts[item.metadata.name] = (item.spec, facts)
        return facts

    def subscribe(
        self, on_changed: Callable[[signing_requests.Request], None], on_deleted: Callable[[str], None] = lambda _: None
    ) -> None:
        """Call `on_changed` with every request that is new or changed, `on_deleted` with the name of each that is deleted."""
        self._on_changed.append(on_changed)
        self._on_deleted.append(on_deleted)

    def wrote(self, item: signing_requests.Request) -> None:
        """One of us wrote a request, and this came back (2)."""
        version = number(item.metadata.resource_version)
        if version > self._newest:
            self._written[item.metadata.name] = version
            self._take(item)

    def forget(self, name: str) -> None:
        """Somebody found that it is gone."""
        self._open.pop(name, None)
        self._facts.pop(name, None)
        self._written.pop(name, None)

    async def wait_synced(self) -> None:
        await self._synced.wait()

    # What the reflector calls.

    def begin(self) -> None:
        self._unseen = set(self._open)

    def put(self, item: signing_requests.Request) -> None:
        name, version = item.metadata.name, number(item.metadata.resource_version)
        if self._unseen is not None:
            self._unseen.discard(name)
        self._newest = max(self._newest, version)
        # 2. what one of us wrote is newer than what the watch still has to tell
        written = self._written.get(name, 0)
        if version >= written:
            self._written.pop(name, None)
        if version > written or not version:
            self._take(item)

    def remove(self, item: partial.Viewed) -> None:
        self._deleted(item.metadata.name)

    def end(self) -> None:
        deleted, self._unseen = self._unseen or (), None
        for name in deleted:
            self._deleted(name)
        self._synced.set()

    def _take(self, item: signing_requests.Request) -> None:
        name = item.metadata.name
        if item.is_open:
            self._open[name] = item
        else:
            # 1. it needs nothing more
            self._open.pop(name, None)
            self._facts.pop(name, None)
        for on_changed in self._on_changed:
            on_changed(item)

    def _deleted(self, name: str) -> None:
        self.forget(name)
        for on_deleted in self._on_deleted:
            on_deleted(name)


def number(version: str) -> int:
    """A version as a number, nothing where it is none."""
    return int(version) if version.isdecimal() else 0


class Feed:
    """One `Requests` for all the controllers that are built for the same context."""

    def __init__(self) -> None:
        self._context: loop.Context | None = None
        self._requests = Requests()

    def of(self, context: loop.Context) -> Requests:
        if self._context is not context:
            self._context, self._requests = context, Requests()
            context.informers.follow(SOURCE, self._requests)
        return self._requests
