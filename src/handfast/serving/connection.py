# SPDX-License-Identifier: Apache-2.0
"""One HTTP connection, from its handshake on: hands one request after another to the pipeline, and sends the answers.

1. A request head has a deadline and a size, so a client that sends one byte a minute does not keep a connection, nor
   one that sends headers without end the memory.
2. A client that does not read its answer is given up after a while.
3. What is left of a refused body is read and thrown away for a while: to close on it would take the answer back.
4. It all happens in one task, the one that began with the handshake. aiohttp, which parses and knows how to wait for
   requests in flight when the server stops, would make a second for the connection and one more for each request.
5. Whoever sends many requests at once lets everybody else have a turn after each of them.
6. What no request can be made of is answered with 400 or 431, and the connection ends.
7. A connection that is gone leaves no cycle of references: the collector looks for old ones hardly ever.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/test_connection.py |
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

It authenticates nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import structlog
from aiohttp import http_parser, http_writer, streams, web, web_protocol

from handfast.serving import answers
from handfast.serving import limits as limits_module
from handfast.serving import peer as peer_module
from handfast.serving import unread as unread_module

# _ssl.ENCODING_DER
_DER = 2
# So much of an answer is written at once: uvloop notices a peer that does not read only between two writes.
PIECE = 256 << 10
# How much waits encrypted before the writer has to. uvloop's own is 512 KiB.
_HIGH_WATER = 128 << 10
# 3. The while.
LINGERING_SECONDS = 2.0
# How aiohttp's parser says that a line is too long, or that there are too many.
_HEAD_TOO_LARGE = ("Got more than", "Too many headers")
_log = structlog.get_logger("handfast.connection")
Handler = Callable[[web.BaseRequest], Awaitable[answers.Response]]
ErrorHandler = Callable[[int, str], answers.Answer]


def _chain(transport: asyncio.BaseTransport) -> tuple[bytes, ...]:
    ssl_object = transport.get_extra_info("ssl_object")
    if ssl_object is None:
        return ()
    # Public from Python 3.13 on (as DER bytes); before that only the inner object has it.
    public = getattr(ssl_object, "get_unverified_chain", None)
    if public is not None:
        return tuple(certificate for certificate in public() or () if certificate)
    # Without a certificate it is a list that holds one None.
    found = ssl_object._sslobj.get_unverified_chain() or ()
    return tuple(certificate.public_bytes(_DER) for certificate in found if certificate is not None)


class Connection(web.RequestHandler):
    """Knows its peer, and answers it."""

    __slots__ = (
        *("_body", "_head_bytes", "_head_timer", "_limits", "_on_error", "_uncounted", "_unread"),
        *("address", "closed_hooks", "kept", "on_lost", "on_proved", "peer", "user", "via"),
    )

    # aiohttp asks the transport for these with each request. Nobody here wants them: see `peer`.
    ssl_context = peername = sockname = None

    def __init__(
        self,
        manager: Any,
        limits: limits_module.Limits,
        on_error: ErrorHandler,
        unread: unread_module.Unread,
        **settings: Any,
    ) -> None:
        super().__init__(manager, **settings)
        self._unread = unread
        # Written since `unread` last looked at this connection; kept of the answer that is being written; for whom.
        self._uncounted = 0
        self.kept = 0
        self.user = ""
        self._limits = limits
        self._on_error = on_error
        self._head_timer: asyncio.TimerHandle | None = None
        # What came since the last whole request that is not of its body.
        self._head_bytes = 0
        self._body: Any = None
        # Where the client is, and who says so: TLS's own connection, or a balancer.
        self.address, self.via = "", "tls"
        self.peer = peer_module.Peer((), "", "none")
        self.closed_hooks: set[Callable[[], None]] = set()
        # Before the hooks, so that none of them can be in its way: connections are counted by it.
        self.on_lost: Callable[[], None] = lambda: None
        # Called by `proved` with the name of the first user who is known here; None after that.
        self.on_proved: Callable[[str], None] | None = None

    def begin(self, life: Coroutine[Any, Any, None]) -> None:
        """Begin the one task of this connection: its handshake, then `start` (4.)."""
        # Not in a crowd: aiohttp waits for this one when the server stops.
        self._task_handler = self._loop.create_task(life)

    def proved(self, user: str) -> None:
        """Somebody showed a good credential here. Only the first time counts, so it costs a request nothing."""
        told, self.on_proved = self.on_proved, None
        if told is not None:
            told(user)

    def abort(self) -> None:
        """End it at once, in its handshake or after it."""
        if self.transport is not None:
            self.transport.abort()
        elif self._task_handler is not None:
            self._task_handler.cancel()

    async def cancel(self) -> None:
        """End that task before there was a request."""
        task = self._task_handler
        # None: the peer left first, and aiohttp has forgotten the task.
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        try:
            self._made(transport)
        except Exception as error:  # noqa: BLE001  the loop would leave the handshake open for ever, and its slot taken
            _log.error("a connection could not begin", exc_info=error)
            transport.abort()  # type: ignore[attr-defined]  # TLS transports have it

    def _made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = peer_module.Peer.of(_chain(transport), self.address, self.via)
        if self.peer.chain:
            self._expect_head(self._limits.head_seconds)
        else:
            self._expect_head(min(self._limits.first_head_seconds, self._limits.head_seconds))
            self._keepalive_timeout = self._limits.anonymous_idle_seconds
        # What aiohttp's own does, but for TCP_NODELAY, which uvloop has set (finding the socket through the transport
        # takes longer than all the rest), a timer until the first request, which `_expect_head` is, and a task (4.).
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(_HIGH_WATER)
        cast("web.Server", self._manager).connection_made(self, self.transport)

    async def start(self) -> None:
        """Answer one request after another until the connection ends. In place of aiohttp's: see 4.

        Theirs keeps the context variables of requests apart. Nothing here sets one without taking it back.
        """
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
                # Looked at again: the connection may be gone, whatever it still said.
                continue
            try:
                request, payload, handler = self._take()
                response, gone = await self._handle_request(request, None, handler)
                if gone:
                    break
                self._keepalive = bool(response.keep_alive)
                if not payload.is_eof():
                    await self._linger(payload)
                # Whoever still holds the request learns that it is over, as with aiohttp.
                payload.set_exception(web_protocol._PAYLOAD_ACCESS_ERROR)
            except ConnectionError:
                break
            except Exception as error:  # noqa: BLE001  it is told to the log, and only this connection ends
                _log.error("answering failed", source=self.peer.address, exc_info=error)
                self.force_close()
            except BaseException:
                self.force_close()
                raise
            if not self._keepalive or self._close or self._force_close:
                break
            self._await_next()
            if self._messages:
                # 5.
                await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop, not a wait
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    def _take(self) -> tuple[web.BaseRequest, streams.StreamReader, Any]:
        """The next request, its body, and who answers it."""
        message, payload = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        handler: Any = self._request_handler
        if isinstance(message, web_protocol._ErrInfo):
            handler, message = self._make_error_handler(message), web_protocol.ERROR
        try:
            return self._request(message, payload), payload, handler
        except ValueError:
            # 6. aiohttp parses the target again, and stumbles over a host such as `xn--`.
            broken = web_protocol._ErrInfo(400, ValueError(), "the request target is malformed")
            return self._request(web_protocol.ERROR, payload), payload, self._make_error_handler(broken)

    def _request(self, message: http_parser.RawRequestMessage, payload: streams.StreamReader) -> web.BaseRequest:
        # A request that knew its task would be known by it in turn.
        nobody = cast("Any", None)
        return web.BaseRequest(message, payload, self, http_writer.StreamWriter(self, self._loop), nobody, self._loop)

    async def _linger(self, payload: streams.StreamReader) -> None:
        """3."""
        if not self._force_close:
            # Whose transfer coding breaks off has no more to say.
            with contextlib.suppress(TimeoutError, web.RequestPayloadError):
                async with asyncio.timeout(self._lingering_time):
                    while not payload.is_eof():
                        await payload.readany()
        if not payload.is_eof() or payload.exception() is not None:
            self.close()

    def _await_next(self) -> None:
        """Begin the time until the next request, after which an idle connection ends."""
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.on_lost()
        self._head_done()
        self._unread.forget(self)
        for hook in tuple(self.closed_hooks):
            hook()
        # A body knows its connection: only the collector would find the two, all of a flood at once.
        self._body = None
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            # Ended here: aiohttp would have the task end by an exception.
            self._waiter = None
            self._force_close = True
            waiter.set_result(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        known = len(self._messages)
        body = self._body
        in_body = body is not None and not body.is_eof()
        super().data_received(data)
        if len(self._messages) > known:
            self._body, self._head_bytes = self._messages[-1][1], 0
        elif not in_body:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                self._head_too_large()
                return
        if self._messages and isinstance(broken := self._messages[-1][0], web_protocol._ErrInfo):
            # Its traceback holds a frame that holds it in turn: only the collector would find the two.
            broken.exc.__traceback__ = None
            self._break_off(body)
        if self._messages or self._request_in_progress:
            self._head_done()
        elif data and not in_body and self._head_timer is None:
            self._expect_head(self._limits.head_seconds)

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

    async def _drain_helper(self) -> None:
        """Wait until the client has made room. In place of aiohttp's, which leaves a cycle for each lost connection (7.).

        There the failed future stays in the frame that awaited it, and is known by the exception it raised: with all that
        the frames of the request hold, the unread answer too, until the collector looks for cycles that old.
        """
        if self.transport is None:
            raise ConnectionResetError("the client is gone")
        if not self._paused:
            return
        waiter = self._drain_waiter
        if waiter is None or waiter.done():
            waiter = self._drain_waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            del waiter

    async def finish_response(
        self, request: web.BaseRequest, resp: Any, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer; True if there is nobody to take it. A whole one goes out in a single write, unless it is long."""
        if not isinstance(resp, answers.Answer) or self._upgraded:
            # The client of an upgrade wished for another protocol, which aiohttp alone knows how to go on from.
            stepwise = resp.stepwise() if isinstance(resp, answers.Answer) else resp
            try:
                async with asyncio.timeout(self._limits.write_seconds):
                    return await super().finish_response(request, stepwise, start_time)
            except TimeoutError:
                if self.transport is not None:
                    self.transport.abort()
                return stepwise, True
        request._finish()
        answered = cast("web.StreamResponse", resp)
        transport = self.transport
        if transport is None or transport.is_closing():
            return answered, True
        data = resp.bytes_for(request)
        if len(data) > PIECE:
            return answered, await self._write_long(transport, memoryview(data))
        self.count(len(data))
        transport.write(data)
        return answered, self._paused and await self._is_unread()

    async def _write_long(self, transport: asyncio.Transport, data: memoryview) -> bool:
        """Write an answer piece by piece; True if there is nobody to take it."""
        self.kept = len(data)
        try:
            for start in range(0, len(data), PIECE):
                piece = data[start : start + PIECE]
                self.count(len(piece))
                transport.write(piece)
                if self._paused and await self._is_unread():
                    return True
        finally:
            self.kept = 0
        return False

    async def _is_unread(self) -> bool:
        """2. Wait until the client has made room; True if it does not, or is gone."""
        try:
            async with asyncio.timeout(self._limits.write_seconds):
                await self._drain_helper()
        except ConnectionError:
            return True
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            return True
        return False

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002  its text may quote the bytes
        message: str | None = None,
    ) -> Any:
        """6. What is not HTTP, and what escaped the pipeline: a Status like any other, then the connection ends."""
        message = message or ""
        if message.startswith(_HEAD_TOO_LARGE):
            status = 431
            self._tell_of_the_head()
        response = self._on_error(status, message)
        response.force_close()
        return response

    def _head_too_large(self) -> None:
        """1. aiohttp bounds each line of a head and their number, not the whole: strangers could fill the memory."""
        transport = self.transport
        if transport is None:
            return
        self._tell_of_the_head()
        if self._request_in_progress:
            # Somebody else's answer is being written.
            transport.abort()
            return
        body = self._on_error(431, "").body
        head = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
        transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self._head_done()
        transport.close()

    def _tell_of_the_head(self) -> None:
        """No station sees such a request, so that it is not in the audit log. The connection ends with it."""
        _log.warning("request head refused", source=self.peer.address, reason="HeadTooLarge")

    def _break_off(self, body: Any) -> None:
        """The bytes stopped being HTTP. If that was inside a body, aiohttp does not tell who waits for it: we do."""
        if body is None or body.is_eof():
            return
        body.set_exception(web.RequestPayloadError("its transfer coding is broken"))
        body.feed_eof()
        # That request gets the answer; there is nobody left for a second one.
        self._messages.pop()
        self.close()

    def _expect_head(self, seconds: float) -> None:
        """1. Begun once for a head, however often bytes of it come."""
        self._head_timer = self._loop.call_later(seconds, self._too_slow)

    def _head_done(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        """1."""
        self._head_timer = None
        if self.transport is not None:
            self.transport.abort()
