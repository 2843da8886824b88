# SPDX-License-Identifier: Apache-2.0
"""The API server's copy of the store in memory, as encoded bytes, kept current by one watch.

Reads are linearizable: a default read asks the store for its current revision and waits until the copy has reached it,
so with two servers on one store a write on one is seen by the very next read on the other. It does not write to the
store; see `storage`.

The copy begins in the past: it reads the store as it was at the oldest revision that is worth it, and applies what was
written since. So a client whose watch another process served, or this one before it was started anew, goes on with the next
event and need not list again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from handfast import errors
from handfast.api import objects
from handfast.apiserver.state import collection as collection_module
from handfast.apiserver.state import envelope, items, seal_keys
from handfast.store import protocol

# Revisions before now at which a start begins to read. Whoever watches is told every minute how far it came.
REPLAYED = 50_000
# SQLite looks through what was written since for each page of the past: 100,000 objects with 50,000 writes after them took
# 23 s in pages of 2,000, 5.3 s in these, and 3.5 s without a past.
_PAGE = 20_000
# How often the past may be compacted by somebody else while it is read.
_TRIES = 3
_SHOWN = 200
_log = structlog.get_logger("handfast.replica")


class Replica:
    """Every collection, and how far the copy has come. Versions here are resource versions (offset included)."""

    def __init__(self, store: protocol.Store, envelopes: envelope.Envelopes, *, shared: bool = False) -> None:
        self._store = store
        # Whether other processes write to the store as well.
        self._shared = shared
        self._envelopes = envelopes
        self._seal_keys = seal_keys.SealKeys(envelopes)
        self._collections: dict[str, collection_module.Collection] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.version = 0
        # How far the copy had come when it began to follow.
        self.start = 0
        # The oldest version that a watch may resume from.
        self._remembered = 0
        self.on_batch: list[Callable[[], None]] = []
        self.failed: BaseException | None = None
        # Why the store could not be read, until it can be.
        self.trouble: str | None = None
        # Keys that are no object's, as often as they came.
        self.foreign = 0

    async def load(self) -> None:
        """Read the whole store as it was, then what was written since; only the present where the past cannot be read."""
        now = await self._store.current_revision()
        oldest = min(now, max(1, now - REPLAYED, await self._store.floor()))
        for _ in range(_TRIES):
            try:
                await self._load_since(oldest, now)
            except protocol.Compacted as error:
                # The floor is learned, not assumed: others compact as well.
                oldest = min(now, max(error.floor, oldest + 1))
            except errors.Refused as error:
                # Sealed with a key that was taken away since, say. If what cannot be read is there still, this start fails below.
                _log.warning(
                    "past events are not readable: watches begin anew", reason=error.reason, error=error.message
                )
                break
            else:
                return
        await self._load_since(now, now)

    async def _load_since(self, oldest: int, now: int) -> None:
        self._collections.clear()
        self._seal_keys = seal_keys.SealKeys(self._envelopes)
        offset = self._store.epoch_offset
        self._remembered = self.version = oldest + offset
        after = ""
        while True:
            page = await self._store.list_at("", revision=oldest, after=after, limit=_PAGE)
            for entry in page.entries:
                located = self._located(entry.key)
                if located is not None:
                    collection, namespace, name = located
                    payload = self._envelopes.open(entry.key, entry.value)
                    self._seal_keys.note(entry.key, entry.value)
                    collection.load(items.Item(namespace, name, entry.revision + offset, payload))
            if not page.more:
                break
            after = page.entries[-1].key
        await self._replay(oldest, now, offset)
        self.start = self.version

    async def _replay(self, oldest: int, now: int, offset: int) -> None:
        """Apply what was written after `oldest`, at least up to `now`; nobody listens yet."""
        if oldest >= now:
            return
        watch = self._store.watch("", after=oldest)
        try:
            while self.version < now + offset:
                events, revision = await watch.next()
                for event in events:
                    self._apply(event, offset)
                self.version = max(self.version, revision + offset)
        finally:
            watch.close()

    def is_foreign(self, version: int) -> bool:
        """Whether what was written at this version may be another process's work, perhaps an older program's."""
        return self._shared or version <= self.start

    async def follow(self) -> None:
        """Apply the store's events for ever; the caller runs it as a task and ends it by cancelling."""
        offset = self._store.epoch_offset
        watch = self._store.watch("", after=self.version - offset)
        try:
            while True:
                events, revision = await watch.next()
                changes = [self._apply(event, offset) for event in events]
                self.version = max(self.version, revision + offset)
                for hook in self.on_batch:
                    hook()
                for change in changes:
                    # Everybody has been told: what was encoded for them need not stay in memory with the history.
                    if change is not None:
                        change.frames.clear()
                self._wake()
        except Exception as error:
            # A copy that has stopped must not be read from: fail every reader, now and later.
            self.failed = error
            self._wake()
            raise
        finally:
            watch.close()

    async def fresh(self) -> None:
        """Wait until the copy holds every write acknowledged before this call."""
        try:
            version = await self._store.current_revision() + self._store.epoch_offset
            if version > self.version or self.failed is not None:
                await self.reached(version)
        except errors.Unavailable as error:
            self.trouble = error.message
            raise
        self.trouble = None

    async def reached(self, version: int) -> None:
        """Wait until the copy has come as far as `version`."""
        self._require_running()
        if version <= self.version:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((version, future))
        await future
        self._require_running()

    def _require_running(self) -> None:
        if self.failed is not None:
            raise errors.Unavailable(
                "the server's copy of the store has stopped",
                reason="ReplicaStopped",
                hint="restart the server; its log says why",
            )

    def collection(self, prefix: str) -> collection_module.Collection:
        """The collection stored under `prefix` (`group/plural/`)."""
        found = self._collections.get(prefix)
        if found is None:
            found = self._collections[prefix] = collection_module.Collection(self._remembered)
        return found

    def count(self) -> int:
        """How many objects there are."""
        return sum(collection.count() for collection in self._collections.values())

    def sealed(self) -> Mapping[str, int]:
        """The keys that sealed what is there, with how many values each."""
        return self._seal_keys.counts(sum(self.collection(prefix).count() for prefix in self._envelopes.sealed))

    def _located(self, key: str) -> tuple[collection_module.Collection, str, str] | None:
        """Where an object belongs; None for a key that no server writes: others may write to an etcd, too."""
        group, _, plural_and_rest = key.partition("/")
        plural, slash, rest = plural_and_rest.partition("/")
        if not slash:
            if not self.foreign:
                _log.warning("there are keys in the store that are no object's; they are left out", key=key[:_SHOWN])
            self.foreign += 1
            return None
        return self.collection(f"{group}/{plural}/"), *objects.space_and_name(rest)

    def _apply(self, event: protocol.Event, offset: int) -> items.Change | None:
        located = self._located(event.key)
        if located is None:
            return None
        collection, namespace, name = located
        version = event.revision + offset
        self._seal_keys.note(event.key, event.value)
        after = None
        if event.value is not None:
            after = items.Item(namespace, name, version, self._envelopes.open(event.key, event.value))
        return collection.apply(namespace, name, after, version)

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiting, self._waiters = self._waiters, []
        for version, future in waiting:
            if future.done():
                continue
            if version <= self.version or self.failed is not None:
                future.set_result(None)
            else:
                self._waiters.append((version, future))
