# SPDX-License-Identifier: Apache-2.0
"""A destination service on real sockets that says what the test wants, to whoever asks."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from handfast.pki import pairs
from handfast.runtime import addresses
from handfast.wire import mesh_messages, server, server_tls
from tests.unit.wire import greeting

NAME = "linkerd-controller.linkerd.sa.linkerd-identity.linkerd.cluster.local"
_LOW = (1 << 64) - 1


def address(host: str, port: int) -> Any:
    ip = ipaddress.ip_address(host)
    if ip.version == 4:
        return mesh_messages.TcpAddress(ip={"ipv4": int(ip)}, port=port)
    return mesh_messages.TcpAddress(ip={"ipv6": {"first": int(ip) >> 64, "last": int(ip) & _LOW}}, port=port)


def endpoint(host: str, port: int, identity: str = "", *, opaque: bool = False, **names: str) -> Any:
    """One row; `server_name` and `uri` are what else may be stated."""
    row = mesh_messages.WeightedAddr(addr=address(host, port), weight=1)
    if identity:
        row.tls_identity.dns_like_identity.name = identity
    if "server_name" in names:
        row.tls_identity.server_name.name = names["server_name"]
    if "uri" in names:
        row.tls_identity.uri_like_identity.uri = names["uri"]
    if opaque:
        row.protocol_hint.opaque.SetInParent()
    return row


def add(*rows: Any) -> Any:
    return mesh_messages.Update(add={"addrs": rows})


def remove(*rows: Any) -> Any:
    return mesh_messages.Update(remove={"addrs": rows})


def none(*, exists: bool) -> Any:
    return mesh_messages.Update(no_endpoints={"exists": exists})


def profile(**fields: Any) -> Any:
    return mesh_messages.DestinationProfile(**fields)


class DestinationService:
    """`says` is what a new stream of a path is told, then what `tell` adds; a text of upper case is a refusal by that code."""

    def __init__(self) -> None:
        self.says: dict[str, list[Any]] = {}
        self.paths: list[str] = []
        self.peers: list[str] = []
        self.contexts: list[str] = []
        self._streams: dict[str, list[asyncio.Queue[Any]]] = {}

    def tell(self, path: str, *messages: Any) -> None:
        """To streams that are open, and to those that come."""
        self.says.setdefault(path, []).extend(messages)
        for queue in self._streams.get(path, []):
            for message in messages:
                queue.put_nowait(message)

    def end(self) -> None:
        """Every open stream ends."""
        for queues in self._streams.values():
            for queue in queues:
                queue.put_nowait("UNAVAILABLE")

    def open_streams(self) -> int:
        return sum(map(len, self._streams.values()))

    async def answer(self, message: Any, peer: Any) -> AsyncGenerator[Any, None]:
        self.paths.append(message.path)
        self.contexts.append(message.context_token)
        self.peers.append(peer.identity(greeting.CLOCK.now()))
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for each in self.says.get(message.path, ["NOT_FOUND"]):
            queue.put_nowait(each)
        self._streams.setdefault(message.path, []).append(queue)
        try:
            while True:
                said = await queue.get()
                if isinstance(said, str):
                    raise server.Refusal(said, "as the test wants it")
                yield said if isinstance(said, bytes) else said.SerializeToString()
        finally:
            self._streams[message.path].remove(queue)

    @contextlib.asynccontextmanager
    async def on(
        self, anchor: greeting.Anchor | None = None, pair: pairs.Pair | None = None, port: int = 0
    ) -> AsyncIterator[addresses.Address]:
        """The service; with an anchor behind TLS."""
        own = pair or (None if anchor is None else anchor.pair(NAME))
        front = None if anchor is None else server_tls.ServerTLS(lambda: own, lambda: anchor.bundle)
        request = mesh_messages.GetDestination
        methods = (
            server.Stream("Get", request, mesh_messages.Update, self.answer),
            server.Stream("GetProfile", request, mesh_messages.DestinationProfile, self.answer),
        )
        services = {mesh_messages.DESTINATION_SERVICE: methods}
        place = addresses.Address("127.0.0.1", port)
        async with server.Server(services, clock=greeting.CLOCK, tls=front).on(place) as bound:
            yield bound
