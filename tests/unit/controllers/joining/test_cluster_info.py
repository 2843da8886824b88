# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.api import status
from handfast.bootstrap import cluster_info as documents
from handfast.client import cache
from handfast.controllers import views
from handfast.controllers.joining import cluster_info
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock

AT = ("configmaps", "kube-public", "cluster-info")
SERVERS = ("https://192.0.2.1:6443", "https://192.0.2.2:6443")
CA = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


class World:
    def __init__(self, servers: tuple[str, ...] = SERVERS, ca: bytes = CA) -> None:
        self.client = FakeClient()
        self.clock = MovableClock()
        self.namespaces: cache.Informer[views.Namespace] = cache.Informer(views.ALL_NAMESPACES)
        self.config_maps: cache.Informer[views.ConfigMap] = cache.Informer(views.CLUSTER_INFO)
        self.namespaces.put(msgspec.convert({"metadata": {"name": "kube-system", "uid": "u"}}, views.Namespace))
        self.restart(servers, ca)

    def restart(self, servers: tuple[str, ...], ca: bytes) -> None:
        self.handler = cluster_info.Publisher(
            self.client, self.clock, self.namespaces, self.config_maps, servers=servers, ca=ca
        )

    def see(self) -> None:
        self.config_maps.put(msgspec.convert(self.client.objects[AT], views.ConfigMap))

    async def publish(self) -> float | None:
        return await self.handler.reconcile(cluster_info.KEY)

    def info(self) -> documents.ClusterInfo:
        return documents.read(self.client.objects[AT]["data"]["kubeconfig"])


async def test_made_once():
    world = World()
    # Until the watch has shown it, it may have gone again unseen.
    assert await world.publish() == 10.0
    assert world.info() == documents.ClusterInfo(SERVERS, CA, "u")
    assert await world.publish() == 10.0
    world.see()
    world.client.objects.clear()
    # What is seen is right: nothing is asked for.
    assert await world.publish() is None
    assert world.client.calls == [("create", "configmaps", "cluster-info")]


async def test_other_addresses_and_another_ca_are_taken_over_and_signatures_stay():
    world = World()
    await world.publish()
    world.client.objects[AT]["data"] |= {"jws-kubeconfig-abcdef": "signature", "more": "x"}
    world.client.objects[AT]["metadata"]["labels"] = {"mine": "y"}
    world.see()
    await world.publish()
    assert len(world.client.calls) == 1
    world.restart(("https://192.0.2.3:6443",), CA + CA)
    await world.publish()
    assert world.info() == documents.ClusterInfo(("https://192.0.2.3:6443",), CA + CA, "u")
    data = world.client.objects[AT]["data"]
    assert (data["jws-kubeconfig-abcdef"], data["more"]) == ("signature", "x")
    assert world.client.objects[AT]["metadata"]["labels"] == {"mine": "y"}
    assert [call[0] for call in world.client.calls] == ["create", "update"]


@pytest.mark.parametrize("data", [{"kubeconfig": "edited"}, {}, None])
async def test_what_was_edited_is_restored(data: dict[str, str] | None):
    world = World()
    world.client.put(AT[0], AT[2], AT[1], data=data)
    world.see()
    await world.publish()
    assert world.info() == documents.ClusterInfo(SERVERS, CA, "u")


async def test_who_edits_it_is_told():
    world = World()
    # What a process finds at its start is another's, or its own of before: that is no news.
    world.client.put(AT[0], AT[2], AT[1], data={"kubeconfig": "of the last start"})
    world.see()
    await world.publish()
    world.see()
    await world.publish()
    assert not [call for call in world.client.calls if call[1] == "events"]
    for _ in range(2):
        world.client.put(AT[0], AT[2], AT[1], data={"kubeconfig": "edited: secret-words"})
        world.see()
        # It stays for a while, in which it is signed.
        assert await world.publish() == cluster_info.RESTORE_SECONDS
        await world.clock.advance(4)
        assert await world.publish() == cluster_info.RESTORE_SECONDS - 4
        await world.clock.advance(1)
        await world.publish()
        world.see()
        assert await world.publish() is None
    (event,) = [found for (plural, *_), found in world.client.objects.items() if plural == "events"]
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "ClusterInfoRestored", 2)
    assert "--advertise" in event["message"]
    assert "'*,-clusterinfo'" in event["message"]
    assert "secret-words" not in event["message"]


async def test_before_there_is_an_identifier_nothing_is_said():
    world = World()
    world.namespaces.remove(msgspec.convert({"metadata": {"name": "kube-system"}}, views.Namespace))
    assert await world.publish() is None
    assert world.client.calls == []


async def test_a_lost_race_is_for_the_loop_to_retry():
    world = World()
    world.client.put(AT[0], AT[2], AT[1], data={"kubeconfig": "old"})

    def race(verb: str, *_: str) -> None:
        if verb == "update":
            world.client.before = lambda *_: None
            world.client.put(AT[0], AT[2], AT[1], data={"kubeconfig": "old", "jws-kubeconfig-abcdef": "s"})

    world.client.before = race
    with pytest.raises(status.StatusError) as caught:
        await world.publish()
    assert caught.value.reason == "Conflict"
    await world.publish()
    assert world.client.objects[AT]["data"]["jws-kubeconfig-abcdef"] == "s"


@pytest.mark.parametrize(
    ("error", "quiet"),
    [
        (status.not_found("namespaces", "", "kube-public"), True),
        (status.forbidden("configmaps", "", "x", "unable to create: namespace kube-public is being terminated"), True),
        (status.forbidden("configmaps", "", "x", "not allowed"), False),
        (status.already_exists("configmaps", "", "x"), False),
    ],
)
async def test_a_create_that_is_refused(error: Any, quiet: bool):
    world = World()
    world.client.before = failing(error, verb="create")
    if quiet:
        await world.publish()
    else:
        with pytest.raises(status.StatusError) as caught:
            await world.publish()
        assert caught.value is error


async def test_a_binary_key_of_the_same_name_does_not_stand_in_the_way():
    world = World()
    world.client.put(AT[0], AT[2], AT[1], binaryData={"kubeconfig": "AAAA", "mine": "BBBB"})
    await world.publish()
    assert world.info().servers == SERVERS
    assert world.client.objects[AT]["binaryData"] == {"mine": "BBBB"}


async def test_an_immutable_one_is_told_of_once_and_left():
    world = World()
    world.client.put(AT[0], AT[2], AT[1], data={"kubeconfig": "old"}, immutable=True)
    world.see()
    for _ in range(2):
        assert await world.publish() == 10.0
    assert [call[:2] for call in world.client.calls] == [("create", "events")]
    assert world.client.objects[AT]["data"] == {"kubeconfig": "old"}
