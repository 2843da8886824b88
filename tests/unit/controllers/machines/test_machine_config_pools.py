# SPDX-License-Identifier: Apache-2.0
"""Nodes are written at the version that they were judged in, and a late watch sends nobody twice. Who is sent is tested with the rules."""

from __future__ import annotations

import pytest

from handfast.api import status
from handfast.controllers.machines import machine_config_pools, pool_views
from handfast.rules.machine_config import names
from tests.unit.controllers.machines import pool_world


class World(pool_world.World):
    """The controller, whose queue a test empties."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = machine_config_pools.build(self.context)

    async def look(self, name: str = "worker") -> float | None:
        """A look at the pool, and at the Nodes that it chose."""
        again = await self.controller._reconcile(("pool", name))
        for kind, node in list(self.controller.queue._queued):
            if kind == "node":
                await self.controller._reconcile((kind, node))
        assert again is None or isinstance(again, float)
        return again

    async def later(self, name: str = "worker") -> None:
        """… when its time has come, and the watch has told of what was written there."""
        await self.clock.advance(1)
        if self.pools.get("", name) is not None:
            self.tell("machineconfigpools", name)
        assert await self.look(name) is None


def begun(**spec: object) -> World:
    world = World()
    world.pool(**spec)  # type: ignore[arg-type]
    world.rendering("v1")
    for name in ("w1", "w2", "w3"):
        world.node(name)
    return world


async def test_one_node_is_sent_and_the_next_when_it_is_done() -> None:
    world = begun()
    await world.look()
    assert [world.desired(name) for name in ("w1", "w2", "w3")] == ["v1", "v0", "v0"]
    world.node("w1", "v1", "v1")
    await world.later()
    assert [world.desired(name) for name in ("w1", "w2", "w3")] == ["v1", "v1", "v0"]


async def test_a_late_watch_sends_nobody_in_place_of_who_was_sent() -> None:
    world = begun()
    await world.look()
    # The watch has not told of w1 yet; and w0, which comes before it, joins.
    world.node("w0")
    await world.later()
    assert world.written("nodes") == ["w1"]
    # Once it has told, it counts for itself.
    world.tell("nodes", "w1")
    await world.later()
    assert world.written("nodes") == ["w1"]
    world.node("w1", "v1", "v1")
    await world.later()
    assert world.written("nodes") == ["w1", "w0"]


async def test_a_node_that_has_changed_since_is_not_written_and_counts_as_chosen() -> None:
    world = begun()
    world.client.put("nodes", "w1", metadata={"annotations": {}})
    with pytest.raises(status.StatusError) as refused:
        await world.look()
    assert refused.value.reason == "Conflict"
    await world.clock.advance(1)
    world.tell("machineconfigpools", "worker")
    await world.controller._reconcile(("pool", "worker"))
    assert world.controller.queue._queued == {("pool", "worker"), ("node", "w1")}
    assert world.written("nodes") == []
    world.node("w1")
    await world.controller._reconcile(("node", "w1"))
    assert world.written("nodes") == ["w1"]


@pytest.mark.parametrize("spec", [{"paused": True}, {"target": "v2"}])
async def test_a_pool_that_was_paused_or_goes_elsewhere_sends_nobody_any_more(spec: dict[str, object]) -> None:
    world = begun()
    await world.controller._reconcile(("pool", "worker"))
    world.pool(**spec)  # type: ignore[arg-type]
    await world.controller._reconcile(("node", "w1"))
    assert world.written("nodes") == []


async def test_who_has_got_there_meanwhile_is_not_written() -> None:
    world = begun()
    await world.controller._reconcile(("pool", "worker"))
    world.node("w1", "v0", "v1")
    await world.controller._reconcile(("node", "w1"))
    assert world.written("nodes") == []


async def test_who_is_gone_or_was_not_chosen_is_not_written() -> None:
    world = begun()
    await world.controller._reconcile(("pool", "worker"))
    world.nodes.remove(next(item for item in world.nodes if item.metadata.name == "w1"))
    for name in ("w1", "w3"):
        await world.controller._reconcile(("node", name))
    assert world.written("nodes") == []
    # … and one that is gone from the server alone.
    world = begun()
    del world.client.objects["nodes", "", "w1"]
    await world.look()
    assert world.written("nodes") == []


async def test_a_pool_is_looked_at_once_a_second() -> None:
    world = begun()
    assert await world.look() is None
    world.node("w1", "v1", "v1")
    assert await world.look() == 1.0
    assert world.written("machineconfigpools") == ["worker"]
    await world.later()
    assert world.written("machineconfigpools") == ["worker", "worker"]


async def test_nobody_is_sent_to_a_rendering_that_is_not_there() -> None:
    world = World()
    world.pool()
    world.node("w1")
    await world.look()
    assert world.written("nodes") == []
    # Its coming is told.
    world.rendering("v1")
    assert ("pool", "worker") in world.controller.queue._queued
    await world.later()
    assert world.written("nodes") == ["w1"]


async def test_nobody_is_sent_to_a_rendering_of_another_pool() -> None:
    world = World()
    world.pool(target="m1")
    world.rendering("m1", owner="master")
    world.node("w1")
    await world.look()
    assert world.written("nodes") == []


async def test_a_rendering_that_is_gone_is_like_no_other() -> None:
    world = begun()
    world.rendering("v0", "v1")
    world.configs.remove(next(item for item in world.configs if item.metadata.name == "v0"))
    world.configs.put(pool_views.Config())
    await world.look()
    assert world.written("nodes") == ["w1"]


async def test_a_new_credential_is_one_write_for_each_node() -> None:
    world = begun()
    world.rendering("v0", "v1")
    for number in range(300):
        world.node(f"n{number}")
    await world.look()
    assert len(world.written("nodes")) == 303
    for name in ("w1", "n7"):
        world.tell("nodes", name)
    await world.later()
    assert len(world.written("nodes")) == 303


async def test_max_unavailable_that_cannot_be_read_is_told_once() -> None:
    world = begun(maxUnavailable="50 percent")
    await world.look()
    await world.later()
    assert world.written("nodes") == []
    assert world.told_of() == ["MaxUnavailableRefused"]
    assert "'50 percent'" in world.condition("Degraded")["message"]
    # Corrected, and wrong again: that is told anew.
    world.pool(maxUnavailable=2)
    await world.later()
    world.pool(maxUnavailable="x")
    await world.later()
    assert world.told_of() == ["MaxUnavailableRefused", "MaxUnavailableRefused"]


async def test_the_status_is_written_when_it_differs() -> None:
    world = begun()
    world.node("w1", "v1", "v1")
    world.node("w2", "v1", "v1")
    world.node("w3", "v1", "v1")
    await world.look()
    await world.later()
    await world.later()
    assert world.written("machineconfigpools") == ["worker"]
    assert world.status()["configuration"] == {"name": "v1"}
    assert world.told_of() == ["Completed"]


async def test_a_pool_that_is_gone_is_forgotten() -> None:
    world = begun()
    await world.look()
    world.pools.remove(next(iter(world.pools)))
    assert [world.controller.queue._queued] != []
    await world.later()
    await world.later()
    world.node("w2", "v0", "v1")
    assert world.written("machineconfigpools") == ["worker"]


async def test_a_node_that_moves_is_in_its_new_pool_and_no_longer_in_the_old_one() -> None:
    world = begun()
    world.pool("infra", "i1")
    world.rendering("i1", owner="infra")
    world.node("w3", "v1", "v1", role="infra")
    await world.look("infra")
    await world.look()
    assert (world.status("infra")["machineCount"], world.status()["machineCount"]) == (1, 2)
    world.nodes.remove(next(item for item in world.nodes if item.metadata.name == "w3"))
    await world.later("infra")
    assert world.status("infra")["machineCount"] == 0


async def test_a_heartbeat_has_no_pool_looked_at() -> None:
    world = begun()
    await world.look()
    world.controller.queue._queued.clear()
    world.client.objects["nodes", "", "w2"]["metadata"]["resourceVersion"] = "900"
    world.tell("nodes", "w2")
    assert not world.controller.queue._queued
    # … but who is written next is written at its last version.
    world.node("w1", "v1", "v1")
    await world.later()
    assert world.desired("w2") == "v1"
    assert world.client.objects["nodes", "", "w2"]["metadata"]["annotations"][names.AGENT] == "v1"


async def test_a_node_that_two_pools_select_is_in_none() -> None:
    world = World()
    for name in ("one", "two"):
        world.pool(name, "v1", nodeSelector={"matchLabels": {"role/worker": ""}})
    world.node("w1")
    world.client.objects["nodes", "", "w1"]["metadata"]["resourceVersion"] = "901"
    world.tell("nodes", "w1")
    await world.look("one")
    assert world.status("one")["machineCount"] == 0
