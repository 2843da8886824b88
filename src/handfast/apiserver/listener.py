# SPDX-License-Identifier: Apache-2.0
"""The door: accepts connections, gates them, speaks TLS and hands HTTP to the pipeline.

1. Who may connect, and whose handshake is next, is decided before TLS costs anything: `gate`. Few are taken in at once, and
   where the kernel can (Linux), it keeps those that say nothing for a second.
2. Each handshake has a deadline.
3. Client certificates are asked for, not required. A chain of a CA this server has ever trusted passes the handshake
   even if expired or no longer trusted, so that it is answered with a 401 instead of a dropped handshake; `authn` judges it.
   What TLS itself turns away (another CA, another purpose) is told to the log.
4. Session tickets are off: a session resumed from one carries no chain. (TLS 1.2 may still find a session by its number
   in this server's memory; that one has kept its chain.)
5. A request head has a deadline and a size, so a client that sends one byte a minute does not keep a connection, nor
   one that sends headers without end the memory.
6. A client that does not read its answer is given up after a while.

It authenticates nobody.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

import structlog
from aiohttp import web

from handfast.apiserver import answers, gate
from handfast.apiserver import limits as limits_module
from handfast.apiserver import peer as peer_module
from handfast.rules import networks
from handfast.runtime import clock as clock_module
from handfast.runtime import crowd

# X509_V_FLAG_NO_CHECK_TIME: `ssl` does not name it. Times are compared on every request instead.
_NO_CHECK_TIME = 0x200000
# _ssl.ENCODING_DER
_DER = 2
# So much of an answer is written at once: uvloop notices a peer that does not read only between two writes.
_PART = 256 << 10
# Connections taken in one round of the event loop: in a flood nearly all are reset, and others wait meanwhile.
_ACCEPTED_AT_ONCE = 16
# How long what is left of a refused body is read and thrown away.
_LINGERING_SECONDS = 2.0
# How aiohttp's parser says that a line is too long, or that there are too many.
_HEAD_TOO_LARGE = ("Got more than", "Too many headers")
# X509_V_ERR_…: why OpenSSL refused a client's chain, in the words of `pki.chains`.
_VERIFY_REASONS = {
    **dict.fromkeys((2, 7, 18, 19, 20, 21), "UnknownAuthority"),
    26: "WrongPurpose",
    34: "UnknownExtension",
    66: "WeakKey",
    67: "WeakKey",
    68: "WeakSignature",
}
_log = structlog.get_logger("handfast.listener")
Handler = Callable[[web.BaseRequest], Awaitable[answers.Response]]
ErrorHandler = Callable[[int, str], answers.Answer]


def server_context(certificate_file: str, key_file: str, client_cas: str) -> ssl.SSLContext:
    """The server's TLS: its own pair, and every CA whose client certificates pass the handshake (PEM text)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate_file, key_file)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=client_cas)
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    context.set_alpn_protocols(["http/1.1"])
    return context


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


def _accept_when_spoken_to(sock: socket.socket) -> None:
    """Have the kernel keep connections that say nothing to itself for a second, where it can (Linux, TCP).

    There they take no more than half-open ones do, with which the kernel deals anyway (SYN cookies); and nobody need ask
    the loop for the first octet of all others. Those that still say nothing after that second come to the gate.
    """
    defer = getattr(socket, "TCP_DEFER_ACCEPT", None)
    if defer is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
        sock.setsockopt(socket.IPPROTO_TCP, defer, 1)


class Connection(web.RequestHandler):
    """One HTTP connection: knows its peer, and ends when a request head takes too long."""

    __slots__ = ("_body", "_head_bytes", "_head_timer", "_limits", "_on_error", "closed_hooks", "peer")

    def __init__(self, manager: Any, limits: limits_module.Limits, on_error: ErrorHandler, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._limits = limits
        self._on_error = on_error
        self._head_timer: asyncio.TimerHandle | None = None
        # What came since the last whole request that is not of its body.
        self._head_bytes = 0
        self._body: Any = None
        self.peer = peer_module.Peer((), "", "none")
        self.closed_hooks: set[Callable[[], None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        name = transport.get_extra_info("peername")
        address = name[0] if isinstance(name, tuple) else "unix"
        self.peer = peer_module.Peer.of(_chain(transport), address, "tls")
        self._expect_head()
        if not self.peer.chain:
            self._keepalive_timeout = self._limits.anonymous_idle_seconds
        # What aiohttp's own does, but for TCP_NODELAY, which uvloop has set (finding the socket through the transport
        # takes longer than all the rest), a timer until the first request, which `_expect_head` is, and the eager start
        # of the task on newer Pythons.
        self.transport = cast("asyncio.Transport", transport)
        cast("web.Server", self._manager).connection_made(self, self.transport)
        self._task_handler = self._loop.create_task(self.start())

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_done()
        for hook in tuple(self.closed_hooks):
            hook()
        # A body knows its connection: only the collector would find the two, all of a flood at once.
        self._body = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        known = len(self._messages)
        in_body = self._body is not None and not self._body.is_eof()
        super().data_received(data)
        if len(self._messages) > known:
            self._body, self._head_bytes = self._messages[-1][1], 0
        elif not in_body:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                self._head_too_large()
                return
        if self._messages and getattr(self._messages[-1][0], "exc", None) is not None:
            self._break_off()
        if self._messages or self._request_in_progress:
            self._head_done()
        elif self._head_timer is None:
            self._expect_head()

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
                return self._give_up(stepwise)
        request._finish()
        answered = cast("web.StreamResponse", resp)
        transport = self.transport
        if transport is None or transport.is_closing():
            return answered, True
        data = resp.bytes_for(request)
        for start in range(0, len(data), _PART):
            transport.write(data[start : start + _PART])
            if self._paused:
                try:
                    async with asyncio.timeout(self._limits.write_seconds):
                        await self._drain_helper()
                except ConnectionError:
                    return answered, True
                except TimeoutError:
                    return self._give_up(answered)
        return answered, False

    def _give_up(self, response: web.StreamResponse) -> tuple[web.StreamResponse, bool]:
        """6."""
        if self.transport is not None:
            self.transport.abort()
        return response, True

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002  aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002  its text may quote the bytes
        message: str | None = None,
    ) -> Any:
        """What is not HTTP, and what escaped the pipeline: a Status like any other, then the connection ends."""
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
        body = self._on_error(431, "").body
        head = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
        transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self._head_done()
        transport.close()

    def _tell_of_the_head(self) -> None:
        """No station sees such a request, so that it is not in the audit log. The connection ends with it."""
        _log.warning("request head refused", source=self.peer.address, reason="HeadTooLarge")

    def _break_off(self) -> None:
        """The bytes stopped being HTTP. If that was inside a body, aiohttp does not tell who waits for it: we do."""
        body: Any = None
        if len(self._messages) > 1:
            body = self._messages[-2][1]
        elif self._current_request is not None:
            body = self._current_request.content
        if body is None or body.is_eof():
            return
        body.set_exception(web.RequestPayloadError("its transfer coding is broken"))
        body.feed_eof()
        # That request gets the answer; there is nobody left for a second one.
        self._messages.pop()
        self.close()

    def _expect_head(self) -> None:
        self._head_timer = self._loop.call_later(self._limits.head_seconds, self._too_slow)

    def _head_done(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self.transport is not None:
            self.transport.abort()


class _Server(web.Server):
    """aiohttp's server with our connection class."""

    def __init__(self, handler: Handler, limits: limits_module.Limits, on_error: ErrorHandler) -> None:
        super().__init__(cast("Any", handler))
        self._limits = limits
        self._on_error = on_error

    def __call__(self) -> Connection:
        return Connection(
            self,
            self._limits,
            self._on_error,
            loop=self._loop,
            access_log=None,
            keepalive_timeout=self._limits.idle_seconds,
            max_field_size=self._limits.header_bytes,
            max_line_size=self._limits.header_bytes,
            lingering_time=_LINGERING_SECONDS,
            auto_decompress=False,
            # Set once on the listening socket, from which accepted ones have it.
            tcp_keepalive=False,
        )


class Listener:
    """Accepts on one socket until closed."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        handler: Handler,
        on_error: ErrorHandler,
        limits: limits_module.Limits,
        clock: clock_module.Clock,
    ) -> None:
        self._socket = sock
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        _accept_when_spoken_to(self._socket)
        self._context = context
        self._limits = limits
        self._server = _Server(handler, limits, on_error)
        self._handshakes = crowd.Crowd("handshakes")
        self._begun: set[socket.socket] = set()
        self._loop = asyncio.get_running_loop()
        self._gate = gate.Gate(limits, clock, self._begin)
        self._paused = False

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def trust(self, client_cas: str) -> None:
        """Let chains of these CAs (PEM) through the handshake of new connections; it is never taken back."""
        self._context.load_verify_locations(cadata=client_cas)

    def renew(self, certificate_file: str, key_file: str) -> None:
        """Serve new connections with another pair; where it cannot be used, ssl.SSLError, and the old one stays.

        A context of its own: a pair that is replaced in place stays beside the new one where the kinds of key differ,
        and is half gone where the new one does not fit together.
        """
        known = "".join(map(ssl.DER_cert_to_PEM_cert, self._context.get_ca_certs(binary_form=True)))
        self._context = server_context(certificate_file, key_file, known)

    @property
    def connections(self) -> int:
        return len(self._server._connections)

    @property
    def refused(self) -> int:
        return self._gate.refused

    async def stop(self, grace: float) -> None:
        """Stop accepting, let requests in flight end for `grace` seconds, then close."""
        self._pause()
        self._socket.close()
        self._gate.close()
        self._server.pre_shutdown()
        await self._handshakes.stop()
        # A task that was cancelled before its first step has closed nothing.
        for sock in self._begun:
            sock.close()
        await self._server.shutdown(grace)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of file descriptors: wait for a connection to end instead of spinning.
                self._pause()
                self._loop.call_later(0.1, self._resume)
                return
            sock.setblocking(False)
            # Whoever has one IPv6 address has the other 2⁶⁴ of its network: they count as one.
            self._gate.enter(sock, networks.neighbourhood(address[0]) if isinstance(address, tuple) else "unix")

    def _begin(self, sock: socket.socket, source: str) -> None:
        self._begun.add(sock)
        self._handshakes.start(self._handshake(sock, source))

    async def _handshake(self, sock: socket.socket, source: str) -> None:
        # Made here, because what uvloop gives back is its own TLS protocol.
        connection = self._server()
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.handshake_seconds,
                ssl_shutdown_timeout=2.0,
            )
        except ssl.SSLCertVerificationError as error:
            # No station will see this certificate, so nobody else could tell the operator.
            reason = _VERIFY_REASONS.get(error.verify_code, "Untrusted")
            _log.warning("handshake refused", source=source, reason=reason, detail=error.verify_message)
        except (OSError, TimeoutError):
            pass  # a failed handshake is the peer's affair: TLS told it why
        finally:
            self._begun.discard(sock)
            self._gate.shaken(source)
            if connection.transport is None:
                # It failed, was cancelled, or the peer is gone already.
                sock.close()
                self._gate.left(source)
            else:
                connection.closed_hooks.add(functools.partial(self._gate.left, source))

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._loop.remove_reader(self._socket.fileno())

    def _resume(self) -> None:
        if self._paused and self._socket.fileno() != -1:
            self._paused = False
            self._loop.add_reader(self._socket.fileno(), self._accept)
