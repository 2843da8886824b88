# SPDX-License-Identifier: Apache-2.0
"""What is due in seconds, what is due at an instant, and what becomes of either when somebody sets the wall clock."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator

import pytest

from handfast.client import timers
from tests.world.clock import MovableClock, settle


class Stage:
    """Timers that run, and what they fired."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.fired: list[str] = []
        self.timers: timers.Timers[str] = timers.Timers(self.clock, self.fired.append)

    def at(self, key: str, seconds: float) -> None:
        self.timers.at(key, self.clock.now() + datetime.timedelta(seconds=seconds))

    async def after(self, seconds: float) -> list[str]:
        """What fires in so many seconds."""
        await settle()
        await self.clock.advance(seconds)
        fired = self.fired.copy()
        self.fired.clear()
        return fired


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Stage]:
    stage = Stage()
    task = asyncio.create_task(stage.timers.run())
    await settle()
    yield stage
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_each_fires_when_its_time_has_come():
    async with running() as stage:
        stage.timers.after("slow", 10)
        stage.at("instant", 5)
        stage.timers.after("quick", 2)
        assert await stage.after(1.9) == []
        assert await stage.after(0.2) == ["quick"]
        assert await stage.after(3) == ["instant"]
        assert await stage.after(5) == ["slow"]
        assert await stage.after(3600) == []


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_what_is_past_fires_at_once(seconds: float):
    async with running() as stage:
        stage.timers.after("a", seconds)
        stage.at("b", seconds)
        stage.timers.at("c", timers.AT_ONCE)
        assert stage.fired == ["a", "b", "c"]


async def test_an_instant_at_the_end_of_time_can_be_waited_for():
    async with running() as stage:
        stage.timers.at("a", datetime.datetime.max.replace(tzinfo=datetime.UTC))
        assert await stage.after(86400) == []


async def test_a_key_has_one_timer_the_earliest():
    async with running() as stage:
        stage.timers.after("a", 10)
        stage.at("a", 3)
        stage.timers.after("a", 5)
        assert await stage.after(3) == ["a"]
        assert await stage.after(3600) == []
        stage.timers.after("a", 1)
        assert await stage.after(1) == ["a"]


@pytest.mark.parametrize("seconds", [7200.0, -7200.0, 1.0])
async def test_when_the_wall_clock_is_set_every_instant_is_looked_at_once_within_a_minute(seconds: float):
    async with running() as stage:
        stage.at("b", 86400)
        stage.at("a", 3600)
        await settle()
        stage.clock.set_wall(seconds)
        assert await stage.after(timers.LOOK_SECONDS) == ["a", "b"]
        # From then on the clock is right.
        stage.at("a", 3600)
        assert await stage.after(3000) == []
        assert await stage.after(601) == ["a"]


async def test_small_steps_of_the_wall_clock_add_up():
    async with running() as stage:
        stage.at("a", 3600)
        for _ in range(3):
            stage.clock.set_wall(0.3)
            assert await stage.after(timers.LOOK_SECONDS) == []
        stage.clock.set_wall(0.3)
        assert await stage.after(timers.LOOK_SECONDS) == ["a"]


async def test_seconds_are_counted_on_whatever_the_wall_clock_shows():
    async with running() as stage:
        stage.timers.after("a", 3600)
        stage.at("b", 7200)
        await settle()
        stage.clock.set_wall(86400)
        assert await stage.after(3599) == ["b"]
        assert await stage.after(2) == ["a"]


async def test_a_wall_clock_that_was_set_before_is_no_news():
    async with running() as stage:
        stage.clock.set_wall(86400)
        stage.at("a", 3600)
        assert await stage.after(3599) == []
        assert await stage.after(2) == ["a"]


async def test_many_timers_cost_no_tasks():
    async with running() as stage:
        for number in range(1000):
            stage.timers.after(f"k{number:04}", 1 + number / 1000)
        await settle()
        assert len(asyncio.all_tasks()) <= 5
        assert len(await stage.after(1.5)) == 501
        assert len(await stage.after(1)) == 499
