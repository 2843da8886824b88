# SPDX-License-Identifier: Apache-2.0
"""The handler's corners; what slices hold is in test_slicing, and the whole story in tests/scenarios."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.api import resources, status
from handfast.client import cache, watch
from handfast.controllers.cluster import endpoint_slices, slicing
from tests.unit.controllers.cluster.test_slicing import pod, service
from tests.unit.controllers.fake_api import FakeClient


class World:
    def __init__(self, made: slicing.Service) -> None:
        self.client = FakeClient()
        self.services: cache.Informer[slicing.Service] = cache.Informer(slicing.SERVICES, slicing.BY_NAMESPACE)
        self.pods: cache.Informer[slicing.Pod] = cache.Informer(slicing.PODS, slicing.BY_NAMESPACE)
        self.slices: cache.Informer[slicing.Slice] = cache.Informer(
            watch.Source(resource=resources.ENDPOINT_SLICES, view=slicing.Slice),
            {"service": lambda item: ["/".join(endpoint_slices._service_of(item))]},
        )
        self.handler = endpoint_slices.EndpointSlices(self.client, self.services, self.pods, self.slices)
        self.services.put(made)

    def catch_up(self) -> None:
        """What the watch would tell."""
        self.slices.begin()
        for (plural, _namespace, _name), document in self.client.objects.items():
            if plural == "endpointslices":
                self.slices.put(msgspec.convert(document, slicing.Slice))
        self.slices.end()

    async def handle(self) -> None:
        await self.handler.reconcile(("ns", "web"))


async def test_a_lagging_watch_makes_no_second_slice():
    world = World(service())
    world.pods.put(pod(1))
    await world.handle()
    with pytest.raises(status.StatusError) as caught:
        await world.handle()
    assert caught.value.reason == "AlreadyExists"
    world.catch_up()
    await world.handle()
    assert len(world.client.objects) == 1


async def test_what_is_written_and_deleted():
    world = World(service(ports=[{"port": 80, "targetPort": "web"}]))
    world.pods.put(pod(1, containers=[{"ports": [{"name": "web", "containerPort": 1}]}]))
    await world.handle()
    world.catch_up()
    world.pods.put(pod(2, containers=[{"ports": [{"name": "web", "containerPort": 2}]}]))
    world.pods.remove(pod(1))
    await world.handle()
    assert [call[0] for call in world.client.calls] == ["create", "create", "delete"]
    (document,) = world.client.objects.values()
    assert document["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "name": "web",
            "uid": "service-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    # The watch lags: the deleted slice is not missed by anyone.
    gone: Any = world.client.objects.copy()
    await world.handler._delete(next(iter(world.slices)))
    assert world.client.objects == gone


async def test_left_alone():
    for made in (service(selector=None), service(type="ExternalName")):
        world = World(made)
        world.pods.put(pod(1))
        await world.handle()
        assert world.client.calls == []


async def test_a_pod_concerns_the_services_that_select_it():
    world = World(service())
    assert list(slicing.services_of(pod(1), world.services)) == [("ns", "web")]
    world.services.remove(service())
    assert list(slicing.services_of(pod(1), world.services)) == []
