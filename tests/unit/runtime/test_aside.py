# SPDX-License-Identifier: Apache-2.0
"""Work aside: results and errors come back, owners take turns, and too much is refused."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.runtime import aside as aside_module


@pytest.fixture
def aside() -> Iterator[aside_module.Aside]:
    made = aside_module.Aside("test")
    yield made
    made.close()


class Held:
    """A piece of work that ends when it is let go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.end = threading.Event()

    def __call__(self) -> str:
        self.began.set()
        assert self.end.wait(30)
        return threading.current_thread().name


async def test_results_and_errors_come_back_from_a_thread(aside: aside_module.Aside) -> None:
    assert await aside.run("a", divmod, 7, 2) == (3, 1)
    assert (await aside.run("a", lambda: threading.current_thread().name)).startswith("test")
    with pytest.raises(ZeroDivisionError):
        await aside.run("a", divmod, 1, 0)
    assert await aside.run("a", divmod, 1, 1) == (1, 0)


async def test_the_loop_goes_on_meanwhile(aside: aside_module.Aside) -> None:
    held = Held()
    working = asyncio.ensure_future(aside.run("a", held))
    turns = 0
    while not held.began.is_set():
        await asyncio.sleep(0)
        turns += 1
    held.end.set()
    assert (await working).startswith("test")
    assert turns


async def test_owners_take_turns(aside: aside_module.Aside) -> None:
    held = Held()
    order: list[Any] = []
    first = asyncio.ensure_future(aside.run("a", held))
    await asyncio.sleep(0)
    waiting = [
        asyncio.ensure_future(aside.run(owner, order.append, f"{owner}{index}"))
        for owner, index in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1))
    ]
    await asyncio.sleep(0)
    held.end.set()
    await asyncio.gather(first, *waiting)
    assert order == ["a1", "b1", "c1", "a2", "a3"]


async def test_what_nobody_waits_for_any_more_is_not_done(aside: aside_module.Aside) -> None:
    held = Held()
    order: list[Any] = []
    first = asyncio.ensure_future(aside.run("a", held))
    await asyncio.sleep(0)
    given_up = asyncio.ensure_future(aside.run("a", order.append, 1))
    kept = asyncio.ensure_future(aside.run("a", order.append, 2))
    await asyncio.sleep(0)
    given_up.cancel()
    first.cancel()
    await asyncio.sleep(0)
    held.end.set()
    await kept
    assert order == [2]
    assert first.cancelled()


async def test_one_owner_cannot_fill_it(aside: aside_module.Aside) -> None:
    held = Held()
    first = asyncio.ensure_future(aside.run("a", held))
    await asyncio.sleep(0)
    mine = [asyncio.ensure_future(aside.run("a", int)) for _ in range(16)]
    await asyncio.sleep(0)
    with pytest.raises(aside_module.Busy):
        await aside.run("a", int)
    # Others are not concerned. Where all of them together are too many, who has most gives way.
    others = [asyncio.ensure_future(aside.run(str(index), int)) for index in range(240)]
    await asyncio.sleep(0)
    newcomer = asyncio.ensure_future(aside.run("z", int))
    await asyncio.sleep(0)
    with pytest.raises(aside_module.Busy):
        await mine.pop()
    held.end.set()
    await asyncio.gather(first, *mine, *others, newcomer)
    assert await aside.run("a", int) == 0


async def test_where_all_have_the_same_the_newcomer_is_refused(aside: aside_module.Aside) -> None:
    held = Held()
    first = asyncio.ensure_future(aside.run("a", held))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(aside.run(str(index), int)) for index in range(256)]
    await asyncio.sleep(0)
    with pytest.raises(aside_module.Busy):
        await aside.run("z", int)
    held.end.set()
    await asyncio.gather(first, *others)


def test_threads_step_aside_soon() -> None:
    before = sys.getswitchinterval()
    try:
        aside_module.share_the_interpreter()
        assert sys.getswitchinterval() == pytest.approx(0.001)
    finally:
        sys.setswitchinterval(before)
