# SPDX-License-Identifier: Apache-2.0
"""A clock that stands still until a test moves it; whoever sleeps on it wakes when its time has come."""

from __future__ import annotations

import asyncio
import datetime
import heapq
import itertools

# About now, because TLS clients in tests compare certificates with the machine's own clock.
START = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


class MovableClock:
    """`advance` moves both the wall clock and the monotonic one, `set_wall` only the one."""

    def __init__(self, start: datetime.datetime = START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime.datetime:
        return self._start + datetime.timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def left(self, instant: datetime.datetime | None) -> float | None:
        """Seconds until an instant; nothing if it is past."""
        return None if instant is None else max(0.0, (instant - self.now()).total_seconds())

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), future))
        await future

    def set_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock, ahead or back; no time passes, and nobody wakes."""
        self._start += datetime.timedelta(seconds=seconds)

    def hold(self, seconds: float) -> None:
        """Somebody holds the event loop for so long: time passes, and nobody wakes before the next `advance`."""
        self._elapsed += seconds

    async def advance(self, seconds: float) -> None:
        """Move time on, waking sleepers in order, each at its own instant."""
        until = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not future.done():
                future.set_result(None)
            await settle()
        self._elapsed = until
        await settle()

    async def passes(self, seconds: float) -> None:
        """Move time on, from one sleeper's end to the next, with all that follows from each."""
        until = self._elapsed + seconds
        while self._elapsed < until:
            due = [at for at, _, sleeper in self._sleepers if not sleeper.done()]
            await self.advance(max(0.0, min([until, *due]) - self._elapsed))
            await settle(25)


async def settle(turns: int = 5) -> None:
    """Let what is ready run."""
    for _ in range(turns):
        await asyncio.sleep(0)
