# SPDX-License-Identifier: Apache-2.0
"""What the steps of a coroutine take is told, and nothing else about it changes; the loop's lateness is told as well."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from handfast.runtime import clock as clocks
from handfast.runtime import loop_time
from tests.world import leftovers
from tests.world.clock import MovableClock, settle

BOUND = 0.05


class Timed:
    """Coroutines on a clock that tests move, and which of their steps were told."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.told: list[tuple[str, float]] = []

    def held(self, whom: str, seconds: float) -> None:
        self.told.append((whom, round(seconds, 3)))

    async def run(self, work: Any) -> Any:
        return await loop_time.timed(work, self.clock.monotonic, BOUND, self.held, "a")


@pytest.fixture
def timed() -> Timed:
    return Timed()


async def test_each_step_is_measured_by_itself(timed: Timed) -> None:
    async def work() -> str:
        timed.clock.hold(0.04)
        await asyncio.sleep(0)
        timed.clock.hold(0.3)
        await asyncio.sleep(0)
        timed.clock.hold(0.04)
        await asyncio.sleep(0)
        timed.clock.hold(0.06)
        return "done"

    assert await timed.run(work()) == "done"
    assert timed.told == [("a", 0.3), ("a", 0.06)]


async def test_waiting_is_not_holding(timed: Timed) -> None:
    async def work() -> str:
        return await woken

    woken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(timed.run(work()))
    await settle()
    timed.clock.hold(60.0)
    woken.set_result("woken")
    assert await task == "woken"
    assert timed.told == []


async def test_a_step_that_fails_is_measured(timed: Timed) -> None:
    async def work() -> None:
        timed.clock.hold(1.0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await timed.run(work())
    assert timed.told == [("a", 1.0)]


async def test_a_cancellation_reaches_the_coroutine_and_its_cleaning_up_is_measured(timed: Timed) -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            timed.clock.hold(0.5)
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    task = asyncio.create_task(timed.run(work()))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled", "cleaned up"]
    assert timed.told == [("a", 0.5)]


async def test_a_cancellation_can_be_taken_back(timed: Timed) -> None:
    async def work() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "in time"
        return "never"

    assert await timed.run(work()) == "in time"


def test_who_is_closed_closes_the_coroutine(timed: Timed) -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            seen.append("closed")

    running = timed.run(work())
    running.send(None)
    running.close()
    assert seen == ["closed"]


async def test_an_error_from_outside_leaves_nothing_for_the_collector(timed: Timed) -> None:
    class Kept:
        pass

    async def work() -> None:
        kept = Kept()
        await asyncio.Event().wait()
        del kept

    with leftovers.without_collector(Kept) as left:
        task = asyncio.create_task(timed.run(work()))
        await settle()
        task.cancel()
        await asyncio.wait([task])
        del task
        await settle()
        assert left() == []


@pytest.mark.parametrize("caught", [False, True])
async def test_a_wait_that_failed_leaves_nothing_for_the_collector(timed: Timed, *, caught: bool) -> None:
    """What was waited for keeps its error, the error the frames it came through, and those what the work holds."""

    class Kept:
        pass

    async def waits() -> None:
        kept = Kept()
        await lost[0]
        del kept

    async def work() -> None:
        with contextlib.suppress(*[ConnectionError] * caught):
            await waits()

    with leftovers.without_collector(Kept) as left:
        lost: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future()]
        task = asyncio.create_task(timed.run(work()))
        await settle()
        assert len(left()) == 1
        lost.pop().set_exception(ConnectionError("lost"))
        await asyncio.wait([task])
        assert (task.exception() is None) == caught
        del task
        await settle()
        assert left() == []


async def test_lateness_is_what_a_sleep_took_too_long() -> None:
    clock, told = MovableClock(), []
    beating = asyncio.create_task(loop_time.lateness(clock, lambda seconds: told.append(round(seconds, 3)), every=0.1))
    await settle()
    await clock.advance(0.1)
    clock.hold(2.5)
    await clock.advance(0.0)
    await clock.advance(0.1)
    beating.cancel()
    await asyncio.wait([beating])
    assert told == [0.0, 2.4, 0.0]


async def test_the_machines_own_clock_measures_a_real_hold() -> None:
    """Nothing but that a hold is seen at all: how long it is depends on the machine."""
    told: list[float] = []
    clock = clocks.SystemClock()
    beating = asyncio.create_task(loop_time.lateness(clock, told.append, every=0.01))
    await asyncio.sleep(0)
    begun = clock.monotonic()
    while clock.monotonic() - begun < 0.06:
        pass
    while not told:
        await asyncio.sleep(0.001)
    beating.cancel()
    await asyncio.wait([beating])
    assert told[0] >= 0.04
