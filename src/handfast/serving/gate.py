# SPDX-License-Identifier: Apache-2.0
"""Who may connect, and whose handshake is next: the part of the door that costs an attacker more than us.

1. A source over its rate of new connections waits, and is let in at that rate; when the wait would be too long, it is
   turned away. A source over its share of all connections is turned away too, and so is everyone over the total, unless
   a place can be freed (8).
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
   a while longer (`rates.PROVEN_SECONDS`). Before TLS nobody can tell its nodes from the strangers behind the same address, so
   strangers use it up too; but it takes a flood of several times the first rate before anybody else behind there waits for it.
8. Where all places of a source are taken, or all there are, whoever comes within the rate gets the place of a
   connection without a good credential: the one that has been in for longest, first of its own source, else of all. So
   what strangers hold open, by silence or by asking on without a credential, keeps nobody out. By the defaults a source
   of 4,096 places takes 1,600 at once and 400 a second: strangers need more than 6 seconds to push out whoever came
   before them, and more than 3 where 1,000 connections of nodes are open; showing a credential takes a fraction of one.
   Those silent after TLS leave after 5 seconds (`first_head_seconds`): at 400 a second they are 2,000. Whoever has
   shown one makes room for nobody.
9. Where `local_connections` says so, this machine itself has so many places beside all others, and takes none of theirs.
10. Servers that serve one store share all places and rates (`share`); handshakes, which cost this process its own time, and places
   of this machine itself they do not.

| who | holding | tries | stopped by | shown in tests/unit/serving/test_gate.py |
|---|---|---|---|---|
| anyone on the network | nothing | open connections faster than we can answer | 1 | test_over_its_rate_a_source_waits_and_nobody_else |
| anyone on the network | nothing | fill the place where others wait | 1: it is bounded by source, and needed only over one's rate | test_the_wait_is_bounded |
| a stranger | an address that nodes have, too (NAT) | use up the rate, so that nodes cannot connect | 6, 7 | test_strangers_behind_the_same_address |
| a node, taken over | a good certificate | have handshakes without end, since they cost it nothing | 6: as often as one user may | test_who_is_good_is_not_good_without_end |
| a stranger | the same | hold all places of that address, or all there are, within the rate | 8 | test_strangers_make_room |
| many at once | no credential | push out connections of those who are known | 8: they make room for nobody | test_who_is_known_makes_no_room |
| a stranger | an address whose nodes keep their connections | wait until the second rate ends | 7: it does not while one is open | test_a_kept_connection_keeps_the_second_rate |
| a stranger | no credential, or a bad one | the second rate | 7: a credential that is accepted | test_strangers_behind_the_same_address |
| strangers | many machines | keep this machine from asking itself | 9 | test_this_machine_has_places_of_its_own |
| anyone on the network | nothing | keep all connections open | 1: the share of one source | test_share_of_connections |
| anyone on the network | nothing | hold every handshake slot with silent connections | 2 | test_silence_holds_no_slot |
| anyone on the network | nothing | hold every slot with half a ClientHello | 3 | test_share_of_slots |
| many at once | nothing, or a token | have nodes wait while their handshakes begin | 4 | test_few_handshakes_begin_in_one_round |
| anyone on the network | nothing | end connections so that they are counted down twice, and have room for more | 5 | test_whoever_leaves_twice_is_counted_once |
| anyone on the network | nothing | end connections so that they are not counted down, and shut others out | 5 | test_counts_return_to_zero |

Whose connection it is, where a balancer passes it on, is found out before any of this (`runtime.proxied`): until then it
counts for no client, only for the total.

Rates (1, 6, 7) are counted in `rates`, the turns of handshakes (3, 4) in `handshakes`. It knows nothing of TLS or HTTP: who
starts a handshake says when it has ended.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
from collections import OrderedDict

from handfast.rules import networks
from handfast.runtime import clock as clocks
from handfast.runtime import proxied as proxied_module
from handfast.serving import handshakes, peer, rates
from handfast.serving import limits as limits_module
from handfast.serving import visitor as visitors

# No timer is shorter: what is due a moment early would otherwise be looked at again and again.
_SHORTEST_WAIT = 0.001
Visitor = visitors.Visitor


class Gate:
    """Connections from the moment they are accepted until their handshake may begin, and counts of those after it."""

    def __init__(
        self,
        limits: limits_module.Limits,
        clock: clocks.Clock,
        start: handshakes.Start,
        proxied: proxied_module.Proxied | None = None,
    ) -> None:
        self._limits = limits
        self.proxied = proxied or proxied_module.Proxied()
        self._loop = asyncio.get_running_loop()
        self._servers = 1
        self._rates = rates.Rates(limits, clock)
        self._handshakes = handshakes.Handshakes(limits, start, self._drop)
        self._strangers: OrderedDict[Visitor, None] = OrderedDict()
        self._waiting = 0
        self._sources: dict[str, visitors.Source] = {}
        # Connections, but for this machine's where it has places of its own.
        self._total = 0
        self._headers: set[Visitor] = set()
        self._silent: set[Visitor] = set()
        self.refused = 0

    def share(self, servers: int) -> None:
        """So many servers have these places and rates together. Who is in stays in; who comes finds fewer places."""
        self._servers = servers
        self._rates.share(servers)

    def _part(self, places: int) -> int:
        """What this server has of so many places."""
        return max(min(1, places), places // self._servers)

    @property
    def waiting(self) -> int:
        """Connections that wait because their source is over its rate."""
        return self._waiting

    @property
    def counts(self) -> tuple[int, int, int]:
        """Connections, the handshake slots they hold, and the sources they are from."""
        return self._total, self._handshakes.slots_taken, len(self._sources)

    def enter(self, sock: socket.socket, address: str) -> None:
        """Take a fresh connection in, have it wait, or reset it."""
        visitor = Visitor(sock, address)
        if not self.proxied.names(address):
            self._admit(visitor)
            return
        if not self._limits.lifted and not self._make_place():
            self._refuse(sock)
            return
        # Not among the balancer's own, which are counted as those of any other source.
        visitor.source = f"by way of {address}"
        visitor.stage = visitors.HEADER
        self._headers.add(visitor)
        self._count(visitor)
        then, end = functools.partial(self._passed_on, visitor), functools.partial(self._drop, visitor)
        visitor.reading = self.proxied.read(sock, address, then, end)

    def _passed_on(self, visitor: Visitor, client: str) -> None:
        """Its header is off: from now on it is the client's."""
        source, visitor.counted = visitor.counted, None
        self._headers.discard(visitor)
        if source is None:
            return
        self._uncount(source)
        visitor.proxied = client != visitor.address
        visitor.unnamed = not visitor.proxied
        visitor.address, visitor.source = client, networks.neighbourhood(client)
        self._admit(visitor)

    def _admit(self, visitor: Visitor) -> None:
        # 1. over its rate it waits, or is turned away
        if not self._limits.lifted:
            known = self._sources.get(visitor.source)
            # Others of its source wait already: it queues behind them.
            wait = self._rates.pay(visitor, known) if known is None or not known.waiting else 1.0
            if wait > 0.0:
                self._make_wait(visitor, wait)
                return
            if not self._make_place(known, local=self._is_local(visitor, known)):
                self._rates.give_back(visitor)
                self._refuse(visitor.sock)
                return
        self._let(visitor, self._count(visitor))

    def proved(self, visitor: Visitor, user: str) -> None:
        """Somebody showed a good credential on this connection."""
        # 6. once for each connection
        if not self._rates.prove(visitor, user):
            return
        source = visitor.counted
        # 7. whoever is known there opens the second rate, while it is here
        if source is None:
            self._rates.remember(visitor.source)
            return
        visitor.proven = True
        source.proven += 1
        # 8. and makes room for nobody
        self._is_no_stranger(visitor, source)

    def shaken(self, visitor: Visitor) -> None:
        """A handshake has ended, well or not: its slot is free."""
        if visitor.stage == visitors.SHAKING:
            visitor.stage = visitors.OPEN
            self._handshakes.release(visitor.counted)
            self._handshakes.pump()

    def left(self, visitor: Visitor) -> None:
        """A connection is gone, at whatever stage."""
        stage, visitor.stage = visitor.stage, visitors.GONE
        source, visitor.counted = visitor.counted, None
        # 5. it leaves once
        if source is None:
            return
        # The connection knows its visitor: the two would be a cycle, which only the collector finds.
        visitor.give_up = visitor.sock.close
        self._is_no_stranger(visitor, source)
        if visitor.proven:
            source.proven -= 1
            # 7. for a while longer
            if not source.proven:
                self._rates.remember(source.name)
        if stage == visitors.SILENT:
            self._heard(visitor)
        elif stage == visitors.READY:
            self._handshakes.unqueue(visitor, source)
        elif stage == visitors.WAITING:
            self._waiting -= 1
        elif stage == visitors.HEADER:
            self._headers.discard(visitor)
            if visitor.reading is not None:
                visitor.reading.cancel()
        elif stage == visitors.SHAKING:
            self._handshakes.release(source)
        self._uncount(source)
        if stage == visitors.SHAKING:
            self._handshakes.pump()

    def close(self) -> None:
        """Turn away everyone who waits."""
        waiting = [*self._headers, *self._silent, *self._handshakes.close()]
        for source in self._sources.values():
            waiting.extend(source.waiting)
            source.waiting.clear()
        for visitor in waiting:
            self._drop(visitor)

    def _count(self, visitor: Visitor) -> visitors.Source:
        source = self._sources.get(visitor.source)
        if source is None:
            local = self._is_local(visitor, None)
            source = self._sources[visitor.source] = visitors.Source(visitor.source, local=local)
        visitor.counted = source
        source.present += 1
        self._total += not source.local
        return source

    def _is_local(self, visitor: Visitor, known: visitors.Source | None) -> bool:
        """Whether it takes one of the places of this machine itself (9)."""
        if not self._limits.local_connections or visitor.stage == visitors.HEADER:
            return False
        return known.local if known is not None else peer.is_loopback(visitor.address)

    def _uncount(self, source: visitors.Source) -> None:
        self._total -= not source.local
        source.present -= 1
        if not source.present:
            del self._sources[source.name]
            if source.timer is not None:
                source.timer.cancel()

    def _refuse(self, sock: socket.socket) -> None:
        self.refused += 1
        reset(sock)

    def _make_place(self, source: visitors.Source | None = None, *, local: bool = False) -> bool:
        """Make sure of a place: if need be, the oldest stranger loses its own. False if there is none to be had."""
        # 8. first of its own source, else of all
        if source is not None and self._is_full(source):
            strangers = source.strangers
        elif not local and self._total >= self._part(self._limits.connections):
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

    def _is_full(self, source: visitors.Source) -> bool:
        limits = self._limits
        # 9. this machine's are counted by themselves
        return source.present >= (
            limits.local_connections if source.local else self._part(limits.connections_per_source)
        )

    def _is_no_stranger(self, visitor: Visitor, source: visitors.Source) -> None:
        source.strangers.pop(visitor, None)
        self._strangers.pop(visitor, None)

    def _make_wait(self, visitor: Visitor, seconds: float) -> None:
        """Have it wait behind the others of its source, if its turn comes soon enough (1)."""
        limits, known = self._limits, self._sources.get(visitor.source)
        rate = self._rates.per_second(visitor.source, known)
        ahead = 0 if known is None else len(known.waiting)
        full = known is not None and self._is_full(known)
        # 8. for who is over the rate nobody makes room
        if full or (self._total >= self._part(limits.connections) and not self._is_local(visitor, known)):
            self._refuse(visitor.sock)
            return
        if self._waiting >= self._part(limits.connections_waiting) or ahead + 1 > limits.waiting_seconds * rate:
            self._refuse(visitor.sock)
            return
        source = self._count(visitor)
        visitor.stage = visitors.WAITING
        self._waiting += 1
        source.waiting.append(visitor)
        if source.timer is None:
            source.timer = self._loop.call_later(max(seconds, _SHORTEST_WAIT), self._let_in, source)

    def _let_in(self, source: visitors.Source) -> None:
        """Those of a source whose turn has come."""
        source.timer = None
        while source.waiting:
            visitor = source.waiting[0]
            # Gone without a word.
            if proxied_module.begins(visitor.sock) == b"":
                source.waiting.popleft()
                self._drop(visitor)
                continue
            wait = self._rates.pay(visitor, source)
            if wait > 0.0:
                source.timer = self._loop.call_later(max(wait, _SHORTEST_WAIT), self._let_in, source)
                return
            source.waiting.popleft()
            self._waiting -= 1
            # It waits no more: whatever ends it now, it is not counted down for that again.
            visitor.stage = visitors.NEW
            self._let(visitor, source)

    def _let(self, visitor: Visitor, source: visitors.Source) -> None:
        """In, as a stranger: it has shown nothing yet."""
        source.strangers[visitor] = None
        # 9. whoever is here makes room for nobody from elsewhere: that would free no place of theirs
        if not source.local:
            self._strangers[visitor] = None
        self._listen(visitor)

    def _listen(self, visitor: Visitor) -> None:
        # 2. who says nothing waits; nearly all have spoken by now, and looking is cheaper than having the loop look
        data = proxied_module.begins(visitor.sock)
        if data is not None:
            self._spoken(visitor, data)
            return
        visitor.stage = visitors.SILENT
        self._silent.add(visitor)
        visitor.timer = self._loop.call_later(self._limits.silence_seconds, self._drop, visitor)
        self._loop.add_reader(visitor.sock.fileno(), self._spoke, visitor)

    def _spoke(self, visitor: Visitor) -> None:
        self._heard(visitor)
        self._spoken(visitor, proxied_module.begins(visitor.sock))

    def _spoken(self, visitor: Visitor, data: bytes | None) -> None:
        # What has gone wrong is left to whoever reads; a header here would be somebody's choice of address.
        if self.proxied.is_forged(data, visitor.address, proxied=visitor.proxied):
            self._drop(visitor)
        else:
            self._handshakes.queue(visitor)

    def _heard(self, visitor: Visitor) -> None:
        """Stop waiting for its first octet."""
        self._silent.discard(visitor)
        if visitor.timer is not None:
            visitor.timer.cancel()
        self._loop.remove_reader(visitor.sock.fileno())

    def _drop(self, visitor: Visitor) -> None:
        self.left(visitor)
        visitor.sock.close()


def reset(sock: socket.socket) -> None:
    """RST instead of a polite close: no TIME_WAIT on our side for a flood."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
