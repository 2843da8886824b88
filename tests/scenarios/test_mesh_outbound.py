# SPDX-License-Identifier: Apache-2.0
"""What a workload calls, by the real destination service: who is reached, by which identity, who is not, and why."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Iterator

import pytest

from handfast.proxy import clusters, outbound
from handfast.rules.envoy import destinations, dns
from handfast.rules.envoy import outbound as forms
from handfast.rules.envoy.outbound_routes import IDENTITY_REQUIRED
from handfast.runtime import tls
from tests.scenarios import destination_world, envoy_world, mesh_outbound_world, mesh_world, outbound_cells, proxy_world
from tests.scenarios.mesh_outbound_world import VOTE, WEB, World, address, application, caller, served
from tests.unit.wire import greeting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    with mesh_outbound_world.world(tmp_path_factory.mktemp("mesh")) as world:
        yield world


def host(name: str) -> str:
    return f"{name}.shop.svc.cluster.local"


async def thread(work, *words, **more):
    return await asyncio.to_thread(work, *words, **more)


async def test_a_first_request_finds_its_destination_and_both_sides_know_each_other(world):
    async with served(world) as web, caller(world) as vote:
        await thread(world.service, "first", web.port)
        await thread(world.shop.pod, "first-1", "first", web.ip)
        await vote.until(host("first"), 200, WEB)
        _, _, seen = await vote.get(host("first"), l5d_client_id="liar")
        assert seen["headers"]["l5d-client-id"] == VOTE
        assert (seen["line"], seen["headers"]["host"]) == ("GET /x HTTP/1.1", host("first"))
        # Every spelling is the same destination.
        for spelling in ("FIRST.shop.svc.cluster.local.:80", "first.shop.svc"):
            assert (await vote.get(spelling))[1]["l5d-server-id"] == WEB
        # By the Pod's address, too; and through both proxies HTTP/1.1 rode on HTTP/2.
        assert (await vote.get(f"{web.ip}:{web.port}"))[1]["l5d-server-id"] == WEB
        _, figures = await thread(web.doors.get, "/metrics")
        assert "envoy_http_downstream_rq_http2_total" in figures or "downstream_cx_http2_total" in figures


async def test_endpoints_come_change_their_identity_and_go(world):
    plain, port = address(), envoy_world.free_port()
    async with served(world) as web, caller(world) as vote, application(plain, port) as bare:
        await thread(world.service, "cart", port)
        await vote.until(host("cart"), 503, forms.NO_ENDPOINT)
        async with envoy_world.http1(vote.port) as kept:
            await thread(world.shop.pod, "cart-1", "cart", plain, meshed=False)
            await vote.until(host("cart"), 200, "")
            assert (await kept.get(host("cart")))[0] == 200
            assert bare.connections
            # Another Pod at the same address, which has an identity: not one octet more in plaintext.
            await thread(world.shop.delete, "pods/cart-1")
            await vote.until(host("cart"), 503, forms.NO_ENDPOINT)
            await thread(world.shop.pod, "cart-2", "cart", plain)
            before = len(bare.octets)
            await proxy_world.until_async(lambda: _fails_by_tls(vote, host("cart")))
            assert b"GET" not in bare.octets[before:]
            await thread(world.shop.delete, "pods/cart-2")
        # A mixed one: with an identity and without.
        await thread(world.service, "mixed", web.port)
        await thread(world.shop.pod, "mixed-1", "mixed", web.ip)
        async with application(plain, web.port):
            await thread(world.shop.pod, "mixed-2", "mixed", plain, meshed=False)
            seen: set[str] = set()

            async def both() -> bool:
                status, headers, _ = await vote.get(host("mixed"))
                seen.add(headers.get("l5d-server-id", "") if status == 200 else "")
                return seen >= {WEB, ""}

            await vote.until(host("mixed"), 200, WEB)
            await proxy_world.until_async(both)
            await thread(world.shop.delete, "pods/mixed-2")
        await thread(world.shop.delete, "pods/mixed-1")
        await vote.until(host("mixed"), 503, forms.NO_ENDPOINT)
        await thread(world.shop.delete, "services/mixed")
        await vote.until(host("mixed"), 503, destinations.UNKNOWN)


async def test_who_comes_to_nobody_is_never_called_in_plaintext(world):
    """While others ask all the time: the cluster that was empty must not take the endpoint before the one with TLS does."""
    ip, port, ended = address(), envoy_world.free_port(), asyncio.Event()
    async with application(ip, port) as bare, caller(world) as vote:
        await thread(world.service, "empty", port)
        await vote.until(host("empty"), 503, forms.NO_ENDPOINT)

        async def ask() -> None:
            while not ended.is_set():
                await vote.get(host("empty"))

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(ask())
            try:
                for number in range(3):
                    await thread(world.shop.pod, f"empty-{number}", "empty", ip)
                    await proxy_world.until_async(lambda: _fails_by_tls(vote, host("empty")))
                    await thread(world.shop.delete, f"pods/empty-{number}")
                    await vote.until(host("empty"), 503, forms.NO_ENDPOINT)
            finally:
                ended.set()
        assert bare.octets.startswith(b"\x16\x03\x01")
        assert b"GET" not in bare.octets


async def _fails_by_tls(vote, name) -> bool:
    status, why = await vote.why_not(name)
    return status == 503 and "TLS_error" in why


async def test_no_plaintext_reaches_a_meshed_endpoint(world):
    """Whoever listens there without a proxy gets a ClientHello, and nothing else."""
    ip, port = address(), envoy_world.free_port()
    async with application(ip, port) as bare, caller(world) as vote:
        await thread(world.service, "bare", port)
        await thread(world.shop.pod, "bare-1", "bare", ip)
        await proxy_world.until_async(lambda: _fails_by_tls(vote, host("bare")))
        assert (await vote.why_not(f"{ip}:{port}"))[0] == 503
        assert bare.octets.startswith(b"\x16\x03\x01")
        assert b"GET" not in bare.octets
        assert WEB.encode() in bare.octets


async def test_a_server_with_a_wrong_certificate_gets_no_request(world):
    ip, port, other = address(), envoy_world.free_port(), greeting.Anchor()
    await thread(world.service, "wrong", port)
    await thread(world.shop.pod, "wrong-1", "wrong", ip)
    wildcard = other.pair("*.shop.sa.linkerd-identity.linkerd.cluster.local")
    async with caller(world) as vote:
        for pair in (other.pair(WEB), wildcard, await thread(world.certified, "other")):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_pair(context, pair.certificate_pem, pair.key_pem)
            async with application(ip, port, context) as false:
                await proxy_world.until_async(lambda: _fails_by_tls(vote, host("wrong")))
                assert not false.octets
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        right = await thread(world.certified, "web")
        tls.load_pair(context, right.certificate_pem, right.key_pem)
        context.set_alpn_protocols(["h2"])
        async with application(ip, port, context) as true:

            async def is_called() -> bool:
                await vote.get(host("wrong"))
                return b"PRI * HTTP/2.0" in true.octets

            await proxy_world.until_async(is_called)


async def test_the_own_certificate_is_shown_while_there_is_one(world):
    """The table of states: not certified, certified, expired, recovered, with the identity service down at first and past the end; `outbound_cells` has the cells."""
    target = f"127.0.0.1:{envoy_world.free_port()}"
    async with outbound_cells.table(world) as table, caller(world, identity=target, ready=False) as vote:
        await table.is_asked(vote, "")
        assert (await vote.doors.identity())["state"] == "NotCertified"
        with mesh_world.Service(world.plane, "late", target) as late:
            await thread(late.ready)
            await proxy_world.recovers(vote.doors, vote.clock)
            await table.is_asked(vote, VOTE)
        # By the clock of the peer it is in force: were it shown, the peer would take it.
        vote.clock.jump(25)
        await vote.doors.until("/live", 503)
        await table.is_asked(vote, "")
        vote.clock.wall = 0.0
        with mesh_world.Service(world.plane, "late", target) as late:
            await thread(late.ready)
            await proxy_world.recovers(vote.doors, vote.clock)
            await table.is_asked(vote, VOTE)
        assert (await vote.doors.identity())["state"] == "Certified"


async def test_a_required_identity_reaches_open_connections(world):
    plain, port = address(), envoy_world.free_port()
    async with served(world) as web, application(plain, port) as bare, caller(world, watching=True) as vote:
        await thread(world.service, "meshed", web.port)
        await thread(world.shop.pod, "meshed-1", "meshed", web.ip)
        await thread(world.service, "plain", port)
        await thread(world.shop.pod, "plain-1", "plain", plain, meshed=False)
        await vote.until(host("meshed"), 200, WEB)
        await vote.until(host("plain"), 200, "")
        async with envoy_world.http1(vote.port) as kept:
            assert (await kept.get(host("plain")))[0] == 200
            selector = {"subject": {"serviceAccount": {"name": "vote"}}, "requireIdentity": {"outbound": True}}
            await thread(world.policy, **selector)
            try:
                await vote.until(host("plain"), 503, IDENTITY_REQUIRED)
                # The routes come after the clusters.
                await vote.until("outside.example", 403, IDENTITY_REQUIRED)
                before = bare.connections, len(bare.octets)
                status, headers, _ = await kept.get(host("plain"))
                assert (status, headers["l5d-proxy-error"]) == (503, IDENTITY_REQUIRED)
                assert (await kept.get(host("meshed")))[1]["l5d-server-id"] == WEB
                for outside in ("outside.example", "outside.example:8080"):
                    status, headers, _ = await kept.get(outside)
                    assert (status, headers["l5d-proxy-error"]) == (403, IDENTITY_REQUIRED)
                assert (await vote.connect(f"{host('meshed')}:80", b"x"))[0] == 403
                assert (await vote.why_not(f"{plain}:{port}"))[0] == 503
                assert (bare.connections, len(bare.octets)) == before
            finally:
                await thread(world.policy)
            await vote.until(host("plain"), 200, "")


async def test_what_is_known_stays_while_the_destination_service_is_away(world):
    listen = f"127.0.0.1:{envoy_world.free_port()}"
    async with served(world) as web:
        await thread(world.service, "stays", web.port)
        await thread(world.service, "later", web.port)
        await thread(world.shop.pod, "stays-1", "stays", web.ip)
        service = await thread(lambda: destination_world.Destination(world.plane, "away", listen).ready())
        async with caller(world, destination=listen) as vote:
            await vote.until(host("stays"), 200, WEB)
            await thread(_kill, service)
            for _ in range(3):
                assert (await vote.get(host("stays")))[1]["l5d-server-id"] == WEB
            # Nobody else is asked instead.
            assert await vote.why_not(host("later")) == (503, destinations.NOT_ASKED)
            await thread(world.shop.pod, "later-1", "later", web.ip)
            service = await thread(lambda: destination_world.Destination(world.plane, "away", listen).ready())
            try:
                await vote.until(host("later"), 200, WEB)
                await thread(world.shop.delete, "pods/stays-1")
                await vote.until(host("stays"), 503, forms.NO_ENDPOINT)
            finally:
                await thread(_kill, service)


def _kill(service: destination_world.Destination) -> None:
    service.process.send_signal(signal.SIGKILL)
    service.process.wait(20)


async def test_nothing_leads_to_the_proxy_itself(world):
    async with caller(world) as vote:
        admin = vote.doors.port
        for authority in (
            f"127.0.0.1:{admin}",
            f"127.0.0.1:{vote.port}",
            f"[::1]:{admin}",
            f"[::ffff:127.0.0.1]:{admin}",
            "127.0.0.1",
        ):
            assert await vote.why_not(authority) == (503, dns.OWN_ADDRESS), authority
            assert (await vote.connect(authority if ":" in authority else f"{authority}:80", b"x"))[0] == 503
        for authority in ("localhost", f"LOCALHOST:{admin}", "a.localhost", f"any.example:{admin}"):
            assert await vote.why_not(authority) == (403, dns.OWN_ADDRESS), authority
            assert (await vote.connect(authority if ":" in authority else f"{authority}:80", b"x"))[0] == 403
        for authority in ("127.1", "0x7f000001", "2130706433", "1.2.3.4.5", "[::1", "a..svc.cluster.local"):
            status, why = await vote.why_not(authority)
            assert (status, why) in {(503, destinations.BAD), (400, "")}, authority
        # The agent's own clusters are no destinations.
        for authority in ("agent", "dns"):
            status, why = await vote.why_not(authority)
            assert (status, why.startswith("dns_resolution_failure")) == (503, True)
        # A confused Service that has the admin port for an endpoint.
        await thread(world.service, "admin", admin)
        await thread(world.shop.pod, "admin-1", "admin", "127.0.0.1", meshed=False)
        await vote.until(host("admin"), 503, forms.NO_ENDPOINT)


async def test_tunnels_and_addresses_of_services(world):
    plain, port = address(), envoy_world.free_port()
    async with served(world) as web, caller(world) as vote, application(plain, port) as bare:
        await thread(world.service, "tunnel", web.port, clusterIP="10.96.7.7")
        await thread(world.shop.pod, "tunnel-1", "tunnel", web.ip)
        await vote.until(host("tunnel"), 200, WEB)
        # The address of the Service is its name.
        await vote.until("10.96.7.7", 200, WEB)
        # A client's own TLS: byte for byte, to where the name leads; the far proxy passes on what is not for it.
        hello = envoy_world.client_hello("its.own.example")
        assert await vote.connect(f"{host('tunnel')}:80", hello) == (200, hello)
        assert hello in web.application.octets
        # An address that is nobody's here: as it is.
        assert bare.connections == 0


async def test_without_a_destination_service_names_are_looked_up_and_addresses_called_as_they_are(world):
    async with caller(world, destination="") as vote:
        status, why = await vote.why_not("nowhere.shop.svc.cluster.local")
        assert (status, why.startswith("dns_resolution_failure")) == (503, True)
        assert await vote.why_not("127.0.0.1:80") == (503, dns.OWN_ADDRESS)


async def test_names_without_end_are_bounded(world, monkeypatch):
    monkeypatch.setattr(outbound, "MOST", 4)
    monkeypatch.setattr(clusters, "MOST_PARKED", 4)
    async with served(world) as web, caller(world) as vote:
        await thread(world.service, "many", web.port)
        await thread(world.shop.pod, "many-1", "many", web.ip)
        await vote.until(host("many"), 200, WEB)
        for number in range(5):
            assert await vote.why_not(host(f"none{number}")) == (503, destinations.UNKNOWN)
        # It fell asleep meanwhile, and wakes when it is called.
        await vote.until(host("many"), 200, WEB)
        for number in range(5, 15):
            assert (await vote.why_not(host(f"none{number}")))[0] == 503
        _, figures = await thread(vote.doors.get, "/metrics")
        (row,) = (row for row in figures.splitlines() if row.startswith("envoy_cluster_manager_active_clusters"))
        # Those that are followed, those that sleep, and the proxy's own.
        assert float(row.rpartition(" ")[2]) <= 4 + 4 + 3
