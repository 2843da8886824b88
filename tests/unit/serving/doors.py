# SPDX-License-Identifier: Apache-2.0
"""A door on a real socket whose pipeline only tells what it saw, and clients with certificates for it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from aiohttp import web
from cryptography import x509

from handfast.apiserver import pipeline
from handfast.runtime import tls
from handfast.serving import connection, limits, listener, server_tls
from tests.scenarios import wire
from tests.unit.pki.making import SERVER, Made, ca, leaf
from tests.world.clock import START, MovableClock

DAY = datetime.timedelta(days=1)
NOW_VALID: dict[str, Any] = {"not_before": START - DAY, "not_after": START + DAY}
PAST: dict[str, Any] = {"not_before": START - 3 * DAY, "not_after": START - 2 * DAY}
ROOT = ca("the CA", **NOW_VALID)
FOREIGN = ca("a foreign CA", **NOW_VALID)
MIDDLE = ca("team", ROOT, **NOW_VALID)
SERVING = leaf(ROOT, SERVER, sans=[x509.IPAddress(ipaddress.ip_address("127.0.0.1"))], **NOW_VALID)
LIFTED = limits.Limits(lifted=True)


def client(made: Made | None = None, *more: Made) -> ssl.SSLContext:
    """TLS of a client that shows this certificate, with what it sends along."""
    if made is None:
        return tls.client_context(ROOT.pem)
    return tls.client_context(ROOT.pem, b"".join(part.pem for part in (made, *more)), made.key_pem)


class Door:
    """A listener whose pipeline only tells what it saw."""

    def __init__(self, made: listener.Listener, port: int) -> None:
        self.listener = made
        self.port = port

    def line(self, context: ssl.SSLContext | None, **options: Any) -> contextlib.AbstractAsyncContextManager[wire.Line]:
        return wire.line(self.port, context, **options)


async def tell(http: web.BaseRequest) -> web.StreamResponse:
    """The peer, as JSON."""
    seen = cast("connection.Connection", http.protocol).peer
    return web.json_response({"chain": [part.hex() for part in seen.chain], "address": seen.address, "via": seen.via})


class Held:
    """A pipeline that tells what it saw once it is let go."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        self.started.set()
        await self.go.wait()
        return await tell(http)


Opener = Callable[..., contextlib.AbstractAsyncContextManager[Door]]


def opener(directory: pathlib.Path) -> Opener:
    """Opens doors whose certificate is in `directory`."""
    (directory / "tls.crt").write_bytes(SERVING.pem)
    (directory / "tls.key").write_bytes(SERVING.key_pem)

    @contextlib.asynccontextmanager
    async def opened(bounds: limits.Limits = LIFTED, handler: connection.Handler = tell) -> AsyncIterator[Door]:
        context = server_tls.server_context(str(directory / "tls.crt"), str(directory / "tls.key"), ROOT.pem.decode())
        sock = socket.create_server(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        made = listener.Listener(sock, context, handler, pipeline.protocol_error, bounds, MovableClock())
        made.start()
        try:
            yield Door(made, port)
        finally:
            await made.stop(0.1)

    return opened


async def seen_by(door: Door, context: ssl.SSLContext) -> Any:
    """What a door says of a client."""
    async with door.line(context) as line:
        return (await line.ask("GET", "/")).json()
