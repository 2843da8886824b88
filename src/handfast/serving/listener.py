# SPDX-License-Identifier: Apache-2.0
"""The door: accepts connections, gates them and speaks TLS; each then lives in a `connection`.

0. From a balancer that was named, a PROXY header says whose connection it is; from others it is refused: `runtime.proxied`.
1. Who may connect, and whose handshake is next, is decided before TLS costs anything: `gate`. Few are taken in at once, and
   where the kernel can (Linux), it keeps those that say nothing for a second.
2. Each handshake has a deadline.
3. Client certificates are asked for, not required. Where the service judges them itself, as the API server does, a chain of a
   CA it has ever trusted passes the handshake even if expired or no longer trusted, so that it is answered with a 401 instead
   of a dropped handshake. What TLS itself turns away (another CA, another purpose) is told to the client by an alert
   (`tls_alert`), and to the log.
4. Without a context it is plain HTTP: for loopback only.

`connection` speaks HTTP. This authenticates nobody.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, cast

import structlog
from aiohttp import web

from handfast.runtime import clock as clocks
from handfast.runtime import proxied as proxied_module
from handfast.serving import connection as connection_module
from handfast.serving import gate, peer, server_tls, tls_alert
from handfast.serving import limits as limits_module
from handfast.serving import unread as unread_module

# Connections taken in one round of the event loop: in a flood nearly all are reset, and others wait meanwhile.
_ACCEPTED_AT_ONCE = 16
# How long nobody is taken in when there is no file descriptor for them.
PAUSE_SECONDS = 0.1
_SHUTDOWN_SECONDS = 2.0
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


def _accept_when_spoken_to(sock: socket.socket) -> None:
    """Have the kernel keep connections that say nothing to itself for a second, where it can (Linux, TCP).

    There they take no more than half-open ones do, with which the kernel deals anyway (SYN cookies); and nobody need ask
    the loop for the first octet of all others. Those that still say nothing after that second come to the gate.
    """
    defer = getattr(socket, "TCP_DEFER_ACCEPT", None)
    if defer is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
        sock.setsockopt(socket.IPPROTO_TCP, defer, 1)


class _Accepted(socket.socket):
    """Knows its family and type: `socket` makes an enum of them each time it is asked, and uvloop asks three times."""

    family: socket.AddressFamily = socket.AF_UNSPEC
    type: socket.SocketKind = socket.SOCK_STREAM


class _Server(web.Server):
    """aiohttp's server with our connection class."""

    def __init__(
        self,
        handler: connection_module.Handler,
        limits: limits_module.Limits,
        on_error: connection_module.ErrorHandler,
        unread: unread_module.Unread,
    ) -> None:
        super().__init__(cast("Any", handler))
        self._limits = limits
        self._on_error = on_error
        self._unread = unread

    def __call__(self) -> connection_module.Connection:
        return connection_module.Connection(self, self._limits, self._on_error, self._unread)


class Listener:
    """Accepts on one socket until closed."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        handler: connection_module.Handler,
        on_error: connection_module.ErrorHandler,
        limits: limits_module.Limits,
        clock: clocks.Clock,
        proxied: proxied_module.Proxied | None = None,
    ) -> None:
        self._socket = sock
        self._family = sock.family
        # Without the socket that `accept` makes of it: see `_Accepted`.
        self._accept_one: Callable[[], tuple[int, Any]] = cast("Any", sock)._accept
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        _accept_when_spoken_to(self._socket)
        self._limits = limits
        # How a connection is taken in; without a context it is plain.
        self._tls: dict[str, Any] = {}
        if context is not None:
            self._tls = {
                "ssl": context,
                "ssl_handshake_timeout": limits.handshake_seconds,
                "ssl_shutdown_timeout": _SHUTDOWN_SECONDS,
            }
        self.unread = unread_module.Unread(limits, clock)
        self._server = _Server(handler, limits, on_error, self.unread)
        self._begun: dict[connection_module.Connection, gate.Visitor] = {}
        self._loop = asyncio.get_running_loop()
        self._gate = gate.Gate(limits, clock, self._begin, proxied)
        self._paused = False
        self._resuming: asyncio.TimerHandle | None = None
        self._via = "tls" if self._tls else "plain"

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def trust(self, client_cas: str) -> None:
        """Let chains of these CAs (PEM) through the handshake of new connections; it is never taken back."""
        self._tls["ssl"].load_verify_locations(cadata=client_cas)

    def renew(self, certificate_file: str, key_file: str) -> None:
        """Serve new connections with another pair; where it cannot be used, ssl.SSLError, and the old one stays.

        A context of its own: a pair that is replaced in place stays beside the new one where the kinds of key differ,
        and is half gone where the new one does not fit together.
        """
        known = "".join(map(ssl.DER_cert_to_PEM_cert, self._tls["ssl"].get_ca_certs(binary_form=True)))
        self._tls["ssl"] = server_tls.server_context(certificate_file, key_file, known)

    def share(self, servers: int) -> None:
        """So many servers share places and rates: see `gate`."""
        self._gate.share(servers)

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    @property
    def headers_refused(self) -> Mapping[str, int]:
        """Connections refused for a PROXY header, or the lack of one, by reason."""
        return self._gate.proxied.refused

    @property
    def refused(self) -> int:
        return self._gate.refused

    async def stop(self, grace: float) -> None:
        """Stop accepting, let requests in flight end for `grace` seconds, then close."""
        self._pause()
        if self._resuming is not None:
            self._resuming.cancel()
        self._socket.close()
        self._gate.close()
        self._server.pre_shutdown()
        await asyncio.gather(*(connection.cancel() for connection in self._begun))
        # A task that was cancelled before its first step has closed nothing.
        for visitor in self._begun.values():
            visitor.sock.close()
            self._gate.left(visitor)
        self._begun.clear()
        await self._server.shutdown(grace)
        self.unread.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                descriptor, address = self._accept_one()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of file descriptors: wait for a connection to end instead of spinning.
                self._pause()
                self._resuming = self._loop.call_later(PAUSE_SECONDS, self._resume)
                return
            sock = _Accepted(self._family, socket.SOCK_STREAM, fileno=descriptor)
            sock.family = self._family
            sock.setblocking(False)
            self._gate.enter(sock, address[0] if isinstance(address, tuple) else "unix")

    def _begin(self, visitor: gate.Visitor) -> None:
        connection = self._server()
        passed_on = "proxy" if visitor.proxied else peer.BALANCER if visitor.unnamed else ""
        connection.address, connection.via = visitor.address, passed_on or self._via
        # From here on, whenever the connection ends: it may be gone before the handshake is known to have ended.
        connection.on_lost = functools.partial(self._gate.left, visitor)
        connection.on_proved = functools.partial(self._gate.proved, visitor)
        visitor.give_up = functools.partial(self._give_up, connection, visitor)
        connection.begin(self._serve(connection, visitor))
        self._begun[connection] = visitor

    def _give_up(self, connection: connection_module.Connection, visitor: gate.Visitor) -> None:
        """Its place is somebody else's now."""
        connection.abort()
        if connection.transport is None:
            # A task that is cancelled before its first step closes nothing.
            self._begun.pop(connection, None)
            visitor.sock.close()

    async def _serve(self, connection: connection_module.Connection, visitor: gate.Visitor) -> None:
        """One task for the whole life of a connection: its handshake, then its requests."""
        refused = tls_alert.follow()
        try:
            await self._loop.connect_accepted_socket(lambda: connection, visitor.sock, **self._tls)
        except (OSError, TimeoutError):
            # Any other failed handshake is the peer's affair. No station will see this certificate, so nobody else could
            # tell the operator.
            for error in refused:
                reason = _VERIFY_REASONS.get(error.verify_code, "Untrusted")
                _log.warning("handshake refused", source=visitor.source, reason=reason, detail=error.verify_message)
        finally:
            self._begun.pop(connection, None)
            self._gate.shaken(visitor)
            if connection.transport is None:
                # It failed, was cancelled, or the peer is gone already.
                visitor.sock.close()
                self._gate.left(visitor)
        if connection.transport is not None:
            await connection.start()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._loop.remove_reader(self._socket.fileno())

    def _resume(self) -> None:
        if self._paused and self._socket.fileno() != -1:
            self._paused = False
            self._loop.add_reader(self._socket.fileno(), self._accept)
