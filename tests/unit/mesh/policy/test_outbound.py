# SPDX-License-Identifier: Apache-2.0
"""How a proxy reaches a Service."""

from __future__ import annotations

import ipaddress

import pytest

from handfast.wire import policy_messages
from tests.unit.mesh import cluster_world
from tests.unit.mesh.policy.policy_world import NOBODY, World, reading, refused
from tests.world.clock import settle


def spec(source="shop:db-0", authority=None, ip=None, port=80):
    if authority is not None:
        return policy_messages.TrafficSpec(source_workload=source, authority=authority)
    if ip is None:
        return policy_messages.TrafficSpec(source_workload=source)
    address = ipaddress.ip_address(ip)
    halves = {"first": int(address) >> 64, "last": int(address) & (1 << 64) - 1}
    where = {"ipv4": int(address)} if address.version == 4 else {"ipv6": halves}
    return policy_messages.TrafficSpec(source_workload=source, addr={"ip": where, "port": port})


@pytest.fixture
def world():
    world = World().begin()
    world.put("services", cluster_world.service("shop", "web", "10.96.0.7", clusterIPs=["10.96.0.7", "fd00::7"]))
    world.put("services", cluster_world.service("shop", "elsewhere", type="ExternalName"))
    return world


def paths(answer):
    detect = answer.protocol.detect
    routes = [*detect.opaque.routes, *detect.http1.routes, *detect.http2.routes]
    backends = [rule.backends.first_available.backends[0].backend for route in routes for rule in route.rules]
    assert all(backend.balancer.peak_ewma.decay.seconds and backend.queue.capacity for backend in backends)
    assert all(route.metadata.default for route in routes)
    return [backend.balancer.discovery.dst.path for backend in backends]


@pytest.mark.parametrize(
    "message",
    [
        spec(ip="10.96.0.7"),
        spec(ip="fd00::7"),
        spec(ip="::ffff:10.96.0.7"),
        spec(authority="web.shop.svc.cluster.local:80"),
        spec(authority="web.shop.svc.cluster.local"),
    ],
)
async def test_a_service_leads_to_its_endpoints(world, message):
    answer = await world.outbound.get(message, NOBODY)
    assert paths(answer) == ["web.shop.svc.cluster.local:80"] * 3
    about = answer.metadata.resource
    assert (about.kind, about.namespace, about.name, about.port) == ("Service", "shop", "web", 80)
    assert answer.protocol.detect.timeout.seconds == 10


async def test_a_port_that_is_opaque_is_told_so(world):
    answer = await world.outbound.get(spec(ip="10.96.0.7", port=5432), NOBODY)
    (route,) = answer.protocol.opaque.routes
    assert len(route.rules) == 1


@pytest.mark.parametrize(
    "message",
    [
        spec(ip="10.0.0.5"),
        spec(ip="192.0.2.1"),
        spec(authority="gone.shop.svc.cluster.local"),
        spec(authority="elsewhere.shop.svc.cluster.local"),
        spec(authority="db-0.web.shop.svc.cluster.local"),
        spec(authority="example.com"),
    ],
)
async def test_whatever_is_no_service_is_not_found(world, message):
    assert (await refused(world.outbound.get(message, NOBODY)))[0] == "NOT_FOUND"


@pytest.mark.parametrize(
    "message",
    [
        spec(),
        spec(source="", ip="10.96.0.7"),
        spec(ip="10.96.0.7", port=0),
        spec(ip="10.96.0.7", port=70000),
        policy_messages.TrafficSpec(source_workload="a:b", addr={"port": 80}),
    ],
)
async def test_what_cannot_be_read_is_refused(world, message):
    assert (await refused(world.outbound.get(message, NOBODY)))[0] == "INVALID_ARGUMENT"


async def test_nothing_is_said_before_the_cluster_is_known():
    assert (await refused(World().outbound.get(spec(ip="10.96.0.7"), NOBODY)))[0] == "UNAVAILABLE"


async def test_a_stream_follows_its_service(world):
    async with reading(world.outbound.watch(spec(ip="10.96.0.7"), NOBODY)) as stream:
        world.put("services", cluster_world.service("shop", "web", "10.96.0.7"))
        await settle()
        assert len(stream.messages) == 1
        changed = cluster_world.service("shop", "web", "10.96.0.7")
        changed["metadata"]["annotations"] = {"config.linkerd.io/opaque-ports": "80"}
        world.put("services", changed)
        await settle()
        assert stream.messages[1].protocol.WhichOneof("kind") == "opaque"
        world.remove("services", "shop", "web")
        await settle()
        assert stream.refusal is not None
        assert stream.refusal.code == "NOT_FOUND"


async def test_an_address_of_two_services_leads_nowhere(world):
    world.put("services", cluster_world.service("evil", "web", "10.96.0.7"))
    code, text = await refused(world.outbound.get(spec(ip="10.96.0.7"), NOBODY))
    assert code == "UNAVAILABLE"
    assert "10.96.0.7:80 is withheld" in text
