# SPDX-License-Identifier: Apache-2.0
"""Somebody sets the wall clock, ahead or back, under a running server: history is compacted by the time that passes, and by nothing else.

What else depends on a clock is shown where it is: Leases in tests/unit/controllers/test_leader.py, nodes in
tests/unit/controllers/cluster/test_node_lifecycle.py, Events in tests/unit/controllers/cluster/test_event_ttl.py.
"""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from handfast.apiserver.state import compaction
from tests.world import world as worlds
from tests.world.clock import MovableClock

PATH = "/api/v1/namespaces/default/configmaps"


async def exactly(world: worlds.World, version: str) -> int:
    """The status of a list as of a version."""
    params = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    return (await world.get(PATH, params=params)).status


@pytest.mark.parametrize("jump", [6 * 3600.0, -6 * 3600.0])
async def test_a_clock_that_is_set_compacts_nothing_and_holds_nothing_back(tmp_path: pathlib.Path, jump: float) -> None:
    clock = MovableClock()
    async with worlds.world(tmp_path / "d", clock=clock) as world:
        # Before that no certificate is valid.
        clock.set_wall(7 * 3600.0)
        version = (await world.create_config_map("first"))["metadata"]["resourceVersion"]
        await world.create_config_map("second")
        clock.set_wall(jump)
        await clock.advance(compaction.INTERVAL / 2)
        assert await exactly(world, version) == 200
        # Twice the interval, as at any other time: the first compaction is up to where the one before was.
        for _ in range(3):
            before = world.server.storage.compacted_at
            await clock.advance(compaction.INTERVAL)
            await world.create_config_map(f"at-{clock.monotonic():.0f}")
            # It takes the store's own time, and the next interval begins where it ends: which may be after this one's begin.
            async with asyncio.timeout(60):
                while world.server.storage.compacted_at == before:
                    await asyncio.sleep(0.01)
                    await clock.advance(1.0)
        async with asyncio.timeout(30):
            while await exactly(world, version) != 410:
                await asyncio.sleep(0.01)
