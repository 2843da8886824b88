# SPDX-License-Identifier: Apache-2.0
"""Health and metrics of a role that has no other HTTP port: a small server meant for loopback.

`/livez`, `/readyz` and `/healthz` answer what `health` says, with 200 or 500. `/metrics` is the Prometheus text format.
It checks nothing itself: roles bring their checks. Behind a balancer it is told whose connections they are by
`runtime.proxied`, which refuses PROXY headers from anybody else.
"""

from __future__ import annotations

import asyncio
import functools
import socket

import prometheus_client
from aiohttp import web_request, web_response, web_server
from prometheus_client import core

from handfast.runtime import crowd
from handfast.runtime import proxied as proxied_module
from handfast.telemetry import health as health_module
from handfast.telemetry import proxy_refusals

_ACCEPTED_AT_ONCE = 16
# How long nobody is taken in when there is no file descriptor for them.
_PAUSE_SECONDS = 0.1
_ENDPOINTS = frozenset({"livez", "readyz", "healthz"})


class Admin:
    """Answers for one process."""

    def __init__(self, health: health_module.Health, proxied: proxied_module.Proxied | None = None) -> None:
        self._health = health
        self._proxied = proxied or proxied_module.Proxied()
        # Its own, beside those of the process.
        self._metrics = core.CollectorRegistry()
        self._metrics.register(proxy_refusals.ProxyRefusals(lambda: self._proxied.refused))
        self._listener: socket.socket | None = None
        self._handler: web_server.Server | None = None
        self._starting = crowd.Crowd("connections")
        self._begun: set[socket.socket] = set()
        self._resuming: asyncio.TimerHandle | None = None

    async def start(self, listener: socket.socket) -> None:
        """Serve on a socket that is bound already."""
        self._handler = web_server.Server(self._answer, access_log=None)
        # A copy of our own: whoever bound it may close theirs before we stop looking at it.
        self._listener = listener.dup()
        self._listener.setblocking(False)
        self._listener.listen()
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    async def stop(self) -> None:
        if self._listener is not None and self._handler is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            if self._resuming is not None:
                self._resuming.cancel()
            self._listener.close()
            self._proxied.stop()
            await self._starting.stop()
            # A task that was cancelled before its first step has closed nothing.
            for sock in self._begun:
                sock.close()
            await self._handler.shutdown(1.0)

    def _accept(self) -> None:
        if self._listener is None:
            return
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of file descriptors: wait for a connection to end instead of spinning.
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener.fileno())
                self._resuming = loop.call_later(_PAUSE_SECONDS, self._resume)
                return
            sock.setblocking(False)
            self._proxied.enter(sock, str(address[0]), functools.partial(self._serve, sock))

    def _resume(self) -> None:
        self._resuming = None
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _serve(self, sock: socket.socket, _client: str) -> None:
        self._begun.add(sock)
        self._starting.start(self._connect(sock))

    async def _connect(self, sock: socket.socket) -> None:
        try:
            if self._handler is not None:
                await asyncio.get_running_loop().connect_accepted_socket(self._handler, sock)
        except BaseException as error:
            sock.close()
            # The peer is gone, or there is no descriptor for it: its own affair.
            if not isinstance(error, OSError):
                raise
        finally:
            self._begun.discard(sock)

    async def _answer(self, request: web_request.BaseRequest) -> web_response.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return _text(405, f"method {request.method} is not allowed here\n")
        if request.path == "/metrics":
            body = prometheus_client.generate_latest() + prometheus_client.generate_latest(self._metrics)
            return web_response.Response(body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})
        found = self._ask(request)
        if found is None:
            return _text(404, "not found; there are /livez, /readyz, /healthz and /metrics\n")
        well, text = found
        return _text(200 if well else 500, text)

    def _ask(self, request: web_request.BaseRequest) -> tuple[bool, str] | None:
        endpoint, slash, name = request.path.removeprefix("/").partition("/")
        if endpoint not in _ENDPOINTS:
            return None
        if slash:
            return self._health.one(endpoint, name)
        return self._health.report(endpoint, verbose="verbose" in request.query)


def _text(code: int, text: str) -> web_response.Response:
    return web_response.Response(status=code, text=text, content_type="text/plain")
