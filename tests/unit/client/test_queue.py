# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator

from handfast.client import queue, timers
from handfast.runtime import backoff
from tests.world.clock import MovableClock, settle

SCHEDULE = backoff.Schedule(initial=1.0, cap=4.0)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[tuple[queue.WorkQueue[str], MovableClock]]:
    clock = MovableClock()
    work: queue.WorkQueue[str] = queue.WorkQueue(clock=clock, schedule=SCHEDULE, random=lambda: 0.0)
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


async def test_an_instant_is_one_of_the_wall_clock():
    async with running() as (work, clock):
        work.add_at("later", clock.now() + datetime.timedelta(hours=1))
        work.add_at("past", clock.now())
        assert await taken(work) == ["past"]
        clock.set_wall(3600)
        await clock.advance(timers.LOOK_SECONDS)
        assert await taken(work) == ["later"]
