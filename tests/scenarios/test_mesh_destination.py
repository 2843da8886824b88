# SPDX-License-Identifier: Apache-2.0
"""Discovery on real processes: what a proxy that knows nothing but field numbers is told of Pods as a kubelet reports them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.scenarios import destination_world, mesh_world, up_world
from tests.scenarios.destination_world import Destination, Listener, Shop
from tests.scenarios.mesh_world import identity_of
from tests.world.discovery_client import GET, GET_PROFILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

WEB = identity_of("shop", "web")


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh")) as plane:
        yield plane


@pytest.fixture(scope="module")
def service(plane) -> Iterator[Destination]:
    with Destination(plane) as service:
        yield service.ready()


@pytest.fixture(scope="module")
def shop(plane) -> Shop:
    return Shop(plane)


def path(name: str, port: int = 80) -> str:
    return f"{name}.shop.svc.cluster.local:{port}"


def test_identity_appears_for_exactly_the_meshed_and_goes_with_them(service, shop):
    shop.service("cart")
    with Listener(service.target, path("cart")) as proxy:
        up_world.until(lambda: proxy.seen.exists is True, 30, "a first answer")
        shop.pod("cart-1", "cart", "10.1.0.1")
        proxy.shows({"10.1.0.1:8080": WEB})
        shop.pod("cart-2", "cart", "10.1.0.2", meshed=False)
        proxy.shows({"10.1.0.1:8080": WEB, "10.1.0.2:8080": ""})
        shop.status("cart-1", "10.1.0.1", ready=False)
        proxy.shows({"10.1.0.2:8080": ""})
        shop.status("cart-1", "10.1.0.1")
        proxy.shows({"10.1.0.1:8080": WEB, "10.1.0.2:8080": ""})
        shop.delete("pods/cart-2")
        proxy.shows({"10.1.0.1:8080": WEB})
        seen = proxy.seen.rows["10.1.0.1:8080"]
        # The header of Linkerd's transport is for opaque ports alone.
        assert (seen.server_name, seen.hint, seen.inbound_port, seen.weight) == (WEB, "h2", 0, 10_000)
        assert dict(seen.labels)["serviceaccount"] == "web"
        shop.delete("pods/cart-1")
        proxy.shows({})


def test_who_should_have_an_identity_and_has_none_is_withheld_and_told(service, shop):
    shop.service("liar")
    shop.pod("liar-1", "liar", "10.1.1.1")
    with Listener(service.target, path("liar")) as proxy:
        proxy.shows({"10.1.1.1:8080": WEB})
        # Whoever may write annotations cannot make others speak plaintext to it.
        shop.annotate("pods/liar-1", {"linkerd.io/identity": "disabled"})
        proxy.shows({})
        code, text = service.refuses(GET_PROFILE, "10.1.1.1:8080")
        assert (code, text.startswith("10.1.1.1:8080 is withheld: ")) == ("UNAVAILABLE", True)
        up_world.until(lambda: any("IdentityUnclear" in text for text in shop.events("liar")), 40, "an Event")
        assert 'handfast_mesh_withheld_endpoints{reason="IdentityUnclear"} 1.0' in service.metrics()
        assert service.lines("endpoints are withheld")
        shop.annotate("pods/liar-1", {"linkerd.io/identity": "enabled"})
        proxy.shows({"10.1.1.1:8080": WEB})


def test_who_is_revoked_is_withheld_until_that_is_undone(plane, service, shop):
    shop.service("thief")
    shop.pod("thief-1", "thief", "10.1.2.1")
    revocations = "/apis/handfast.dev/v1alpha1/revocations"
    with Listener(service.target, path("thief")) as proxy:
        proxy.shows({"10.1.2.1:8080": WEB})
        body = {"metadata": {"name": "stolen"}, "spec": {"user": "system:serviceaccount:shop:web"}}
        plane.post(revocations, body, wanted=(201,))
        proxy.shows({})
        assert plane.call("DELETE", f"{revocations}/stolen")[0] == 200
        proxy.shows({"10.1.2.1:8080": WEB})


def test_one_instance_of_a_headless_service(service, shop):
    shop.service("db", clusterIP="None")
    for number in (0, 1):
        shop.pod(f"db-{number}", "db", f"10.1.3.{number + 1}", hostname=f"db-{number}", subdomain="db")
    up_world.until(lambda: len(service.endpoints(path("db"))) == 2, 30, "both")
    assert service.endpoints(f"db-1.{path('db')}") == {"10.1.3.2:8080": WEB}
    said = service.profile(f"db-1.{path('db')}")
    assert said.endpoint is not None
    assert (said.endpoint.identity, said.name) == (WEB, "db-1.db.shop.svc.cluster.local")


def test_profiles_of_a_service_of_its_address_and_of_a_pods(service, shop):
    shop.service("till", clusterIP="10.96.0.77")
    shop.pod("till-1", "till", "10.1.4.1")
    by_name = service.profile(path("till"))
    assert (by_name.name, by_name.retry_ratio, by_name.retries, by_name.ttl) == (
        "till.shop.svc.cluster.local",
        0.2,
        10,
        10,
    )
    assert service.profile("10.96.0.77:80") == by_name
    said = service.profile("10.1.4.1:8080")
    assert said.endpoint is not None
    assert (said.endpoint.identity, said.endpoint.address) == (WEB, "10.1.4.1:8080")
    elsewhere = service.profile("192.0.2.9:443")
    assert elsewhere.endpoint is not None
    assert elsewhere.endpoint.identity == ""


def test_a_port_that_is_skipped_has_no_identity_and_one_that_is_opaque_a_hint(service, shop):
    shop.service("ports")
    shop.pod("ports-1", "ports", "10.1.5.1", annotations={"config.linkerd.io/skip-inbound-ports": "9000-9009"})
    shop.annotate("pods/ports-1", {"config.linkerd.io/opaque-ports": "8080"})

    def hint() -> tuple[str, bool]:
        said = service.profile("10.1.5.1:8080")
        assert said.endpoint is not None
        return said.endpoint.hint, said.opaque

    up_world.until(lambda: hint() == ("opaque", True), 30, "the hint")
    skipped = service.profile("10.1.5.1:9005").endpoint
    assert skipped is not None
    assert (skipped.identity, skipped.hint) == ("", "")


def test_what_names_nothing_is_refused(service, shop):
    shop.service("away", type="ExternalName", externalName="away.example", selector=None, ports=None)
    rows = {
        (GET, "10.0.0.1:80"): ("INVALID_ARGUMENT", "IP queries not supported by Get API: host=10.0.0.1"),
        (GET, path("nobody")): ("NOT_FOUND", "Service nobody.shop not found"),
        (GET_PROFILE, path("nobody")): ("NOT_FOUND", "Service nobody.shop not found"),
        (GET, "cart.shop:80"): ("INVALID_ARGUMENT", "Invalid authority: cart.shop:80"),
        (GET, path("cart", 0)): ("INVALID_ARGUMENT", f"Invalid authority: {path('cart', 0)}"),
        (GET, path("cart", 65536)): ("INVALID_ARGUMENT", f"Invalid authority: {path('cart', 65536)}"),
        (GET_PROFILE, "x" * 100_000): ("INVALID_ARGUMENT", f"Invalid authority: {'x' * 253}…"),
    }
    assert {row: service.refuses(*row) for row in rows} == rows
    up_world.until(lambda: service.refuses(GET, path("away"))[0] == "INVALID_ARGUMENT", 30, "the ExternalName")


def test_an_api_server_that_is_killed_costs_no_endpoint_and_no_stream(plane, service, shop):
    shop.service("steady")
    shop.pod("steady-1", "steady", "10.1.6.1")
    with Listener(service.target, path("steady")) as proxy:
        proxy.shows({"10.1.6.1:8080": WEB})
        before = plane.pids()["apiserver"]
        os.kill(before, signal.SIGKILL)
        up_world.until(lambda: plane.pids().get("apiserver") != before, 40, "another API server")
        assert proxy.seen.identities == {"10.1.6.1:8080": WEB}
        up_world.until(lambda: shop_answers(plane), 40, "the API server")
        shop.pod("steady-2", "steady", "10.1.6.2")
        proxy.shows({"10.1.6.1:8080": WEB, "10.1.6.2:8080": WEB}, 60)
        assert proxy.ended == ""


def shop_answers(plane: mesh_world.Plane) -> bool:
    try:
        return plane.call("GET", destination_world.SHOP)[0] == 200
    except OSError:
        return False


def test_a_service_that_is_started_again_says_the_same(plane, shop):
    shop.service("again")
    shop.pod("again-1", "again", "10.1.7.1")
    for _ in range(2):
        with Destination(plane, "again").ready() as service, Listener(service.target, path("again")) as proxy:
            proxy.shows({"10.1.7.1:8080": WEB})
            service.process.terminate()
            assert service.process.wait(20) == 0
            up_world.until(lambda: proxy.ended == "UNAVAILABLE", 20, "the end of the stream")
