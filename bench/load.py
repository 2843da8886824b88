# SPDX-License-Identifier: Apache-2.0
"""The load generator: HTTP/1.1 over TLS on kept connections, parsing only what tells one answer from the next.

Run as a program it lists one path over and over until its input ends, and prints the seconds each list took. It never
pipelines, and it measures no server: see `measure`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvloop

HOST = "127.0.0.1"
# JSON never holds a raw CR, so this can only be the end of a chunked body.
_END = b"\r\n0\r\n\r\n"


class UnexpectedAnswer(Exception):
    """A server did not do what the benchmark is about, so its figures would mean nothing."""


class Connection(asyncio.Protocol):
    """One kept connection; `request` sends one request and gives its status when the whole answer is here."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._left = 0
        self._tail = b""
        self._status = 0
        self._waiting: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(UnexpectedAnswer(f"the server closed the connection: {exc}"))

    def request(self, data: bytes) -> asyncio.Future[int]:
        if self._transport is None:
            raise UnexpectedAnswer("the server closed the connection between two requests")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self._waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
            if not self._left:
                self._complete()
        elif self._tail:
            self._chunked(data)
        else:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end >= 0:
                self._begin(end)

    def _begin(self, end: int) -> None:
        """The head is here, and perhaps some of the body."""
        head, body = self._head[:end].lower(), self._head[end + 4 :]
        self._head = b""
        self._status = int(head[9:12])
        at = head.find(b"content-length: ")
        if at < 0:
            self._tail = b"-"
            self._chunked(body)
            return
        self._left = int(head[at + 16 :].split(b"\r\n", 1)[0]) - len(body)
        if not self._left:
            self._complete()

    def _chunked(self, data: bytes) -> None:
        self._tail = (self._tail + data[-len(_END) :])[-len(_END) :]
        if self._tail == _END:
            self._tail = b""
            self._complete()

    def _complete(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(self._status)


async def connect(
    port: int, context: ssl.SSLContext, make: Callable[[], Any] = Connection, *, source: str = "", name: str = HOST
) -> Any:
    """A new connection with a handshake of its own, from an address of the loopback network."""
    loop = asyncio.get_running_loop()
    local = (source, 0) if source else None
    return (await loop.create_connection(make, HOST, port, ssl=context, server_hostname=name, local_addr=local))[1]


class Clients:
    """Several connections that take turns at a list of requests, each sending its next when its last was answered."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections

    @classmethod
    async def open(cls, port: int, context: ssl.SSLContext, connections: int) -> Clients:
        return cls([await connect(port, context) for _ in range(connections)])

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def run(
        self, make: Callable[[int], bytes], total: int, *, expect: int = 200, pause: float = 0.0
    ) -> list[float]:
        """Send `make(0)` … `make(total - 1)`; the seconds each answer took."""
        numbers = iter(range(total))
        latencies: list[float] = []

        async def work(connection: Connection) -> None:
            for number in numbers:
                begun = time.perf_counter()
                status = await connection.request(make(number))
                latencies.append(time.perf_counter() - begun)
                if status != expect:
                    raise UnexpectedAnswer(f"{make(number)[:80]!r} was answered with {status}, not {expect}")
                if pause:
                    await asyncio.sleep(pause)

        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(work(connection))
        return latencies


class _Stream(asyncio.Protocol):
    """An answer that does not end: counts the events in it."""

    # An event is one chunk: the size, the event and the chunk's end are a line each.
    _LINES = 3

    def __init__(self, owner: Watchers) -> None:
        self._owner = owner
        self._head: bytes | None = b""
        self._lines = 0
        self.transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            if head[9:12] != b"200":
                self.opened.set_exception(UnexpectedAnswer(f"a watch was answered with {head[:60]!r}"))
                return
            self._head = None
            self.opened.set_result(None)
        before = self._lines // self._LINES
        self._lines += data.count(b"\n")
        self._owner.count(self._lines // self._LINES - before)


class Watchers:
    """Open watches, and how many events all of them together have received."""

    def __init__(self) -> None:
        self._streams: list[_Stream] = []
        self._wanted = 0
        self._reached: asyncio.Future[None] | None = None
        self.events = 0

    async def open(self, port: int, context: ssl.SSLContext, request: bytes, watchers: int) -> None:
        for _ in range(watchers):
            stream: _Stream = await connect(port, context, lambda: _Stream(self))
            self._streams.append(stream)
            if stream.transport is not None:
                stream.transport.write(request)
        for stream in self._streams:
            await stream.opened

    def count(self, events: int) -> None:
        self.events += events
        if self._reached is not None and self.events >= self._wanted and not self._reached.done():
            self._reached.set_result(None)

    async def until(self, events: int, seconds: float = 30.0) -> None:
        """Until so many events have come altogether."""
        if self.events < events:
            self._wanted = events
            self._reached = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(seconds):
                await self._reached

    def close(self) -> None:
        for stream in self._streams:
            if stream.transport is not None:
                stream.transport.abort()
        self._streams.clear()


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n\r\n".encode()


def delete(path: str) -> bytes:
    return f"DELETE {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n\r\n".encode()


def send(method: str, path: str, body: bytes) -> bytes:
    """A request with a JSON body."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def exchange(port: int, context: ssl.SSLContext, request: bytes) -> tuple[int, bytes]:
    """Status and body of one answer of known length, over a connection of its own."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname=HOST)
    try:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        return int(head[9:12]), body
    finally:
        writer.close()


async def fetch(port: int, context: ssl.SSLContext, path: str) -> bytes:
    """The body of the answer to one GET, over a connection of its own."""
    status, body = await exchange(port, context, get(path))
    if status != 200:
        raise UnexpectedAnswer(f"GET {path} was answered with {status} {body[:200]!r}")
    return body


async def _list_until_told(kubeconfig: str, port: int, path: str) -> None:
    from bench import servers

    clients = await Clients.open(port, servers.client_context(kubeconfig), 1)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print("listing", flush=True)
    while not ended.done():
        (seconds,) = await clients.run(lambda _: get(path), 1)
        print(f"{seconds:.4f}", flush=True)
    clients.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_list_until_told(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
