# SPDX-License-Identifier: Apache-2.0
"""The cells of the outbound table: {HTTP, WebSocket, h2c, gRPC, bytes, TLS of the application's own} × {a peer with an identity, one without, two that only say they have one}.

In which state the caller is, the test says: all that may change with it is whose certificate a peer is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc.aio

from handfast.runtime import addresses, tls
from tests.scenarios import envoy_world, http2_world, mesh_outbound_world, proxy_world
from tests.scenarios.mesh_outbound_world import VOTE, WEB, Caller, World
from tests.unit.wire import greeting

_HANDSHAKE = b"\x16"
# Of each Service here; where they lead is the Pod's to say.
_HTTP, _GRPC, _H2C = 80, 81, 82


@dataclass
class Peer:
    """A destination with three ports, the identity that it proves, and its application of HTTP/1.1, which sends everything else back."""

    name: str
    identity: str
    application: envoy_world.Application

    def at(self, port: int) -> str:
        return f"{self.name}.shop.svc.cluster.local:{port}"

    async def is_shown(self, vote: Caller, client: str) -> None:
        """Until all ways of HTTP lead there, and have it that this is the client: Envoy has heard of the state.

        Each state makes other connections, which a busy machine may not make within Envoy's second.
        """

        async def has_heard() -> bool:
            status, _, seen = await vote.get(self.at(_HTTP))
            async with http2_world.client(vote.port) as connection:
                newer = await connection.get(self.at(_H2C))
            if (status, newer.status, _client(seen), _client(newer.seen)) != (200, 200, client, client):
                return False
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._greeted(vote)
                return True
            return False

        await proxy_world.until_async(has_heard)

    async def is_called(self, vote: Caller, client: str) -> None:
        """Every cell, once; `client` is what the peer's proxy is shown, and nobody who has none is told of one."""
        await self._by_http(vote, client)
        await self._by_http2(vote, client)
        for data in (b"\x00\x01 no HTTP\r\n", *map(envoy_world.client_hello, (VOTE, "its.own.example", None))):
            # Its own TLS is none of the proxies' business: not its name, another, or none.
            assert await vote.connect(self.at(_HTTP), data) == (200, data)
            assert data in self.application.octets

    async def _by_http(self, vote: Caller, client: str) -> None:
        status, headers, seen = await vote.get(self.at(_HTTP), l5d_client_id="liar")
        assert (status, headers.get("l5d-server-id", "")) == (200, self.identity)
        assert (seen["line"], _client(seen)) == ("GET /x HTTP/1.1", client)
        async with envoy_world.http1(vote.port) as connection:
            before = len(self.application.octets)
            answer = await proxy_world.upgrades(connection, self.at(_HTTP))
            assert answer.get("l5d-server-id", "") == self.identity
            assert (VOTE.encode() in self.application.octets[before:]) is bool(client)

    async def _by_http2(self, vote: Caller, client: str) -> None:
        async with http2_world.client(vote.port) as connection:
            answer = await connection.get(self.at(_H2C), [("l5d-client-id", "liar"), ("x-own", "1")])
        assert (answer.status, answer.headers.get("l5d-server-id", "")) == (200, self.identity), answer
        assert (_client(answer.seen), answer.seen["trailers"], answer.trailers) == (
            client,
            {"x-own": "1"},
            {"x-sum": "1"},
        )
        assert (await self._greeted(vote)).get("l5d-server-id", "") == self.identity

    async def _greeted(self, vote: Caller) -> dict[str, str]:
        """The headers of an answer by gRPC."""
        options = [
            *proxy_world.OWN_CONNECTION,
            ("grpc.default_authority", self.at(_GRPC)),
            ("grpc.enable_http_proxy", 0),
        ]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{vote.port}", options) as channel:
            return await proxy_world.greets(channel)


def _client(seen: dict[str, dict[str, str]]) -> str:
    return seen["headers"].get("l5d-client-id", "") if "headers" in seen else "nobody has answered"


@dataclass
class Table:
    """The peers: with an identity, without one, one whose certificate has another name, and one that has none and gets no plaintext."""

    meshed: Peer
    plain: Peer
    impostor: Peer
    bare: Peer

    async def is_asked(self, vote: Caller, client: str) -> None:
        """All cells; `client` is who the caller shows to be, where anybody is shown anything."""
        await self.meshed.is_shown(vote, client)
        await self.meshed.is_called(vote, client)
        # TLS of the application's own, for the peer by its name: the peer's proxy answers.
        hello = envoy_world.client_hello(WEB)
        assert await vote.connect(self.meshed.at(_HTTP), hello, enough=1) == (200, _HANDSHAKE)
        assert hello not in self.meshed.application.octets
        await self.plain.is_shown(vote, "")
        await self.plain.is_called(vote, "")
        for wrong in (self.impostor, self.bare):
            await proxy_world.until_async(functools.partial(_fails_by_tls, vote, wrong.at(_HTTP)))
        # Who speaks no TLS has the ClientHello, and no octet of a request.
        octets = bytes(self.bare.application.octets)
        assert (octets[:1], b"GET" in octets) == (_HANDSHAKE, False)
        assert not self.impostor.application.octets


async def _fails_by_tls(vote: Caller, authority: str) -> bool:
    status, why = await vote.why_not(authority)
    assert status == 503
    return "TLS_error" in why


@contextlib.asynccontextmanager
async def table(world: World) -> AsyncIterator[Table]:
    """All of them, as the destination service knows them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other = await asyncio.to_thread(world.certified, "other")
    tls.load_pair(context, other.certificate_pem, other.key_pem)
    async with (
        _meshed(world) as meshed,
        _plain(world) as plain,
        _alone(world, "impostor", context) as impostor,
        _alone(world, "pretender", None) as bare,
    ):
        yield Table(meshed, plain, impostor, bare)


@contextlib.asynccontextmanager
async def _meshed(world: World) -> AsyncIterator[Peer]:
    async with (
        greeting.serving() as greeter,
        http2_world.application() as newer,
        mesh_outbound_world.served(world, 0, greeter.port, newer.port) as web,
    ):
        await asyncio.to_thread(_told, world, "states", web.ip, (web.port, *web.others), meshed=True)
        yield Peer("states", WEB, web.application)


@contextlib.asynccontextmanager
async def _plain(world: World) -> AsyncIterator[Peer]:
    ip = mesh_outbound_world.address()
    async with (
        mesh_outbound_world.application(ip, 0) as application,
        greeting.serving(listen=addresses.Address(ip, 0)) as greeter,
        http2_world.application(ip) as newer,
    ):
        ports = application.port, greeter.port, newer.port
        await asyncio.to_thread(_told, world, "unmeshed", ip, ports, meshed=False)
        yield Peer("unmeshed", "", application)


@contextlib.asynccontextmanager
async def _alone(world: World, name: str, context: ssl.SSLContext | None) -> AsyncIterator[Peer]:
    """Whoever listens where a workload with an identity is said to be."""
    ip = mesh_outbound_world.address()
    async with mesh_outbound_world.application(ip, 0, context) as application:
        await asyncio.to_thread(_told, world, name, ip, (application.port,), meshed=True)
        yield Peer(name, WEB, application)


def _told(world: World, name: str, ip: str, targets: tuple[int, ...], *, meshed: bool) -> None:
    numbers = zip((_HTTP, _GRPC, _H2C), targets, strict=False)
    ports = [{"name": f"p{port}", "port": port, "targetPort": target} for port, target in numbers]
    world.service(name, 0, ports=ports)
    world.shop.pod(f"{name}-1", name, ip, meshed=meshed)
