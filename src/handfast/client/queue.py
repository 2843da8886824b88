# SPDX-License-Identifier: Apache-2.0
"""A work queue of keys: each is in it at most once, and no two workers ever hold the same one.

A key added while it is being worked on is handed out again afterwards, so no change is missed and none is handled
twice at a time. It does not know what the keys mean. What comes later is kept by `timers`.
"""

from __future__ import annotations

import asyncio
import datetime
import random as randomness
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from handfast.client import timers
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

K = TypeVar("K", bound=Hashable)

RETRY = backoff.Schedule(initial=0.05, cap=300.0)


class WorkQueue(Generic[K]):
    """Keys to be worked on, now or later. `run` must be running for anything added for later to come out."""

    def __init__(
        self,
        *,
        clock: clocks.Clock,
        schedule: backoff.Schedule = RETRY,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._schedule = schedule
        self._random = random
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._queued: set[K] = set()
        self._active: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers = timers.Timers(clock, self.add)

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
        """… in `seconds` from now, or when an earlier timer of the same key says so."""
        self._timers.after(key, seconds)

    def add_at(self, key: K, instant: datetime.datetime) -> None:
        """… at an instant of the wall clock, or when an earlier timer says so; as well when somebody sets that clock."""
        self._timers.at(key, instant)

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
        await self._timers.run()
