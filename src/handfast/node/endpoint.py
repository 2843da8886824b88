# SPDX-License-Identifier: Apache-2.0
"""The node's own HTTPS endpoint: health and metrics, to other machines as well.

`/livez`, `/readyz` and `/healthz` answer what `health` says, with 200 or 500. `/metrics` is the Prometheus text format.
Which certificate it shows is in `serving`. It runs nothing and changes nothing: there is no way in by it.

1. Who comes from another machine without a certificate of the cluster learns whether all is well, and not why; it gets
   no metrics.
2. Handshakes have a deadline. Of other machines there are at most `MAX_CONNECTIONS`, of each at most `MAX_PER_SOURCE`,
   counted before TLS costs anything. This machine has `MAX_LOCAL` of its own.
   Behind a balancer that was named the client counts, and a PROXY header of anybody else is refused (`runtime.proxied`).
   Connections are counted by object, so that one that ends in two ways is counted down once.
3. A connection on which no request arrives for `STRANGER_SECONDS`, with a certificate `CERTIFIED_SECONDS`, is ended: be
   it silent, slow to send its head, or not reading what it is answered.

| who | holding | tries | stopped by | shown in tests/unit/node/test_endpoint.py |
|---|---|---|---|---|
| a stranger | many connections | sends nothing, before TLS or after it | 2, 3 | test_silence_ends |
| a stranger | one machine | takes every connection there is | 2 | test_one_machine_does_not_take_all |
| a stranger | a balancer on this machine | pass for this machine, and read the metrics | 1: by the client's address | test_behind_a_balancer_on_this_machine |
| strangers | many machines | keep this machine from asking itself | 2 | test_this_machine_has_its_own |
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

import prometheus_client
from aiohttp import web_protocol, web_request, web_response, web_server
from prometheus_client import core

from handfast.node import certificate_metrics
from handfast.rules import networks
from handfast.runtime import crowd
from handfast.runtime import proxied as proxied_module
from handfast.telemetry import health as health_module

MAX_CONNECTIONS: Final = 100
MAX_PER_SOURCE: Final = 20
MAX_LOCAL: Final = 20
STRANGER_SECONDS: Final = 15.0
CERTIFIED_SECONDS: Final = 120.0
_HANDSHAKE_SECONDS: Final = 10.0
_SHUTDOWN_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1
_CLOSING_SECONDS: Final = 1.0
_ENDPOINTS: Final = frozenset({"livez", "readyz", "healthz"})


class _Connection(web_protocol.RequestHandler):
    """3."""

    __slots__ = ("_seen", "_timer", "client", "on_lost")

    def __init__(self, manager: Any, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._seen = 0
        self._timer: asyncio.TimerHandle | None = None
        self.on_lost: Callable[[], None] = lambda: None
        # The address it is from, where a balancer said so or not.
        self.client = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._watch(CERTIFIED_SECONDS if transport.get_extra_info("peercert") else STRANGER_SECONDS)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        self.on_lost()

    def _watch(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look, seconds)

    def _look(self, seconds: float) -> None:
        if self._request_count > self._seen:
            self._seen = self._request_count
            self._watch(seconds)
        elif self.transport is not None:
            self.transport.abort()


class _Server(web_server.Server):
    """aiohttp's server with our connections."""

    def __call__(self) -> _Connection:
        # What is sent along with a GET is not waited for.
        return _Connection(
            self, loop=self._loop, access_log=None, keepalive_timeout=CERTIFIED_SECONDS, lingering_time=1.0
        )


class _Door:
    """2. Accepts on one socket until it is stopped."""

    def __init__(
        self, listener: socket.socket, tls: ssl.SSLContext, server: _Server, proxied: proxied_module.Proxied
    ) -> None:
        self._proxied = proxied
        self._listener = listener
        self._listener.setblocking(False)
        self._tls = tls
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._handshakes = crowd.Crowd("handshakes")
        self._begun: set[socket.socket] = set()
        self._sources: dict[str, set[socket.socket]] = {}
        self._paused: asyncio.TimerHandle | None = None
        self._resume()

    async def stop(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        if self._paused is not None:
            self._paused.cancel()
        self._proxied.stop()
        await self._handshakes.stop()
        # A task that was cancelled before its first step has closed nothing.
        for sock in self._begun:
            sock.close()
        await self._server.shutdown(_CLOSING_SECONDS)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(MAX_CONNECTIONS):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of file descriptors: wait for a connection to end instead of spinning.
                self._loop.remove_reader(self._listener.fileno())
                self._paused = self._loop.call_later(_PAUSE_SECONDS, self._resume)
                return
            sock.setblocking(False)
            self._proxied.enter(sock, _host(address), functools.partial(self._enter, sock))

    def _enter(self, sock: socket.socket, client: str) -> None:
        source = networks.neighbourhood(client)
        if not self._has_room(source):
            sock.close()
            return
        self._sources.setdefault(source, set()).add(sock)
        self._begun.add(sock)
        self._handshakes.start(self._handshake(sock, source, client))

    def _has_room(self, source: str) -> bool:
        present = len(self._sources.get(source, ()))
        if _is_loopback(source):
            return present < MAX_LOCAL
        away = sum(len(socks) for known, socks in self._sources.items() if not _is_loopback(known))
        return away < MAX_CONNECTIONS and present < MAX_PER_SOURCE

    def _left(self, source: str, sock: socket.socket) -> None:
        socks = self._sources.get(source, set())
        socks.discard(sock)
        if not socks:
            self._sources.pop(source, None)

    async def _handshake(self, sock: socket.socket, source: str, client: str) -> None:
        # Made here, because what the loop gives back is its own TLS protocol.
        made = self._server()
        made.client = client
        made.on_lost = functools.partial(self._left, source, sock)
        try:
            await self._loop.connect_accepted_socket(
                lambda: made,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, TimeoutError):
            pass  # a failed handshake is the peer's affair: TLS told it why
        finally:
            self._begun.discard(sock)
            if made.transport is None:
                # It failed, was cancelled, or the peer is gone already.
                sock.close()
                self._left(source, sock)


class Endpoint:
    """Answers for one agent."""

    def __init__(
        self,
        health: health_module.Health,
        metrics: core.CollectorRegistry,
        proxied: proxied_module.Proxied | None = None,
    ) -> None:
        self._proxied = proxied or proxied_module.Proxied()
        self._health = health
        self._metrics = metrics
        self._door: _Door | None = None

    async def start(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        """Serve on a socket that is bound already."""
        self._door = _Door(listener, tls, _Server(self.answer), self._proxied)

    async def stop(self) -> None:
        if self._door is not None:
            await self._door.stop()

    async def answer(self, request: web_request.BaseRequest) -> web_response.StreamResponse:
        """One request."""
        if request.method not in {"GET", "HEAD"}:
            return _text(405, f"method {request.method} is not allowed here\n")
        trusted = _is_trusted(request.transport, getattr(request.protocol, "client", ""))
        if request.path == "/metrics":
            if not trusted:
                return _text(403, "metrics are for this machine, and for certificates of the cluster\n")
            body = certificate_metrics.exposed(self._metrics)
            return web_response.Response(body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})
        found = self._ask(request, withhold=not trusted)
        if found is None:
            return _text(404, "not found; there are /livez, /readyz, /healthz and /metrics\n")
        well, text = found
        return _text(200 if well else 500, text)

    def _ask(self, request: web_request.BaseRequest, *, withhold: bool) -> tuple[bool, str] | None:
        endpoint, slash, name = request.path.removeprefix("/").partition("/")
        if endpoint not in _ENDPOINTS:
            return None
        if slash:
            return self._health.one(endpoint, name, withhold=withhold)
        return self._health.report(endpoint, verbose="verbose" in request.query, withhold=withhold)


def _is_trusted(transport: asyncio.BaseTransport | None, client: str) -> bool:
    """1."""
    if transport is None:
        return False
    if transport.get_extra_info("peercert"):
        return True
    # Not the transport's address: behind a balancer that is the balancer's, which may be on this machine.
    return _is_loopback(client)


def _host(address: Any) -> str:
    """Of a socket's address, without the interface."""
    return str((address or ("",))[0]).partition("%")[0]


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return bool((getattr(address, "ipv4_mapped", None) or address).is_loopback)


def _text(code: int, text: str) -> web_response.Response:
    return web_response.Response(status=code, text=text, content_type="text/plain")
