# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.runtime import tasks
from tests.world.clock import MovableClock, settle


async def forever(log: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append(name)


async def test_wait_returns_when_all_are_done():
    done: list[str] = []

    async def work(name: str, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        done.append(name)

    async with tasks.Group("g") as group:
        group.start(work("a", 1), name="a")
        group.start(work("b", 5), name="b")
        await group.wait()
        assert done == ["a", "b"]
        await group.wait()


async def test_a_crash_ends_the_group_and_is_logged():
    log: list[str] = []

    async def crash() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("broken")

    async def together() -> None:
        async with tasks.Group("g") as group:
            group.start(forever(log, "other"), name="other")
            group.start(crash(), name="crash")
            await group.wait()

    with capture_logs() as lines, pytest.raises(RuntimeError, match="broken"):
        await together()
    assert log == ["other"]
    assert [line["task"] for line in lines] == ["g/crash"]


@pytest.mark.parametrize("family", [errors.Refused, errors.Unavailable])
async def test_what_says_itself_what_is_wrong_has_no_traceback(family: type[errors.HandfastError]):
    async def give_up() -> None:
        raise family("no certificate within 300 seconds", reason="BootstrapTimeout")

    async def together() -> None:
        async with tasks.Group("node") as group:
            group.start(give_up(), name="identity")
            await group.wait()

    with capture_logs() as lines, pytest.raises(family):
        await together()
    (line,) = lines
    assert "exc_info" not in line
    assert (line["event"], line["task"], line["reason"]) == ("task failed", "node/identity", "BootstrapTimeout")


async def test_a_crash_before_wait_is_not_lost():
    async def crash() -> None:
        raise RuntimeError("early")

    with capture_logs():
        group = tasks.Group("g")
        group.start(crash(), name="crash")
        await settle()
        with pytest.raises(RuntimeError, match="early"):
            await group.wait()


async def test_stop_goes_from_the_newest_to_the_oldest():
    log: list[str] = []
    group = tasks.Group("g")
    for name in ("first", "second", "third"):
        group.start(forever(log, name), name=name)
    await settle()
    await group.stop(timeout=1)
    assert log == ["third", "second", "first"]
    await group.wait()


async def test_what_does_not_stop_is_named():
    release = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()

    group = tasks.Group("g")
    task = group.start(stubborn(), name="stubborn")
    await settle()
    with capture_logs() as lines:
        await group.stop(timeout=0.01)
    assert lines[0]["tasks"] == ["g/stubborn"]
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_end_lets_wait_return():
    log: list[str] = []
    async with tasks.Group("g") as group:
        group.start(forever(log, "other"), name="other")
        group.end()
        await group.wait()
    # It was cancelled before its first step.
    assert log == []


async def test_waiting_for_an_event_or_for_time():
    clock, event = MovableClock(), asyncio.Event()
    waiting = asyncio.create_task(tasks.wait_for_event(event, clock, 5))
    await settle()
    await clock.advance(5)
    assert await waiting is False
    waiting = asyncio.create_task(tasks.wait_for_event(event, clock, 5))
    await settle()
    event.set()
    assert await waiting is True
    assert await tasks.wait_for_event(event, clock, 5) is True


async def test_waiting_can_be_cancelled():
    waiting = asyncio.create_task(tasks.wait_for_event(asyncio.Event(), MovableClock(), 5))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(asyncio.all_tasks()) == 1


async def test_a_deadline_gives_up_quietly():
    done = False
    async with tasks.deadline(0.01):
        await asyncio.Event().wait()
        done = True
    assert not done
