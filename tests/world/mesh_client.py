# SPDX-License-Identifier: Apache-2.0
"""A client of the mesh's gRPC services from field numbers alone: octets out, octets in, through a TLS of its own or none.

Nothing here uses the message classes of `wire`: what it writes and reads is what the numbers say.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

CERTIFY = "/io.linkerd.proxy.identity.Identity/Certify"
_TIMEOUT = 20.0
# Wire type -> octets.
FIXED = {1: 8, 5: 4}


def varint(number: int) -> bytes:
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*octets, number))


def octets(number: int, content: bytes) -> bytes:
    """A field of text, octets or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers, and what they hold; what has a fixed size is read as a number, its last octet first."""

    def take() -> int:
        nonlocal data
        value = shift = 0
        while True:
            octet, data = data[0], data[1:]
            value |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return value

    while data:
        tag = take()
        if tag & 7 == 0:
            yield tag >> 3, take()
            continue
        is_fixed = tag & 7 in FIXED
        assert is_fixed or tag & 7 == 2
        length = FIXED[tag & 7] if is_fixed else take()
        content, data = data[:length], data[length:]
        yield tag >> 3, int.from_bytes(content, "little") if is_fixed else content


def certify_request(identity: str, token: bytes, csr: bytes) -> bytes:
    parts = ((1, identity.encode()), (2, token), (3, csr))
    return b"".join(octets(number, content) for number, content in parts if content)


@dataclass
class Certified:
    """The answer of Certify."""

    leaf: bytes = b""
    intermediates: list[bytes] = field(default_factory=list)
    valid_until: int = 0


def certified(data: bytes) -> Certified:
    answer = Certified()
    for number, value in fields(data):
        if number == 3:
            assert isinstance(value, bytes)
            answer.valid_until = next((int(seconds) for at, seconds in fields(value) if at == 1), 0)
            continue
        assert isinstance(value, bytes)
        if number == 1:
            answer.leaf = value
        else:
            assert number == 2
            answer.intermediates.append(value)
    return answer


async def call(target: str, method: str, message: bytes) -> bytes:
    """One unary call; grpc.aio.AioRpcError where it is refused."""
    async with grpc.aio.insecure_channel(target, options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
        answer: Any = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        return bytes(await answer(message, timeout=_TIMEOUT))


async def refusal(target: str, method: str, message: bytes) -> tuple[str, str]:
    """The code and the text of a call that is refused."""
    try:
        await call(target, method, message)
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    raise AssertionError("the call was answered")


@contextlib.asynccontextmanager
async def tunnel(port: int, context: ssl.SSLContext, name: str = "x") -> AsyncIterator[str]:
    """An address whose connections go through TLS to that port: how a client without ALPN gets there."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
            writers.append(far_writer)
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        except OSError:
            # Whoever is at the near end sees that it is closed.
            pass
        finally:
            # Both, before either is waited for: somebody may end the wait.
            for each in writers:
                each.close()
            for each in writers:
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    under_way: set[asyncio.Task[None]] = set()
    listening = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
