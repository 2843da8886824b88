# SPDX-License-Identifier: Apache-2.0
"""Who waits is handled with the others; who fails, or goes away, does so alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from handfast import errors
from handfast.runtime import batches
from tests.world.clock import settle

Batch = Sequence[batches.Waiting[str, str]]


class Stage:
    """A handler that waits at a gate, and does to each item what the item says."""

    def __init__(self) -> None:
        self.batches: batches.Batches[str, str, str] = batches.Batches(self.handle)
        self.gate = asyncio.Event()
        self.handled: list[tuple[str, list[str]]] = []

    async def handle(self, key: str, batch: Batch) -> None:
        self.handled.append((key, [waiting.item for waiting in batch]))
        await self.gate.wait()
        for waiting in batch:
            match waiting.item:
                case "bug":
                    raise ZeroDivisionError
                case "refused":
                    waiting.fail(errors.Refused("no"))
                case "down":
                    raise errors.Unavailable("not now")
                case "forgotten":
                    pass
                case item:
                    waiting.settle(item.upper())

    async def begin(self, *items: str, key: str = "k") -> list[asyncio.Task[str]]:
        tasks = [asyncio.ensure_future(self.batches.join(key, item)) for item in items]
        await asyncio.sleep(0)
        return tasks

    async def end(self, tasks: Sequence[asyncio.Task[str]]) -> list[str]:
        """What came of each: the answer, or the name of the error."""
        self.gate.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        return [outcome if isinstance(outcome, str) else type(outcome).__name__ for outcome in outcomes]


async def test_what_comes_meanwhile_is_handled_together():
    stage = Stage()
    tasks = await stage.begin("a") + await stage.begin("b", "c") + await stage.begin("x", key="other")
    assert await stage.end(tasks) == ["A", "B", "C", "X"]
    assert stage.handled == [("k", ["a"]), ("other", ["x"]), ("k", ["b", "c"])]
    assert len(stage.batches) == 0


async def test_a_refusal_is_of_one():
    stage = Stage()
    tasks = await stage.begin("a", "b", "refused", "c")
    assert await stage.end(tasks) == ["A", "B", "Refused", "C"]


async def test_a_bug_over_one_fails_that_one_only():
    stage = Stage()
    tasks = await stage.begin("a", "b", "bug", "c", "d")
    assert await stage.end(tasks) == ["A", "B", "ZeroDivisionError", "C", "D"]
    # Who was settled before is not handled again.
    assert [items for _, items in stage.handled] == [["a"], ["b", "bug", "c", "d"], ["bug"], ["c"], ["d"]]


async def test_a_bug_over_the_only_one_left_is_not_tried_again():
    stage = Stage()
    tasks = await stage.begin("a", "b", "bug")
    assert await stage.end(tasks) == ["A", "B", "ZeroDivisionError"]
    assert [items for _, items in stage.handled] == [["a"], ["b", "bug"]]


async def test_what_is_nobodys_fault_is_everybodys_answer():
    stage = Stage()
    tasks = await stage.begin("a", "b", "down", "c")
    assert await stage.end(tasks) == ["A", "B", "Unavailable", "Unavailable"]
    assert [items for _, items in stage.handled] == [["a"], ["b", "down", "c"]]


async def test_who_goes_away_takes_nobody_along():
    stage = Stage()
    first = await stage.begin("a")
    others = await stage.begin("b", "c", "d")
    first[0].cancel()
    others[1].cancel()
    await asyncio.sleep(0)
    assert await stage.end([*first, *others]) == ["CancelledError", "B", "CancelledError", "D"]
    assert stage.handled[-1] == ("k", ["b", "d"])


async def test_the_others_of_a_cancelled_batch_are_handled_in_the_next_turn():
    stage = Stage()
    first = await stage.begin("a")
    others = await stage.begin("b", "c")
    first[0].cancel()
    await settle()
    assert stage.handled[-1] == ("k", ["b", "c"])
    others[0].cancel()
    await settle()
    assert await stage.end(others) == ["CancelledError", "C"]
    assert stage.handled[-1] == ("k", ["c"])


async def test_an_item_without_an_answer_is_the_handlers_mistake():
    stage = Stage()
    stage.gate.set()
    with pytest.raises(errors.Misuse):
        await stage.batches.join("k", "forgotten")
    assert len(stage.batches) == 0
