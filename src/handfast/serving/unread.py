# SPDX-License-Identifier: Apache-2.0
"""What answers hold that nobody has read yet, of each user and of all; over its bound, large ones are refused.

1. Whatever is written to a connection counts from the moment it is written until the operating system has taken it, with
   what is kept of the answer until then. (Below 16 KiB of a connection nobody looks: that is not worth the time.)
2. One user's unread answers hold at most `unread_per_user_bytes`, all of them together `unread_bytes`. Who asks for a
   large answer over that gets 429. Before, room is made: answers of which nothing was read for a second are given up (their
   connections are reset), first of the user who holds most, first the one unread for longest.
3. What cannot be refused any more, such as the answer to a write, may take a quarter more. Over that, answers are given up
   however short a time they have not been read for.
4. An answer of which nothing was read for `write_seconds` is given up, also where nothing waits for it any more.
5. When much was held and has gone, the memory goes back to the operating system, at two looks in a row.

With 429 alone those who do not read would keep those who do from getting an answer. Whoever goes on reading, however
slowly, gets all of it.

| who | holding | tries | stopped by | shown in tests/unit/serving/test_unread.py |
|---|---|---|---|---|
| whoever may read much | a credential | fill the memory with answers nobody reads | 2 | test_over_its_share_a_user_is_refused |
| whoever may read much | a credential | keep others from their answers, reading none | 2 | test_what_is_not_read_makes_room_for_others |
| several such | a credential each | the same together | 2 | test_of_all_the_largest_holder_loses |
| whoever may write much | a credential | fill the memory with the answers to writes | 3 | test_what_cannot_be_refused_has_a_bound_too |
| whoever may read a little | a credential | the same with small answers on many connections | 1, 3 | test_small_answers_count_in_sum |
| whoever may read much | a credential | leave an answer that nobody waits for, and keep the connection | 4 | test_what_nobody_waits_for_is_given_up_in_time |

It does not know what an answer is, nor who may have it.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
import structlog

from handfast.api import status
from handfast.runtime import clock as clocks
from handfast.runtime import memory
from handfast.serving import limits as limits_module

# 1. So much may be written to a connection before it is looked at.
LOOK_BYTES = 16 << 10
# 5. Less is not worth returning.
RETURN_BYTES = 32 << 20
_RETURNS = 2
_LOOK_SECONDS = 5.0
# 2. Who makes room, and how often it is asked for: to look at 8192 connections takes some milliseconds.
_PATIENCE_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 0.1
# 3. A quarter more.
_MORE = 1.25
_log = structlog.get_logger("handfast.unread")


class Held(Protocol):
    """One connection. `kept` is what it keeps of the answer it is writing, `user` whose answers it brings."""

    transport: asyncio.Transport | None
    kept: int
    user: str


class _Entry(msgspec.Struct):
    """What one connection held when it was last looked at, and since when it has not been read."""

    transports: tuple[asyncio.WriteTransport, ...]
    user: str
    since: float
    written: int = 0
    size: int = 0

    def buffered(self) -> int:
        return sum(transport.get_write_buffer_size() for transport in self.transports)


class Unread:
    """The unread answers of one server."""

    def __init__(
        self,
        limits: limits_module.Limits,
        clock: clocks.Clock,
        give_back: Callable[[], None] = memory.give_back,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._give_back = give_back
        self._loop = asyncio.get_running_loop()
        self._entries: dict[Held, _Entry] = {}
        # Sums of what the entries say. Answers only become shorter by being read, so that these are never too low.
        self._users: dict[str, int] = {}
        self._total = 0
        self._peak = 0
        # How often memory is still to be returned.
        self._returns = 0
        self._looked = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self.given_up = 0

    def held(self) -> int:
        """All bytes that are held now."""
        self._look(tuple(self._entries))
        return self._total

    def admit(self, connection: Held) -> None:
        """A large answer is about to begin: 429 if there is no room for it."""
        if self._limits.lifted or not self._is_over(connection.user, 1.0):
            return
        now = self._clock.monotonic()
        if now - self._looked >= _LOOK_AGAIN_SECONDS:
            self._relieve(connection.user, 1.0, now - _PATIENCE_SECONDS)
        if self._is_over(connection.user, 1.0):
            raise status.StatusError(
                "TooManyRequests",
                "too many large answers have not been read yet, please try again later",
                retry_after=1,
            )

    def note(self, connection: Held, coming: int) -> None:
        """So much is about to be written to the connection."""
        self.hold(connection, coming)
        # 3. an answer that cannot be refused
        if not self._limits.lifted and self._is_over(connection.user, _MORE):
            self._relieve(connection.user, _MORE, self._clock.monotonic())

    def hold(self, connection: Held, coming: int = 0) -> None:
        """Count what the connection keeps now, of an answer that may still be refused: see `admit`."""
        transport = connection.transport
        if transport is None:
            return
        entry = self._entries.get(connection)
        if entry is None:
            entry = self._entries[connection] = _Entry(_layers(transport), connection.user, self._clock.monotonic())
            if self._timer is None:
                self._timer = self._loop.call_later(self._interval(), self._on_time)
        elif entry.user != connection.user:
            self._count(entry, 0)
            entry.user = connection.user
        self._measure(connection, entry, coming)

    def forget(self, connection: Held) -> None:
        """The connection is gone, and what it held with it."""
        entry = self._entries.pop(connection, None)
        if entry is not None:
            self._count(entry, 0)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self, connection: Held, entry: _Entry, coming: int = 0) -> None:
        buffered = entry.buffered()
        if buffered < entry.written:
            entry.since = self._clock.monotonic()
        entry.written = buffered + coming
        self._count(entry, entry.written + connection.kept)

    def _count(self, entry: _Entry, size: int) -> None:
        more = size - entry.size
        entry.size = size
        self._total += more
        self._peak = max(self._peak, self._total)
        mine = self._users.get(entry.user, 0) + more
        if mine:
            self._users[entry.user] = mine
        else:
            self._users.pop(entry.user, None)

    def _look(self, connections: Iterable[Held]) -> None:
        """Measure again; who has read everything is no longer here."""
        self._looked = self._clock.monotonic()
        for connection in connections:
            entry = self._entries[connection]
            self._measure(connection, entry)
            if not entry.size:
                del self._entries[connection]

    def _is_over(self, user: str, times: float) -> bool:
        mine = self._users.get(user, 0)
        return mine > self._limits.unread_per_user_bytes * times or self._total > self._limits.unread_bytes * times

    def _relieve(self, user: str, times: float, before: float) -> None:
        """Give up answers that were not read since `before` (2, 3), down to three quarters: so it is not needed again soon."""
        self._look(tuple(self._entries))
        if not self._is_over(user, times):
            return
        victims = self._unread_since(before)
        count = 0
        share = self._limits.unread_per_user_bytes
        if self._users.get(user, 0) > share * times:
            count += self._give_up_of(user, victims.get(user, deque()), share * 3 // 4)
        largest = [(-self._users[user], user) for user in victims if user in self._users]
        heapq.heapify(largest)
        while largest and self._total > self._limits.unread_bytes * 3 // 4:
            _, most = heapq.heappop(largest)
            if victims[most]:
                self._give_up(victims[most].popleft())
                count += 1
                heapq.heappush(largest, (-self._users.get(most, 0), most))
        if count:
            _log.warning("unread answers given up", reason="NoRoom", asking=user, connections=count)

    def _give_up_of(self, user: str, victims: deque[Held], bound: int) -> int:
        count = 0
        while victims and self._users.get(user, 0) > bound:
            self._give_up(victims.popleft())
            count += 1
        return count

    def _unread_since(self, before: float) -> dict[str, deque[Held]]:
        """The connections of each user of which nothing was read since then, the longest unread first."""
        unread: dict[str, deque[Held]] = {}
        for connection, entry in sorted(self._entries.items(), key=lambda pair: pair[1].since):
            if entry.since <= before:
                unread.setdefault(entry.user, deque()).append(connection)
        return unread

    def _give_up(self, connection: Held) -> None:
        self.forget(connection)
        self.given_up += 1
        if connection.transport is not None:
            connection.transport.abort()

    def _interval(self) -> float:
        return min(_LOOK_SECONDS, self._limits.write_seconds / 4)

    def _on_time(self) -> None:
        self._timer = None
        self.review()
        if self._entries or self._returns or self._peak >= RETURN_BYTES:
            self._timer = self._loop.call_later(self._interval(), self._on_time)

    def review(self) -> None:
        """Give up what was unread for long (4), and return memory (5). Runs every few seconds while something is held."""
        self._look(tuple(self._entries))
        before = self._clock.monotonic() - self._limits.write_seconds
        late = [connection for connection, entry in self._entries.items() if entry.since <= before]
        for connection in late:
            self._give_up(connection)
        if late:
            _log.warning("unread answers given up", reason="UnreadForLong", connections=len(late))
        if self._total > self._peak // 2:
            return
        # 5. at this look, and at the next for what was still on its way out
        if self._peak >= RETURN_BYTES:
            self._returns = _RETURNS
        if self._returns:
            self._returns -= 1
            # In a thread: the loop need not wait for it.
            self._loop.run_in_executor(None, self._give_back)
        self._peak = self._total


def _layers(transport: asyncio.Transport) -> tuple[asyncio.WriteTransport, ...]:
    """The transport, and below its TLS the one that has the socket.

    uvloop's TLS tells what it holds itself. What it has handed on waits in the other, which nothing but the collector's
    view of objects leads to: up to 320 KiB of a connection, 2.5 GiB of all of them.
    """
    layers = [transport]
    for part in gc.get_referents(transport):
        if type(part).__name__ == "SSLProtocol":
            layers += [below for below in gc.get_referents(part) if type(below).__name__ == "TCPTransport"]
    return tuple(layers)
