# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import datetime
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import prometheus_client
import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.api import status
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop
from tests.world.clock import MovableClock, settle

SOURCE = watch.Source(resource=api.Resource("", "v1", "things", True), view=partial.Partial)


def thing(name: str, version: int = 1) -> partial.Partial:
    return partial.Partial(metadata=partial.Meta(name=name, namespace="ns", resource_version=str(version)))


class Running:
    """A controller at work on an informer that tests fill by hand."""

    def __init__(self, reconcile: Callable[[str], Awaitable[loop.Again]], workers: int = 1) -> None:
        self.clock = MovableClock()
        self.informer: cache.Informer[partial.Partial] = cache.Informer(SOURCE)
        self.controller: loop.Controller[str] = loop.Controller("test", reconcile, clock=self.clock, workers=workers)
        self.controller.watches(self.informer, lambda item: [item.metadata.name])

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Running]:
        task = asyncio.create_task(self.controller.run())
        await settle()
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def sync(self, *names: str) -> None:
        self.informer.begin()
        for name in names:
            self.informer.put(thing(name))
        self.informer.end()
        await settle(20)


def counted(result: str) -> float:
    sample = prometheus_client.REGISTRY.get_sample_value(
        "handfast_controller_reconciles_total", {"controller": "test", "result": result}
    )
    return sample or 0.0


async def test_nothing_is_handled_before_all_is_known():
    handled: list[str] = []

    async def reconcile(key: str) -> None:
        handled.append(key)

    async with Running(reconcile)() as running:
        running.informer.begin()
        running.informer.put(thing("a"))
        await settle(20)
        assert (handled, running.controller.ready) == ([], False)
        running.informer.end()
        await settle(20)
        assert (handled, running.controller.ready) == (["a"], True)
        running.informer.put(thing("b"))
        running.informer.put(thing("b", 2))
        running.informer.remove(thing("a", 3))
        await settle(20)
        assert handled == ["a", "b", "a"]


async def test_a_change_that_makes_no_difference_is_not_handled():
    handled: list[str] = []

    async def reconcile(key: str) -> None:
        handled.append(key)

    running = Running(reconcile)
    quiet: cache.Informer[partial.Partial] = cache.Informer(SOURCE)
    running.controller.watches(quiet, lambda item: [item.metadata.name], unless=lambda old, _new: old is not None)
    async with running():
        await running.sync()
        quiet.begin()
        quiet.put(thing("a"))
        quiet.end()
        await settle(20)
        quiet.put(thing("a", 2))
        await settle(20)
        assert handled == ["a"]


async def test_a_failure_is_tried_again_later_each_time_and_counted():
    attempts: list[float] = []
    before = counted("error")

    async def reconcile(_key: str) -> None:
        attempts.append(running.clock.monotonic())
        if len(attempts) < 4:
            raise errors.Unavailable("no server", reason="Unreachable")

    running = Running(reconcile)
    with capture_logs() as lines:
        async with running():
            await running.sync("a")
            for _ in range(100):
                await running.clock.advance(0.02)
    assert len(attempts) == 4
    gaps = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert gaps == sorted(gaps)
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [(line["item"], line["reason"], line["error"]) for line in warnings] == [
        ("a", "Unreachable", "no server")
    ] * 3
    assert [line["event"] for line in lines if line["log_level"] == "debug"] == ["reconciled"]
    assert counted("error") - before == 3


@pytest.mark.parametrize("error", [status.conflict("things", "", "a"), loop.NotYet("wait")])
async def test_lost_races_and_waiting_are_no_reason_to_shout(error: errors.HandfastError):
    attempts = 0

    async def reconcile(_key: str) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise error

    running = Running(reconcile)
    with capture_logs() as lines:
        async with running():
            await running.sync("a")
            await running.clock.advance(1)
    assert attempts == 2
    assert {line["log_level"] for line in lines} == {"debug"}


async def test_a_bug_over_one_key_does_not_stop_the_others():
    handled: list[str] = []

    async def reconcile(key: str) -> None:
        if key == "bad":
            raise ZeroDivisionError
        handled.append(key)

    running = Running(reconcile)
    with capture_logs() as lines:
        async with running():
            await running.sync("bad", "good")
    assert handled == ["good"]
    (warning,) = [line for line in lines if line["log_level"] == "warning"]
    assert isinstance(warning["exc_info"], ZeroDivisionError)


async def test_a_handler_may_ask_to_be_called_again():
    handled: list[float] = []

    async def reconcile(_key: str) -> float | None:
        handled.append(running.clock.monotonic())
        return 60.0 if len(handled) < 3 else None

    running = Running(reconcile)
    async with running():
        await running.sync("a")
        for _ in range(5):
            await running.clock.advance(60)
    assert handled == [0, 60, 120]


async def test_a_handler_may_ask_to_be_called_at_an_instant():
    handled: list[float] = []

    async def reconcile(_key: str) -> datetime.datetime | None:
        handled.append(running.clock.monotonic())
        return running.clock.now() + datetime.timedelta(hours=1) if len(handled) < 3 else None

    running = Running(reconcile)
    async with running():
        await running.sync("a")
        await running.clock.advance(3600)
        # Somebody sets the clock: the handler looks within a minute.
        running.clock.set_wall(3600)
        await running.clock.advance(60)
        await running.clock.advance(7200)
    assert handled == [0, 3600, 3660]


async def test_workers_work_side_by_side_but_never_on_the_same_key():
    active: list[str] = []
    most = 0
    gate = asyncio.Event()

    async def reconcile(key: str) -> None:
        nonlocal most
        assert key not in active
        active.append(key)
        most = max(most, len(active))
        await gate.wait()
        active.remove(key)

    async with Running(reconcile, workers=3)() as running:
        await running.sync("a", "b", "c", "d")
        running.informer.put(thing("a", 2))
        await settle(20)
        assert most == 3
        depth = prometheus_client.REGISTRY.get_sample_value("handfast_controller_queue_depth", {"controller": "test"})
        assert depth == 2
        gate.set()
        await settle(20)
        assert len(running.controller.queue) == 0
