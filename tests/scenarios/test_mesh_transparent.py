# SPDX-License-Identifier: Apache-2.0
"""Transparent mode: injected Pods whose applications know nothing of a mesh, with Handfast's own redirect and proxy.

Each Pod is a network namespace. The redirect has the arguments of the injected container, and the proxy its variables, its volumes and its user.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.interop import running
from tests.scenarios import transparent_world, up_world, wire_tap
from tests.scenarios.transparent_world import PORT, World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

BYTES = 9000
SKIPPED = 9100
OPAQUE = 9200
# In requests; nobody else says it.
WORD = "/the-word-that-nobody-else-says"
HEADERS = {
    "mesh.handfast.dev/identity-headers": "enabled",
    "config.linkerd.io/skip-inbound-ports": str(SKIPPED),
    "config.linkerd.io/opaque-ports": str(OPAQUE),
}


# What the two proxies said first: whatever is called later rides on that connection.
OPENING: list[bytes] = []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with transparent_world.mesh(tmp_path_factory.mktemp("transparent")) as world:
        world.add("web", HEADERS)
        world.add("front")
        world.add_outside("outside")
        for agent in world.agents.values():
            agent.ready()
        with wire_tap.tap(world.network.device(world.pods["web"].ip)) as tap:
            assert world.get("front", "web")[0] == 200, world.said()
            OPENING.append(b"".join(tap.frames(world.pods["front"].ip, world.pods["web"].ip)))
        yield world


def refused(world: World, reason: str, name: str = "web") -> float:
    return world.agents[name].metric("handfast_proxy_refused_total", reason=reason)


def rules(world: World, name: str) -> list[str]:
    inside = world.network.inside(world.pods[name].ip, "iptables-save", "-t", "nat")
    lines = subprocess.run(inside, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    return [line for line in lines if line.startswith("-A")]


def test_plain_applications_talk_by_mutual_tls_and_their_words_are_not_on_the_wire(world: World) -> None:
    front, web = world.pods["front"], world.pods["web"]
    with wire_tap.tap(world.network.device(web.ip)) as tap:
        code, seen = world.get("front", "web", WORD)
        assert code == 200, world.said()
        assert seen["l5d-client-id"] == front.identity
        between = b"".join(tap.frames(front.ip, web.ip))
        assert web.identity.encode() in OPENING[0], "the name that is asked for, in the ClientHello"
        assert between
        assert WORD.encode() not in between
        # And so it would look without the mesh.
        assert world.get("outside", "web", WORD)[0] == 200
        assert WORD.encode() in b"".join(tap.frames(world.pods["outside"].ip, web.ip))


def test_so_they_do_by_ipv6(world: World) -> None:
    web = world.pods["web"]
    if not web.ip6:
        pytest.skip("not run: this machine has no IPv6")
    code, seen = world.get("front", f"[{web.ip6}]:{PORT}")
    assert code == 200, world.said()
    assert seen["l5d-client-id"] == world.pods["front"].identity


def test_a_service_is_called_by_its_address(world: World) -> None:
    address = world.service("web")
    # The destination service hears of it a moment later.
    running.eventually(lambda: world.get("front", f"{address}:80")[0] == 200, "the Service")
    code, seen = world.get("front", f"{address}:80")
    assert code == 200, world.said()
    assert seen["l5d-client-id"] == world.pods["front"].identity


def test_who_is_not_in_the_mesh_is_called_and_served_as_before(world: World) -> None:
    code, seen = world.get("outside", "web")
    assert code == 200, world.said()
    assert "l5d-client-id" not in seen
    assert world.get("front", "outside")[0] == 200, world.said()


def test_what_is_no_http_goes_on_byte_for_byte(world: World) -> None:
    for name in ("web", "outside"):
        with world.network.application(world.pods[name], BYTES, http=False):
            heard = world.network.say(world.pods["front"], world.pods[name].ip, BYTES)
            assert heard == "you said hello", world.said()


def test_the_proxys_own_ports_lead_nowhere(world: World) -> None:
    web, before = world.pods["web"], refused(world, "port-of-the-proxy")
    for number in (4140, 4143):
        assert world.network.get(world.pods["outside"], f"http://{web.ip}:{number}/")[0] == 0
        assert world.network.get(web, f"http://127.0.0.1:{number}/")[0] == 0
        assert world.network.say(world.pods["outside"], web.ip, number) == ""
    up_world.until(
        lambda: refused(world, "port-of-the-proxy") >= before + 4, 60, "figures, which are kept for a moment"
    )


def test_what_is_for_another_address_is_not_forwarded(world: World) -> None:
    outside, before = world.pods["outside"], refused(world, "not-an-address-of-the-pod")
    # Somebody else's address, which this machine sends to the Pod.
    route = world.network.inside(outside.ip, "ip", "route", "add", "192.0.2.9/32", "via", world.pods["web"].ip)
    subprocess.run(route, timeout=30, check=True)
    assert world.network.get(outside, f"http://192.0.2.9:{PORT}/")[0] == 0
    up_world.until(
        lambda: refused(world, "not-an-address-of-the-pod") == before + 1, 60, "figures, which are kept for a moment"
    )


def test_a_policy_is_kept_by_port_and_refuses_with_403(world: World) -> None:
    spec = {
        "targets": {"serviceAccounts": ["web"], "ports": [PORT]},
        "clients": [{"serviceAccount": {"namespace": "shop", "name": "front"}}],
    }
    with world.policy("web", spec):
        running.eventually(lambda: world.get("outside", "web")[0] == 403, "the refusal")
        assert world.get("front", "web")[0] == 200, world.said()
    running.eventually(lambda: world.get("outside", "web")[0] == 200, "an open port")


def test_bytes_are_refused_on_a_port_where_not_everybody_may_come_in(world: World) -> None:
    web, outside = world.pods["web"], world.pods["outside"]
    with world.network.application(web, BYTES, http=False):
        running.eventually(lambda: world.network.say(outside, web.ip, BYTES) == "you said hello", "an open port")
        spec = {"targets": {"serviceAccounts": ["web"], "ports": [BYTES]}, "requireIdentity": {"inbound": True}}
        with world.policy("bytes", spec):
            running.eventually(lambda: not world.network.say(outside, web.ip, BYTES), "silence")
            up_world.until(lambda: refused(world, "tcp-without-identity") >= 1, 60, "figures")
            # The other ports are as they were.
            assert world.get("outside", "web")[0] == 200, world.said()


def test_where_an_identity_is_required_of_servers_nothing_goes_out_without_one(world: World) -> None:
    outside = world.pods["outside"]
    with world.network.application(outside, BYTES, http=False):
        spec = {"targets": {"serviceAccounts": ["front"]}, "requireIdentity": {"outbound": True}}
        with world.policy("outbound", spec):
            running.eventually(lambda: world.get("front", "outside")[0] in (403, 503), "a refusal")
            running.eventually(lambda: not world.network.say(world.pods["front"], outside.ip, BYTES), "silence")
            assert world.get("front", "web")[0] == 200, world.said()
            up_world.until(lambda: refused(world, "outbound-without-identity", "front") >= 1, 60, "figures")


def test_skipped_ports_go_past_the_proxy_and_opaque_ones_wait_for_nobody(world: World) -> None:
    web, outside = world.pods["web"], world.pods["outside"]
    for number in (SKIPPED, OPAQUE):
        with world.network.application(web, number, first=True):
            assert world.network.listen(outside, web.ip, number) == "hello, I speak first", world.said()

    def passed() -> float:
        return world.agents["web"].metric("envoy_tcp_downstream_cx_total", envoy_tcp_prefix="in_tcp")

    up_world.until(lambda: passed() >= 1, 60, "figures, which are kept for a moment")


def test_undone_everything_is_as_it_was(world: World) -> None:
    front, web = world.pods["front"], world.pods["web"]
    applied = rules(world, "front")
    assert any("HANDFAST" in line for line in applied)
    world.network.iptables(front, "--undo")
    assert rules(world, "front") == []
    with wire_tap.tap(world.network.device(web.ip)) as tap:
        assert world.get("front", "web", WORD)[0] == 200
        assert WORD.encode() in b"".join(tap.frames(front.ip, web.ip))
    world.network.iptables(front)
    assert rules(world, "front") == applied
