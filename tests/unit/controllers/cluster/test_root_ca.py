# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast import errors
from handfast.api import status
from handfast.client import cache
from handfast.controllers import views
from handfast.controllers.cluster import root_ca
from tests.unit.controllers.fake_api import FakeClient, failing

WANTED = {"ca.crt": "PEM"}


def config_map(namespace: str, data: dict[str, str] | None) -> Any:
    return msgspec.convert({"metadata": {"namespace": namespace}, "data": data}, root_ca._View)


def namespace(name: str, phase: str = "Active") -> views.Namespace:
    return msgspec.convert({"metadata": {"name": name}, "status": {"phase": phase}}, views.Namespace)


class World:
    def __init__(self) -> None:
        self.client = FakeClient()
        self.changed: list[str] = []
        self.namespaces: cache.Informer[views.Namespace] = cache.Informer(views.ALL_NAMESPACES)
        self.published = root_ca.Published(WANTED, self.changed.append)
        self.handler = root_ca.RootCA(self.client, self.namespaces, self.published, WANTED)
        self.namespaces.put(namespace("ns"))


async def test_where_it_is_right_is_remembered():
    world = World()
    world.published.begin()
    world.published.put(config_map("a", WANTED))
    world.published.put(config_map("b", {"ca.crt": "forged"}))
    world.published.put(config_map("c", None))
    world.published.end()
    await world.published.wait_synced()
    assert [name in world.published for name in "abcd"] == [True, False, False, False]
    assert world.changed == ["b", "c"]
    world.published.put(config_map("b", WANTED))
    world.published.remove(config_map("a", WANTED))
    assert world.changed[2:] == ["a"]
    # A list after which `b` is no longer there.
    world.published.begin()
    world.published.put(config_map("a", WANTED))
    world.published.end()
    assert world.changed[3:] == ["b"]


async def test_made_restored_and_left_alone():
    world = World()
    await world.handler.reconcile("ns")
    made = world.client.objects["configmaps", "ns", "kube-root-ca.crt"]
    assert made["data"] == WANTED
    assert "kubernetes.io/description" in made["metadata"]["annotations"]
    await world.handler.reconcile("ns")
    made["data"] = {"ca.crt": "forged"}
    made["metadata"]["annotations"] = {"mine": "x"}
    await world.handler.reconcile("ns")
    restored = world.client.objects["configmaps", "ns", "kube-root-ca.crt"]
    assert restored["data"] == WANTED
    assert set(restored["metadata"]["annotations"]) == {"mine", "kubernetes.io/description"}
    assert [call[0] for call in world.client.calls] == ["create", "update"]
    world.published.put(config_map("ns", WANTED))
    world.client.objects.clear()
    await world.handler.reconcile("ns")
    assert len(world.client.calls) == 2


async def test_namespaces_that_are_gone_or_going():
    world = World()
    world.namespaces.put(namespace("going", "Terminating"))
    for name in ("unknown", "going"):
        await world.handler.reconcile(name)
    assert world.client.calls == []


@pytest.mark.parametrize(
    ("error", "quiet"),
    [
        (status.not_found("namespaces", "", "ns"), True),
        (
            status.StatusError("Forbidden", "no", causes=[status.Cause("NamespaceTerminating", "it ends")]),
            True,
        ),
        (status.forbidden("configmaps", "", "x", "unable to create: namespace ns is being terminated"), True),
        (status.forbidden("configmaps", "", "x", "not allowed"), False),
        (status.already_exists("configmaps", "", "x"), False),
    ],
)
async def test_a_create_that_is_refused(error: status.StatusError, quiet: bool):
    world = World()
    world.client.before = failing(error, verb="create")
    if quiet:
        await world.handler.reconcile("ns")
    else:
        with pytest.raises(status.StatusError) as caught:
            await world.handler.reconcile("ns")
        assert caught.value is error


async def test_a_read_that_is_refused():
    world = World()
    world.client.before = failing(status.forbidden("configmaps", "", "x", "no"))
    with pytest.raises(errors.Refused) as caught:
        await world.handler.reconcile("ns")
    assert caught.value.reason == "Forbidden"
