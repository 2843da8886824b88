# SPDX-License-Identifier: Apache-2.0
"""A real Envoy sends what an application says: to whom, by which identity, and to whom not. Who is where is the test's to say here."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from handfast.rules.envoy import judging, outbound, outbound_routes
from handfast.runtime import routes as machine_routes
from tests.scenarios import envoy_outbound_world, http2_world
from tests.scenarios import envoy_world as world
from tests.unit.wire import greeting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
HOUR = datetime.timedelta(hours=1)
WEB = "web.ns1"
WILDCARD = "*.ns1.sa.linkerd-identity.linkerd.cluster.local"
REQUIRED = outbound_routes.IDENTITY_REQUIRED


@dataclass
class Two:
    """An application behind its proxy, and the proxy of who calls it."""

    anchor: greeting.Anchor
    application: world.Application
    server: world.Proxy
    proxy: world.Proxy
    client: envoy_outbound_world.Client

    @property
    def meshed(self) -> outbound.Endpoint:
        return outbound.Endpoint("127.0.0.1", self.server.port, world.IDENTITY)

    @property
    def plain(self) -> outbound.Endpoint:
        return outbound.Endpoint("127.0.0.1", self.application.port)


@contextlib.asynccontextmanager
async def two(*, certified: bool = True) -> AsyncIterator[Two]:
    anchor = greeting.Anchor(ago=24 * HOUR)
    async with (
        world.application() as application,
        world.proxy(application.port, anchor) as server,
        world.proxy(application.port, anchor) as proxy,
        envoy_outbound_world.client(proxy) as client,
    ):
        if certified:
            await server.certify(anchor.pair(world.IDENTITY))
        yield Two(anchor, application, server, proxy, client)


async def test_an_identity_of_any_name_is_spoken_to_in_tls():
    async with two(certified=False) as pair:
        pair.client.known[WEB] = [outbound.Endpoint("127.0.0.1", pair.application.port, "plain")]
        assert (await pair.client.get(WEB))[0] == 503
        # The first octet of a record of TLS.
        assert bytes(pair.application.octets[:1]) == b"\x16"


async def test_an_authority_longer_than_any_name_is_asked_of_nobody():
    async with two(certified=False) as pair:
        for host in (f"{'x' * 50_000}.1", f"{'x' * 300}.example"):
            status, headers, _ = await pair.client.get(host)
            assert (status, headers["l5d-proxy-error"]) == (403, outbound_routes.BAD)
        assert pair.proxy.demands == []


async def test_a_first_request_with_trailers_fails_and_the_next_is_sent():
    """Envoy waits with headers and body until it knows a destination, and not with trailers: docs/limitations.md says so while it is so."""
    async with two(certified=False) as pair, http2_world.application() as newer:
        pair.client.known[WEB] = [outbound.Endpoint("127.0.0.1", newer.port)]
        async with http2_world.client(pair.client.port) as connection:
            first = await connection.get(WEB, [("x-own", "1")])
            assert (first.status, first.headers["l5d-proxy-error"]) == (503, "cluster_not_found")

            async def is_sent() -> bool:
                answer = await connection.get(WEB, [("x-own", "1"), ("l5d-client-id", "liar")])
                return (answer.status, answer.seen.get("trailers"), answer.trailers) == (
                    200,
                    {"x-own": "1"},
                    {"x-sum": "1"},
                )

            await world.until(is_sent, "the next")


async def test_two_proxies_speak_mutual_tls_on_http2_and_the_application_gets_http1_back():
    async with two() as pair:
        client = pair.client
        # Before the own certificate: TLS, and nobody.
        client.known[WEB] = [pair.meshed]
        _, headers, seen = await client.get(WEB, l5d_client_id="liar", l5d_handfast_http="http/other")
        assert (seen["line"], headers["l5d-server-id"]) == ("GET /x HTTP/1.1", world.IDENTITY)
        assert pair.proxy.demands == [f"http/{WEB}"]
        assert not [name for name in seen["headers"] if name.startswith(("l5d-", "x-"))]
        assert [name for name in headers if name.startswith("l5d-")] == ["l5d-server-id"]
        await pair.proxy.certify(pair.anchor.pair(world.CLIENT))
        client.certified = True
        await client.change(WEB, [pair.meshed])

        async def has_client_id() -> bool:
            status, _, seen = await client.get(WEB)
            assert status == 200
            return bool(seen["headers"].get("l5d-client-id") == world.CLIENT)

        await world.until(has_client_id, "the client's name")
        # Why the far proxy refuses is told.
        await pair.server.judge(judging.PortJudgement(permits=judging.Permits()))
        status, why = await client.why_not(WEB)
        assert (status, judging.NOT_ALLOWED in why) == (403, True)
        assert await pair.server.stat("http.in_tls.downstream_cx_http2_total")


async def test_only_the_exact_name_of_a_living_certificate_is_called():
    async with two() as pair:
        other = greeting.Anchor()
        await pair.client.change(WEB, [pair.meshed])
        for wrong in (
            other.pair(world.IDENTITY),
            pair.anchor.pair(world.IDENTITY, ttl=HOUR, ago=3 * HOUR),
            pair.anchor.pair(WILDCARD),
            pair.anchor.pair(world.CLIENT),
        ):
            await pair.server.certify(wrong)
            status, why = await pair.client.why_not(WEB)
            assert status == 503
            assert "TLS_error" in why
        refused = await pair.client.proxy.refused()
        assert min(refused["server-certificate"], refused["server-name"]) >= 2
        assert not pair.application.connections
        # Another name at the same place: its proxy passes on the ClientHello, which is for others, and no more comes.
        await pair.client.change("other.ns1", [outbound.Endpoint("127.0.0.1", pair.server.port, world.CLIENT)])
        assert (await pair.client.why_not("other.ns1"))[0] == 503
        assert b"GET" not in pair.application.octets
        await pair.server.certify(pair.anchor.pair(world.IDENTITY))
        assert (await pair.client.get(WEB))[0] == 200


async def test_an_endpoint_that_fits_no_context_is_not_called_in_plaintext():
    """As where Envoy has taken the endpoints, and not the cluster that goes with them."""
    async with two() as pair:
        name = f"{outbound.HTTP}{WEB}"
        await pair.client.change(WEB, [pair.plain])
        stray = outbound.Endpoint("127.0.0.1", pair.application.port, world.IDENTITY)
        pair.proxy.ads.put(world.KIND.ENDPOINTS, name, outbound.endpoints(name, [stray]))
        await pair.proxy.ads.acknowledged([(world.KIND.ENDPOINTS, name)])
        before = len(pair.application.octets)
        assert (await pair.client.why_not(WEB))[0] == 503
        assert b"GET" not in pair.application.octets[before:]


async def test_identities_come_change_and_go_in_one_cluster():
    async with two() as pair:
        await pair.client.change(WEB, [pair.plain])
        async with world.http1(pair.client.port) as kept:
            status, headers, _ = await kept.get(WEB)
            assert (status, "l5d-server-id" in headers) == (200, False)
            await pair.client.change(WEB, [pair.meshed])
            assert (await kept.get(WEB))[1]["l5d-server-id"] == world.IDENTITY
            # The same place, and now another name is expected there.
            moved = outbound.Endpoint("127.0.0.1", pair.server.port, world.CLIENT)
            await pair.client.change(WEB, [moved])
            assert (await kept.get(WEB))[0] == 503
            await pair.client.change(WEB, [pair.plain, pair.meshed])
            answers = [await kept.get(WEB) for _ in range(4)]
            assert {status for status, _, _ in answers} == {200}
            assert {headers.get("l5d-server-id") for _, headers, _ in answers} == {None, world.IDENTITY}
            await pair.client.change(WEB, [])
            status, headers, _ = await kept.get(WEB)
            assert (status, headers["l5d-proxy-error"]) == (503, outbound.NO_ENDPOINT)


async def test_an_endpoint_that_gets_an_identity_among_others_is_called_in_plaintext_no_more():
    """On connections that are open neither, where nothing of the cluster changes but this endpoint."""
    async with two() as pair, world.application() as other:
        beside = outbound.Endpoint("127.0.0.1", other.port)
        await pair.client.change(WEB, [pair.meshed, pair.plain, beside])
        async with world.http1(pair.client.port) as kept:

            async def is_called_in_plaintext() -> bool:
                assert (await kept.get(WEB))[0] == 200
                return b"GET" in other.octets

            await world.until(is_called_in_plaintext, "a request")
            moved = outbound.Endpoint("127.0.0.1", other.port, world.IDENTITY)
            name = f"{outbound.HTTP}{WEB}"
            rows = outbound.endpoints(name, [pair.meshed, pair.plain, moved])
            pair.proxy.ads.put(world.KIND.ENDPOINTS, name, rows)
            await pair.proxy.works_by([(world.KIND.ENDPOINTS, name)])
            before = len(other.octets)

            async def is_called() -> bool:
                await kept.get(WEB)
                assert b"GET" not in other.octets[before:]
                return other.octets[before : before + 1] == b"\x16"

            await world.until(is_called, "a ClientHello")


async def test_an_endpoint_that_cannot_be_reached_costs_no_request():
    async with two() as pair:
        dead = outbound.Endpoint("127.0.0.1", world.free_port(), world.IDENTITY)
        await pair.client.change(WEB, [pair.meshed, dead])
        async with world.http1(pair.client.port) as kept:
            assert {(await kept.get(WEB))[0] for _ in range(8)} == {200}


async def test_a_required_identity_is_the_only_one_that_is_called():
    async with two() as pair:
        client = pair.client
        client.known = {WEB: [pair.plain, pair.meshed], "plain.ns1": [pair.plain]}
        for _ in range(4):
            status, headers, _ = await client.get(WEB, l5d_require_id=world.IDENTITY)
            assert (status, headers["l5d-server-id"]) == (200, world.IDENTITY)
        assert await client.why_not(WEB, l5d_require_id=world.CLIENT) == (503, outbound.NO_ENDPOINT)
        assert await client.why_not("plain.ns1", l5d_require_id=world.IDENTITY) == (503, outbound.NO_ENDPOINT)
        for unreadable in ("", "Not A Name", f"{world.IDENTITY},{world.IDENTITY}", "*"):
            assert await client.why_not(WEB, l5d_require_id=unreadable) == (403, outbound_routes.UNREADABLE)
        assert await client.why_not("outside.example", l5d_require_id=world.IDENTITY) == (403, REQUIRED)
        assert (await client.connect(f"{WEB}:443", b"x", l5d_require_id=world.IDENTITY))[0] == 403


async def test_a_tunnel_is_passed_byte_for_byte_and_refused_where_an_identity_is_required():
    async with two() as pair:
        client = pair.client
        client.known[f"{WEB}:443"] = [pair.meshed]
        hello = world.client_hello("other.example")
        assert await client.connect(f"{WEB}:443", hello) == (200, hello)
        assert hello in pair.application.octets
        assert pair.proxy.demands == [f"tcp/{WEB}:443"]
        async with world.http1(client.port) as kept:
            client.known[WEB] = [pair.meshed]
            assert (await kept.get(WEB))[0] == 200
            await client.route(require_identity=True)
            status, head = await client.connect(f"{WEB}:443", hello)
            assert status == 403
            assert REQUIRED.encode() in head
            assert (await kept.get(WEB))[0] == 200
            status, headers, _ = await kept.get("outside.example")
            assert (status, headers["l5d-proxy-error"]) == (403, REQUIRED)


OWN = ("localhost", "LOCALHOST:80", "a.localhost", "localhost.:8080")


@pytest.mark.parametrize("authority", OWN)
async def test_this_machine_is_not_called_by_name(pair_of_module, authority):
    assert await pair_of_module.client.why_not(authority) == (403, "own-address")
    assert (await pair_of_module.client.connect(authority.partition(":")[0] + ":80", b"x"))[0] == 403


async def test_the_clusters_of_the_agent_are_no_destinations(pair_of_module):
    pair = pair_of_module
    for authority in (
        "agent",
        "application",
        "dns",
        "127.1",
        "0x7f000001",
        "[::1]:80",
        f"127.0.0.1:{pair.client.port}",
    ):
        status, why = await pair.client.why_not(authority)
        assert status == 503, authority
        assert why == "cluster_not_found" or why.startswith("dns_resolution_failure"), why
    # Whatever might be an address is asked for; nobody looks it up.
    assert {"http/127.1", "http/0x7f000001", "http/[::1]:80"} <= set(pair.proxy.demands)
    assert not pair.application.connections


@pytest.fixture
async def pair_of_module() -> AsyncIterator[Two]:
    async with two(certified=False) as pair:
        yield pair


async def test_a_name_that_leads_to_this_machine_is_refused_and_others_are_called():
    outward = machine_routes.source(machine_routes.ANYWHERE[0])
    async with (
        envoy_outbound_world.resolver() as resolver,
        world.application() as application,
        world.proxy(application.port, None) as proxy,
        envoy_outbound_world.client(proxy, [resolver.place]) as client,
    ):
        resolver.names = {"home.example": "127.0.0.1", "zero.example": "0.0.0.0", "out.example": outward or "127.0.0.1"}
        for name in ("home.example", "zero.example"):
            assert await client.why_not(f"{name}:{application.port}") == (403, "own-address")
            assert (await client.connect(f"{name}:{application.port}", b"x"))[0] == 403
        assert not application.connections
        status, why = await client.why_not("nowhere.example")
        assert (status, why.startswith("dns_resolution_failure")) == (503, True)
        # A port of the proxy's own, under whatever name.
        assert await client.why_not(f"out.example:{client.port}") == (403, "own-address")
        # A name of the mesh is nothing that DNS is asked for.
        assert await client.why_not("unknown.ns1") == (503, "cluster_not_found")
        assert "unknown.ns1" not in resolver.questions
        assert all(name in {*resolver.names, "nowhere.example"} for name in resolver.questions)
        if outward:
            server = await asyncio.start_server(application.answer, outward, 0)
            port = server.sockets[0].getsockname()[1]
            status, headers, seen = await client.get(f"out.example:{port}")
            assert (status, seen["headers"]["host"]) == (200, f"out.example:{port}")
            assert "l5d-server-id" not in headers
            assert await client.connect(f"out.example:{port}", b"\x00raw") == (200, b"\x00raw")
            server.close()


async def test_a_websocket_goes_through_both_proxies():
    upgrade = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-key": "x", "sec-websocket-version": "13"}
    async with two() as pair:
        pair.client.known[WEB] = [pair.meshed]
        async with world.http1(pair.client.port) as connection:
            status, headers, _ = await connection.get(WEB, **upgrade)
            assert (status, headers["upgrade"]) == (101, "websocket")
            assert await connection.echo(b"\x81\x05hello") == b"\x81\x05hello"
