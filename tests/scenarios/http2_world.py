# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 as other people's programs speak it, with trailers: a client with TLS or without, and an application without. Nothing here is under test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events

SECONDS = 20.0
Rows = Sequence[tuple[str, str]]


@dataclass
class Exchange:
    """What one side was sent on a stream."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return int(self.headers[":status"])

    @property
    def seen(self) -> dict[str, Any]:
        """What the application below got; nothing where somebody else has answered."""
        document: dict[str, Any] = json.loads(self.body) if self.body.startswith(b"{") else {}
        return document


def _read(rows: Iterable[Any]) -> dict[str, str]:
    return dict(rows)


class _Line:
    """One connection, from either side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool) -> None:
        self._reader, self._writer = reader, writer
        config = h2.config.H2Configuration(client_side=client, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self._streams: dict[int, Exchange] = {}
        self.h2.initiate_connection()

    def send(self, stream: int, headers: Rows, body: bytes, trailers: Rows) -> None:
        self.h2.send_headers(stream, headers)
        self.h2.send_data(stream, body, end_stream=not trailers)
        if trailers:
            self.h2.send_headers(stream, trailers, end_stream=True)

    async def ended(self) -> AsyncIterator[tuple[int, Exchange]]:
        """Each stream that the other side has ended, until the connection is."""
        while True:
            self._writer.write(self.h2.data_to_send())
            await self._writer.drain()
            data = await self._reader.read(65536)
            if not data:
                return
            for event in self.h2.receive_data(data):
                if (stream := self._take(event)) is not None:
                    yield stream, self._streams.pop(stream)

    def _take(self, event: h2.events.Event) -> int | None:
        match event:
            case h2.events.RequestReceived() | h2.events.ResponseReceived():
                self._streams[event.stream_id] = Exchange(_read(event.headers))
            case h2.events.TrailersReceived():
                self._streams[event.stream_id].trailers = _read(event.headers)
            case h2.events.DataReceived():
                self._streams[event.stream_id].body += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                return event.stream_id
            case h2.events.StreamReset():
                raise ConnectionResetError(event.error_code)
        return None


@dataclass
class Application:
    """Answers each request with what was in it, as JSON, and with trailers of which one lies."""

    port: int = 0
    requests: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _Line(reader, writer, client=False)
        with contextlib.suppress(ConnectionError):
            async for stream, request in line.ended():
                self.requests += 1
                body = json.dumps({"headers": request.headers, "trailers": request.trailers}).encode()
                line.send(stream, [(":status", "200")], body, [("x-sum", "1"), ("l5d-server-id", "liar")])
        writer.close()


@contextlib.asynccontextmanager
async def application(ip: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Application]:
    made = Application()
    server = await asyncio.start_server(made.answer, ip, port)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


class Client:
    """One connection that asks one thing after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._line = _Line(reader, writer, client=True)
        self._answers = self._line.ended()

    async def get(self, host: str = "web.ns1", trailers: Rows = (), **headers: str) -> Exchange:
        rows = [(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", "/x")]
        rows += [(name.replace("_", "-"), value) for name, value in headers.items()]
        self._line.send(self._line.h2.get_next_available_stream_id(), rows, b"x", trailers)
        async with asyncio.timeout(SECONDS):
            async for _, answer in self._answers:
                return answer
        raise ConnectionResetError


@contextlib.asynccontextmanager
async def client(port: int, context: ssl.SSLContext | None = None, name: str = "") -> AsyncIterator[Client]:
    """With prior knowledge (RFC 9113, section 3.3); with a context by TLS, to this name."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=name if context else None
        )
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
