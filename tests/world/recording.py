# SPDX-License-Identifier: Apache-2.0
"""Clients of a store that write, read and watch, and note what they did and saw: a history for `tests.world.linearizability`.

Writers share a few keys and know of each what they saw last, right or stale, so that many a compare-and-swap is lost. Of a write whose answer
was lost they note that it is uncertain, and read on. A watch that ends goes on behind what it has shown. It judges nothing.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence

from handfast.store import protocol
from tests.world.histories import NEVER, Batch, Held, History, Operation, Outcome, Reading, Seen, Watch

WRITERS = 32
WATCHERS = 4
# How long a client waits that was told that the store is away.
PAUSE = 0.05


class Recorder:
    """What was noted so far."""

    def __init__(self, keys: int = 24, *, prefix: str = "/register") -> None:
        self._prefix = prefix
        self.keys = [f"{prefix}/{number}" for number in range(keys)]
        self.operations: list[Operation] = []
        self.readings: list[Reading] = []
        self.watched: list[tuple[str, int, list[Batch]]] = []
        # How many operations each store has answered.
        self.done: collections.Counter[protocol.Store] = collections.Counter()
        self._ending = False

    def history(self) -> History:
        watches = [Watch(prefix, after, batches) for prefix, after, batches in self.watched]
        return History(self.operations, watches, self.readings)

    def count(self, outcome: Outcome) -> int:
        return sum(operation.is_write and operation.outcome is outcome for operation in self.operations)

    @contextlib.asynccontextmanager
    async def clients(self, stores: Sequence[protocol.Store], patience: float = 60) -> AsyncIterator[None]:
        """Clients of these stores, one after the other, work while the block runs; then all is read once more, and watched to its end."""
        after = await stores[0].current_revision()
        watching = [
            asyncio.create_task(
                self._watch(stores[number % len(stores)], f"{self._prefix}{'/1' * (number % 2)}", after)
            )
            for number in range(WATCHERS)
        ]
        work = [asyncio.create_task(self._work(stores[number % len(stores)], number)) for number in range(WRITERS)]
        try:
            yield
            self._ending = True
            async with asyncio.timeout(patience):
                await asyncio.gather(*work)
                await self._look_at_the_end(stores)
            assert not any(task.done() for task in watching), [task.exception() for task in watching if task.done()]
        finally:
            for task in (*work, *watching):
                task.cancel()
            await asyncio.gather(*work, *watching, return_exceptions=True)

    async def _look_at_the_end(self, stores: Sequence[protocol.Store]) -> None:
        for store in stores:
            for key in self.keys:
                while not await self._read(store, key, {}):
                    await asyncio.sleep(PAUSE)
        revision = max(operation.revision for operation in self.operations)
        while any(not batches or batches[-1].reached < revision for _, _, batches in self.watched):
            await asyncio.sleep(PAUSE)

    async def _work(self, store: protocol.Store, number: int) -> None:
        choice = random.Random()
        known: dict[str, int] = {}
        count = 0
        while not self._ending:
            key = choice.choice(self.keys)
            what = choice.random()
            if what < 0.1 or key not in known:
                through = await self._read(store, key, known)
            elif what < 0.15:
                through = await self._look_at_the_revision(store)
            else:
                count += 1
                value = None if known[key] and what > 0.9 else b"%d-%d" % (number, count)
                through = await self._write(store, key, value, known)
            self.done[store] += through
            # Reads of SQLite may be answered without a turn of the loop.
            await asyncio.sleep(0 if through else PAUSE)

    async def _read(self, store: protocol.Store, key: str, known: dict[str, int]) -> bool:
        began = time.monotonic()
        try:
            entry = await store.get(key)
        except (protocol.StoreUnavailable, protocol.StoreUncertain):
            return False
        self.operations.append(Operation(key, began, time.monotonic(), is_write=False, found=_held(entry)))
        known[key] = entry.revision if entry else 0
        return True

    async def _look_at_the_revision(self, store: protocol.Store) -> bool:
        began = time.monotonic()
        try:
            revision = await store.current_revision()
        except (protocol.StoreUnavailable, protocol.StoreUncertain):
            return False
        self.readings.append(Reading(began, time.monotonic(), revision))
        return True

    async def _write(self, store: protocol.Store, key: str, value: bytes | None, known: dict[str, int]) -> bool:
        expected = known.pop(key)
        outcome, ended, revision, found = Outcome.UNCERTAIN, NEVER, 0, None
        began = time.monotonic()
        try:
            revision = await _compare_and_swap(store, key, value, expected)
            outcome, ended = Outcome.DONE, time.monotonic()
            known[key] = 0 if value is None else revision
        except protocol.Mismatch as mismatch:
            outcome, ended, found = Outcome.REFUSED, time.monotonic(), _held(mismatch.actual)
            known[key] = found.revision if found else 0
        except protocol.StoreUnavailable:
            outcome, ended = Outcome.FAILED, time.monotonic()
        except protocol.StoreUncertain:
            pass
        finally:
            self.operations.append(Operation(key, began, ended, True, outcome, expected, value, revision, found))
        return outcome in {Outcome.DONE, Outcome.REFUSED}

    async def _watch(self, store: protocol.Store, prefix: str, after: int) -> None:
        batches: list[Batch] = []
        self.watched.append((prefix, after, batches))
        while True:
            watch = store.watch(prefix, after=batches[-1].reached if batches else after)
            try:
                while True:
                    events, reached = await watch.next()
                    seen = [Seen(event.revision, event.key, event.value) for event in events]
                    batches.append(Batch(time.monotonic(), seen, reached))
            except (protocol.StoreUnavailable, protocol.StoreUncertain):
                await asyncio.sleep(PAUSE)
            finally:
                watch.close()


async def _compare_and_swap(store: protocol.Store, key: str, value: bytes | None, expected: int) -> int:
    if value is None:
        return await store.delete(key, expected=expected)
    if not expected:
        return await store.create(key, value)
    return await store.update(key, value, expected=expected)


def _held(entry: protocol.Entry | None) -> Held | None:
    return None if entry is None else Held(entry.revision, entry.value)
