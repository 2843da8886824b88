# SPDX-License-Identifier: Apache-2.0
"""Watches of an engine: history from the store first, then writes as they come, without gap or repetition.

It runs on the event loop's thread only and touches no store: it is given a function that reads history.

A watch keeps a bounded number of undelivered events. Beyond that it drops them and reads them from the store again
when its consumer asks: a slow consumer costs reads, never memory and never events. Only if compaction has meanwhile
passed the point it had reached does it end, with `Compacted`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from handfast import errors
from handfast.store import protocol

PENDING_EVENTS = 4096
PENDING_BYTES = 16 * 2**20


class History(msgspec.Struct, frozen=True):
    """Events of a prefix, all there are up to `revision`; `complete` if that was the end of them."""

    events: Sequence[protocol.Event]
    revision: int
    complete: bool


# Answers no further than the feed has passed on by then, so that `_head` never lies behind what was read.
ReadHistory = Callable[[str, int], Awaitable[History]]


class Feed:
    """Passes commits on to watches, and knows the last revision passed on."""

    def __init__(self, revision: int, read_history: ReadHistory) -> None:
        self.revision = revision
        self.read_history = read_history
        self._watches: dict[LogWatch, None] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        # Why there will be no more events.
        self.ended: protocol.StoreUnavailable | None = None

    def watch(self, prefix: str, after: int) -> LogWatch:
        opened = LogWatch(self, prefix, after)
        self._watches[opened] = None
        return opened

    def forget(self, watch: LogWatch) -> None:
        self._watches.pop(watch, None)

    def publish(self, revision: int, events: Sequence[protocol.Event]) -> None:
        if revision == self.revision:
            return
        self.revision = revision
        for watch in self._watches:
            watch.offer(events, revision)
        still = []
        for wanted, future in self._waiting:
            if wanted <= revision and not future.done():
                future.set_result(None)
            elif not future.done():
                still.append((wanted, future))
        self._waiting = still

    async def reached(self, revision: int) -> None:
        """Wait until a revision that a reader saw committed has been passed on.

        A reader can see a commit before the loop has heard of it. No answer may name a revision that
        `current_revision` has not reached yet: a watch from it would be refused as lying in the future.
        """
        if revision > self.revision:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((revision, future))
            await future

    def close(self, why: protocol.StoreUnavailable | None = None) -> None:
        self.ended = why
        for watch in list(self._watches):
            watch.close()
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(why or protocol.StoreUnavailable("the store is closed"))
        self._waiting = []


class LogWatch:
    """One watch. `_position` is the revision up to which its consumer has everything.

    `_pending` holds every event after `_position` up to `_head`; it is None when they must be read from the log.
    """

    def __init__(self, feed: Feed, prefix: str, after: int) -> None:
        self._feed = feed
        self._prefix = prefix
        self._position = after
        self._head = feed.revision
        self._pending: list[protocol.Event] | None = [] if after == feed.revision else None
        self._pending_bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._in_use = False
        self._closed = False

    def offer(self, events: Sequence[protocol.Event], revision: int) -> None:
        """Called by the feed with each commit, in order."""
        if self._pending is None:
            return
        mine = [event for event in events if event.key.startswith(self._prefix)] if self._prefix else events
        self._pending.extend(mine)
        self._pending_bytes += sum(len(event.value or b"") for event in mine)
        self._head = revision
        if len(self._pending) > PENDING_EVENTS or self._pending_bytes > PENDING_BYTES:
            self._pending = None
        self._rouse()

    async def next(self) -> tuple[Sequence[protocol.Event], int]:
        if self._in_use:
            raise errors.Misuse("a watch has one consumer: `next` was called while another call waits")
        self._in_use = True
        try:
            return await self._next()
        finally:
            self._in_use = False

    def close(self) -> None:
        self._closed = True
        self._pending = None
        self._feed.forget(self)
        self._rouse()

    async def _next(self) -> tuple[Sequence[protocol.Event], int]:
        while not self._closed:
            if self._pending is None:
                before = self._position
                events = await self._catch_up()
                if self._position > before:
                    return events, self._position
            elif self._head > self._position:
                events, self._pending, self._pending_bytes = self._pending, [], 0
                self._position = self._head
                return events, self._position
            else:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
        raise self._feed.ended or protocol.StoreUnavailable("the watch is closed")

    async def _catch_up(self) -> Sequence[protocol.Event]:
        """Read from the log, collecting meanwhile what is committed; at its end the two meet, and overlap."""
        self._pending, self._pending_bytes, self._head = [], 0, self._feed.revision
        collected = False
        try:
            history = await self._feed.read_history(self._prefix, self._position)
            collected = history.complete and not self._closed
        finally:
            if not collected:
                self._pending = None
        self._position = history.revision
        if self._pending is not None:
            self._pending = [event for event in self._pending if event.revision > history.revision]
        return history.events

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
