# SPDX-License-Identifier: Apache-2.0
"""The floor: the least that Python's fastest HTTPS stack can do, answering the same bytes as the real server.

It is a bare aiohttp `web.Server` on uvloop with the API server's own TLS context. It knows no objects, no callers and
no store: what the API server costs above it is what the API server itself costs.

    GET  /object     the bytes of one stored object
    POST /echo       201 and the body
    GET  /watch      a chunked answer that stays open
    POST /broadcast  writes one watch event to every open /watch, straight to its transport; then 200 and the body

    python -m bench.floor CERTIFICATE KEY CLIENT_CA OBJECT_FILE
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import sys

import uvloop
from aiohttp import web

from handfast.apiserver import limits
from handfast.apiserver.verbs import watch
from handfast.serving import server_tls

_HEADERS = {"Content-Type": "application/json", "Cache-Control": "no-cache, private", "Audit-Id": "00000000-1"}


class Floor:
    """The handler and the transports it broadcasts to."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._frame = watch.chunk(b'{"type":"MODIFIED","object":%s}\n' % body)
        self._open: set[asyncio.Transport] = set()

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.method == "GET":
            if http.raw_path == "/watch":
                return await self._watch(http)
            return web.Response(body=self._body, headers=_HEADERS)
        data = await http.read()
        if http.raw_path == "/echo":
            return web.Response(body=data, status=201, headers=_HEADERS)
        for transport in self._open:
            transport.write(self._frame)
        return web.Response(body=data, headers=_HEADERS)

    async def _watch(self, http: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers=_HEADERS)
        response.enable_chunked_encoding()
        await response.prepare(http)
        transport = http.transport
        if transport is None:
            return response
        self._open.add(transport)
        try:
            # Until the client goes away, which cancels this.
            await asyncio.get_running_loop().create_future()
        finally:
            self._open.discard(transport)
        return response


async def serve(certificate: str, key: str, client_ca: str, body: bytes) -> None:
    """Serve on a free port, print it, go on until SIGTERM."""
    loop = asyncio.get_running_loop()
    context = server_tls.server_context(certificate, key, pathlib.Path(client_ca).read_text())
    handler = web.Server(
        Floor(body).handle,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=limits.Limits().idle_seconds,
    )
    server = await loop.create_server(handler, "127.0.0.1", 0, ssl=context, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as floor_runner:
        certificate_file, key_file, ca_file, object_file = sys.argv[1:]
        floor_runner.run(serve(certificate_file, key_file, ca_file, pathlib.Path(object_file).read_bytes()))
