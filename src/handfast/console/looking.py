# SPDX-License-Identifier: Apache-2.0
"""The facts of `handfast check`, looked up again and again while somebody looks at a page that needs them. It judges nothing.

1. Nobody looks: nothing is asked. A page that needs facts says so (`want`), and for a while after that they are kept fresh. Every page does, while clocks
   differ, or while nobody knows whether they do.
2. Between two looks there is a pause, however many pages are open: they share one. How far a look is, is told while it goes on.
3. What goes wrong keeps the facts of the last look, with the instant at which they were known. It is tried again, whatever it was.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from handfast import errors
from handfast.rules.diagnoses import facts as facts_module
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

# Told how many rows are done, of how many, and which are not.
Tell = Callable[[int, int, list[str]], None]
Look = Callable[[Tell], Awaitable[facts_module.Facts]]

# 1. how long after the last page that wanted them, 2. how often at most
_WANTED_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 30.0
_log = structlog.get_logger("handfast.console")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a look is, and what it is at."""

    done: int
    total: int
    left: tuple[str, ...]


class Looking:
    """The last facts, and who is told of new ones."""

    def __init__(self, look: Look, clock: clocks.Clock) -> None:
        self._look = look
        self._clock = clock
        self._wanted = asyncio.Event()
        self._wanted_at = 0.0
        self._looked = asyncio.Event()
        self.facts: facts_module.Facts | None = None
        self.trouble = ""
        # None while nobody looks.
        self.progress: Progress | None = None
        self.count = 0
        self.on_change: Callable[[], None] = lambda: None

    @property
    def pause(self) -> float:
        """So many seconds lie between two looks."""
        return _PAUSE_SECONDS

    @property
    def known_at(self) -> datetime.datetime | None:
        """When the facts were looked up."""
        return None if self.facts is None else self.facts.now

    def want(self) -> None:
        """Somebody shows them now (1)."""
        self._wanted_at = self._clock.monotonic()
        self._wanted.set()

    async def first(self, seconds: float) -> facts_module.Facts | None:
        """The facts, once they are there; None if that takes longer."""
        self.want()
        if self.facts is None:
            await tasks.wait_for_event(self._looked, self._clock, seconds)
        return self.facts

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self._wanted.wait()
            await self.once()
            # 2. a pause
            await self._clock.sleep(_PAUSE_SECONDS)
            if self._clock.monotonic() - self._wanted_at > _WANTED_SECONDS:
                self._wanted.clear()

    async def once(self) -> None:
        """One look."""
        try:
            self.facts, self.trouble = await self._look(self._tell), ""
        except (errors.Refused, errors.Unavailable) as error:
            # 3. what was known stays
            self.trouble = error.message
            _log.warning("the control plane could not be looked at", reason=error.reason, error=error.message)
        except Exception as error:  # noqa: BLE001  3. what no rule can read takes no page with it
            self.trouble = "the look failed; the log of the console has the details"
            _log.error("the control plane could not be looked at", exc_info=error)
        self.count += 1
        self.progress = None
        self._looked.set()
        self.on_change()

    def _tell(self, done: int, total: int, left: list[str]) -> None:
        self.progress = Progress(done, total, tuple(left))
        self.on_change()
