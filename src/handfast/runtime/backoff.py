# SPDX-License-Identifier: Apache-2.0
"""Retry schedules as iterators: how long to wait before the next attempt.

It computes delays only. The caller waits, on its own clock.
"""

from __future__ import annotations

import random as randomness
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from handfast import errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Delays that grow from `initial` by `factor` up to `cap`, each lengthened by up to `jitter` of itself.

    Jitter only ever lengthens, so that a delay is never shorter than what was promised to a server.
    """

    initial: float
    cap: float
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.initial <= self.cap and self.factor >= 1 and self.jitter >= 0):
            raise errors.Misuse(f"a schedule needs 0 < initial <= cap, factor >= 1 and jitter >= 0, not {self}")

    def delay(self, attempt: int, fraction: float = 0.0) -> float:
        """The delay before attempt number `attempt` (from 0); `fraction` in [0, 1) says how much of the jitter."""
        # Beyond 64 doublings the power would only overflow.
        grown: float = self.initial * self.factor ** min(attempt, 64)
        return min(self.cap, grown) * (1 + self.jitter * fraction)


class Backoff(Iterator[float]):
    """An endless iterator over a schedule that remembers how often it was asked since the last `reset`."""

    def __init__(self, schedule: Schedule, random: Callable[[], float] = randomness.random) -> None:
        self._schedule = schedule
        self._random = random
        self._attempt = 0

    def __next__(self) -> float:
        delay = self._schedule.delay(self._attempt, self._random())
        self._attempt += 1
        return delay

    def reset(self) -> None:
        """Begin again at the initial delay: the last attempt succeeded."""
        self._attempt = 0
