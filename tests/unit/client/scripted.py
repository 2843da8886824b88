# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on a real socket that follows a script: each request gets the next step, and is remembered."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import struct
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from handfast.client import api, connection, transport
from tests.world.clock import MovableClock


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes


Step = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(code: int, document: Any = None, *, raw: bytes = b"", **headers: str) -> Step:
    """A whole answer."""
    body = raw if document is None else msgspec.json.encode(document)

    async def step(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} Any", f"Content-Length: {len(body)}", "Content-Type: application/json"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return step


def status(code: int, reason: str, **details: Any) -> Step:
    """A refusal."""
    document = {"kind": "Status", "status": "Failure", "reason": reason, "message": f"because {reason}", "code": code}
    return answer(code, {**document, **({"details": details} if details else {})})


def listing(version: str, *items: Any, more: str = "") -> Step:
    """A list, or a page of one."""
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    return answer(200, {"kind": "ThingList", "metadata": metadata, "items": list(items)})


def stream(*events: Any, then: str = "close") -> Step:
    """A watch: these events, then a clean close, a reset, or silence until the client goes."""

    async def step(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in events:
            line = event if isinstance(event, bytes) else msgspec.json.encode(event) + b"\n"
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()
        if then == "reset":
            opened = writer.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif then == "hold":
            await asyncio.Event().wait()
        else:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    return step


def drop() -> Step:
    """No answer at all."""

    async def step(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    return step


def thing(name: str, version: int, **more: Any) -> dict[str, Any]:
    """An object."""
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": {**meta, **more}}


def event(kind: str, name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "object": thing(name, version, **more)}


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Thing", "metadata": {"resourceVersion": str(version)}}}


class Server:
    """Steps are used up in order; without any left, requests wait. A path may have steps of its own, and uses no others."""

    def __init__(self, *steps: Step) -> None:
        self.steps = collections.deque(steps)
        self.of_paths: dict[str, collections.deque[Step]] = {}
        self.requests: list[Request] = []
        self._changed = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add_at(self, path: str, *steps: Step) -> None:
        """Steps for the requests of one path: for those who ask for several things at once."""
        self.of_paths[path] = collections.deque(steps)

    def add(self, *steps: Step) -> None:
        self.steps.extend(steps)
        self._changed.set()

    async def saw(self, count: int) -> None:
        """Until so many requests have come."""
        while len(self.requests) < count:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *rest = head.strip().split("\r\n")
                method, target, _ = first.split(" ")
                headers = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in rest}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                split = urllib.parse.urlsplit(target)
                params = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
                self.requests.append(Request(method, split.path, params, headers, body))
                self._changed.set()
                steps = self.of_paths.get(split.path, self.steps)
                while not steps:
                    await asyncio.Event().wait()
                await steps.popleft()(writer)
        writer.close()


@contextlib.asynccontextmanager
async def serving(*steps: Step) -> AsyncIterator[Server]:
    """A server for the length of the block."""
    server = Server(*steps)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(server._serve(reader, writer)))

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def client_of(server: Server, clock: MovableClock | None = None, **more: Any) -> AsyncIterator[api.Client]:
    """A client of the scripted server."""
    place = connection.Connection(server=server.url, **more)
    link = transport.Transport(place, clock=clock or MovableClock())
    try:
        yield api.Client(link)
    finally:
        await link.close()
