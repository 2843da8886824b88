# SPDX-License-Identifier: Apache-2.0
"""Timers: one for each key, in so many seconds or at an instant of the wall clock. `queue` has who handles the key.

1. Seconds are counted on the monotonic clock, which nobody can set.
2. When the wall clock is set, or the machine has slept, every timer for an instant fires within `LOOK_SECONDS`: whoever gets
   the key looks what time it is, and sets a new one.
3. A key has one timer, the earliest that was asked for. One whose time has come fires at once.
"""

from __future__ import annotations

import asyncio
import datetime
import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from handfast.runtime import clock as clocks
from handfast.runtime import tasks

K = TypeVar("K", bound=Hashable)

# An instant that is past by any clock.
AT_ONCE: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)
# How often it is looked whether the wall clock was set, while a timer depends on it; and by how much it may be, unnoticed.
LOOK_SECONDS: Final = 60.0
_DRIFT_SECONDS: Final = 1.0


class Timers(Generic[K]):
    """Calls `fire` with each key when its time has come. `run` must be running; it takes one task for any number."""

    def __init__(self, clock: clocks.Clock, fire: Callable[[K], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._due: dict[K, float] = {}
        # The keys whose timers are for an instant of the wall clock.
        self._by_wall: set[K] = set()
        self._ahead = 0.0
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._sooner = asyncio.Event()

    def after(self, key: K, seconds: float) -> None:
        """Fire in `seconds` from now (1)."""
        if self._set(key, seconds):
            self._by_wall.discard(key)

    def at(self, key: K, instant: datetime.datetime) -> None:
        """Fire when the wall clock shows `instant` (2)."""
        if self._set(key, (instant - self._clock.now()).total_seconds()):
            if not self._by_wall:
                self._ahead = self._lead()
            self._by_wall.add(key)

    def _set(self, key: K, seconds: float) -> bool:
        """Whether there is a new timer for the key."""
        # 3. the earliest counts, and what is past is due now
        if seconds <= 0:
            self._fire(key)
            return False
        due = self._clock.monotonic() + seconds
        if self._due.get(key, math.inf) <= due:
            return False
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        if self._heap[0][2] == key:
            self._sooner.set()
        return True

    async def run(self) -> None:
        """Fire what is due, for ever."""
        while True:
            self._sooner.clear()
            self._fire_by_wall()
            now = self._clock.monotonic()
            self._fire_until(now)
            if not self._heap:
                await self._sooner.wait()
                continue
            left = self._heap[0][0] - now
            # 2. only looking tells whether the wall clock was set
            left = min(left, LOOK_SECONDS) if self._by_wall else left
            await tasks.wait_for_event(self._sooner, self._clock, left)

    def _fire_by_wall(self) -> None:
        """2. Every timer for an instant, if the wall clock was set."""
        if self._by_wall and abs(self._lead() - self._ahead) >= _DRIFT_SECONDS:
            self._ahead = self._lead()
            for key in sorted(self._by_wall, key=self._due.__getitem__):
                self._end(key)

    def _lead(self) -> float:
        """By how much the wall clock is ahead of the monotonic one: that changes when it is set, or the machine slept."""
        return self._clock.now().timestamp() - self._clock.monotonic()

    def _fire_until(self, now: float) -> None:
        while self._heap and (self._heap[0][0] <= now or self._due.get(self._heap[0][2]) != self._heap[0][0]):
            due, _, key = heapq.heappop(self._heap)
            # Of a key that has another timer since, or none, this is a leftover.
            if self._due.get(key) == due:
                self._end(key)

    def _end(self, key: K) -> None:
        del self._due[key]
        self._by_wall.discard(key)
        self._fire(key)
