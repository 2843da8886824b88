# SPDX-License-Identifier: Apache-2.0
"""Who may connect, and whose handshake is next: the part of the door that costs an attacker more than us.

1. A source over its rate of new connections waits, and is let in at that rate; when the wait would be too long, it is
   turned away. So is anyone over the total or its own share of it, unless somebody makes room (8).
2. A connection that says nothing waits without a handshake slot, and not for long. (`listener` has the kernel hold it back
   for the first second, where it can; whoever speaks is then here at once.)
3. Handshake slots go round the sources in turn, and no source holds more than its share of them.
4. Few handshakes begin in one round of the event loop: each takes it the better part of a millisecond, and in that time
   nobody is answered. (Whoever begins with half a ClientHello can still have all slots computed in one round: some tens of
   milliseconds, which the number of slots bounds.)
5. A connection is counted by an object of its own (`Visitor`), not by its address: it leaves once, however often and by
   whom that is said, and takes with it all that it held.
6. Who shows a good credential pays nothing: its connection is given back to the rate of its source, as often as one user
   may (`connections_per_second`, by name). Only connections that end without one use the rate up.
7. A source where somebody did so has a second, larger rate behind the first, for as long as that connection is open and
   a while longer (`PROVEN_SECONDS`). Before TLS nobody can tell its nodes from the strangers behind the same address, so
   strangers use it up too; but it takes a flood of several times the first rate before anybody else behind there waits for it.
8. Where all places of a source are taken, or all there are, whoever comes within the rate gets that of the connection that
   is let in for longest without a good credential: first of its own source, else of all. What strangers hold open, by
   silence or by asking on without a credential, so keeps nobody out. By the defaults a source of 4,096 places takes 1,600
   at once and 400 a second: strangers need more than 6 seconds to push out whoever came before them, and more than 3 where
   1,000 connections of nodes are open; showing a credential takes a fraction of one. Those silent after TLS leave after 5
   seconds (`first_head_seconds`): at 400 a second they are 2,000. Whoever has shown one makes room for nobody.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_gate.py |
|---|---|---|---|---|
| anyone on the network | nothing | open connections faster than we can answer | 1 | test_rate |
| anyone on the network | nothing | fill the place where others wait | 1: it is bounded by source, and needed only over one's rate | test_the_wait_is_bounded |
| a stranger | an address that nodes have, too (NAT) | use up the rate, so that nodes cannot connect | 6, 7 | test_strangers_behind_the_same_address |
| a node, taken over | a good certificate | have handshakes without end, since they cost it nothing | 6: as often as one user may | test_who_is_good_is_not_good_without_end |
| a stranger | the same | hold all places of that address, or all there are, within the rate | 8 | test_strangers_make_room |
| many at once | no credential | push out connections of those who are known | 8: they make room for nobody | test_who_is_known_makes_no_room |
| a stranger | an address whose nodes keep their connections | wait until the second rate ends | 7: it does not while one is open | test_a_kept_connection_keeps_the_second_rate |
| a stranger | no credential, or a bad one | the second rate | 7: a credential that is accepted | test_strangers_behind_the_same_address |
| anyone on the network | nothing | keep all connections open | 1: the share of one source | test_share_of_connections |
| anyone on the network | nothing | hold every handshake slot with silent connections | 2 | test_silence_holds_no_slot |
| anyone on the network | nothing | hold every slot with half a ClientHello | 3 | test_share_of_slots |
| many at once | nothing, or a token | have nodes wait while their handshakes begin | 4 | test_rounds |
| anyone on the network | nothing | end connections so that they are counted down twice, and have room for more | 5 | test_whoever_leaves_twice_is_counted_once |
| anyone on the network | nothing | end connections so that they are not counted down, and shut others out | 5 | test_counts_return_to_zero |

Whose connection it is, where a balancer passes it on, is found out before any of this (`runtime.proxied`): until then it
counts for no client, only for the total.

It knows nothing of TLS or HTTP: who starts a handshake says when it has ended.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import socket
import struct
from collections import OrderedDict, deque
from collections.abc import Callable

import structlog

from handfast.apiserver import limits as limits_module
from handfast.rules import networks
from handfast.runtime import clock as clock_module
from handfast.runtime import proxied as proxied_module

# Where a connection is.
_NEW, _HEADER, _WAITING, _SILENT, _READY, _SHAKING, _OPEN, _GONE = range(8)
# How long a good credential speaks for its source after its connection has ended.
PROVEN_SECONDS = 600.0
# No timer is shorter: what is due a moment early would otherwise be looked at again and again.
_SHORTEST_WAIT = 0.001
# Sources for which one does; the one not heard of for longest is forgotten.
_PROVEN_SOURCES = 10_000
_log = structlog.get_logger("handfast.gate")


class _Source:
    """What one source has here."""

    __slots__ = ("name", "present", "proven", "shaking", "strangers", "timer", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        # Connections, whatever the stage, and those of them that hold a handshake slot.
        self.present = 0
        self.shaking = 0
        # Those of them on which a good credential was shown, and those let in without one, the oldest first.
        self.proven = 0
        self.strangers: OrderedDict[Visitor, None] = OrderedDict()
        # Those that are over its rate, and when the next one is let in.
        self.waiting: deque[Visitor] = deque()
        self.timer: asyncio.TimerHandle | None = None


class Visitor:
    """One connection, from the moment it is accepted until it is gone."""

    __slots__ = (
        *("_paid", "_proven", "_reading", "_source", "_stage", "_timer"),
        *("address", "give_up", "proxied", "sock", "source"),
    )

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock = sock
        # Where it is from; `proxied`: by the word of a balancer.
        self.address = address
        self.proxied = False
        # By what it is counted: whoever has one IPv6 address has the other 2⁶⁴ of its network.
        self.source = networks.neighbourhood(address)
        self._reading: proxied_module.Reading | None = None
        self._source: _Source | None = None
        self._stage = _NEW
        self._timer: asyncio.TimerHandle | None = None
        # The rate it was let in by, until it is given back.
        self._paid: limits_module.Buckets | None = None
        # Whether a good credential was shown on it.
        self._proven = False
        # Ends it, once its handshake has begun: the socket is TLS's then.
        self.give_up: Callable[[], None] = sock.close


Start = Callable[[Visitor], None]


class Gate:
    """Connections from the moment they are accepted until their handshake may begin, and counts of those after it."""

    def __init__(
        self,
        limits: limits_module.Limits,
        clock: clock_module.Clock,
        start: Start,
        proxied: proxied_module.Proxied | None = None,
    ) -> None:
        self._limits = limits
        self.proxied = proxied or proxied_module.Proxied()
        self._clock = clock
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._rates = limits_module.Buckets(limits.connections_per_second, limits.connections_burst)
        self._more = limits_module.Buckets(limits.proven_per_second, limits.proven_burst)
        self._given_back = limits_module.Buckets(limits.connections_per_second, limits.connections_burst)
        # Sources with no such connection left: until when they still have the second rate.
        self._proven: OrderedDict[str, float] = OrderedDict()
        self._strangers: OrderedDict[Visitor, None] = OrderedDict()
        self._waiting = 0
        self._sources: dict[str, _Source] = {}
        self._total = 0
        self._headers: set[Visitor] = set()
        self._silent: set[Visitor] = set()
        self._ready: OrderedDict[_Source, deque[Visitor]] = OrderedDict()
        self._slots_taken = 0
        # In this round of the event loop.
        self._begun = 0
        self.refused = 0

    @property
    def waiting(self) -> int:
        """Connections that wait because their source is over its rate."""
        return self._waiting

    @property
    def counts(self) -> tuple[int, int, int]:
        """Connections, the handshake slots they hold, and the sources they are from."""
        return self._total, self._slots_taken, len(self._sources)

    def enter(self, sock: socket.socket, address: str) -> None:
        """Take a fresh connection in, have it wait, or reset it."""
        visitor = Visitor(sock, address)
        if not self.proxied.names(address):
            self._admit(visitor)
            return
        if not self._limits.lifted and not self._has_place():
            self._refuse(sock)
            return
        # Not among the balancer's own, which are counted as those of any other source.
        visitor.source = f"by way of {address}"
        visitor._stage = _HEADER
        self._headers.add(visitor)
        self._count(visitor)
        then, end = functools.partial(self._passed_on, visitor), functools.partial(self._drop, visitor)
        visitor._reading = self.proxied.read(sock, address, then, end)

    def _passed_on(self, visitor: Visitor, client: str) -> None:
        """Its header is off: from now on it is the client's."""
        source, visitor._source = visitor._source, None
        self._headers.discard(visitor)
        if source is None:
            return
        self._uncount(source)
        visitor.proxied = client != visitor.address
        visitor.address, visitor.source = client, networks.neighbourhood(client)
        self._admit(visitor)

    def _admit(self, visitor: Visitor) -> None:
        # 1. over its rate it waits, or is turned away
        if not self._limits.lifted:
            known = self._sources.get(visitor.source)
            wait = self._pay(visitor) if known is None or not known.waiting else 1.0
            if wait > 0.0:
                self._make_wait(visitor, wait)
                return
            if not self._has_place(known):
                if visitor._paid is not None:
                    visitor._paid.give_back(visitor.source)
                self._refuse(visitor.sock)
                return
        self._let(visitor, self._count(visitor))

    def proved(self, visitor: Visitor, user: str) -> None:
        """Somebody showed a good credential on this connection."""
        paid, visitor._paid = visitor._paid, None
        # 6. once for each connection
        if paid is None:
            return
        now = self._clock.monotonic()
        if self._given_back.wait(user, now) == 0.0:
            paid.give_back(visitor.source)
        source = visitor._source
        # 7. whoever is known there opens the second rate, while it is here
        if source is None:
            self._remember(visitor.source)
            return
        visitor._proven = True
        source.proven += 1
        # 8. and makes room for nobody
        self._is_no_stranger(visitor, source)

    def shaken(self, visitor: Visitor) -> None:
        """A handshake has ended, well or not: its slot is free."""
        if visitor._stage == _SHAKING:
            visitor._stage = _OPEN
            self._free_slot(visitor)

    def left(self, visitor: Visitor) -> None:
        """A connection is gone, at whatever stage."""
        stage, visitor._stage = visitor._stage, _GONE
        source, visitor._source = visitor._source, None
        # 5. it leaves once
        if source is None:
            return
        # The connection knows its visitor: the two would be a cycle, which only the collector finds.
        visitor.give_up = visitor.sock.close
        self._is_no_stranger(visitor, source)
        if visitor._proven:
            source.proven -= 1
            # 7. for a while longer
            if not source.proven:
                self._remember(source.name)
        if stage == _SILENT:
            self._heard(visitor)
        elif stage == _READY:
            self._unqueue(visitor, source)
        elif stage == _WAITING:
            self._waiting -= 1
        elif stage == _HEADER:
            self._headers.discard(visitor)
            if visitor._reading is not None:
                visitor._reading.cancel()
        elif stage == _SHAKING:
            source.shaking -= 1
            self._slots_taken -= 1
        self._uncount(source)
        if stage == _SHAKING:
            self._pump()

    def close(self) -> None:
        """Turn away everyone who waits."""
        waiting = [*self._headers, *self._silent, *itertools.chain.from_iterable(self._ready.values())]
        self._ready.clear()
        for source in self._sources.values():
            waiting.extend(source.waiting)
            source.waiting.clear()
        for visitor in waiting:
            self._drop(visitor)

    def _count(self, visitor: Visitor) -> _Source:
        source = self._sources.get(visitor.source)
        if source is None:
            source = self._sources[visitor.source] = _Source(visitor.source)
        visitor._source = source
        source.present += 1
        self._total += 1
        return source

    def _uncount(self, source: _Source) -> None:
        self._total -= 1
        source.present -= 1
        if not source.present:
            del self._sources[source.name]
            if source.timer is not None:
                source.timer.cancel()

    def _refuse(self, sock: socket.socket) -> None:
        self.refused += 1
        reset(sock)

    def _has_place(self, source: _Source | None = None) -> bool:
        """Whether there is one for somebody who is let in now; if need be, the oldest stranger makes room for it."""
        # 8. first of its own source, else of all
        if source is not None and source.present >= self._limits.connections_per_source:
            strangers = source.strangers
        elif self._total >= self._limits.connections:
            strangers = self._strangers
        else:
            return True
        oldest = next(iter(strangers), None)
        if oldest is None:
            return False
        self.refused += 1
        give_up = oldest.give_up
        self.left(oldest)
        give_up()
        return True

    def _is_no_stranger(self, visitor: Visitor, source: _Source) -> None:
        source.strangers.pop(visitor, None)
        self._strangers.pop(visitor, None)

    def _remember(self, name: str) -> None:
        """7. Somebody was known there until now."""
        self._proven.pop(name, None)
        self._proven[name] = self._clock.monotonic() + PROVEN_SECONDS
        if len(self._proven) > _PROVEN_SOURCES:
            self._proven.popitem(last=False)

    def _pay(self, visitor: Visitor) -> float:
        """0.0 if a rate of its source lets it in now, else the seconds until one may."""
        now = self._clock.monotonic()
        wait = self._rates.wait(visitor.source, now)
        if wait == 0.0:
            visitor._paid = self._rates
        elif self._is_proven(visitor.source, now):
            more = self._more.wait(visitor.source, now)
            if more == 0.0:
                visitor._paid = self._more
            wait = min(wait, more)
        return wait

    def _is_proven(self, name: str, now: float) -> bool:
        source = self._sources.get(name)
        return (source is not None and source.proven > 0) or self._proven.get(name, now) > now

    def _make_wait(self, visitor: Visitor, seconds: float) -> None:
        """1. Behind the others of its source, if its turn comes soon enough."""
        limits, known = self._limits, self._sources.get(visitor.source)
        rate = limits.connections_per_second
        if self._is_proven(visitor.source, self._clock.monotonic()):
            rate += limits.proven_per_second
        ahead = 0 if known is None else len(known.waiting)
        full = known is not None and known.present >= limits.connections_per_source
        # 8. for who is over the rate nobody makes room
        if full or self._total >= limits.connections:
            self._refuse(visitor.sock)
            return
        if self._waiting >= limits.connections_waiting or ahead + 1 > limits.waiting_seconds * rate:
            self._refuse(visitor.sock)
            return
        source = self._count(visitor)
        visitor._stage = _WAITING
        self._waiting += 1
        source.waiting.append(visitor)
        if source.timer is None:
            source.timer = self._loop.call_later(max(seconds, _SHORTEST_WAIT), self._let_in, source)

    def _let_in(self, source: _Source) -> None:
        """Those of a source whose turn has come."""
        source.timer = None
        while source.waiting:
            visitor = source.waiting[0]
            # Gone without a word.
            if proxied_module.begins(visitor.sock) == b"":
                source.waiting.popleft()
                self._drop(visitor)
                continue
            wait = self._pay(visitor)
            if wait > 0.0:
                source.timer = self._loop.call_later(max(wait, _SHORTEST_WAIT), self._let_in, source)
                return
            source.waiting.popleft()
            self._waiting -= 1
            # It waits no more: whatever ends it now, it is not counted down for that again.
            visitor._stage = _NEW
            self._let(visitor, source)

    def _let(self, visitor: Visitor, source: _Source) -> None:
        """In, as a stranger: it has shown nothing yet."""
        source.strangers[visitor] = None
        self._strangers[visitor] = None
        self._listen(visitor)

    def _listen(self, visitor: Visitor) -> None:
        # 2. who says nothing waits; nearly all have spoken by now, and looking is cheaper than having the loop look
        data = proxied_module.begins(visitor.sock)
        if data is not None:
            self._spoken(visitor, data)
            return
        visitor._stage = _SILENT
        self._silent.add(visitor)
        visitor._timer = self._loop.call_later(self._limits.silence_seconds, self._drop, visitor)
        self._loop.add_reader(visitor.sock.fileno(), self._spoke, visitor)

    def _spoke(self, visitor: Visitor) -> None:
        self._heard(visitor)
        self._spoken(visitor, proxied_module.begins(visitor.sock))

    def _spoken(self, visitor: Visitor, data: bytes | None) -> None:
        # What has gone wrong is left to whoever reads; a header here would be somebody's choice of address.
        if self.proxied.is_forged(data, visitor.address, proxied=visitor.proxied):
            self._drop(visitor)
        else:
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
        # 3. sources take turns; mostly nobody waits, and then there is no turn to keep
        if not self._ready and self._has_room() and self._may_begin(source):
            self._begin(visitor, source)
            return
        visitor._stage = _READY
        self._ready.setdefault(source, deque()).append(visitor)
        self._pump()

    def _unqueue(self, visitor: Visitor, source: _Source) -> None:
        ready = self._ready.get(source)
        if ready is not None:
            ready.remove(visitor)
            if not ready:
                del self._ready[source]

    def _pump(self) -> None:
        """Start as many handshakes as there are slots, and as one round may have: one for each source in turn."""
        # 3. sources take turns
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
        # 4. few begin in one round; what is over goes on in the next
        if self._begun >= self._limits.handshakes_per_round:
            return False
        return self._slots_taken < self._limits.handshakes_in_flight

    def _may_begin(self, source: _Source) -> bool:
        return self._limits.lifted or source.shaking < self._limits.handshakes_per_source


def reset(sock: socket.socket) -> None:
    """RST instead of a polite close: no TIME_WAIT on our side for a flood."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
