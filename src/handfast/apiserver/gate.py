# SPDX-License-Identifier: Apache-2.0
"""Who may connect, and whose handshake is next: the part of the door that costs an attacker more than us.

1. A source over its rate of new connections is turned away, and so is anyone over the total or its own share of it.
2. A connection that says nothing waits without a handshake slot, and not for long. (`listener` has the kernel hold it back
   for the first second, where it can; whoever speaks is then here at once.)
3. Handshake slots go round the sources in turn, and no source holds more than its share of them.
4. Few handshakes begin in one round of the event loop: each takes it the better part of a millisecond, and in that time
   nobody is answered. (Whoever begins with half a ClientHello can still have all slots computed in one round: some tens of
   milliseconds, which the number of slots bounds.)
5. A connection is counted by an object of its own (`Visitor`), not by its address: it leaves once, however often and by
   whom that is said, and takes with it all that it held.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_gate.py |
|---|---|---|---|---|
| anyone on the network | nothing | open connections faster than we can answer | 1 | test_rate |
| anyone on the network | nothing | keep all connections open | 1: the share of one source | test_share_of_connections |
| anyone on the network | nothing | hold every handshake slot with silent connections | 2 | test_silence_holds_no_slot |
| anyone on the network | nothing | hold every slot with half a ClientHello | 3 | test_share_of_slots |
| many at once | nothing, or a token | have nodes wait while their handshakes begin | 4 | test_rounds |
| anyone on the network | nothing | end connections so that they are counted down twice, and have room for more | 5 | test_whoever_leaves_twice_is_counted_once |
| anyone on the network | nothing | end connections so that they are not counted down, and shut others out | 5 | test_counts_return_to_zero |

It knows nothing of TLS or HTTP: who starts a handshake says when it has ended.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections import OrderedDict, deque
from collections.abc import Callable

import structlog

from handfast.apiserver import limits as limits_module
from handfast.runtime import clock as clock_module

# Where a connection is.
_NEW, _SILENT, _READY, _SHAKING, _OPEN, _GONE = range(6)
_log = structlog.get_logger("handfast.gate")


class _Source:
    """What one source has here."""

    __slots__ = ("name", "present", "shaking")

    def __init__(self, name: str) -> None:
        self.name = name
        # Connections, whatever the stage, and those of them that hold a handshake slot.
        self.present = 0
        self.shaking = 0


class Visitor:
    """One connection, from the moment it is accepted until it is gone."""

    __slots__ = ("_source", "_stage", "_timer", "sock", "source")

    def __init__(self, sock: socket.socket, source: str) -> None:
        self.sock = sock
        # By what it is counted.
        self.source = source
        self._source: _Source | None = None
        self._stage = _NEW
        self._timer: asyncio.TimerHandle | None = None


Start = Callable[[Visitor], None]


class Gate:
    """Connections from the moment they are accepted until their handshake may begin, and counts of those after it."""

    def __init__(self, limits: limits_module.Limits, clock: clock_module.Clock, start: Start) -> None:
        self._limits = limits
        self._clock = clock
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._buckets = limits_module.Buckets(limits.connections_per_second, limits.connections_burst)
        self._sources: dict[str, _Source] = {}
        self._total = 0
        self._silent: set[Visitor] = set()
        self._ready: OrderedDict[_Source, deque[Visitor]] = OrderedDict()
        self._slots_taken = 0
        # In this round of the event loop.
        self._begun = 0
        self.refused = 0

    @property
    def counts(self) -> tuple[int, int, int]:
        """Connections, the handshake slots they hold, and the sources they are from."""
        return self._total, self._slots_taken, len(self._sources)

    def enter(self, sock: socket.socket, source: str) -> None:
        """Take a fresh connection in, or reset it."""
        # 1.
        if not self._limits.lifted and not self._is_admitted(source):
            self.refused += 1
            reset(sock)
            return
        visitor = Visitor(sock, source)
        self._count(visitor)
        # 2. Nearly all have spoken by the time they are accepted; looking is cheaper than having the loop look.
        if _has_spoken(sock):
            self._queue(visitor)
            return
        visitor._stage = _SILENT
        self._silent.add(visitor)
        visitor._timer = self._loop.call_later(self._limits.silence_seconds, self._drop, visitor)
        self._loop.add_reader(sock.fileno(), self._spoke, visitor)

    def shaken(self, visitor: Visitor) -> None:
        """A handshake has ended, well or not: its slot is free."""
        if visitor._stage == _SHAKING:
            visitor._stage = _OPEN
            self._free_slot(visitor)

    def left(self, visitor: Visitor) -> None:
        """A connection is gone, at whatever stage."""
        stage, visitor._stage = visitor._stage, _GONE
        source, visitor._source = visitor._source, None
        # 5.
        if source is None:
            return
        if stage == _SILENT:
            self._heard(visitor)
        self._total -= 1
        source.present -= 1
        if stage == _SHAKING:
            source.shaking -= 1
            self._slots_taken -= 1
        if not source.present:
            del self._sources[source.name]
        if stage == _SHAKING:
            self._pump()

    def close(self) -> None:
        """Turn away everyone who waits."""
        waiting = [*self._silent, *itertools.chain.from_iterable(self._ready.values())]
        self._ready.clear()
        for visitor in waiting:
            self._drop(visitor)

    def _count(self, visitor: Visitor) -> None:
        source = self._sources.get(visitor.source)
        if source is None:
            source = self._sources[visitor.source] = _Source(visitor.source)
        visitor._source = source
        source.present += 1
        self._total += 1

    def _is_admitted(self, name: str) -> bool:
        if self._total >= self._limits.connections:
            return False
        source = self._sources.get(name)
        if source is not None and source.present >= self._limits.connections_per_source:
            return False
        return self._buckets.wait(name, self._clock.monotonic()) == 0.0

    def _spoke(self, visitor: Visitor) -> None:
        self._heard(visitor)
        self._queue(visitor)

    def _heard(self, visitor: Visitor) -> None:
        """Stop waiting for its first octet."""
        self._silent.discard(visitor)
        if visitor._timer is not None:
            visitor._timer.cancel()
        self._loop.remove_reader(visitor.sock.fileno())

    def _drop(self, visitor: Visitor) -> None:
        self.left(visitor)
        visitor.sock.close()

    def _queue(self, visitor: Visitor) -> None:
        source = visitor._source
        if source is None:
            return
        # 3. Mostly nobody waits, and then there is no turn to keep.
        if not self._ready and self._has_room() and self._may_begin(source):
            self._begin(visitor, source)
            return
        visitor._stage = _READY
        self._ready.setdefault(source, deque()).append(visitor)
        self._pump()

    def _pump(self) -> None:
        """Start as many handshakes as there are slots, and as one round may have: one for each source in turn."""
        # 3.
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

    def _begin(self, visitor: Visitor, source: _Source) -> None:
        if not self._begun:
            self._loop.call_soon(self._next_round)
        self._begun += 1
        self._slots_taken += 1
        source.shaking += 1
        visitor._stage = _SHAKING
        try:
            self._start(visitor)
        except Exception as error:  # noqa: BLE001  it is told to the log, and its slot is free again
            _log.error("a handshake could not begin", source=visitor.source, exc_info=error)
            self._drop(visitor)

    def _free_slot(self, visitor: Visitor) -> None:
        self._slots_taken -= 1
        if visitor._source is not None:
            visitor._source.shaking -= 1
        self._pump()

    def _next_round(self) -> None:
        self._begun = 0
        self._pump()

    def _has_room(self) -> bool:
        # 4. What is over goes on in the next round.
        if self._begun >= self._limits.handshakes_per_round:
            return False
        return self._slots_taken < self._limits.handshakes_in_flight

    def _may_begin(self, source: _Source) -> bool:
        return self._limits.lifted or source.shaking < self._limits.handshakes_per_source


def _has_spoken(sock: socket.socket) -> bool:
    """Is there a byte to read, or an end? What has gone wrong is left to whoever reads."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    return True


def reset(sock: socket.socket) -> None:
    """RST instead of a polite close: no TIME_WAIT on our side for a flood."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
