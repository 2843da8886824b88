# SPDX-License-Identifier: Apache-2.0
"""MeshWorkloads are written: which objects, how often, and what comes of failures."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from handfast.api import status
from handfast.mesh.agents import workloads
from handfast.rules.mesh import issued
from handfast.rules.mesh.observed import Observed
from handfast.runtime import tasks
from tests.unit.controllers.fake_api import failing
from tests.unit.mesh.agents.agents_world import Client
from tests.unit.rules.mesh.issued_cases import HOUR, NOW, entry
from tests.world.clock import MovableClock, settle

CERTIFICATE = issued.read(entry())
HOLDER = CERTIFICATE.holder
SEEN = Observed(identity="web", certificate=CERTIFICATE, acknowledged=1, current=1)
PATCH = ("patch", "meshworkloads", "web-1")
CREATE = ("create", "meshworkloads", "web-1")
KEY = ("meshworkloads", "shop", "web-1")


class World:
    def __init__(self) -> None:
        self.clock, self.client = MovableClock(NOW), Client()
        self.workloads = workloads.Workloads(self.client, self.clock)

    async def observe(self, seen: Observed = SEEN, **change: Any) -> None:
        self.workloads.observe(HOLDER, dataclasses.replace(seen, **change))
        await settle(30)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        async with tasks.Group("test") as group:
            group.start(self.workloads.run(), name="workloads")
            await settle()
            yield self


async def test_the_first_report_makes_the_object_and_the_next_is_written_by_and_by():
    async with World().running() as world:
        await world.observe()
        assert world.client.calls == [CREATE, PATCH]
        for number in (2, 3, 4):
            await world.observe(acknowledged=number)
        assert world.client.calls == [CREATE, PATCH]
        await world.clock.advance(11)
        assert world.client.calls == [CREATE, PATCH, PATCH]
        assert world.client.objects[KEY]["status"]["acknowledged"] == 4


async def test_the_next_certificate_is_written_at_once():
    async with World().running() as world:
        await world.observe()
        await world.observe(certificate=issued.read(entry(number=2, lives=2 * HOUR)))
        assert world.client.calls == [CREATE, PATCH, PATCH]


async def test_what_is_out_of_date_in_the_order_is_passed_over():
    async with World().running() as world:
        await world.observe()
        await world.observe(acknowledged=2)
        # Before its ten seconds are over, something comes that is due at once.
        await world.observe(certificate=issued.read(entry(number=2, lives=2 * HOUR)))
        await world.clock.advance(11)
        assert world.client.calls == [CREATE, PATCH, PATCH]
        assert (world.workloads._due, world.workloads._order, world.workloads._pending) == ({}, [], {})


async def test_the_object_of_an_earlier_pod_makes_room():
    async with World().running() as world:
        world.client.put("meshworkloads", "web-1", "shop", metadata={"ownerReferences": [{"uid": "u-0"}]})
        await world.observe()
        assert world.client.calls == [("delete", "meshworkloads", "web-1"), CREATE, PATCH]
        assert world.client.objects[KEY]["metadata"]["ownerReferences"][0]["uid"] == "u-1"


async def test_the_object_that_another_replica_made_is_used():
    async with World().running() as world:
        own = {"ownerReferences": [{"uid": "u-1"}]}

        def meanwhile(verb: str, *_: str) -> None:
            if verb == "create":
                world.client.before = lambda *_: None
                world.client.put("meshworkloads", "web-1", "shop", metadata=own)

        world.client.before = meanwhile
        await world.observe()
        assert world.client.calls == [PATCH]


async def test_an_object_that_is_gone_is_made_again():
    async with World().running() as world:
        await world.observe()
        del world.client.objects[KEY]
        await world.observe(acknowledged=2)
        await world.clock.advance(11)
        assert world.client.calls == [CREATE, PATCH, CREATE, PATCH]


async def test_what_fails_is_tried_again_with_a_later_report():
    async with World().running() as world:
        world.client.before = failing(status.forbidden("meshworkloads", "handfast.dev", "web-1", "no"), verb="create")
        await world.observe()
        await world.observe(acknowledged=2)
        world.client.before = lambda *_: None
        assert world.client.calls == []
        await world.clock.advance(11)
        assert world.client.calls == [CREATE, PATCH]


async def test_another_pods_object_that_came_meanwhile_is_left_alone():
    async with World().running() as world:

        def meanwhile(verb: str, *_: str) -> None:
            if verb == "create":
                world.client.before = lambda *_: None
                world.client.put("meshworkloads", "web-1", "shop", metadata={"ownerReferences": [{"uid": "u-9"}]})

        world.client.before = meanwhile
        await world.observe()
        assert world.client.calls == []
        assert world.client.objects[KEY]["metadata"]["ownerReferences"] == [{"uid": "u-9"}]


async def test_who_is_silent_is_forgotten():
    async with World().running() as world:
        await world.observe()
        await world.clock.advance(700)
        assert (world.workloads._written, world.workloads._objects) == ({}, {})
        assert KEY in world.client.objects
