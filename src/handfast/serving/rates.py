# SPDX-License-Identifier: Apache-2.0
"""How fast connections of one source are let in: the part of `gate` that counts by time.

1. A source has a rate of new connections.
2. Who shows a good credential pays nothing: its connection is given back to the rate of its source, as often as one user may.
3. A source where somebody did so has a second rate behind the first, while that connection is open and a while longer.

`gate` decides who waits for a rate, and who is turned away.
"""

from __future__ import annotations

from collections import OrderedDict

from handfast.runtime import clock as clocks
from handfast.serving import buckets
from handfast.serving import limits as limits_module
from handfast.serving import visitor as visitors

# How long a good credential speaks for its source after its connection has ended.
PROVEN_SECONDS = 600.0
# Sources for which one does; the one not heard of for longest is forgotten.
PROVEN_SOURCES = 10_000


class Rates:
    """The rates of all sources of one gate."""

    def __init__(self, limits: limits_module.Limits, clock: clocks.Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._first = buckets.Buckets(limits.connections_per_second, limits.connections_burst)
        self._second = buckets.Buckets(limits.proven_per_second, limits.proven_burst)
        self._given_back = buckets.Buckets(limits.connections_per_second, limits.connections_burst)
        self._servers = 1
        # Sources with no such connection left: until when they still have the second rate.
        self._remembered: OrderedDict[str, float] = OrderedDict()

    def share(self, servers: int) -> None:
        """So many servers let in by these rates together."""
        self._servers = servers
        for each in (self._first, self._second, self._given_back):
            each.share(servers)

    def pay(self, visitor: visitors.Visitor, source: visitors.Source | None) -> float:
        """0.0 if a rate of its source lets it in now, else the seconds until one may."""
        now = self._clock.monotonic()
        wait = self._first.wait(visitor.source, now)
        if wait == 0.0:
            visitor.paid = self._first
        elif self._is_proven(visitor.source, source, now):
            more = self._second.wait(visitor.source, now)
            if more == 0.0:
                visitor.paid = self._second
            wait = min(wait, more)
        return wait

    def give_back(self, visitor: visitors.Visitor) -> None:
        """It paid, and was turned away for another reason."""
        if visitor.paid is not None:
            visitor.paid.give_back(visitor.source)

    def prove(self, visitor: visitors.Visitor, user: str) -> bool:
        """Somebody showed a good credential on this connection; False if that is known."""
        # 2. once for each connection
        paid, visitor.paid = visitor.paid, None
        if paid is None:
            return False
        if self._given_back.wait(user, self._clock.monotonic()) == 0.0:
            paid.give_back(visitor.source)
        return True

    def remember(self, name: str) -> None:
        """Somebody was known there until now: the second rate stays for a while (3)."""
        self._remembered.pop(name, None)
        self._remembered[name] = self._clock.monotonic() + PROVEN_SECONDS
        if len(self._remembered) > PROVEN_SOURCES:
            self._remembered.popitem(last=False)

    def per_second(self, name: str, source: visitors.Source | None) -> float:
        """All that is let in from there in a second."""
        rate = self._limits.connections_per_second
        if self._is_proven(name, source, self._clock.monotonic()):
            rate += self._limits.proven_per_second
        return rate / self._servers

    def _is_proven(self, name: str, source: visitors.Source | None, now: float) -> bool:
        return (source is not None and source.proven > 0) or self._remembered.get(name, now) > now
