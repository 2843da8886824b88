# SPDX-License-Identifier: Apache-2.0
"""One HTTP connection, from its handshake on: hands one request after another to the handler, and sends the answers.

1. A request head has a deadline and a size, so a client that sends one byte a minute does not keep a connection, nor
   one that sends headers without end the memory.
2. A client that does not read its answer is given up after a while.
3. What is left of a refused body is read and thrown away for a while: to close on it would take the answer back.
4. It all happens in one task, the one that began with the handshake.
5. Whoever sends many requests at once lets everybody else have a turn after each of them.
6. What no request can be made of is answered with 400 or 431, and the connection ends.
7. A connection that is gone leaves no cycle of references: the garbage collector hardly ever looks for old ones.

| who | holding | tries | stopped by | shown in tests/unit/serving/test_connection.py |
|---|---|---|---|---|
| anyone on the network | nothing | keep a connection with half a head | 1 | test_a_head_that_does_not_end |
| anyone on the network | nothing | keep a connection with a handshake, and nothing after it | 1: less time for the first head | test_strangers_have_less_time_for_their_first_head |
| anyone on the network | nothing | buy time byte by byte | 1 | test_byte_by_byte_does_not_buy_time |
| anyone on the network | nothing | fill the memory with headers | 1, 6 | test_no_http |
| whoever may read much | a credential | fill the memory with answers nobody reads | 2, and `unread` for all of them in sum | test_who_does_not_read_a_whole_answer_is_given_up |
| whoever may read much | a credential | have what is held for it stay after it has gone | 7 | test_an_unread_answer_leaves_nothing_for_the_collector |
| anyone on the network | nothing | keep a connection with a body that does not end | 3 | test_a_body_that_does_not_end_ends_the_connection |
| anyone on the network | nothing | have thousands of requests answered in one step | 5 | test_everybody_has_a_turn_between_requests_sent_at_once |
| anyone on the network | nothing | have the task die and the connection stay, without a deadline | 6 | test_no_http |

Taking requests is `aiohttp_parts.RequestLoop`, the half of this class that knows aiohttp from inside; writing answers is here.
It authenticates nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import structlog
from aiohttp import web

from handfast.runtime import tls
from handfast.serving import aiohttp_parts, answers
from handfast.serving import limits as limits_module
from handfast.serving import peer as peer_module
from handfast.serving import unread as unread_module

# So much of an answer is written at once: uvloop notices a peer that does not read only between two writes.
PIECE = 256 << 10
_log = structlog.get_logger("handfast.connection")
Handler = Callable[[web.BaseRequest], Awaitable[answers.Response]]
ErrorHandler = Callable[[int, str], answers.Answer]


class Connection(aiohttp_parts.RequestLoop):
    """Knows its peer, and answers it."""

    __slots__ = (
        *("_uncounted", "_unread", "address", "closed_hooks", "kept"),
        *("on_lost", "on_proved", "peer", "user", "via"),
    )

    def __init__(
        self,
        manager: Any,
        limits: limits_module.Limits,
        on_error: ErrorHandler,
        unread: unread_module.Unread,
    ) -> None:
        super().__init__(manager, limits, on_error)
        self._unread = unread
        # Written since `unread` last looked at this connection; kept of the answer that is being written; for whom.
        self._uncounted = 0
        self.kept = 0
        self.user = ""
        # Where the client is, and who says so: TLS's own connection, or a balancer.
        self.address, self.via = "", "tls"
        self.peer = peer_module.Peer((), "", "none")
        self.closed_hooks: set[Callable[[], None]] = set()
        # Before the hooks, so that none of them can be in its way: connections are counted by it.
        self.on_lost: Callable[[], None] = lambda: None
        # Called by `proved` with the name of the first user who is known here; None after that.
        self.on_proved: Callable[[str], None] | None = None

    def proved(self, user: str) -> None:
        """Somebody showed a good credential here. Only the first time counts, so it costs a request nothing."""
        on_proved, self.on_proved = self.on_proved, None
        if on_proved is not None:
            on_proved(user)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        try:
            self._made(transport)
        except Exception as error:  # noqa: BLE001  the loop would leave the handshake open for ever, and its slot taken
            _log.error("a connection could not begin", exc_info=error)
            transport.abort()  # type: ignore[attr-defined]  # TLS transports have it

    def _made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = peer_module.Peer.of(tls.presented_chain(transport), self.address, self.via)
        self.establish(cast("asyncio.Transport", transport), stranger=not self.peer.chain)

    def source(self) -> str:
        return self.peer.address

    def connection_lost(self, exc: BaseException | None) -> None:
        self.on_lost()
        self._unread.forget(self)
        for hook in tuple(self.closed_hooks):
            hook()
        super().connection_lost(exc)

    def count(self, size: int) -> None:
        """So much is about to be written: whoever does not read it holds the memory. See `unread`."""
        self._uncounted += size
        if self._uncounted > unread_module.LOOK_BYTES:
            self._unread.note(self, self._uncounted)
            self._uncounted = 0

    def keep(self, size: int) -> None:
        """The answer that is being made holds so much. See `unread`."""
        if size != self.kept:
            self.kept = size
            self._unread.hold(self)

    def admit(self) -> None:
        """A large answer, which may still be refused, is about to begin: 429 if too much is unread."""
        self._unread.admit(self)

    async def finish_response(
        self, request: web.BaseRequest, resp: Any, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer; True if there is nobody to take it. A whole one goes out in a single write, unless it is long."""
        if not isinstance(resp, answers.Answer) or self.upgraded:
            # The client of an upgrade wished for another protocol, which aiohttp alone knows how to go on from.
            stepwise = resp.stepwise() if isinstance(resp, answers.Answer) else resp
            try:
                async with asyncio.timeout(self._limits.write_seconds):
                    return await super().finish_response(request, stepwise, start_time)
            except TimeoutError:
                if self.transport is not None:
                    self.transport.abort()
                return stepwise, True
        answered = cast("web.StreamResponse", resp)
        transport = self.transport
        if transport is None or transport.is_closing():
            return answered, True
        data = resp.bytes_for(request)
        if len(data) > PIECE:
            return answered, await self._write_long(transport, memoryview(data))
        self.count(len(data))
        transport.write(data)
        return answered, self.writing_paused and await self._is_unread()

    async def _write_long(self, transport: asyncio.Transport, data: memoryview) -> bool:
        """Write an answer piece by piece; True if there is nobody to take it."""
        self.kept = len(data)
        try:
            for start in range(0, len(data), PIECE):
                piece = data[start : start + PIECE]
                self.count(len(piece))
                transport.write(piece)
                if self.writing_paused and await self._is_unread():
                    return True
        finally:
            self.kept = 0
        return False

    async def _is_unread(self) -> bool:
        """Wait until the client has made room (2); True if it does not, or is gone."""
        try:
            async with asyncio.timeout(self._limits.write_seconds):
                await self.drain()
        except ConnectionError:
            return True
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            return True
        return False
