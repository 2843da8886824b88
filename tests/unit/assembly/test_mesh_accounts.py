# SPDX-License-Identifier: Apache-2.0
"""Tokens of the mesh's services: renewed in time, by a clock that may jump, and past an API server that is down."""

import asyncio
import contextlib
import json

import pytest

from handfast import errors
from handfast.assembly import mesh_accounts
from handfast.runtime import children
from tests.world.clock import MovableClock

ROLE = children.Role(name="tokens", argv=())


class World:
    """The keeper on a clock that tests move, and how often it asked."""

    def __init__(self):
        self.clock = MovableClock()
        self.asked = 0
        self.error: errors.HandfastError | None = None
        self.is_healthy = True
        self.events: list[tuple[str, str]] = []
        self.accounts = mesh_accounts.Accounts(
            ROLE, lambda level, text, **_: self.events.append((level, text)), self.healthy, self.clock
        )

    async def child(self, role):
        assert role is ROLE
        self.asked += 1
        if self.error is not None:
            raise self.error
        return json.dumps({"seconds": 3600}).encode()

    async def healthy(self):
        return self.is_healthy


@pytest.fixture
async def world(monkeypatch):
    world = World()
    monkeypatch.setattr(children, "run_once", world.child)
    await world.accounts.renew()
    task = asyncio.create_task(world.accounts.run())
    await asyncio.sleep(0)
    yield world
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_they_are_renewed_when_half_of_their_life_is_over(world):
    await world.clock.advance(1795)
    assert world.asked == 1
    await world.clock.advance(10)
    assert world.asked == 2
    await world.clock.advance(3600)
    assert world.asked == 4


@pytest.mark.parametrize("seconds", [7200, -7200])
async def test_a_clock_that_was_set_is_noticed_within_seconds(world, seconds):
    world.clock.set_wall(seconds)
    await world.clock.advance(6)
    assert world.asked == 2
    await world.clock.advance(600)
    assert world.asked == 2


async def test_while_the_api_server_is_down_it_is_told_and_tried_again(world):
    world.error = errors.Unavailable("nobody answers", reason="Unreachable")
    await world.clock.advance(1810)
    assert 2 <= world.asked <= 5
    assert set(world.events) == {("warning", "the tokens of the mesh's services were not renewed: nobody answers")}
    world.error = None
    await world.clock.advance(120)
    count = world.asked
    await world.clock.advance(1500)
    assert world.asked == count


async def test_a_service_that_stays_unready_gets_another_token_and_not_for_ever(world):
    world.is_healthy = False
    await world.clock.advance(40)
    assert world.asked == 2
    await world.clock.advance(1700)
    assert 4 <= world.asked <= 9
    world.is_healthy = True
    await world.clock.advance(10)
    count = world.asked
    await world.clock.advance(600)
    assert world.asked - count <= 1


async def test_a_service_that_is_unready_for_a_moment_changes_nothing(world):
    world.is_healthy = False
    await world.clock.advance(10)
    world.is_healthy = True
    await world.clock.advance(300)
    assert world.asked == 1
