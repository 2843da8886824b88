# SPDX-License-Identifier: Apache-2.0
"""A client that sends exactly the bytes it is given, over TLS or not, and reads what comes back; nothing here is under test."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec

# Longer than any answer takes, shorter than a test may.
PATIENCE = 30.0


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def message(self) -> str:
        return str(self.json()["message"])


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def reply(self, *, head_only: bool = False) -> Reply:
        """The next answer; IncompleteReadError if the connection ends instead."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {}
            for line in head[1:]:
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            status = int(head[0].split()[1])
            if head_only or status in {100, 204, 304}:
                return Reply(status, headers, b"")
            if headers.get("transfer-encoding") == "chunked":
                return Reply(status, headers, b"".join([part async for part in self.chunks()]))
            return Reply(status, headers, await self.reader.readexactly(int(headers.get("content-length", "0"))))

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readuntil(b"\r\n")

    async def rest(self) -> bytes:
        """Everything until the server closes; what had arrived before a reset counts."""
        found = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            async with asyncio.timeout(PATIENCE):
                while part := await self.reader.read(1 << 16):
                    found += part
        return found

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """A proper request, and its answer."""
        await self.send(request(method, path, body, **headers))
        return await self.reply(head_only=method == "HEAD")

    def close(self) -> None:
        cast("asyncio.Transport", self.writer.transport).abort()


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of a request; underscores in header names become dashes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@contextlib.asynccontextmanager
async def line(port: int, context: ssl.SSLContext | None, **options: Any) -> AsyncIterator[Line]:
    """A connection to the server on this machine; in the clear if there is no context."""
    if context is not None:
        options.setdefault("server_hostname", "127.0.0.1")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 20, **options)
    opened = Line(reader, writer)
    try:
        yield opened
    finally:
        opened.close()
