# SPDX-License-Identifier: Apache-2.0
"""Health and metrics of a role that has no other HTTP port: a small server meant for loopback.

`/livez`, `/readyz` and `/healthz` answer `ok` or 500, with one line per check for `?verbose`; a failing check is
always listed. `/metrics` is the Prometheus text format. It checks nothing itself: roles bring their checks.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

import prometheus_client
from aiohttp import web_request, web_response, web_server

# None is well; a text says what is wrong.
Check = Callable[[], str | None]


class Admin:
    """Answers from the checks it was given; `live` are also part of `ready`."""

    def __init__(self, *, live: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        self._checks: Mapping[str, Mapping[str, Check]] = {
            "/livez": live,
            "/readyz": {**live, **ready},
            "/healthz": live,
        }
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
        for root, checks in self._checks.items():
            if request.path == root:
                return _report(root, checks, verbose="verbose" in request.query)
            name = request.path.removeprefix(root + "/")
            if name != request.path and name in checks:
                return _report(f"{root}/{name}", {name: checks[name]}, verbose="verbose" in request.query)
        return _text(404, "not found; there are /livez, /readyz, /healthz and /metrics\n")


def _report(path: str, checks: Mapping[str, Check], *, verbose: bool) -> web_response.Response:
    results = {name: check() for name, check in checks.items()}
    failed = any(wrong is not None for wrong in results.values())
    if not failed and not verbose:
        return _text(200, "ok")
    lines = [f"[+]{name} ok" if wrong is None else f"[-]{name} failed: {wrong}" for name, wrong in results.items()]
    lines.append(f"{path.strip('/')} check {'failed' if failed else 'passed'}")
    return _text(500 if failed else 200, "\n".join(lines) + "\n")


def _text(code: int, text: str) -> web_response.Response:
    return web_response.Response(status=code, text=text, content_type="text/plain")
