# SPDX-License-Identifier: Apache-2.0
"""An agent of the mesh from field numbers alone: a thread that watches through TLS of its own, and what it was told.

Nothing here uses the message classes of `wire`.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio

from tests.world import mesh_client
from tests.world.mesh_client import fields, octets, varint

WATCH = "/handfast.mesh.v1.Agent/Watch"


def number(at: int, value: int) -> bytes:
    """A field that is a number; nothing where it is 0."""
    return varint(at << 3) + varint(value) if value else b""


def edge(direction: str, peer: str, port: int, *, secured: bool, count: int) -> bytes:
    return (
        octets(1, direction.encode())
        + octets(2, peer.encode())
        + number(3, port)
        + number(4, int(secured))
        + number(5, count)
    )


def report(
    acknowledged: int = 0,
    *,
    sha256: bytes = b"",
    edges: Sequence[bytes] = (),
    pod: tuple[str, str] | None = None,
) -> bytes:
    """A Report."""
    message = number(1, acknowledged)
    if sha256:
        message += octets(2, octets(3, sha256))
    message += b"".join(octets(3, each) for each in edges)
    if pod is not None:
        message += octets(4, octets(1, pod[0].encode()) + octets(2, pod[1].encode()))
    return message


@dataclass
class Update:
    """What an agent is told."""

    version: int = 0
    anchors: str = ""
    names: list[str] = field(default_factory=list)
    certificates: list[bytes] = field(default_factory=list)
    policy: bytes = b""


def update(data: bytes) -> Update:
    """An Update."""
    read = Update()
    for at, value in fields(data):
        if at == 1:
            assert isinstance(value, int)
            read.version = value
            continue
        assert isinstance(value, bytes)
        if at == 2:
            read.anchors = value.decode()
        elif at == 3:
            for inner, content in fields(value):
                assert isinstance(content, bytes)
                (read.names.append(content.decode()) if inner == 1 else read.certificates.append(content))
        else:
            assert at == 4
            read.policy = value
    return read


# grpcio itself says INTERNAL where a write meets a stream that has ended, and loses the code that the server gave: so it is asked again.
_TRIES = 5


class Agent:
    """One stream; leaving the block ends it. `updates` are those that came, `ended` the code and the text of its end."""

    def __init__(self, port: int, context: ssl.SSLContext, name: str, first: bytes = b"") -> None:
        self.updates: list[Update] = []
        self.ended: tuple[str, str] | None = None
        self._first = first
        self._where = (port, context, name)
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._call: Any = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._watch())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            self.ended = self.ended or ("CANCELLED", "")
        finally:
            self._loop.close()

    async def _watch(self) -> None:
        async with mesh_client.tunnel(*self._where) as target, grpc.aio.insecure_channel(target) as channel:
            method: Any = channel.stream_stream(WATCH, request_serializer=bytes, response_deserializer=bytes)
            for _ in range(_TRIES):
                ended = await self._stream(method())
                if ended[0] != "INTERNAL" or self.updates:
                    break
            self.ended = ended

    async def _stream(self, call: Any) -> tuple[str, str]:
        """One try; the code and the text of its end."""
        self._call = call
        try:
            await call.write(self._first)
            self._ready.set()
            while (message := await call.read()) is not grpc.aio.EOF:
                self.updates.append(update(message))
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
        except asyncio.InvalidStateError:
            return (await call.code()).name, await call.details() or ""
        finally:
            self._ready.set()
        return "OK", ""

    def report(self, message: bytes) -> None:
        """Send a report."""
        self._ready.wait(20)
        asyncio.run_coroutine_threadsafe(self._call.write(message), self._loop).result(20)

    @property
    def code(self) -> str:
        """Of its end; empty while it goes on."""
        return "" if self.ended is None else self.ended[0]

    @property
    def last(self) -> Update:
        return self.updates[-1] if self.updates else Update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive() and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(20)
