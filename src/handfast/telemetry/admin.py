# SPDX-License-Identifier: Apache-2.0
"""Health and metrics of a role that has no other HTTP port: a small server meant for loopback.

`/livez`, `/readyz` and `/healthz` answer what `health` says, with 200 or 500. `/metrics` is the Prometheus text format.
It checks nothing itself: roles bring their checks.
"""

from __future__ import annotations

import asyncio
import socket

import prometheus_client
from aiohttp import web_request, web_response, web_server

from handfast.telemetry import health as health_module

_ENDPOINTS = frozenset({"livez", "readyz", "healthz"})


class Admin:
    """Answers for one process."""

    def __init__(self, health: health_module.Health) -> None:
        self._health = health
        self._server: asyncio.Server | None = None
        self._handler: web_server.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Serve on a socket that is bound already."""
        self._handler = web_server.Server(self._answer, access_log=None)
        self._server = await asyncio.get_running_loop().create_server(self._handler, sock=listener)

    async def stop(self) -> None:
        if self._server is not None and self._handler is not None:
            self._server.close()
            await self._handler.shutdown(1.0)
            await self._server.wait_closed()

    async def _answer(self, request: web_request.BaseRequest) -> web_response.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return _text(405, f"method {request.method} is not allowed here\n")
        if request.path == "/metrics":
            body = prometheus_client.generate_latest()
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
