# SPDX-License-Identifier: Apache-2.0
"""A work queue of keys: each is in it at most once, and no two workers ever hold the same one.

A key added while it is being worked on is handed out again afterwards, so no change is missed and none is handled
twice at a time. It does not know what the keys mean.

What is promised for later is promised on the monotonic clock. Of a queue whose promises are about instants of the wall clock,
every promise is kept at once when that one is set, or the machine has slept: whoever gets the key looks what time it is.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random as randomness
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from handfast.runtime import backoff, tasks
from handfast.runtime import clock as clocks

K = TypeVar("K", bound=Hashable)

RETRY = backoff.Schedule(initial=0.05, cap=300.0)
# How often it is looked whether the wall clock was set, while something is promised; and by how much it may be, unnoticed.
_LOOK_SECONDS = 60.0
_DRIFT_SECONDS = 1.0


class WorkQueue(Generic[K]):
    """Keys to be worked on, now or later. `run` must be running for anything added for later to come out."""

    def __init__(
        self,
        *,
        clock: clocks.Clock,
        schedule: backoff.Schedule = RETRY,
        random: Callable[[], float] = randomness.random,
        wall: bool = False,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._schedule = schedule
        self._random = random
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._queued: set[K] = set()
        self._active: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._sooner = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait to be worked on now."""
        return len(self._queued) + len(self._again)

    def add(self, key: K) -> None:
        """Hand `key` to the next free worker."""
        if key in self._active:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """… in `seconds` from now, or when an earlier promise for the same key says so."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        if self._heap[0][2] == key:
            self._sooner.set()

    def retry(self, key: K) -> float:
        """Add `key` after a delay that grows with every failure since the last `forget`; returns the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = self._schedule.delay(failures, self._random())
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key was handled well: its next failure is a first one."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; the caller must say `done` when it is finished with it."""
        key = await self._ready.get()
        self._queued.discard(key)
        self._active.add(key)
        return key

    def done(self, key: K) -> None:
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def run(self) -> None:
        """Move keys that were added for later into the queue when they are due; never returns."""
        ahead = self._ahead()
        while True:
            self._sooner.clear()
            now = self._clock.monotonic()
            if self._wall and abs(self._ahead() - ahead) >= _DRIFT_SECONDS:
                ahead = self._ahead()
                self._release(math.inf)
            else:
                self._release(now)
            if self._heap:
                left = self._heap[0][0] - now
                left = min(left, _LOOK_SECONDS) if self._wall else left
                await tasks.wait_for_event(self._sooner, self._clock, left)
            else:
                await self._sooner.wait()

    def _ahead(self) -> float:
        """By how much the wall clock is ahead of the monotonic one: that changes when it is set, or the machine slept."""
        return self._clock.now().timestamp() - self._clock.monotonic()

    def _release(self, now: float) -> None:
        while self._heap and (self._heap[0][0] <= now or self._due.get(self._heap[0][2]) != self._heap[0][0]):
            due, _, key = heapq.heappop(self._heap)
            # An entry whose key was since promised for another instant is only a leftover.
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
