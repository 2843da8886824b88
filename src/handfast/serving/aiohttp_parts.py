# SPDX-License-Identifier: Apache-2.0
"""The fence around aiohttp: every part of it that aiohttp does not promise to keep is used in this file, and in no other.

| part | used for | why not the public way |
|---|---|---|
| `RequestHandler`'s queue, waiter and task | a loop over requests of our own, in the task that began with the handshake | aiohttp makes a task for the connection and one for each request, and ends it by an exception: 316 calls for a new connection with one request, 260 so; 5 % of its CPU |
| … its keep-alive timer | the time between two requests | it is part of that loop |
| … what `connection_made` does | the same without TCP_NODELAY, which uvloop has set | to find the socket through the transport takes longer than all the rest |
| `ssl_context`, `peername`, `sockname` | None | aiohttp asks the transport for them with each request, and nobody wants them: see `peer` |
| `BaseRequest`'s constructor | a request that does not know its task | the two would be a cycle of references, which only the collector finds |
| `_ErrInfo`, `ERROR` | an answer to what is not HTTP | a traceback in them is a cycle: a flood of such would wait for the collector, and all others for it |
| `_drain_helper` | waiting for a client that does not read | aiohttp's leaves a cycle with the unread answer in it: 100 to 190 MiB for 150 lists that were not read |
| `StreamReader._buffer` | a body that is all there | reading it has the parser start again on what may follow, once for each part |
| `helpers.rfc822_formatted_time` | the Date header | aiohttp makes it once a second; there is no public name |

aiohttp's version is bounded above. One that changes these parts fails tests/unit/serving/test_connection.py.

What is bounded, and against whom, is said in `connection`, which is the other half of this class. It writes no answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, cast

import structlog
from aiohttp import helpers, http_parser, http_writer, streams, web, web_protocol

from handfast.serving import limits as limits_module

# How much waits encrypted before the writer has to. uvloop's own is 512 KiB.
_HIGH_WATER = 128 << 10
# How long what is left of a refused body is read and thrown away.
LINGERING_SECONDS = 2.0
# How aiohttp's parser says that a line is too long, or that there are too many.
_HEAD_TOO_LARGE = ("Got more than", "Too many headers")
_log = structlog.get_logger("handfast.connection")


class Refusal(Protocol):
    """An answer to what is no request: see `answers`."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...

    def force_close(self) -> None: ...


ErrorHandler = Callable[[int, str], Refusal]


class RequestLoop(web.RequestHandler):
    """The reading half of a connection: takes one request after another, each within its deadline and size."""

    __slots__ = ("_body", "_head_bytes", "_head_timer", "_limits", "_on_error")

    # aiohttp asks the transport for these with each request. Nobody here wants them: see `peer`.
    ssl_context = peername = sockname = None

    def __init__(self, manager: Any, limits: limits_module.Limits, on_error: ErrorHandler) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=cast("Any", None),
            keepalive_timeout=limits.idle_seconds,
            max_field_size=limits.header_bytes,
            max_line_size=limits.header_bytes,
            lingering_time=LINGERING_SECONDS,
            auto_decompress=False,
            # Set once on the listening socket, from which accepted ones have it.
            tcp_keepalive=False,
        )
        self._limits = limits
        self._on_error = on_error
        self._head_timer: asyncio.TimerHandle | None = None
        # What came since the last whole request that is not of its body.
        self._head_bytes = 0
        self._body: Any = None

    @property
    def upgraded(self) -> bool:
        """Whether the client wished for another protocol, which aiohttp alone knows how to go on from."""
        return self._upgraded

    def source(self) -> str:
        """Whose connection it is, for the log."""
        raise NotImplementedError

    def begin(self, life: Coroutine[Any, Any, None]) -> None:
        """Begin the one task of this connection: its handshake, then `start`."""
        # Not in a crowd: aiohttp waits for this one when the server stops.
        self._task_handler = self._loop.create_task(life)

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

    def establish(self, transport: asyncio.Transport, *, stranger: bool) -> None:
        """The connection is there; strangers have less time for their first head, and between requests."""
        # What aiohttp's own does, but for TCP_NODELAY, a timer until the first request, and a task.
        if stranger:
            self._expect_head(min(self._limits.first_head_seconds, self._limits.head_seconds))
            self._keepalive_timeout = self._limits.anonymous_idle_seconds
        else:
            self._expect_head(self._limits.head_seconds)
        self.transport = transport
        transport.set_write_buffer_limits(_HIGH_WATER)
        cast("web.Server", self._manager).connection_made(self, transport)

    async def start(self) -> None:
        """Answer one request after another until the connection ends. In place of aiohttp's.

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
                _log.error("answering failed", source=self.source(), exc_info=error)
                self.force_close()
            except BaseException:
                self.force_close()
                raise
            if not self._keepalive or self._close or self._force_close:
                break
            self._await_next()
            if self._messages:
                # Whoever sends many at once lets everybody else have a turn.
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
            # aiohttp parses the target again, and stumbles over a host such as `xn--`.
            broken = web_protocol._ErrInfo(400, ValueError(), "the request target is malformed")
            return self._request(web_protocol.ERROR, payload), payload, self._make_error_handler(broken)

    def _request(self, message: http_parser.RawRequestMessage, payload: streams.StreamReader) -> web.BaseRequest:
        # A request that knew its task would be known by it in turn.
        nobody = cast("Any", None)
        return web.BaseRequest(message, payload, self, http_writer.StreamWriter(self, self._loop), nobody, self._loop)

    async def _linger(self, payload: streams.StreamReader) -> None:
        """Read what is left of a refused body for a while: to close on it would take the answer back."""
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
        self._head_done()
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

    async def drain(self) -> None:
        """Wait until the client has made room. In place of aiohttp's, which leaves a cycle for each lost connection.

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

    # As aiohttp's own writer calls it.
    _drain_helper = drain

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002  its text may quote the bytes
        message: str | None = None,
    ) -> Any:
        """What is not HTTP, and what escaped the handler: an answer like any other, then the connection ends."""
        message = message or ""
        if message.startswith(_HEAD_TOO_LARGE):
            status = 431
            self._tell_of_the_head()
        response = self._on_error(status, message)
        response.force_close()
        return response

    def _head_too_large(self) -> None:
        """aiohttp bounds each line of a head and their number, not the whole: strangers could fill the memory."""
        transport = self.transport
        if transport is None:
            return
        self._tell_of_the_head()
        if self._request_in_progress:
            # Somebody else's answer is being written.
            transport.abort()
            return
        refusal = self._on_error(431, "")
        kind, length = refusal.headers["Content-Type"], len(refusal.body)
        head = f"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: {kind}\r\nConnection: close\r\n"
        transport.write(f"{head}Content-Length: {length}\r\n\r\n".encode() + refusal.body)
        self._head_done()
        transport.close()

    def _tell_of_the_head(self) -> None:
        """No station sees such a request, so that it is not in the audit log. The connection ends with it."""
        _log.warning("request head refused", source=self.source(), reason="HeadTooLarge")

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
        """Begun once for a head, however often bytes of it come."""
        self._head_timer = self._loop.call_later(seconds, self._too_slow)

    def _head_done(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        """Half a head does not keep a connection."""
        self._head_timer = None
        if self.transport is not None:
            self.transport.abort()


def arrived(content: streams.StreamReader) -> bytes:
    """A body that is all there. To read it would each time have the parser start again on what may follow."""
    if content._protocol._reading_paused:
        return content.read_nowait()
    return b"".join(content._buffer)


# The Date header of this second.
date: Final[Callable[[], str]] = helpers.rfc822_formatted_time
