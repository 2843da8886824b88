# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from handfast.client import queue
from handfast.runtime import backoff
from tests.world.clock import MovableClock, settle

SCHEDULE = backoff.Schedule(initial=1.0, cap=4.0)


@contextlib.asynccontextmanager
async def running(*, wall: bool = False) -> AsyncIterator[tuple[queue.WorkQueue[str], MovableClock]]:
    clock = MovableClock()
    work: queue.WorkQueue[str] = queue.WorkQueue(clock=clock, schedule=SCHEDULE, random=lambda: 0.0, wall=wall)
    timer = asyncio.create_task(work.run())
    await settle()
    yield work, clock
    timer.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await timer


async def taken(work: queue.WorkQueue[str]) -> list[str]:
    """What comes out now, in order."""
    await settle()
    found = []
    while len(work):
        key = await work.get()
        work.done(key)
        found.append(key)
    return found


async def test_each_key_is_there_once_in_the_order_of_arrival():
    async with running() as (work, _):
        for key in "abacab":
            work.add(key)
        assert len(work) == 3
        assert await taken(work) == ["a", "b", "c"]


async def test_a_key_in_work_is_not_given_to_a_second_worker_but_comes_again():
    async with running() as (work, _):
        work.add("a")
        key = await work.get()
        work.add("a")
        work.add("a")
        second = asyncio.create_task(work.get())
        await settle()
        assert not second.done()
        work.done(key)
        assert await second == "a"
        work.done("a")
        assert await taken(work) == []


async def test_later_is_when_it_is_due():
    async with running() as (work, clock):
        work.add_after("slow", 10)
        work.add_after("quick", 2)
        work.add_after("now", 0)
        assert await taken(work) == ["now"]
        await clock.advance(1.9)
        assert await taken(work) == []
        await clock.advance(0.2)
        assert await taken(work) == ["quick"]
        await clock.advance(8)
        assert await taken(work) == ["slow"]


async def test_the_earliest_promise_counts():
    async with running() as (work, clock):
        work.add_after("a", 10)
        work.add_after("a", 3)
        work.add_after("a", 5)
        await clock.advance(3)
        assert await taken(work) == ["a"]
        await clock.advance(20)
        assert await taken(work) == []
        work.add_after("a", 1)
        await clock.advance(1)
        assert await taken(work) == ["a"]


async def test_retries_wait_longer_until_forgotten():
    async with running() as (work, clock):
        waits = []
        for _ in range(4):
            waits.append(work.retry("a"))
            await clock.advance(waits[-1])
            assert await taken(work) == ["a"]
        assert waits == [1, 2, 4, 4]
        work.forget("a")
        assert work.retry("a") == 1


@pytest.mark.parametrize("seconds", [7200.0, -7200.0, 1.0])
async def test_what_was_promised_is_looked_at_when_the_wall_clock_is_set(seconds: float):
    async with running(wall=True) as (work, clock):
        work.add_after("a", 3600)
        work.add_after("b", 86400)
        await settle()
        clock.set_wall(seconds)
        await clock.advance(queue._LOOK_SECONDS)
        assert await taken(work) == ["a", "b"]
        # Once; from then on the clock is right.
        work.add_after("a", 3600)
        await clock.advance(3000)
        assert await taken(work) == []
        await clock.advance(601)
        assert await taken(work) == ["a"]


async def test_small_steps_add_up():
    async with running(wall=True) as (work, clock):
        work.add_after("a", 3600)
        await settle()
        for _ in range(3):
            clock.set_wall(0.3)
            await clock.advance(queue._LOOK_SECONDS)
        assert await taken(work) == []
        clock.set_wall(0.3)
        await clock.advance(queue._LOOK_SECONDS)
        assert await taken(work) == ["a"]


async def test_what_is_promised_on_the_monotonic_clock_alone_waits():
    async with running() as (work, clock):
        work.add_after("a", 3600)
        await settle()
        clock.set_wall(86400)
        await clock.advance(3599)
        assert await taken(work) == []
        await clock.advance(2)
        assert await taken(work) == ["a"]


async def test_many_timers_cost_no_tasks():
    async with running() as (work, clock):
        for number in range(1000):
            work.add_after(f"k{number:04}", 1 + number / 1000)
        await settle()
        assert len(asyncio.all_tasks()) <= 5
        await clock.advance(1.5)
        assert len(await taken(work)) == 501
        await clock.advance(1)
        assert len(await taken(work)) == 499
