# SPDX-License-Identifier: Apache-2.0
"""The only place that reads the time: wall time for facts about the world, monotonic time for waiting.

Everything that needs an instant takes a `Clock` (or a `now`), so that tests move time instead of waiting for it
(`tests/world/clock.py`). It does not schedule anything: see `tasks`.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """Now, and waiting."""

    def now(self) -> datetime.datetime:
        """The wall clock, in UTC with its zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; for durations only."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)

    # Not a method around it: every request asks several times, and saves 50 ns each time.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
