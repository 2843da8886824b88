# SPDX-License-Identifier: Apache-2.0
"""One HTTPS service: a handler, a pair and a socket, and nothing else. Where to start for whoever adds a role.

    async def hello(http: service.Request) -> answers.Answer:
        return answers.text(200, f"hello, {service.peer_of(http).address}")

    files = server_tls.PairFiles(certificate, key, clock)
    async with service.Service(hello, tls=server_tls.ServerTLS(files.current, clock), clock=clock).on(sock):
        ...

Everything between the socket and the handler is inside: who may connect and whose turn it is (`gate`), handshakes with a
deadline, a pair that is renewed without a restart (`server_tls`), heads with a size and a deadline, clients that do not read
(`connection`, `unread`), balancers (`runtime.proxied`), a stop that lets requests in flight end. An answer that goes on, event by event, is an
`event_stream`.

A handler that raises a refusal is answered with its code and text (`api.status`), one that raises anything else with 500,
and the log is told. Whom to believe is the handler's to say: a chain in its
`Peer` passed TLS, and `proved` tells the gate that somebody is known.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import cast

import structlog
from aiohttp import web
from prometheus_client import core

from handfast import errors
from handfast.api import status
from handfast.runtime import clock as clocks
from handfast.runtime import proxied as proxied_module
from handfast.serving import answers, connection, server_tls
from handfast.serving import limits as limits_module
from handfast.serving import listener as listener_module
from handfast.serving import peer as peer_module
from handfast.telemetry import proxy_refusals

# Seconds that requests in flight get to end when a service stops.
GRACE = 3.0
_log = structlog.get_logger("handfast.serving")
Request = web.BaseRequest
Handler = Callable[[Request], Awaitable[answers.Response]]


def peer_of(http: Request) -> peer_module.Peer:
    """Who is at the other end of a request's connection."""
    return cast("connection.Connection", http.protocol).peer


def proved(http: Request, user: str) -> None:
    """Somebody showed a good credential: its connection makes room for nobody, and costs its source nothing."""
    cast("connection.Connection", http.protocol).proved(user)


class Service:
    """Answers on one socket with `handler`; without `tls` it speaks plain HTTP, which is for loopback only."""

    def __init__(
        self,
        handler: Handler,
        *,
        tls: server_tls.ServerTLS | None,
        clock: clocks.Clock,
        limits: limits_module.Limits | None = None,
        proxied: proxied_module.Proxied | None = None,
        on_error: connection.ErrorHandler = answers.refusal,
    ) -> None:
        self._handler = handler
        self._tls = tls
        self._clock = clock
        self._limits = limits or limits_module.Limits()
        self._proxied = proxied or proxied_module.Proxied()
        self._on_error = on_error
        self.listener: listener_module.Listener | None = None

    def start(self, sock: socket.socket) -> None:
        """Serve on a socket that is bound already."""
        # A copy of our own: whoever bound it may close theirs before we stop looking at it.
        own = sock.dup()
        own.listen(1024)
        context = None if self._tls is None else self._tls.context
        self.listener = listener_module.Listener(
            own, context, self._answer, self._on_error, self._limits, self._clock, self._proxied
        )
        self.listener.start()

    async def stop(self, grace: float = GRACE) -> None:
        """Stop accepting, let requests in flight end for `grace` seconds, then close."""
        if self.listener is not None:
            await self.listener.stop(grace)

    async def _answer(self, http: Request) -> answers.Response:
        try:
            return await self._handler(http)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001  every request is answered; what nobody expected is told to the log
            if not isinstance(error, errors.Refused | errors.Unavailable):
                _log.error("answering failed", source=peer_of(http).address, exc_info=error)
                return self._on_error(500, "")
            refusal = status.from_error(error)
            return self._on_error(refusal.code, refusal.message)

    @contextlib.asynccontextmanager
    async def on(self, sock: socket.socket) -> AsyncIterator[None]:
        """Serve while the block runs."""
        self.start(sock)
        try:
            yield
        finally:
            await self.stop()


class ServiceMetrics:
    """For a registry: the connections of a service, read when somebody scrapes."""

    def __init__(self, name: str, service: Service) -> None:
        self._name = name
        self._service = service

    def collect(self) -> Iterator[core.Metric]:
        listener = self._service.listener
        if listener is None:
            return
        gauges = (
            ("connections", "Open connections.", listener.connections),
            ("unread_answer_bytes", "Held for answers not read yet.", listener.unread.held()),
        )
        counts = (
            ("connections_refused", "Connections over the limits.", listener.refused),
            ("unread_answers_given_up", "Connections reset because of unread answers.", listener.unread.given_up),
        )
        for kind, rows in ((core.GaugeMetricFamily, gauges), (core.CounterMetricFamily, counts)):
            for name, text, value in rows:
                family = kind(f"handfast_service_{name}", text, labels=["service"])
                family.add_metric([self._name], value)
                yield family
        yield from proxy_refusals.ProxyRefusals(lambda: listener.headers_refused).collect()
