# SPDX-License-Identifier: Apache-2.0
"""The outbound listener of a real Envoy, by hand: what it asks for is what the test gives it; and a DNS server that answers as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Sequence
from typing import Any

from handfast.rules.envoy import dns, outbound, outbound_routes
from tests.scenarios import envoy_world as world
from tests.scenarios import outbound_client

KIND = world.KIND
DOMAIN = "ns1"


class Resolver(asyncio.DatagramProtocol):
    """A DNS server: names with their IPv4 addresses; all others do not exist."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.questions: list[str] = []
        self.place = ("127.0.0.1", 0)
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.place = transport.get_extra_info("sockname")

    def datagram_received(self, data: bytes, address: Any) -> None:
        end = data.index(b"\0", 12)
        question = data[12 : end + 5]
        labels, at = [], 0
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += question[at] + 1
        name = ".".join(labels).lower()
        self.questions.append(name)
        is_known, is_a = name in self.names, question[-3] == 1
        answers = int(is_known and is_a)
        head = data[:2] + (b"\x81\x80" if is_known else b"\x81\x83") + bytes([0, 1, 0, answers, 0, 0, 0, 0])
        row = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04" + ipaddress.IPv4Address(self.names.get(name, "0.0.0.0")).packed
        self._transport.sendto(head + question + (row if answers else b""), address)


@contextlib.asynccontextmanager
async def resolver() -> AsyncIterator[Resolver]:
    transport, made = await asyncio.get_running_loop().create_datagram_endpoint(Resolver, local_addr=("127.0.0.1", 0))
    try:
        yield made
    finally:
        transport.close()


class Client(outbound_client.Client):
    """What a test says of the outbound side of one proxy."""

    def __init__(self, proxy: world.Proxy, resolvers: Sequence[tuple[str, int]] = ()) -> None:
        super().__init__(world.free_port())
        self.proxy = proxy
        self.resolvers = tuple(resolvers)
        # By authority; what is not here does not exist.
        self.known: dict[str, Sequence[outbound.Endpoint]] = {}
        self.certified = False
        proxy.provide = self.provide

    async def listen(self, *, require_identity: bool = False) -> None:
        put = self.proxy.ads.put
        facts = outbound.Facts(host="127.0.0.1", port=self.port, identity_headers=True, resolvers=self.resolvers)
        put(KIND.CLUSTER, dns.CLUSTER, dns.cluster(3600, self.resolvers))
        put(KIND.LISTENER, outbound.NAME, outbound.listener(facts))
        await self.route(require_identity=require_identity)
        await self.proxy.ads.acknowledged([(KIND.LISTENER, outbound.NAME)])
        await world.until(self._listens, "the outbound listener")

    async def route(self, *, require_identity: bool) -> None:
        routing = outbound_routes.Routing(
            domains=(DOMAIN,),
            own_ports=(self.port,),
            identity_headers=True,
            require_identity=require_identity,
        )
        self.proxy.ads.put(KIND.ROUTES, outbound_routes.OUTBOUND, outbound_routes.document(routing))
        await self.proxy.works_by([(KIND.ROUTES, outbound_routes.OUTBOUND)])

    async def _listens(self) -> bool:
        try:
            async with world.http1(self.port):
                return True
        except ConnectionError:
            return False

    def provide(self, name: str) -> None:
        """The cluster of that name, as it is now."""
        prefix, _, authority = name.partition("/")
        rows = self.known.get(authority)
        if rows is None:
            self.proxy.ads.absent(KIND.CLUSTER, name)
            return
        identities = tuple(dict.fromkeys(row.identity for row in rows if row.identity))
        destination = outbound.Destination(
            name=name,
            identities=identities,
            meshed=bool(rows) and all(row.identity for row in rows),
            certified=self.certified,
            identity_headers=True,
        )
        form = outbound.tunnel if prefix == "tcp" else outbound.cluster
        self.proxy.ads.put(KIND.CLUSTER, name, form(destination))
        self.proxy.ads.put(KIND.ENDPOINTS, name, outbound.endpoints(name, rows))

    async def change(self, authority: str, rows: Sequence[outbound.Endpoint]) -> None:
        """The endpoints of an authority, and Envoy's word that it has them."""
        self.known[authority] = rows
        name = f"{outbound.HTTP}{authority}"
        self.provide(name)
        await self.proxy.works_by([(KIND.CLUSTER, name), (KIND.ENDPOINTS, name)])


@contextlib.asynccontextmanager
async def client(
    proxy: world.Proxy, resolvers: Sequence[tuple[str, int]] = (), *, require_identity: bool = False
) -> AsyncIterator[Client]:
    made = Client(proxy, resolvers)
    await made.listen(require_identity=require_identity)
    yield made
