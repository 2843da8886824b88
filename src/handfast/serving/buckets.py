# SPDX-License-Identifier: Apache-2.0
"""Token buckets: a rate and a burst for each source, or whatever else is counted by.

A refusal takes nothing. The caller knows what a bucket is for, and what happens to those who are over it.
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
        self.rate = rate
        self.burst = float(burst)
        self._sources = sources
        self._state: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait(self, source: Hashable, now: float, amount: float = 1.0) -> float:
        """0.0 if so much more is allowed now (and takes it), else the seconds until it is."""
        tokens, then = self._state.pop(source, (self.burst, now))
        tokens = min(self.burst, tokens + (now - then) * self.rate)
        allowed = tokens >= amount
        self._state[source] = (tokens - amount if allowed else tokens, now)  # a refusal takes nothing
        if len(self._state) > self._sources:
            self._state.popitem(last=False)
        return 0.0 if allowed else (amount - tokens) / self.rate

    def look(self, source: Hashable, now: float) -> float:
        """As `wait`, and nothing is taken."""
        state = self._state.get(source)
        if state is None:
            return 0.0
        tokens = min(self.burst, state[0] + (now - state[1]) * self.rate)
        return 0.0 if tokens >= 1.0 else (1.0 - tokens) / self.rate

    def give_back(self, source: Hashable, amount: float = 1.0) -> None:
        """Undo a `wait` that was allowed: the request was refused for another reason."""
        state = self._state.get(source)
        # Whoever was forgotten meanwhile has a full bucket.
        if state is not None:
            self._state[source] = (min(self.burst, state[0] + amount), state[1])
