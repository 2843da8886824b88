# SPDX-License-Identifier: Apache-2.0
"""Who may connect, and whose handshake is next: the part of the door that costs an attacker more than us.

1. A source over its rate of new connections is turned away, and so is anyone over the total or its own share of it.
2. A connection that says nothing waits without a handshake slot, and not for long. (`listener` has the kernel hold it back
   for the first second, where it can; whoever speaks is then here at once.)
3. Handshake slots go round the sources in turn, and no source holds more than its share of them.
4. Few handshakes begin in one round of the event loop: each takes it the better part of a millisecond, and in that time
   nobody is answered. (Whoever begins with half a ClientHello can still have all slots computed in one round: some tens of
   milliseconds, which the number of slots bounds.)

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_gate.py |
|---|---|---|---|---|
| anyone on the network | nothing | open connections faster than we can answer | 1 | test_rate |
| anyone on the network | nothing | keep all connections open | 1: the share of one source | test_share_of_connections |
| anyone on the network | nothing | hold every handshake slot with silent connections | 2 | test_silence_holds_no_slot |
| anyone on the network | nothing | hold every slot with half a ClientHello | 3 | test_share_of_slots |
| many at once | nothing, or a token | have nodes wait while their handshakes begin | 4 | test_rounds |

It knows nothing of TLS or HTTP: who starts a handshake says when it has ended.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import OrderedDict, deque
from collections.abc import Callable

from handfast.apiserver import limits as limits_module
from handfast.runtime import clock as clock_module

Start = Callable[[socket.socket, str], None]


class Gate:
    """Connections from the moment they are accepted until their handshake may begin, and counts of those after it."""

    def __init__(self, limits: limits_module.Limits, clock: clock_module.Clock, start: Start) -> None:
        self._limits = limits
        self._clock = clock
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._buckets = limits_module.Buckets(limits.connections_per_second, limits.connections_burst)
        # Everyone who is inside, whatever the stage, by source. (No Counter: what it lacks costs it a call in Python.)
        self._present: dict[str, int] = {}
        self._total = 0
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._ready: OrderedDict[str, deque[socket.socket]] = OrderedDict()
        self._shaking: dict[str, int] = {}
        self._slots_taken = 0
        # In this round of the event loop.
        self._begun = 0
        self.refused = 0

    def enter(self, sock: socket.socket, source: str) -> None:
        """Take a fresh connection in, or reset it."""
        # 1.
        if not self._limits.lifted and not self._is_admitted(source):
            self.refused += 1
            reset(sock)
            return
        self._present[source] = self._present.get(source, 0) + 1
        self._total += 1
        # 2. Nearly all have spoken by the time they are accepted; looking is cheaper than having the loop look.
        if _has_spoken(sock):
            self._queue(sock, source)
            return
        self._silent[sock] = self._loop.call_later(self._limits.silence_seconds, self._give_up, sock, source)
        self._loop.add_reader(sock.fileno(), self._spoke, sock, source)

    def shaken(self, source: str) -> None:
        """A handshake has ended, well or not: its slot is free."""
        self._slots_taken -= 1
        _count_down(self._shaking, source)
        self._pump()

    def left(self, source: str) -> None:
        """A connection is gone."""
        self._total -= 1
        _count_down(self._present, source)

    def close(self) -> None:
        """Turn away everyone who waits."""
        for sock, timer in self._silent.items():
            timer.cancel()
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._silent.clear()
        for waiting in self._ready.values():
            for sock in waiting:
                sock.close()
        self._ready.clear()

    def _is_admitted(self, source: str) -> bool:
        if self._total >= self._limits.connections:
            return False
        if self._present.get(source, 0) >= self._limits.connections_per_source:
            return False
        return self._buckets.wait(source, self._clock.monotonic()) == 0.0

    def _spoke(self, sock: socket.socket, source: str) -> None:
        self._silent.pop(sock).cancel()
        self._loop.remove_reader(sock.fileno())
        self._queue(sock, source)

    def _queue(self, sock: socket.socket, source: str) -> None:
        # 3. Mostly nobody waits, and then there is no turn to keep.
        if not self._ready and self._has_room() and self._may_begin(source):
            self._begin(sock, source)
            return
        self._ready.setdefault(source, deque()).append(sock)
        self._pump()

    def _give_up(self, sock: socket.socket, source: str) -> None:
        del self._silent[sock]
        self._loop.remove_reader(sock.fileno())
        sock.close()
        self.left(source)

    def _pump(self) -> None:
        """Start as many handshakes as there are slots, and as one round may have: one for each source in turn."""
        # 3.
        started = True
        while started and self._has_room():
            started = False
            for source in tuple(self._ready):
                if not self._has_room():
                    return
                if not self._may_begin(source):
                    continue
                started = True
                waiting = self._ready.pop(source)
                sock = waiting.popleft()
                if waiting:
                    # To the end of the line.
                    self._ready[source] = waiting
                self._begin(sock, source)

    def _begin(self, sock: socket.socket, source: str) -> None:
        if not self._begun:
            self._loop.call_soon(self._next_round)
        self._begun += 1
        self._slots_taken += 1
        self._shaking[source] = self._shaking.get(source, 0) + 1
        self._start(sock, source)

    def _next_round(self) -> None:
        self._begun = 0
        self._pump()

    def _has_room(self) -> bool:
        # 4. What is over goes on in the next round.
        if self._begun >= self._limits.handshakes_per_round:
            return False
        return self._slots_taken < self._limits.handshakes_in_flight

    def _may_begin(self, source: str) -> bool:
        return self._limits.lifted or self._shaking.get(source, 0) < self._limits.handshakes_per_source


def _has_spoken(sock: socket.socket) -> bool:
    """Is there a byte to read, or an end? What has gone wrong is left to whoever reads."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    return True


def _count_down(counts: dict[str, int], source: str) -> None:
    left = counts.pop(source) - 1
    if left > 0:
        counts[source] = left


def reset(sock: socket.socket) -> None:
    """RST instead of a polite close: no TIME_WAIT on our side for a flood."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
