# SPDX-License-Identifier: Apache-2.0
"""The cluster as the services of the mesh see it: what is found by which key, and what is told of changes."""

from __future__ import annotations

import asyncio
from typing import Any

from handfast.mesh import cluster as cluster_module
from handfast.rules.mesh import names
from tests.unit.mesh import cluster_world


def world(**chosen: Any) -> cluster_world.World:
    made = cluster_world.World()
    made.configure(**chosen)
    return made


def slice_(name: str, service: str | None, namespace: str = "shop") -> dict[str, object]:
    labels = {} if service is None else {"kubernetes.io/service-name": service}
    return {"metadata": {"namespace": namespace, "name": name, "labels": labels}, "addressType": "IPv4"}


def named(items: object) -> list[str]:
    return sorted(item.metadata.name for item in items)  # type: ignore[attr-defined]


async def test_nothing_is_known_before_everything_was_listed():
    made = world()
    waiting = asyncio.ensure_future(made.cluster.wait_synced())
    await asyncio.sleep(0)
    assert not made.cluster.synced
    assert not waiting.done()
    made.sync()
    await asyncio.wait_for(waiting, 5)
    assert made.cluster.synced


async def test_a_pod_is_found_by_its_name_and_each_of_its_addresses():
    made = world()
    document = cluster_world.pod("shop", "cart", "10.0.0.1")
    document["status"]["podIPs"] = [{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}]
    made.put("pods", document)
    pod = made.cluster.pod("shop", "cart")
    assert pod is not None
    assert made.cluster.pods_at("10.0.0.1") == made.cluster.pods_at("2001:db8::1") == (pod,)
    assert made.cluster.pods_at("10.0.0.2") == ()


async def test_a_pod_that_has_ended_has_no_address_any_more():
    made = world()
    document = cluster_world.pod("shop", "done", "10.0.0.1")
    document["status"]["phase"] = "Succeeded"
    made.put("pods", document)
    made.put("pods", cluster_world.pod("shop", "next", "10.0.0.1"))
    assert named(made.cluster.pods_at("10.0.0.1")) == ["next"]


async def test_a_service_is_found_by_its_name_and_by_its_own_address():
    made = world()
    made.put("services", cluster_world.service("shop", "cart", "10.96.0.7"))
    made.put("services", cluster_world.service("shop", "db"))
    assert made.cluster.services_at("10.96.0.7") == (made.cluster.service("shop", "cart"),)
    assert made.cluster.services_at("None") == made.cluster.services_at("") == ()


async def test_the_slices_of_a_service_are_those_that_say_so_in_its_namespace():
    made = world()
    for row in (
        slice_("cart-b", "cart"),
        slice_("cart-a", "cart"),
        slice_("db", "db"),
        slice_("x", None),
        slice_("cart-a", "cart", "other"),
    ):
        made.put("endpointslices", row)
    assert [each.metadata.name for each in made.cluster.slices("shop", "cart")] == ["cart-a", "cart-b"]


async def test_an_account_is_found_by_its_name():
    made = world()
    made.put("serviceaccounts", {"metadata": {"namespace": "shop", "name": "web", "uid": "u1"}})
    account = made.cluster.account("shop", "web")
    assert account is not None
    assert account.metadata.uid == "u1"


async def test_whoever_listens_is_told_what_changed():
    made = world()
    changes: list[cluster_module.Change] = []
    made.cluster.subscribe(changes.append)
    made.put("pods", cluster_world.pod("shop", "cart"))
    made.remove("pods", "shop", "cart")
    made.configure(trust_domain="mesh.example")
    assert [(each.resource, each.old is None, each.new is None) for each in changes] == [
        ("pods", True, False),
        ("pods", False, True),
        (cluster_module.INSTALLATION, True, True),
    ]
    assert [each.key for each in changes[:2]] == [("shop", "cart")] * 2


async def test_settings_that_cannot_be_read_change_nothing():
    made = world(trust_domain="mesh.example")
    made.configure({"trustDomain": "1"})
    assert made.cluster.mesh == names.Mesh("mesh.example")
    assert "trustDomain" in made.cluster.why_not
    made.configure(trust_domain="other.example")
    assert made.cluster.settings is not None
    assert (made.cluster.mesh, made.cluster.why_not) == (names.Mesh("other.example"), "")


async def test_without_an_installation_there_is_no_mesh():
    made = cluster_world.World()
    made.sync()
    assert made.cluster.synced
    assert (made.cluster.mesh, made.cluster.settings) == (None, None)
    assert made.cluster.why_not == "there is no linkerd-config in namespace linkerd"
