# SPDX-License-Identifier: Apache-2.0
"""A stock linkerd2-proxy and Handfast's own proxy as peers: requests both ways by mutual TLS, through rotations, an expiry and a policy.

Where there is no linkerd2-proxy nothing of it is proven: see `stock_world`. Both Pods are injected; `theirs` has a stock proxy, and `ours` Envoy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.interop import grpc_programs, running, stock_world
from tests.interop.stock_world import World
from tests.scenarios import wire_tap

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

GRPC = 9000
OPAQUE = 3306
BYTES = 9500
WORD = "/the-word-that-nobody-else-says"
# A stock proxy asks again so often.
OFTEN = {"LINKERD2_PROXY_IDENTITY_MIN_REFRESH": "1s", "LINKERD2_PROXY_IDENTITY_MAX_REFRESH": "3s"}
BOTH = [("theirs", "ours"), ("ours", "theirs")]
HEADERS = {"mesh.handfast.dev/identity-headers": "enabled"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with stock_world.mesh("handfast", tmp_path_factory.mktemp("peers"), "identity.lifetime=1m") as world:
        world.add("theirs", **OFTEN)
        world.add_own("ours", **HEADERS)
        world.ready()
        for name in ("theirs", "ours"):
            world.stack.enter_context(world.network.program(world.pods[name], GRPC, grpc_programs.SERVER))
        yield world


def called(world: World, name: str, to: str) -> tuple[str, str]:
    """How a call of gRPC ends, and what is said with it."""
    words = world.network.run(world.pods[name], grpc_programs.CLIENT, f"{world.pods[to].ip}:{GRPC}")
    code, _, rest = words.partition(" ")
    return code, rest


@pytest.mark.parametrize(("name", "to"), BOTH)
def test_requests_of_http_1_go_by_mutual_tls_with_the_right_names(world: World, name: str, to: str) -> None:
    client, server = world.pods[name], world.pods[to]
    with wire_tap.tap(world.network.device(server.ip)) as tap:
        code, seen = world.get(name, to, WORD)
        assert code == 200, world.said()
        assert seen["l5d-client-id"] == client.identity
        # As it was sent, though it rode on HTTP/2.
        assert "l5d-orig-proto" not in seen
        between = b"".join(tap.frames(client.ip, server.ip))
    assert between
    assert WORD.encode() not in between
    # What the stock proxy counted, whichever side it is on.
    theirs, labels = world.proxies["theirs"], {"tls": "true"}
    if name == "theirs":
        assert theirs.metric("request_total", direction="outbound", server_id=server.identity, **labels) >= 1
    else:
        assert theirs.metric("request_total", direction="inbound", client_id=client.identity, **labels) >= 1


@pytest.mark.parametrize(("name", "to"), BOTH)
def test_calls_of_grpc_go_by_mutual_tls_with_the_right_names(world: World, name: str, to: str) -> None:
    code, rest = called(world, name, to)
    assert code == "OK", f"{rest}\n{world.said()}"
    assert json.loads(rest)["l5d-client-id"] == world.pods[name].identity


@pytest.mark.parametrize(("name", "to"), BOTH)
def test_a_policy_refuses_with_403_and_permission_denied(world: World, name: str, to: str) -> None:
    nobody = [{"serviceAccount": {"namespace": "shop", "name": "nobody"}}]
    spec = {"targets": {"serviceAccounts": [to]}, "clients": nobody}
    with world.policy(f"closed-{to}", **spec):
        running.eventually(lambda: world.code(name, to) == 403, "403")
        running.eventually(lambda: called(world, name, to)[0] == "PERMISSION_DENIED", "PERMISSION_DENIED")
    running.eventually(lambda: world.code(name, to) == 200, "200 again")
    running.eventually(lambda: called(world, name, to)[0] == "OK", "OK again")


def test_what_is_no_http_is_not_understood_from_a_stock_proxy_and_reaches_nobody(world: World) -> None:
    ours, theirs = world.pods["ours"], world.pods["theirs"]
    for port in (BYTES, OPAQUE):
        with world.network.application(ours, port, http=False):
            # In TLS for the own name there is nothing but HTTP, and nothing at all at the proxy's own port.
            assert world.network.say(theirs, ours.ip, port) != "you said hello"
    # The other way it goes as it is, and is served as from anybody.
    with world.network.application(theirs, BYTES, http=False):
        running.eventually(lambda: world.network.say(ours, theirs.ip, BYTES) == "you said hello", "an answer")


def serials(world: World) -> tuple[float, str]:
    """What says that a certificate is another one: of the stock proxy its end, of ours its serial number."""
    ours = json.loads(world.agents["ours"].get("/identity")[1])
    return world.proxies["theirs"].metric("control_identity_cert_expiration_timestamp_seconds"), str(ours["serial"])


def test_no_request_fails_while_both_renew(world: World) -> None:
    first = serials(world)
    codes: list[int] = []

    def both_renewed() -> bool:
        codes.extend(world.code(name, to) for name, to in BOTH)
        return all(now != before for now, before in zip(serials(world), first, strict=True))

    running.eventually(both_renewed, "two new certificates", 120)
    assert set(codes) == {200}, world.said()


def test_past_an_expiry_nobody_is_served_and_both_recover(world: World) -> None:
    world.issuing.close()

    def over() -> bool:
        return world.agents["ours"].get("/live")[0] == 503 and serials(world)[0] < time.time()

    running.eventually(over, "two certificates that are over", 120)
    # Our side refuses TLS for its name, and believes no certificate that is over.
    for name, to in BOTH:
        assert world.code(name, to) != 200, world.said()
    world.start_identity()
    for name, to in BOTH:
        running.eventually(lambda: world.code(name, to) == 200, f"{to} for {name}", 120)  # noqa: B023 - within the loop
        code, seen = world.get(name, to)
        assert (code, seen["l5d-client-id"]) == (200, world.pods[name].identity)
