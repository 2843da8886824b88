# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is."""

from __future__ import annotations

import asyncio

import pytest

from handfast.mesh.identity import turns
from tests.world.clock import settle


class Line:
    """Calls that hold their turn until they are let go, and the order in which they had it."""

    def __init__(self, **bounds: int) -> None:
        self.turns = turns.Turns(**bounds)
        self.order: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, *, is_renewal: bool = False) -> None:
        self.gates[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._call(name, is_renewal=is_renewal))
        await settle()

    async def _call(self, name: str, *, is_renewal: bool) -> None:
        async with self.turns.turn("web" if is_renewal else ""):
            self.order.append(name)
            await self.gates[name].wait()

    async def end(self, name: str) -> None:
        self.gates[name].set()
        await self.tasks[name]
        await settle()


async def test_renewals_are_next():
    line = Line(at_once=1, waiting=8)
    await line.begin("a")
    await line.begin("b")
    await line.begin("renewal", is_renewal=True)
    assert (line.order, len(line.turns)) == (["a"], 2)
    await line.end("a")
    await line.end("renewal")
    await line.end("b")
    assert line.order == ["a", "renewal", "b"]
    await line.begin("c")
    await line.end("c")


async def test_a_full_line_refuses_at_once_and_keeps_room_for_renewals():
    line = Line(at_once=1, waiting=1)
    await line.begin("a")
    await line.begin("b")
    with pytest.raises(turns.Full):
        async with line.turns.turn():
            pass
    await line.begin("renewal", is_renewal=True)
    assert len(line.turns) == 2
    for name in ("a", "renewal", "b"):
        await line.end(name)


async def test_who_goes_away_leaves_the_line_and_takes_no_turn_along():
    line = Line(at_once=1, waiting=8)
    for name in "abc":
        await line.begin(name)
    line.tasks["b"].cancel()
    await settle()
    assert len(line.turns) == 1
    # In the very moment in which the turn comes.
    line.gates["a"].set()
    await line.tasks["a"]
    line.tasks["c"].cancel()
    await settle()
    await line.begin("d")
    assert line.order[-1] == "d"
    await line.end("d")


async def test_who_goes_away_as_another_ends_takes_no_turn_along():
    line = Line(at_once=1, waiting=8)
    for name in "ab":
        await line.begin(name)
    # Both in one turn of the event loop: the wait is cancelled, and the line does not know it.
    line.gates["a"].set()
    line.tasks["b"].cancel()
    await line.tasks["a"]
    await settle()
    await line.begin("c")
    assert line.order == ["a", "c"]
    await line.end("c")
    assert len(line.turns) == 0


async def test_one_identity_does_not_hold_the_line_of_renewals():
    line = Line(at_once=2, waiting=8, of_one=1)
    # One of them is ahead of the others, and the rest are not.
    for name in ("renewal", "again", "once more"):
        await line.begin(name, is_renewal=True)
    await line.begin("new")
    await line.end("renewal")
    await line.begin("the next", is_renewal=True)
    await line.end("once more")
    await line.end("the next")
    assert line.order == ["renewal", "again", "once more", "the next", "new"]
    for name in ("again", "new"):
        await line.end(name)
    assert not line.turns._ahead
