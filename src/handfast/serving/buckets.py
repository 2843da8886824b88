# SPDX-License-Identifier: Apache-2.0
"""Token buckets: a rate and a burst for each source, or whatever else is counted by.

A refusal takes nothing. The caller knows what a bucket is for, and what happens to those who are over it.

Where several servers count by the same budget, each has its share of rate and burst (`share`). What is more than a share
ever holds, and not more than the burst, is let pass by a full bucket, which then has to fill again from below nothing. So in
sum they never let pass more than the budget, and one such amount for each server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

# Sources that are remembered.
SOURCES = 10_000


class Buckets:
    """A token bucket for each source, or whatever else is counted by.

    The least recently seen are forgotten, so memory is bounded.
    """

    def __init__(self, rate: float, burst: int, sources: int = SOURCES) -> None:
        # The whole budget, and what this server has of it.
        self.rate = rate
        self.burst = float(burst)
        self._rate = rate
        self._burst = float(burst)
        self._sources = sources
        self._state: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def share(self, servers: int) -> None:
        """From now on so many servers count by this budget, this one among them."""
        self._rate = self.rate / servers
        self._burst = self.burst / servers

    def wait(self, source: Hashable, now: float, amount: float = 1.0) -> float:
        """0.0 if so much more is allowed now (and takes it), else the seconds until it is."""
        tokens, then = self._state.pop(source, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        needed = self._needed(amount)
        allowed = tokens >= needed
        self._state[source] = (tokens - amount if allowed else tokens, now)  # a refusal takes nothing
        if len(self._state) > self._sources:
            self._state.popitem(last=False)
        return 0.0 if allowed else (needed - tokens) / self._rate

    def look(self, source: Hashable, now: float) -> float:
        """As `wait`, and nothing is taken."""
        state = self._state.get(source)
        if state is None:
            return 0.0
        tokens = min(self._burst, state[0] + (now - state[1]) * self._rate)
        needed = self._needed(1.0)
        return 0.0 if tokens >= needed else (needed - tokens) / self._rate

    def _needed(self, amount: float) -> float:
        """What a bucket must hold for it: all that a share holds where that is less, and never where it is over the burst."""
        return amount if amount > self.burst else min(amount, self._burst)

    def give_back(self, source: Hashable, amount: float = 1.0) -> None:
        """Undo a `wait` that was allowed: the request was refused for another reason."""
        state = self._state.get(source)
        # Whoever was forgotten meanwhile has a full bucket.
        if state is not None:
            self._state[source] = (min(self._burst, state[0] + amount), state[1])
