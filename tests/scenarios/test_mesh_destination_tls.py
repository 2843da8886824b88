# SPDX-License-Identifier: Apache-2.0
"""Discovery beyond loopback: TLS 1.3 with the certificate of `linkerd-controller`, which it has from the identity service, with ALPN or without."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator

import pytest

from handfast.runtime import tls
from tests.scenarios import mesh_world, up_world
from tests.scenarios.destination_world import Shop
from tests.scenarios.mesh_world import identity_of
from tests.world import discovery_client, mesh_client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

OWN = identity_of("linkerd", "linkerd-controller")
WEB = identity_of("shop", "web")
FREE = tuple(
    word
    for name in ("identity", "identity-admin", "policy", "agents", "destination-admin")
    for word in (f"--{name}-listen", "127.0.0.1:0")
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[mesh_world.Plane]:
    directory = tmp_path_factory.mktemp("mesh")
    words = ("--mesh", "--destination-listen", "0.0.0.0:0", *FREE)
    with mesh_world.Plane(directory / "data", *words) as plane:
        yield plane.ready()


def address(plane: mesh_world.Plane) -> tuple[str, int]:
    found = json.loads((plane.directory / "endpoints.json").read_text())
    where = found.get("destination") or found["mesh"]["destination"]
    return where, int(where.rpartition(":")[2])


def context(plane: mesh_world.Plane, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    made = tls.client_context(plane.anchors())
    if alpn:
        made.set_alpn_protocols(list(alpn))
    return made


@pytest.mark.parametrize("alpn", [(), ("h2",)])
def test_beyond_loopback_it_speaks_tls_in_its_own_name(plane, alpn):
    shop = Shop(plane)
    name = f"cart{len(alpn)}"
    shop.service(name)
    shop.pod(f"{name}-1", name, f"10.2.0.{len(alpn) + 1}")
    path = f"{name}.shop.svc.cluster.local:80"

    async def ask() -> dict[str, str]:
        # The name is verified by the tunnel: a certificate of anybody else ends it.
        async with mesh_client.tunnel(address(plane)[1], context(plane, alpn), OWN) as target:
            return (await discovery_client.endpoints_of(target, path)).identities

    def says() -> bool:
        return asyncio.run(ask()) == {f"10.2.0.{len(alpn) + 1}:8080": WEB}

    up_world.until(says, 40, "the endpoint")


def test_it_speaks_no_plaintext_there(plane):
    code, _ = asyncio.run(
        discovery_client.refusal(
            f"127.0.0.1:{address(plane)[1]}", discovery_client.GET, "cart0.shop.svc.cluster.local:80"
        )
    )
    assert code == "UNAVAILABLE"


def test_another_name_is_not_believed(plane):
    async def ask() -> tuple[str, str]:
        async with mesh_client.tunnel(address(plane)[1], context(plane), identity_of("linkerd", "other")) as target:
            return await discovery_client.refusal(target, discovery_client.GET, "cart0.shop.svc.cluster.local:80")

    assert asyncio.run(ask())[0] == "UNAVAILABLE"
