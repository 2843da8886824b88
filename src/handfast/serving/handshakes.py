# SPDX-License-Identifier: Apache-2.0
"""Whose handshake is next: the part of `gate` that shares out the work of TLS.

1. Handshake slots go round the sources in turn, and no source holds more than its share of them.
2. Few handshakes begin in one round of the event loop.

It speaks no TLS: `start` begins a handshake, and whoever did so says when it has ended.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable

import structlog

from handfast.serving import limits as limits_module
from handfast.serving import visitor as visitors

_log = structlog.get_logger("handfast.gate")
Start = Callable[[visitors.Visitor], None]


class Handshakes:
    """The slots of one gate, and who waits for one."""

    def __init__(self, limits: limits_module.Limits, start: Start, drop: Start) -> None:
        self._limits = limits
        self._start = start
        # Ends a connection whose handshake could not begin.
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self._ready: OrderedDict[visitors.Source, deque[visitors.Visitor]] = OrderedDict()
        # Begun in this round of the event loop.
        self._begun = 0
        self.slots_taken = 0

    def queue(self, visitor: visitors.Visitor) -> None:
        """It has spoken: its handshake begins when it is its turn."""
        source = visitor.counted
        if source is None:
            return
        # 1. sources take turns; mostly nobody waits, and then there is no turn to keep
        if not self._ready and self._has_room() and self._may_begin(source):
            self._begin(visitor, source)
            return
        visitor.stage = visitors.READY
        self._ready.setdefault(source, deque()).append(visitor)
        self.pump()

    def unqueue(self, visitor: visitors.Visitor, source: visitors.Source) -> None:
        """It left before its turn came."""
        ready = self._ready.get(source)
        if ready is not None:
            ready.remove(visitor)
            if not ready:
                del self._ready[source]

    def release(self, source: visitors.Source | None) -> None:
        """A handshake has ended: its slot is free. `pump` gives it to the next."""
        self.slots_taken -= 1
        if source is not None:
            source.shaking -= 1

    def close(self) -> list[visitors.Visitor]:
        """Nobody waits here any more; these did."""
        waiting = list(itertools.chain.from_iterable(self._ready.values()))
        self._ready.clear()
        return waiting

    def pump(self) -> None:
        """Start as many handshakes as there are slots, and as one round may have: one for each source in turn."""
        # 1. sources take turns
        started = True
        while started and self._has_room():
            started = False
            for source in tuple(self._ready):
                if not self._has_room():
                    return
                # Who could not be begun has had others begin in their place: the queue may be shorter than it was.
                if source not in self._ready or not self._may_begin(source):
                    continue
                started = True
                waiting = self._ready.pop(source)
                visitor = waiting.popleft()
                if waiting:
                    # To the end of the line.
                    self._ready[source] = waiting
                self._begin(visitor, source)

    def _begin(self, visitor: visitors.Visitor, source: visitors.Source) -> None:
        if not self._begun:
            self._loop.call_soon(self._next_round)
        self._begun += 1
        self.slots_taken += 1
        source.shaking += 1
        visitor.stage = visitors.SHAKING
        try:
            self._start(visitor)
        except Exception as error:  # noqa: BLE001  it is told to the log, and its slot is free again
            _log.error("a handshake could not begin", source=visitor.source, exc_info=error)
            self._drop(visitor)

    def _next_round(self) -> None:
        self._begun = 0
        self.pump()

    def _has_room(self) -> bool:
        # 2. few begin in one round; what is over goes on in the next
        if self._begun >= self._limits.handshakes_per_round:
            return False
        return self.slots_taken < self._limits.handshakes_in_flight

    def _may_begin(self, source: visitors.Source) -> bool:
        return self._limits.lifted or source.shaking < self._limits.handshakes_per_source
