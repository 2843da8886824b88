# SPDX-License-Identifier: Apache-2.0
"""Get and GetProfile: what is said, how promptly, to whom, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.wire import peers, server
from tests.unit.mesh import cluster_world
from tests.unit.mesh.destination.destination_world import NAME, PATH, World, entry
from tests.unit.rules.mesh import mesh_pods


async def refused(listener: Any) -> tuple[str, str]:
    with pytest.raises(server.Refusal) as refusal:
        await listener.octets()
    return refusal.value.code, refusal.value.message


async def test_something_is_said_at_once():
    async with World().running() as world:
        world.serve()
        empty = world.listen()
        assert await empty.hear() == {}
        assert empty.endpoints.exists is True
        world.slice(world.meshed("a", "10.0.0.1"))
        assert await empty.hear() == {"10.0.0.1:8080": NAME}


async def test_a_stream_follows_what_comes_and_goes():
    async with World().running() as world:
        one, two = world.meshed("a", "10.0.0.1"), world.plain("b", "10.0.0.2")
        world.serve(one)
        listener = world.listen()
        assert await listener.hear() == {"10.0.0.1:8080": NAME}
        world.slice(one, two)
        assert await listener.hear() == {"10.0.0.1:8080": NAME, "10.0.0.2:8080": ""}
        world.slice(two)
        assert await listener.hear() == {"10.0.0.2:8080": ""}
        world.remove("endpointslices", "shop", "web")
        assert await listener.hear() == {}
        assert listener.endpoints.exists is None


async def test_a_service_that_goes_and_comes_back_is_told():
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        listener = world.listen()
        await listener.hear()
        world.remove("services", "shop", "web")
        assert await listener.hear() == {}
        assert listener.endpoints.exists is False
        world.put("services", cluster_world.service("shop", "web"))
        assert await listener.hear() == {"10.0.0.1:8080": NAME}


async def test_an_endpoint_has_its_name_twice_its_hint_its_weight_and_its_labels():
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        listener = world.listen()
        await listener.hear()
        (seen,) = listener.endpoints.rows.values()
        assert (seen.identity, seen.server_name, seen.weight) == (NAME, NAME, 10_000)
        assert (seen.hint, seen.inbound_port) == ("h2", 0)
        assert dict(seen.labels) == {"control_plane_ns": "linkerd", "pod": "a", "serviceaccount": "web"}
        assert dict(listener.endpoints.labels) == {"namespace": "shop", "service": "web"}


async def test_a_pod_that_becomes_meshed_by_another_under_its_name_is_withheld_until_the_slice_means_it():
    async with World().running() as world:
        world.serve(world.plain("a", "10.0.0.1"))
        listener = world.listen()
        assert await listener.hear() == {"10.0.0.1:8080": ""}
        document = mesh_pods.meshed("shop", "a", "10.0.0.1", uid="new")
        world.put("pods", document)
        assert await listener.hear() == {}
        world.slice(entry("10.0.0.1", "a") | {"targetRef": {"kind": "Pod", "name": "a", "uid": "new"}})
        assert await listener.hear() == {"10.0.0.1:8080": NAME}


async def test_nothing_is_answered_before_everything_is_known():
    world = World()
    world.serve(world.meshed("a", "10.0.0.1"))
    assert (await refused(world.listen()))[0] == "UNAVAILABLE"
    world.sync()
    code, text = await refused(world.listen())
    assert (code, text) == ("UNAVAILABLE", "there is no linkerd-config in namespace linkerd")
    world.configure()
    assert await refused(world.listen()) == ("UNAVAILABLE", "who is revoked is not known")
    assert world.discovery.why_not() is not None
    world.revoking.end()
    assert world.discovery.why_not() is None


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("10.0.0.1:80", "INVALID_ARGUMENT", "IP queries not supported by Get API: host=10.0.0.1"),
        ("[::1]:80", "INVALID_ARGUMENT", "IP queries not supported by Get API: host=::1"),
        ("web.shop:80", "INVALID_ARGUMENT", "Invalid authority: web.shop:80"),
        ("web.shop.svc.cluster.local:0", "INVALID_ARGUMENT", "Invalid authority: web.shop.svc.cluster.local:0"),
        ("no.shop.svc.cluster.local:80", "NOT_FOUND", "Service no.shop not found"),
    ],
)
async def test_what_names_nothing_is_refused_in_linkerds_words(path, code, text):
    async with World().running() as world:
        assert await refused(world.listen(path)) == (code, text)


async def test_a_name_elsewhere_is_refused():
    async with World().running() as world:
        world.put("services", cluster_world.service("shop", "web", "", type="ExternalName", externalName="web.example"))
        for listener in (world.listen(), world.profile()):
            code, text = await refused(listener)
            assert code == "INVALID_ARGUMENT"
            assert text.startswith(f"Invalid authority: {PATH}")


async def test_what_a_proxy_says_of_itself_changes_nothing():
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        for token in ("", '{"ns":"shop","pod":"b"}', "ns:other", "123fa-test", "{" * 100):
            assert await world.listen(token=token).hear() == {"10.0.0.1:8080": NAME}


async def test_streams_over_the_bound_of_a_connection_are_refused():
    async with World(streams_of_one=2, streams=3).running() as world:
        world.serve()
        mine = [world.listen() for _ in range(2)]
        for listener in mine:
            await listener.hear()
        assert (await refused(world.listen()))[0] == "RESOURCE_EXHAUSTED"
        other = world.listen(peer=peers.Peer("ipv4:127.0.0.1:2"))
        await other.hear()
        assert (await refused(world.listen(peer=peers.Peer("ipv4:127.0.0.1:3"))))[0] == "RESOURCE_EXHAUSTED"
        await mine[0].close()
        await world.listen().hear()


async def test_many_connections_of_one_host_are_one_client():
    async with World(streams_of_one=2).running() as world:
        world.serve()
        for port in (1, 2):
            await world.listen(peer=peers.Peer(f"10.0.0.1:{port}")).hear()
        assert (await refused(world.listen(peer=peers.Peer("10.0.0.1:3"))))[0] == "RESOURCE_EXHAUSTED"
        await world.listen(peer=peers.Peer("10.0.0.2:1")).hear()
        # On loopback many proxies share one address.
        for port in range(3):
            await world.listen(peer=peers.Peer(f"127.0.0.1:{port}")).hear()


async def test_a_service_with_the_address_of_another_s_pod_or_service_is_not_called_in_its_place():
    async with World().running() as world:
        world.meshed("a", "10.0.0.1")
        world.put("services", cluster_world.service("evil", "trap", "10.0.0.1"))
        said = await world.profile("10.0.0.1:8080").profile()
        assert said.endpoint is not None
        assert (said.endpoint.identity, said.name) == (NAME, "")
        world.put("services", cluster_world.service("shop", "web", "10.96.0.1"))
        web = world.profile("10.96.0.1:80")
        assert (await web.profile()).name == "web.shop.svc.cluster.local"
        world.put("services", cluster_world.service("evil", "other", "10.96.0.1"))
        assert (await refused(web))[0] == "UNAVAILABLE"


async def test_one_instance_of_a_headless_service_is_found_by_its_host_name():
    async with World().running() as world:
        world.serve(
            world.meshed("a", "10.0.0.1") | {"hostname": "a"}, world.meshed("b", "10.0.0.2") | {"hostname": "b"}
        )
        assert await world.listen(f"b.{PATH}").hear() == {"10.0.0.2:8080": NAME}
        said = await world.profile(f"b.{PATH}").profile()
        assert said.endpoint is not None
        assert (said.endpoint.identity, said.name) == (NAME, "b.web.shop.svc.cluster.local")
        assert (await refused(world.profile(f"c.{PATH}")))[0] == "NOT_FOUND"


async def test_the_profile_of_a_service_has_its_name_and_the_usual_retries():
    async with World().running() as world:
        world.serve(ip="10.96.0.1")
        by_name = await world.profile().profile()
        assert (by_name.name, by_name.opaque, by_name.endpoint) == ("web.shop.svc.cluster.local", False, None)
        assert (by_name.retry_ratio, by_name.retries, by_name.ttl) == (0.2, 10, 10)
        assert by_name.parent == ("core", "Service", "web", "shop")
        assert await world.profile("10.96.0.1:80").profile() == by_name


async def test_the_profile_of_a_service_says_what_is_opaque_when_that_changes():
    async with World().running() as world:
        document = cluster_world.service("shop", "web")
        world.put("services", document)
        listener = world.profile()
        assert (await listener.profile()).opaque is False
        document["metadata"]["annotations"] = {"config.linkerd.io/opaque-ports": "http"}
        world.put("services", document)
        assert (await listener.profile()).opaque is True


async def test_the_profile_of_a_pods_address_has_its_identity():
    async with World().running() as world:
        world.meshed("a", "10.0.0.1")
        said = await world.profile("10.0.0.1:8080").profile()
        assert said.endpoint is not None
        assert (said.endpoint.address, said.endpoint.identity) == ("10.0.0.1:8080", NAME)


async def test_an_address_of_nobody_has_a_profile_without_identity_until_a_pod_has_it():
    async with World().running() as world:
        listener = world.profile("10.0.0.1:3306")
        said = await listener.profile()
        assert said.endpoint is not None
        assert (said.endpoint.identity, said.opaque) == ("", True)
        world.meshed("a", "10.0.0.1")
        said = await listener.profile()
        assert said.endpoint is not None
        assert said.endpoint.identity == NAME


async def test_the_profile_of_an_address_that_is_withheld_is_refused_so_that_proxies_try_again():
    async with World().running() as world:
        listener = world.profile("10.0.0.1:8080")
        await listener.profile()
        document = mesh_pods.meshed("shop", "a", "10.0.0.1")
        document["metadata"]["labels"] = {}
        world.put("pods", document)
        code, text = await refused(listener)
        assert code == "UNAVAILABLE"
        assert text.startswith("10.0.0.1:8080 is withheld: Pod shop/a has a proxy")
        assert (await refused(world.profile("10.0.0.1:8080")))[0] == "UNAVAILABLE"


async def test_the_profile_of_an_instance_that_is_withheld_is_refused():
    async with World().running() as world:
        world.serve(entry("10.0.0.1", "a", hostname="a"))
        assert (await refused(world.profile(f"a.{PATH}")))[0] == "UNAVAILABLE"


async def test_the_profile_of_a_service_that_is_not_there_is_not_found():
    async with World().running() as world:
        assert await refused(world.profile()) == ("NOT_FOUND", "Service web.shop not found")
