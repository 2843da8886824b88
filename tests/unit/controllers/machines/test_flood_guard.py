# SPDX-License-Identifier: Apache-2.0
"""What a flood does to the others: nothing, and it costs them nothing."""

from __future__ import annotations

import pytest

from handfast.controllers.machines import flood_guard
from handfast.pki import keys
from handfast.rules.machines import pressure
from tests.unit.controllers.machines.machine_world import World
from tests.world.clock import MovableClock

JUNK = 10_000
HOURS_2 = 7200


async def test_it_counts_and_parks_and_lets_go() -> None:
    clock = MovableClock()
    guard = flood_guard.Guard(clock, lambda: pressure.limit(3, 2))
    for number in range(103):
        guard.pending.put(f"r{number}", f"n{number}", "s", clock.now())
    # As many as the limit may wait; one more is too many.
    assert not guard.is_over()
    guard.pending.put("last", "last", "s", clock.now())
    assert guard.is_over()
    guard.parked.add("last")
    guard.is_told = True
    assert (guard.next_look() - clock.now()).total_seconds() == 3600
    guard.forget("r0")
    assert (guard.released(), guard.parked, guard.is_told) == ({"last"}, set(), False)
    # Where nothing counts it is looked at soon.
    empty = flood_guard.Guard(clock, lambda: 0)
    assert (empty.next_look() - clock.now()).total_seconds() == 30


async def junk(world: World, count: int) -> None:
    """Requests for names that no Machine has, judged."""
    for number in range(count):
        world.ask(f"junk-{number}", node=f"ghost-{number}")
        await world.handler.reconcile(f"junk-{number}")


EDGES = {-10: False, -9: True, 0: True, HOURS_2 - 1: True, HOURS_2: False}


@pytest.mark.slow
@pytest.mark.parametrize("flood", [0, JUNK])
async def test_two_hundred_machines_at_the_edges_of_the_window(flood: int) -> None:
    """Every honest one is approved, and no other."""
    world = World()
    await junk(world, flood)
    expected = {}
    for number in range(200):
        offset, approved = list(EDGES.items())[number % len(EDGES)]
        name = f"w{number}"
        world.machine(name)
        world.ask(name, node=name, after=offset, key=keys.generate(keys.Kind.P256))
        # And somebody else, with another key for the same Machine.
        world.ask(f"{name}-second", node=name, after=offset, key=keys.generate(keys.Kind.P256))
        await world.handler.reconcile(name)
        world.watched(world.stored_machine(name))
        await world.handler.reconcile(f"{name}-second")
        expected[name] = approved
    assert {name: bool(world.conditions(name)) for name in expected} == expected
    assert [name for name in expected if world.conditions(f"{name}-second")] == []
    assert [number for number in range(flood) if world.conditions(f"junk-{number}")] == []
