# SPDX-License-Identifier: Apache-2.0
"""What is held for answers nobody reads: counted, bounded for each user and for all, and given back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast

import pytest
import structlog
from aiohttp import web

from handfast.api import status
from handfast.serving import answers, limits, unread
from tests.scenarios import wire
from tests.unit.serving.doors import Opener, client
from tests.world.clock import MovableClock

MIB = 1 << 20
BOUNDS = limits.Limits(unread_per_user_bytes=4 * MIB, unread_bytes=16 * MIB, write_seconds=30.0)


class Pipe:
    """A transport that keeps what is written until somebody reads."""

    def __init__(self) -> None:
        self.size = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.aborted = True


class Client:
    """One connection, and its far end."""

    def __init__(self, counted: unread.Unread, user: str = "jane") -> None:
        self._unread = counted
        self.pipe = Pipe()
        self.transport: asyncio.Transport | None = cast("asyncio.Transport", self.pipe)
        self.kept = 0
        self.user = user

    def gets(self, size: int) -> Client:
        self._unread.note(self, size)
        if not self.pipe.aborted:
            self.pipe.size += size
        return self

    def reads(self, size: int) -> None:
        self.pipe.size -= size

    @property
    def gone(self) -> bool:
        return self.pipe.aborted


def is_refused(counted: unread.Unread, user: str) -> bool:
    try:
        counted.admit(Client(counted, user))
    except status.StatusError as error:
        return (error.code, error.reason, error.retry_after) == (429, "TooManyRequests", 1)
    return False


class TestBounds:
    """One user, and all together, hold so much at most."""

    async def test_over_its_share_a_user_is_refused(self) -> None:
        counted = unread.Unread(BOUNDS, MovableClock())
        held = [Client(counted).gets(MIB) for _ in range(4)]
        assert not is_refused(counted, "jane")
        held.append(Client(counted).gets(MIB))
        assert is_refused(counted, "jane")
        assert not is_refused(counted, "joe")
        assert not any(found.gone for found in held)
        assert counted.held() == 5 * MIB

    async def test_what_is_not_read_makes_room_for_others(self) -> None:
        clock = MovableClock()
        counted = unread.Unread(BOUNDS, clock)
        idle = [Client(counted).gets(MIB) for _ in range(4)]
        reading = Client(counted).gets(MIB)
        await clock.advance(1.0)
        reading.reads(1)
        with structlog.testing.capture_logs() as logged:
            assert not is_refused(counted, "jane")
        # Down to three quarters; who reads goes on.
        assert [found.gone for found in idle] == [True, True, False, False]
        assert not reading.gone
        assert counted.given_up == 2
        assert logged == [
            {
                "event": "unread answers given up",
                "log_level": "warning",
                "reason": "NoRoom",
                "asking": "jane",
                "connections": 2,
            }
        ]

    async def test_the_longest_unread_goes_first(self) -> None:
        clock = MovableClock()
        counted = unread.Unread(BOUNDS, clock)
        held = [Client(counted).gets(MIB) for _ in range(5)]
        await clock.advance(1.0)
        held[0].reads(1)
        counted.held()
        await clock.advance(1.0)
        assert not is_refused(counted, "jane")
        assert [found.gone for found in held] == [False, True, True, False, False]

    async def test_of_all_the_largest_holder_loses(self) -> None:
        clock = MovableClock()
        counted = unread.Unread(BOUNDS, clock)
        small = [Client(counted, f"small-{number}").gets(MIB) for number in range(5)]
        large = [Client(counted, f"large-{number % 3}").gets(MIB) for number in range(12)]
        assert is_refused(counted, "somebody")
        await clock.advance(1.0)
        assert not is_refused(counted, "somebody")
        assert counted.held() == 12 * MIB
        assert not any(found.gone for found in small)
        assert sum(found.gone for found in large) == 5

    async def test_what_cannot_be_refused_has_a_bound_too(self) -> None:
        """No time passes: nobody can have read."""
        counted = unread.Unread(BOUNDS, MovableClock())
        held = [Client(counted).gets(MIB) for _ in range(50)]
        assert counted.held() <= 5 * MIB
        assert not held[-1].gone
        others = [Client(counted, f"user-{number}").gets(MIB) for number in range(50)]
        assert counted.held() <= 20 * MIB
        assert not others[-1].gone

    async def test_who_reads_makes_room(self) -> None:
        clock = MovableClock()
        counted = unread.Unread(BOUNDS, clock)
        one = Client(counted).gets(4 * MIB + 1)
        assert is_refused(counted, "jane")
        one.reads(2)
        # Not looked at so soon: that would cost a flood of refused ones nothing, and the server much.
        assert is_refused(counted, "jane")
        await clock.advance(0.1)
        assert not is_refused(counted, "jane")
        assert not one.gone

    async def test_what_is_kept_of_an_answer_counts(self) -> None:
        counted = unread.Unread(BOUNDS, MovableClock())
        one = Client(counted)
        one.kept = 5 * MIB
        one.gets(1)
        assert is_refused(counted, "jane")
        one.kept = 0
        assert counted.held() == 1

    async def test_a_connection_counts_for_whoever_asks_now(self) -> None:
        counted = unread.Unread(BOUNDS, MovableClock())
        one = Client(counted).gets(5 * MIB)
        one.user = "joe"
        one.gets(1)
        assert (is_refused(counted, "jane"), is_refused(counted, "joe")) == (False, True)

    async def test_lifted_bounds_bound_nothing(self) -> None:
        lifted = limits.Limits(lifted=True, unread_per_user_bytes=1, unread_bytes=1)
        counted = unread.Unread(lifted, MovableClock())
        assert not Client(counted).gets(MIB).gone
        assert not is_refused(counted, "jane")


class TestEnds:
    """How what is held goes: read, left, or given up."""

    async def test_who_leaves_holds_nothing(self) -> None:
        counted = unread.Unread(BOUNDS, MovableClock())
        one = Client(counted).gets(5 * MIB)
        counted.forget(one)
        counted.forget(one)
        assert counted.held() == 0
        assert not is_refused(counted, "jane")
        one.transport = None
        one.gets(MIB)
        assert counted.held() == 0

    async def test_what_nobody_waits_for_is_given_up_in_time(self) -> None:
        clock = MovableClock()
        counted = unread.Unread(BOUNDS, clock)
        one, other, read = (Client(counted).gets(100) for _ in range(3))
        read.reads(100)
        await clock.advance(29.0)
        other.reads(1)
        counted.review()
        assert not one.gone
        await clock.advance(1.0)
        with structlog.testing.capture_logs() as logged:
            counted.review()
        assert (one.gone, other.gone, read.gone, counted.held()) == (True, False, False, 99)
        assert [(line["reason"], line["connections"]) for line in logged] == [("UnreadForLong", 1)]

    async def test_it_looks_by_itself_and_stops_when_nothing_is_left(self) -> None:
        clock = MovableClock()
        counted = unread.Unread(limits.Limits(write_seconds=0.02), clock)
        one = Client(counted).gets(1)
        await clock.advance(1.0)
        async with asyncio.timeout(5):
            while not one.gone or counted._timer is not None:
                await asyncio.sleep(0.005)
        counted.close()
        other = Client(counted).gets(1)
        counted.close()
        await clock.advance(1.0)
        await asyncio.sleep(0.1)
        assert not other.gone, "nobody looks any more"

    @pytest.mark.parametrize(("size", "times"), [(unread.RETURN_BYTES, 2), (unread.RETURN_BYTES - 1, 0)])
    async def test_memory_goes_back_at_two_looks_when_much_was_held(self, size: int, times: int) -> None:
        returned: list[int] = []
        counted = unread.Unread(limits.Limits(), MovableClock(), lambda: returned.append(1))
        one = Client(counted).gets(size)
        counted.review()
        counted.forget(one)
        for _ in range(3):
            counted.review()
        # The pool's threads have done what they were given before.
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        await asyncio.sleep(0.05)
        assert len(returned) == times
        counted.close()


def _asked(count: int) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * count


async def _opened(stack: contextlib.AsyncExitStack, opened: object, sent: bytes) -> wire.Line:
    line = await stack.enter_async_context(opened.line(client()))  # type: ignore[attr-defined]
    await line.send(sent)
    return cast("wire.Line", line)


@pytest.mark.parametrize(("size", "each"), [(64 << 10, 400), (12 << 10, 2000), (32 << 20, 1)])
async def test_small_answers_count_in_sum(door: Opener, size: int, each: int) -> None:
    """1. On real connections, whatever the size of an answer; what the kernel took is not ours."""

    async def handler(_http: web.BaseRequest) -> answers.Response:
        return answers.Answer(b"x" * size)

    bounds = limits.Limits(lifted=True)
    async with door(bounds, handler) as opened, contextlib.AsyncExitStack() as stack:
        lines = [await _opened(stack, opened, _asked(each)) for _ in range(4)]
        async with asyncio.timeout(10):
            while opened.listener.unread.held() < 4 * (64 << 10):
                await asyncio.sleep(0.01)
        for line in lines:
            line.close()
        async with asyncio.timeout(10):
            while opened.listener.connections:
                await asyncio.sleep(0.01)
        assert opened.listener.unread.held() == 0
