# SPDX-License-Identifier: Apache-2.0
"""Stock linkerd2-proxies, with nothing but Handfast's control plane: requests from Pod to Pod with mutual TLS, and policies by identity.

Where there is no linkerd2-proxy nothing of it is proven: see `stock_world`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from tests.interop import meshes, running, stock_world
from tests.interop.stock_world import PORT, World
from tests.scenarios import injected_pods

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TCP = 9000
FRONT = {"serviceAccount": {"namespace": "shop", "name": "front"}}


@pytest.fixture(scope="module", params=list(meshes.SERVERS))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with stock_world.mesh(request.param, tmp_path_factory.mktemp(request.param)) as world:
        for name in ("front", "web", "stranger"):
            world.add(name)
        world.add_outside("outside")
        for proxy in world.proxies.values():
            proxy.ready()
        yield world


def soon(world: World, code: int, name: str, to: str = "web") -> None:
    """Wait until a Pod gets this code from another."""
    try:
        running.eventually(lambda: world.code(name, to) == code, f"{code} for {name}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{world.said()}") from None


def test_a_request_from_pod_to_pod_has_mutual_tls_with_the_right_names(world: World) -> None:
    code, seen = world.get("front", "web")
    assert code == 200, world.said()
    # What the application is told, and what both proxies counted.
    assert seen["l5d-client-id"] == world.pods["front"].identity
    ours, theirs = world.proxies["front"], world.proxies["web"]
    server, client = world.pods["web"].identity, world.pods["front"].identity
    assert ours.metric("request_total", direction="outbound", tls="true", server_id=server) >= 1
    assert theirs.metric("request_total", direction="inbound", tls="true", client_id=client) >= 1
    unsecured = {"direction": "outbound", "target_ip": world.pods["web"].ip, "tls": "no_identity"}
    assert ours.metric("tcp_open_total", peer="dst", **unsecured) == 0


def test_who_is_not_in_the_mesh_is_served_in_plaintext_and_without_a_name(world: World) -> None:
    code, seen = world.get("outside", "web")
    assert code == 200, world.said()
    assert "l5d-client-id" not in seen
    # And the other way round: discovery knows that there is no identity.
    assert world.get("front", "outside")[0] == 200, world.said()
    assert world.proxies["front"].metric("tcp_open_total", direction="outbound", peer="dst", tls="no_identity") >= 1


def test_a_policy_lets_in_whom_it_names_and_refuses_the_others(world: World) -> None:
    with world.policy("web", targets={"serviceAccounts": ["web"], "ports": [PORT]}, clients=[FRONT]):
        for name in ("stranger", "outside"):
            soon(world, 403, name)
        code, seen = world.get("front", "web")
        assert (code, seen.get("l5d-client-id")) == (200, world.pods["front"].identity), world.said()
        denied = {"client_id": world.pods["stranger"].identity}
        assert world.proxies["web"].metric("inbound_http_authz_deny_total", **denied) >= 1
        # The kubelet, and whoever reads metrics, is asked for no identity.
        assert world.get("outside", "web", "/healthz")[0] == 200, world.said()
        assert world.proxies["web"].get("/ready")[0] == 200
    for name in ("stranger", "outside"):
        soon(world, 200, name)


def test_an_identity_that_is_required_can_be_anybodys(world: World) -> None:
    with world.policy("identified", targets={"serviceAccounts": ["web"]}, requireIdentity={"inbound": True}):
        soon(world, 403, "outside")
        assert world.code("stranger", "web") == 200, world.said()
    soon(world, 200, "outside")


# One that is not opaque, and one that is: called through the other proxy's own port, with a transport header.
@pytest.mark.parametrize("port", [TCP, 3306])
def test_what_is_no_http_is_secured_and_refused_alike(world: World, port: int) -> None:
    web = world.pods["web"]
    with world.network.application(web, port, http=False):

        def heard(name: str) -> str:
            return world.network.say(world.pods[name], web.ip, port)

        running.eventually(lambda: heard("front") == "you said hello", "an answer")
        secured = {"direction": "inbound", "peer": "src", "target_port": str(port), "tls": "true"}
        assert world.proxies["web"].metric("tcp_open_total", client_id=world.pods["front"].identity, **secured) >= 1
        with world.policy(f"tcp-{port}", targets={"serviceAccounts": ["web"], "ports": [port]}, clients=[FRONT]):
            for name in ("stranger", "outside"):
                running.eventually(lambda: not heard(name), f"silence for {name}")  # noqa: B023 - within the loop
            assert heard("front") == "you said hello", world.said()


def test_a_namespace_can_be_let_in_as_a_whole(world: World) -> None:
    with world.policy(
        "shop", targets={"podSelector": {"matchLabels": {"app": "web"}}}, clients=[{"namespace": "shop"}]
    ):
        soon(world, 403, "outside")
        assert world.code("stranger", "web") == 200, world.said()
    soon(world, 200, "outside")


def test_a_policy_that_only_watches_refuses_nobody_and_is_counted(world: World) -> None:
    with world.policy("watched", targets={"serviceAccounts": ["web"]}, clients=[FRONT], mode="audit"):
        audited = functools.partial(world.proxies["web"].metric, "inbound_http_authz_allow_total", authz_name="audit")
        running.eventually(lambda: world.code("stranger", "web") == 200 and audited() >= 1, "what would be refused")
        assert world.code("front", "web") == 200, world.said()


def test_a_pod_that_only_looks_like_one_of_the_mesh_is_not_called_in_plaintext(world: World) -> None:
    world.add_outside("liar", **{"linkerd.io/control-plane-ns": "linkerd"})
    soon(world, 200, "outside", "liar")
    assert world.code("front", "liar") != 200, world.said()


def test_a_service_is_resolved_to_its_pods_with_their_identity(world: World) -> None:
    address = injected_pods.service(world.plane, world.pods["web"], PORT)
    if not address:
        pytest.skip("not run: this server hands out no cluster addresses")
    code, seen = world.get("front", f"{address}:80")
    assert code == 200, world.said()
    assert seen["l5d-client-id"] == world.pods["front"].identity
    metric = world.proxies["front"].metric
    assert metric("request_total", direction="outbound", tls="true", server_id=world.pods["web"].identity) >= 1
