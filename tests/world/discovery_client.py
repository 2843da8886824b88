# SPDX-License-Identifier: Apache-2.0
"""A proxy's side of discovery from field numbers alone: what Get and GetProfile say, as octets and as what they mean."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import grpc.aio

from tests.world import mesh_client

GET = "/io.linkerd.proxy.destination.Destination/Get"
GET_PROFILE = "/io.linkerd.proxy.destination.Destination/GetProfile"
_SECONDS = 30.0


@dataclass(frozen=True)
class Seen:
    """One endpoint as a proxy is told of it."""

    address: str
    weight: int = 0
    identity: str = ""
    server_name: str = ""
    hint: str = ""
    inbound_port: int = 0
    labels: tuple[tuple[str, str], ...] = ()


@dataclass
class Profile:
    """A profile as a proxy is told of it."""

    name: str = ""
    opaque: bool = False
    endpoint: Seen | None = None
    retry_ratio: float = 0.0
    retries: int = 0
    ttl: int = 0
    parent: tuple[str, ...] = ()


def request(path: str, token: str = "", scheme: str = "k8s") -> bytes:
    parts = ((1, scheme), (2, path), (3, token))
    return b"".join(mesh_client.octets(number, text.encode()) for number, text in parts if text)


def first(data: bytes, number: int) -> Any:
    """The field of this number; None where it is not there."""
    return next((value for at, value in mesh_client.fields(data) if at == number), None)


def many(data: bytes, number: int) -> list[Any]:
    return [value for at, value in mesh_client.fields(data) if at == number]


def address(data: bytes) -> str:
    """A TcpAddress."""
    ip, port = first(data, 1) or b"", first(data, 2) or 0
    four = first(ip, 1)
    if four is not None:
        return f"{ipaddress.IPv4Address(four)}:{port}"
    six = first(ip, 2)
    return f"[{ipaddress.IPv6Address((first(six, 1) or 0) << 64 | (first(six, 2) or 0))}]:{port}"


def labels(data: bytes, number: int) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((first(row, 1).decode(), (first(row, 2) or b"").decode()) for row in many(data, number)))


def weighted(data: bytes) -> Seen:
    """A WeightedAddr."""
    identity, hint = first(data, 5) or b"", first(data, 6) or b""

    def name(number: int) -> str:
        return str((first(first(identity, number) or b"", 1) or b"").decode())

    kinds = [word for number, word in ((1, "h2"), (3, "opaque")) if first(hint, number) is not None]
    return Seen(
        address=address(first(data, 1)),
        weight=first(data, 3) or 0,
        identity=name(1),
        server_name=name(4),
        hint="".join(kinds),
        inbound_port=first(first(hint, 2) or b"", 1) or 0,
        labels=labels(data, 4),
    )


def profile(data: bytes) -> Profile:
    """A DestinationProfile."""
    budget, endpoint = first(data, 2) or b"", first(data, 6)
    parent = first(first(data, 7) or b"", 2) or b""
    return Profile(
        name=(first(data, 5) or b"").decode(),
        opaque=bool(first(data, 4)),
        endpoint=None if endpoint is None else weighted(endpoint),
        retry_ratio=round(struct.unpack("<f", (first(budget, 1) or 0).to_bytes(4, "little"))[0], 3),
        retries=first(budget, 2) or 0,
        ttl=first(first(budget, 3) or b"", 1) or 0,
        parent=tuple((first(parent, number) or b"").decode() for number in (1, 2, 3, 4)),
    )


@dataclass
class Endpoints:
    """What a proxy knows of a Service after what it was told so far."""

    rows: dict[str, Seen] = field(default_factory=dict)
    exists: bool | None = None
    labels: tuple[tuple[str, str], ...] = ()
    messages: int = 0

    def take(self, data: bytes) -> None:
        """An Update."""
        self.messages += 1
        for number, value in mesh_client.fields(data):
            assert isinstance(value, bytes)
            if number == 1:
                self.rows |= {row.address: row for row in map(weighted, many(value, 1))}
                self.labels = labels(value, 2)
            elif number == 2:
                for gone in many(value, 1):
                    del self.rows[address(gone)]
            else:
                assert number == 3
                self.rows.clear()
                self.exists = bool(first(value, 1))

    @property
    def identities(self) -> dict[str, str]:
        return {where: row.identity for where, row in self.rows.items()}


class Stream:
    """One stream of Get or GetProfile, read message by message."""

    def __init__(self, target: str, method: str, message: bytes) -> None:
        self._channel = grpc.aio.insecure_channel(target, options=(("grpc.use_local_subchannel_pool", 1),))
        call: Any = self._channel.unary_stream(method, request_serializer=bytes, response_deserializer=bytes)
        self._call = call(message)

    async def read(self) -> bytes:
        """The next message; grpc.aio.AioRpcError where the stream ends."""
        said = await asyncio.wait_for(self._call.read(), _SECONDS)
        assert said is not grpc.aio.EOF
        return bytes(said)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()
        await self._channel.close()


async def refusal(target: str, method: str, path: str) -> tuple[str, str]:
    """The code and the text of a stream that is refused."""
    async with Stream(target, method, request(path)) as stream:
        try:
            await stream.read()
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
    raise AssertionError("the stream was answered")


async def profile_of(target: str, path: str) -> Profile:
    async with Stream(target, GET_PROFILE, request(path)) as stream:
        return profile(await stream.read())


async def endpoints_of(target: str, path: str) -> Endpoints:
    """The first answer."""
    said = Endpoints()
    async with Stream(target, GET, request(path)) as stream:
        said.take(await stream.read())
    return said
