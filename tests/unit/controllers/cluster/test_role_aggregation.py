# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.api import status
from handfast.client import cache
from handfast.controllers import loop
from handfast.controllers.cluster import role_aggregation
from tests.unit.controllers.fake_api import FakeClient
from tests.world import clock as clocks

SELECTOR = {"clusterRoleSelectors": [{"matchLabels": {"into": "sum"}}]}


def rule(verb: str) -> dict[str, Any]:
    return {"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}


class World:
    def __init__(self) -> None:
        self.client = FakeClient()
        self.roles: cache.Informer[role_aggregation.ClusterRole] = cache.Informer(
            role_aggregation.SOURCE, role_aggregation.INDEXES
        )
        self.handler = role_aggregation.RoleAggregation(self.client, self.roles)

    def role(self, name: str, *verbs: str, seen: bool = True, **more: Any) -> None:
        """Have a ClusterRole there, and let the watch tell of it."""
        document = self.client.put("clusterroles", name, rules=[rule(verb) for verb in verbs], **more)
        if seen:
            self.roles.put(msgspec.convert(document, role_aggregation.ClusterRole))

    def verbs(self, name: str) -> list[str]:
        rules = self.client.objects["clusterroles", "", name]["rules"]
        return [verb for rule in rules for verb in rule["verbs"]]


@pytest.fixture
def world() -> World:
    made = World()
    made.role("b", "list", metadata={"labels": {"into": "sum"}})
    made.role("a", "get", metadata={"labels": {"into": "sum"}})
    made.role("c", "delete")
    return made


async def test_rules_are_gathered(world: World):
    world.role("sum", aggregationRule=SELECTOR, metadata={"labels": {"keep": "me"}})
    await world.handler.reconcile("sum")
    assert world.verbs("sum") == ["get", "list"]
    kept = world.client.objects["clusterroles", "", "sum"]
    assert kept["aggregationRule"] == SELECTOR
    assert kept["metadata"]["labels"] == {"keep": "me"}


async def test_extra_rules_are_removed_and_right_ones_left_alone(world: World):
    world.role("sum", "get", "list", "own", aggregationRule=SELECTOR)
    await world.handler.reconcile("sum")
    assert world.verbs("sum") == ["get", "list"]
    # The watch has not told yet: what is there is right, and is not written again.
    await world.handler.reconcile("sum")
    world.role("sum", "get", "list", aggregationRule=SELECTOR)
    await world.handler.reconcile("sum")
    assert world.client.calls == [("update", "clusterroles", "sum")]


async def test_what_is_not_aggregated_is_not_touched(world: World):
    world.role("going", aggregationRule=SELECTOR, metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})
    for name in ("a", "going", "unknown"):
        await world.handler.reconcile(name)
    assert world.client.calls == []


async def test_the_watch_may_be_behind(world: World):
    world.role("sum", aggregationRule=SELECTOR)
    world.role("sum", "own", seen=False)
    await world.handler.reconcile("sum")
    del world.client.objects["clusterroles", "", "sum"]
    await world.handler.reconcile("sum")
    assert world.client.calls == []


async def test_a_lost_race_is_told(world: World):
    world.role("sum", aggregationRule=SELECTOR)

    def faster(verb: str, plural: str, name: str) -> None:
        if verb == "update":
            world.role("sum", "other", aggregationRule=SELECTOR)

    world.client.before = faster
    with pytest.raises(status.StatusError, match="modified"):
        await world.handler.reconcile("sum")


async def test_a_change_concerns_every_aggregated_role(world: World):
    clock = clocks.MovableClock()
    informers = cache.Informers(world.client, clock)
    controller = role_aggregation.build(loop.Context(client=world.client, informers=informers, clock=clock))
    roles = informers.get(role_aggregation.SOURCE, role_aggregation.INDEXES)

    def tell(name: str, **more: Any) -> None:
        roles.put(msgspec.convert({"metadata": {"name": name}, **more}, role_aggregation.ClusterRole))

    tell("sum", aggregationRule=SELECTOR)
    assert len(controller.queue) == 1
    tell("plain")
    tell("total", aggregationRule=SELECTOR)
    found = set()
    while len(controller.queue):
        key = await controller.queue.get()
        controller.queue.done(key)
        found.add(key)
    assert found == {"plain", "sum", "total"}
    tell("other")
    assert len(controller.queue) == 3
