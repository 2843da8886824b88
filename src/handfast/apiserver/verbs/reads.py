# SPDX-License-Identifier: Apache-2.0
"""get and list: from memory for the present, from the store's history for the past.

| resourceVersion | match | answered from |
|---|---|---|
| none | – | memory, once it holds every acknowledged write |
| 0 | –, NotOlderThan | memory, as it is |
| N | –, NotOlderThan | memory, once it has reached N |
| N | Exact | the store's history at N |
| continue token | – | memory while the collection has not changed since the first page, else history |

Large lists leave in chunks, so that no list holds the loop. It does not authorise.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import aiohttp
import msgspec
from aiohttp import web

from handfast import errors
from handfast.api import kinds, objects, status
from handfast.apiserver import request, turns
from handfast.apiserver.state import items as items_module
from handfast.apiserver.state import storage
from handfast.apiserver.verbs import encode, options, watch
from handfast.runtime import clock as clocks
from handfast.serving import answers, sending
from handfast.serving import connection as connection_module
from handfast.store import protocol

CHUNK = 256 << 10
# States of the past that are read in one step: each may be of 1.5 MB.
_PAST_AT_ONCE = 20


class Page(msgspec.Struct, frozen=True):
    """What a list answers with: the items in order, the list's own metadata."""

    items: Iterable[items_module.Item]
    metadata: dict[str, Any]


class Reader:
    """Answers reads."""

    def __init__(
        self,
        store: storage.Storage,
        clock: clocks.Clock,
        write_seconds: float = 30.0,
        fresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        # What a read waits for: that the copy has everything that was acknowledged before the request came.
        self._fresh = fresh or store.replica.fresh
        self._write_seconds = write_seconds
        self._storage = store
        self._replica = store.replica
        self._clock = clock

    async def get(self, kind: kinds.Kind, info: request.RequestInfo) -> items_module.Item:
        if info.query:
            await self._wait(options.resource_version(info))
        else:
            await self._fresh()
        item = self._replica.collection(kind.prefix).get(info.space(kind), info.name)
        if item is None:
            raise status.not_found(kind.plural, kind.group, info.name)
        return item

    async def page(
        self,
        kind: kinds.Kind,
        namespace: str,
        list_options: options.ListOptions,
        connection: connection_module.Connection,
    ) -> Page:
        """The page a list asks for. What it holds that nobody else does, states of the past, is kept for `connection`."""
        if list_options.continues is not None:
            return await self._continued(kind, namespace, list_options, list_options.continues, connection)
        if list_options.match == options.EXACT and list_options.version is not None:
            return await self._history(kind, namespace, list_options, list_options.version, "", connection)
        await self._wait(list_options.version)
        return await self._memory(kind, namespace, list_options, None)

    async def _wait(self, version: int | None) -> None:
        if version is None:
            await self._fresh()
        elif version > self._replica.version:
            await watch.reach(self._replica, version, self._clock)

    async def _continued(
        self,
        kind: kinds.Kind,
        namespace: str,
        list_options: options.ListOptions,
        token: options.Continue,
        connection: connection_module.Connection,
    ) -> Page:
        await self._fresh()
        collection = self._replica.collection(kind.prefix)
        last = objects.space_and_name(token.start)
        if token.rv == options.INCONSISTENT or collection.changed <= token.rv <= self._replica.version:
            return await self._memory(kind, namespace, list_options, last, version=max(token.rv, 0))
        try:
            return await self._history(kind, namespace, list_options, token.rv, token.start, connection)
        except status.StatusError as error:
            if error.reason != "Expired":
                raise
            # The client may go on from the same key in the present, if it can live with an inconsistent list.
            fresh = options.Continue(options.INCONSISTENT, token.start).text()
            raise status.expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results. Continuing with the provided token results in an inconsistent list.",
                fresh,
            ) from None

    async def _memory(
        self,
        kind: kinds.Kind,
        namespace: str,
        list_options: options.ListOptions,
        after: tuple[str, str] | None,
        version: int = 0,
    ) -> Page:
        collection = self._replica.collection(kind.prefix)
        version = version or self._replica.version
        if not list_options.limit:
            items: list[items_module.Item] = (
                collection.snapshot(namespace) if after is None else list(collection.iterate(namespace, after))
            )
            if not list_options.selection.everything:
                items = await self._matching(items, list_options.selection)
            return Page(items, {"resourceVersion": str(version)})
        total = collection.count(namespace)
        items = await self._first(collection.iterate(namespace, after), list_options)
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if len(items) > list_options.limit:
            items.pop()
            self._add_continue(metadata, kind, items[-1], version)
            if list_options.selection.everything:
                last = (items[-1].namespace, items[-1].name)
                metadata["remainingItemCount"] = total - collection.count_upto(namespace, last)
        return Page(items, metadata)

    async def _first(
        self, items: Iterator[items_module.Item], list_options: options.ListOptions
    ) -> list[items_module.Item]:
        """One more than the limit of those that match."""
        if list_options.selection.everything:
            return list(itertools.islice(items, list_options.limit + 1))
        return await self._matching(list(items), list_options.selection, list_options.limit + 1)

    async def _matching(
        self, items: Sequence[items_module.Item], wanted: options.Selection, most: int = sys.maxsize
    ) -> list[items_module.Item]:
        """Those that match, at most so many; `items` is a stable copy, since others get their turns meanwhile."""
        turn = turns.Turns(wanted.terms)
        matching: list[items_module.Item] = []
        for item in items:
            if wanted.matches(item):
                matching.append(item)
                if len(matching) == most:
                    break
            if turn.spent(len(item.body)):
                await self._clock.sleep(0)
        return matching

    async def _history(
        self,
        kind: kinds.Kind,
        namespace: str,
        list_options: options.ListOptions,
        version: int,
        start: str,
        connection: connection_module.Connection,
    ) -> Page:
        items: list[items_module.Item] = []
        kept = 0
        connection.admit()
        after = kind.prefix + start if start else ""
        more = True
        try:
            while more and (not list_options.limit or len(items) <= list_options.limit):
                most = min(list_options.limit or _PAST_AT_ONCE, _PAST_AT_ONCE)
                batch, more = await self._storage.page_at(kind, version, namespace, after, most)
                if batch:
                    after = kind.key(batch[-1].namespace, batch[-1].name)
                if not list_options.selection.everything:
                    batch = await self._matching(batch, list_options.selection)
                items.extend(batch)
                # Copies of its own, unlike the present: with many such lists they would fill the memory.
                kept += sum(len(item.body) for item in batch)
                connection.keep(kept)
                connection.admit()
                await self._clock.sleep(0)
        except protocol.Compacted:
            raise status.expired(f"The resourceVersion for the provided list is too old: {version}") from None
        except protocol.FutureRevision:
            raise status.too_large_resource_version(version, self._replica.version) from None
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if list_options.limit and (len(items) > list_options.limit or more):
            items = items[: list_options.limit]
            self._add_continue(metadata, kind, items[-1], version)
        return Page(items, metadata)

    def _add_continue(self, metadata: dict[str, Any], kind: kinds.Kind, last: items_module.Item, version: int) -> None:
        metadata["continue"] = options.Continue(version, kind.key(last.namespace, last.name)[len(kind.prefix) :]).text()

    async def send(
        self, http: web.BaseRequest, page: Page, shape: encode.Shape, *, refusable: bool = True
    ) -> answers.Response:
        """A list as an answer: in one piece if it is small, else in chunks, for which there has to be room (429)."""
        response: web.StreamResponse | None = None
        async for part, last in self._parts(page, shape):
            if response is None:
                if last:
                    return answers.Answer(part, headers=shape.headers)
                if refusable:
                    cast("connection_module.Connection", http.protocol).admit()
                response = await _begin(http, shape.headers)
                if http.method == "HEAD":
                    return response
            await sending.send(http, response, part, self._write_seconds)
        if response is None:
            raise errors.Misuse("a list has at least one part")
        return response

    async def _parts(self, page: Page, shape: encode.Shape) -> AsyncIterator[tuple[bytes, bool]]:
        gathered = [shape.open(page.metadata)]
        size = 0
        comma = b""
        turn = turns.Turns()
        for item in page.items:
            shown = shape.item(item)
            gathered.append(comma)
            gathered.append(shown)
            comma = b","
            size += len(shown)
            if size >= CHUNK:
                part = b"".join(gathered)
                # Not kept beside the part while that is being read.
                gathered, size, shown = [], 0, b""
                yield part, False
                del part
                await self._clock.sleep(0)
            elif turn.spent(len(item.body)):
                await self._clock.sleep(0)
        gathered.append(encode.CLOSE)
        yield b"".join(gathered), True


async def _begin(http: web.BaseRequest, headers: Mapping[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(headers=headers)
    if http.version >= aiohttp.HttpVersion11:
        response.enable_chunked_encoding()
    await response.prepare(http)
    return response
