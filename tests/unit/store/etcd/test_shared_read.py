# SPDX-License-Identifier: Apache-2.0
"""One question in flight: nobody gets an answer to one that began before the call."""

from __future__ import annotations

import asyncio

import pytest

from handfast.store import protocol
from handfast.store.etcd import shared_read


class Script:
    """Answers when the test says so, with the number of the question."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.fails = False

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        await self.gate.wait()
        if self.fails:
            raise protocol.StoreUnavailable("no answer")
        return number


async def test_who_asks_during_a_question_waits_for_the_next() -> None:
    script = Script()
    shared = shared_read.SharedRead(script.ask)
    first = [asyncio.ensure_future(shared.get()) for _ in range(10)]
    while not script.asked:
        await asyncio.sleep(0)
    second = [asyncio.ensure_future(shared.get()) for _ in range(10)]
    await asyncio.sleep(0)
    script.gate.set()
    assert await asyncio.gather(*first) == [1] * 10
    assert await asyncio.gather(*second) == [2] * 10
    assert script.asked == 2
    await shared.stop()


async def test_a_failure_is_everybodys_and_the_next_question_is_asked() -> None:
    script = Script()
    script.gate.set()
    script.fails = True
    shared = shared_read.SharedRead(script.ask)
    for answer in await asyncio.gather(*(shared.get() for _ in range(3)), return_exceptions=True):
        assert isinstance(answer, protocol.StoreUnavailable)
    script.fails = False
    assert await shared.get() == 2
    await shared.stop()


async def test_who_gives_up_takes_no_answer_from_others() -> None:
    script = Script()
    shared = shared_read.SharedRead(script.ask)
    one, other = (asyncio.ensure_future(shared.get()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    script.gate.set()
    assert await other == 1
    with pytest.raises(asyncio.CancelledError):
        await one
    await shared.stop()


async def test_stopping_leaves_nobody_waiting() -> None:
    script = Script()
    shared = shared_read.SharedRead(script.ask)
    waiting = asyncio.ensure_future(shared.get())
    while not script.asked:
        await asyncio.sleep(0)
    later = asyncio.ensure_future(shared.get())
    await asyncio.sleep(0)
    await shared.stop()
    for each in (waiting, later):
        with pytest.raises(protocol.StoreUnavailable):
            await each
