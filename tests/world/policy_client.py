# SPDX-License-Identifier: Apache-2.0
"""A proxy's side of policy from field numbers alone: what GetPort, WatchPort, Get and Watch say, and what a stock proxy makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import threading
from dataclasses import dataclass
from typing import Any, Self

import grpc
import grpc.aio

from tests.world import discovery_client, mesh_client

GET_PORT = "/io.linkerd.proxy.inbound.InboundServerPolicies/GetPort"
WATCH_PORT = "/io.linkerd.proxy.inbound.InboundServerPolicies/WatchPort"
GET = "/io.linkerd.proxy.outbound.OutboundPolicies/Get"
WATCH = "/io.linkerd.proxy.outbound.OutboundPolicies/Watch"
ANYBODY = "*"

first, many = discovery_client.first, discovery_client.many


def port_spec(workload: str, port: int) -> bytes:
    number = mesh_client.varint(2 << 3) + mesh_client.varint(port) if port else b""
    return (mesh_client.octets(1, workload.encode()) if workload else b"") + number


def traffic_spec(source: str, *, authority: str = "", ip: str = "", port: int = 80) -> bytes:
    head = mesh_client.octets(1, source.encode())
    if authority:
        return head + mesh_client.octets(3, authority.encode())
    four = bytes([1 << 3 | 5]) + int(ipaddress.IPv4Address(ip)).to_bytes(4, "little")
    address = mesh_client.octets(1, four) + mesh_client.varint(2 << 3) + mesh_client.varint(port)
    return head + mesh_client.octets(2, address)


@dataclass(frozen=True)
class Authz:
    """One authorization: what it is called, and whom it has. `suffixes` begin with a dot; an empty one has every name."""

    name: str
    anyone: bool = False
    identities: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    def admits(self, identity: str) -> bool:
        named = bool(identity) and (identity in self.identities or identity.endswith(self.suffixes or ("\0",)))
        return self.anyone or named


@dataclass(frozen=True)
class Server:
    """What a proxy is told of one port."""

    protocol: str
    labels: dict[str, str]
    authorizations: tuple[Authz, ...]
    probes: tuple[str, ...] = ()

    def lets_in(self, identity: str = "") -> str:
        """By which authorization a client comes in; empty where by none."""
        return next((row.name for row in self.authorizations if row.admits(identity)), "")


def server(data: bytes) -> Server:
    """A Server, with everything that a stock proxy rejects a Server without."""
    protocol = first(data, 1)
    detect, opaque = first(protocol, 1), first(protocol, 2)
    labels = dict(discovery_client.labels(data, 4))
    assert labels["name"]
    probes: list[str] = []
    if detect is not None:
        assert first(first(detect, 1), 1) == 10
        routes = many(detect, 3)
        assert all(first(route, 1) and many(route, 4) for route in routes)
        for match in (match for route in routes for rule in many(route, 4) for match in many(rule, 1)):
            exact = first(first(match, 1), 1)
            if exact is not None:
                # GET, which has the number 0.
                assert first(first(match, 4), 1) == 0
                probes.append(exact.decode())
    else:
        assert opaque == b""
    kind = "opaque" if detect is None else "detect"
    return Server(kind, labels, tuple(map(_authz, many(data, 3))), tuple(probes))


def _authz(data: bytes) -> Authz:
    networks = [first(first(network, 1), 2) or 0 for network in many(data, 1)]
    # All of both families, and never none: a proxy rejects that.
    assert networks == [0, 0]
    authn, metadata = first(data, 2), first(data, 4)
    default, resource = first(metadata, 1), first(metadata, 2)
    name = default.decode() if default is not None else first(resource, 3).decode()
    assert dict(discovery_client.labels(data, 3))["name"] == name
    if first(authn, 1) is not None:
        return Authz(name, anyone=True)
    clients = first(first(authn, 2), 2)
    identities = tuple(first(row, 1).decode() for row in many(clients, 1))
    suffixes = tuple("".join(f".{part.decode()}" for part in many(row, 1)) for row in many(clients, 2))
    return Authz(name, identities=identities, suffixes=suffixes)


def balancers(data: bytes) -> list[str]:
    """The paths that the balancers of an OutboundPolicy ask for: of opaque connections, HTTP/1 and HTTP/2."""
    assert first(data, 2)
    detect = first(first(data, 1), 1)
    assert first(first(detect, 1), 1) == 10
    rules = [
        (number, rule)
        for protocol, number in ((2, 1), (3, 3), (4, 3))
        for route in many(first(detect, protocol), 1)
        for rule in many(route, 3)
    ]
    paths = []
    for number, rule in rules:
        backend = first(first(first(first(rule, number), 2), 1), 1)
        balancer, queue = first(backend, 3), first(backend, 4)
        assert first(queue, 1)
        assert first(queue, 2)
        assert first(balancer, 2)
        paths.append(first(first(first(balancer, 1), 1), 1).decode())
    return paths


class Watching:
    """One stream that is read in the background; leaving the block ends it."""

    def __init__(self, target: str, method: str, message: bytes) -> None:
        self.messages: list[bytes] = []
        self.ended = ""
        self._arguments = target, method, message
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._read())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _read(self) -> None:
        target, method, message = self._arguments
        async with grpc.aio.insecure_channel(target, options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
            call: Any = channel.unary_stream(method, request_serializer=bytes, response_deserializer=bytes)(message)
            try:
                async for octets in call:
                    self.messages.append(octets)
                self.ended = "OK"
            except grpc.aio.AioRpcError as error:
                self.ended = error.code().name

    @property
    def servers(self) -> list[Server]:
        return [server(each) for each in self.messages]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._task.cancel)  # type: ignore[union-attr]
        self._thread.join(20)
