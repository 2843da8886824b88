# SPDX-License-Identifier: Apache-2.0
"""When a process is called dead, and, above all, when it is not."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

from handfast.runtime import addresses, tls, watchdog
from tests.world.clock import MovableClock, settle

PATIENCE = watchdog.Patience()
ALIVE = (watchdog.Sign.LIFE, "")
SILENT = (watchdog.Sign.TROUBLE, "nothing came within 10 s")
UNKNOWN = (watchdog.Sign.NOTHING, "it cannot be asked")


class Story:
    """What a process answers, question by question, on a clock that is moved; then it is silent for ever."""

    def __init__(self, answers: Sequence[watchdog.Finding | float], state: str = "S") -> None:
        self.clock = MovableClock()
        self.state = state
        self._answers = list(answers)
        self.asked = 0
        self.dead: str | None = None

    async def ask(self) -> watchdog.Finding:
        self.asked += 1
        found = self._answers.pop(0) if self._answers else SILENT
        if isinstance(found, float):
            # The asker itself was not there for so long.
            self.clock.hold(found)
            found = SILENT
        await self.clock.sleep(PATIENCE.answer if found is SILENT else 0.01)
        return found

    async def passes(self, seconds: float) -> None:
        """Let time pass, or until it is called dead."""
        watching = asyncio.create_task(watchdog.watch(self.ask, lambda: self.state, self.clock, PATIENCE))
        await settle()
        for _ in range(int(seconds)):
            await self.clock.advance(1.0)
            if watching.done():
                self.dead = watching.result()
                return
        watching.cancel()
        await asyncio.wait([watching])


async def test_one_that_falls_silent_is_dead_within_a_minute() -> None:
    story = Story([ALIVE])
    await story.passes(61)
    assert story.dead == "/livez was not answered 3 times in a row, for 60 s: nothing came within 10 s; it sleeps"
    assert story.clock.monotonic() <= 61


async def test_the_kernel_says_that_it_is_stopped() -> None:
    story = Story([ALIVE], state="T")
    await story.passes(120)
    assert story.dead is not None
    assert story.dead.endswith("; it is stopped (SIGSTOP)")


async def test_a_state_that_nobody_knows_is_not_told() -> None:
    story = Story([ALIVE], state="")
    await story.passes(120)
    assert str(story.dead).endswith(": nothing came within 10 s")


async def test_one_answer_begins_the_count_anew() -> None:
    story = Story([ALIVE, SILENT, SILENT, ALIVE] * 100)
    await story.passes(3000)
    assert story.dead is None


async def test_a_long_start_is_no_silence() -> None:
    """A large store is read for minutes, in which nobody is answered."""
    story = Story([SILENT] * 40 + [ALIVE])
    await story.passes(480)
    assert (story.dead, story.asked > 40) == (None, True)


async def test_a_start_that_never_ends_is_one() -> None:
    story = Story([])
    await story.passes(1000)
    assert story.dead == "/livez was not answered within 600 s of its start: nothing came within 10 s; it sleeps"
    assert story.clock.monotonic() < 630


async def test_what_serves_is_watched_soon() -> None:
    """Until the first answer the pauses are short: else one that falls silent right after it would be in its start."""
    story = Story([(watchdog.Sign.TROUBLE, "nobody listens")] * 5 + [ALIVE])
    await story.passes(8)
    assert story.asked >= 6


@pytest.mark.parametrize("away", [60.0, 3600.0, 7 * 86400.0])
async def test_time_in_which_the_asker_was_not_there_counts_for_nothing(away: float) -> None:
    """It was stopped, or the machine: whoever wakes first finds the others silent."""
    story = Story([ALIVE, SILENT, SILENT, away, SILENT, SILENT, ALIVE])
    await story.passes(150)
    assert story.dead is None


async def test_a_pause_in_which_the_asker_was_not_there_counts_for_nothing() -> None:
    story = Story([ALIVE, SILENT, SILENT, SILENT, SILENT, ALIVE])
    watching = asyncio.create_task(watchdog.watch(story.ask, lambda: "S", story.clock, PATIENCE))
    await settle()
    # Two are silent; in the pause before the third nobody here runs for an hour.
    while story.asked < 3 or story.clock.monotonic() < 50.0:
        await story.clock.advance(1.0)
    story.clock.hold(3600.0)
    for _ in range(40):
        await story.clock.advance(1.0)
    assert not watching.done()
    watching.cancel()
    await asyncio.wait([watching])


async def test_a_start_in_which_the_asker_was_not_there_counts_for_nothing() -> None:
    story = Story([SILENT, 3600.0, SILENT, SILENT])
    await story.passes(300)
    assert story.dead is None


async def test_one_under_a_debugger_is_left_alone() -> None:
    story = Story([ALIVE], state=watchdog.TRACED)
    await story.passes(3600)
    assert story.dead is None


async def test_what_cannot_be_asked_is_not_called_dead() -> None:
    story = Story([ALIVE, *[SILENT, SILENT, UNKNOWN] * 50])
    await story.passes(2500)
    assert story.dead is None


async def test_one_that_says_that_it_is_not_well_is_dead() -> None:
    story = Story([ALIVE] + [(watchdog.Sign.TROUBLE, "it answers 500")] * 3)
    await story.passes(60)
    assert str(story.dead).endswith("it answers 500; it sleeps")


@pytest.mark.parametrize("seconds", [6, 60, 600])
def test_the_setting_is_kept(seconds: float) -> None:
    made = watchdog.Patience.of(seconds)
    # The silence begins right after an answer.
    assert made.pause + made.failures * made.answer + (made.failures - 1) * made.pause <= seconds + 1e-9
    assert watchdog.Patience.of(60) == watchdog.Patience()


@pytest.mark.slow
def test_the_state_of_a_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(flush=True)\nimport time\ntime.sleep(60)"], stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert watchdog.state_of(child.pid) == "T"
        child.kill()
    assert watchdog.state_of(child.pid) == ""


class Server:
    """Answers as it is told, and counts who comes."""

    def __init__(self) -> None:
        self.answer: bytes | None = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.connections = 0
        self.heads: list[bytes] = []
        self.ends = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                if self.answer is not None:
                    writer.write(self.answer)
                    if self.ends:
                        break
        writer.close()


@contextlib.asynccontextmanager
async def asked(server: Server, seconds: float = 5.0) -> AsyncIterator[watchdog.Livez]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    made = watchdog.Livez(addresses.Address("0.0.0.0", listening.sockets[0].getsockname()[1]), None, seconds)
    try:
        yield made
    finally:
        made.close()
        listening.close()
        await settle()


class TestLivez:
    async def test_one_connection_serves_for_all_questions(self) -> None:
        server = Server()
        async with asked(server) as livez:
            assert [await livez() for _ in range(5)] == [ALIVE] * 5
        assert server.connections == 1
        assert server.heads[0].startswith(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:")

    @pytest.mark.parametrize("code", [200, 401, 403, 404, 429])
    async def test_every_answer_but_a_failure_is_life(self, code: int) -> None:
        server = Server()
        server.answer = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % code
        async with asked(server) as livez:
            assert await livez() == ALIVE

    async def test_one_that_is_not_well_says_so(self) -> None:
        server = Server()
        server.answer = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"
        async with asked(server) as livez:
            assert await livez() == (watchdog.Sign.TROUBLE, "it answers 500")

    async def test_a_server_that_is_silent_is_in_trouble(self) -> None:
        server = Server()
        async with asked(server, 0.05) as livez:
            assert await livez() == ALIVE
            server.answer = None
            assert await livez() == (watchdog.Sign.TROUBLE, "nothing came within 0.05 s")
            server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            # What comes late must not be taken for the next answer: there is another connection.
            assert await livez() == ALIVE
        assert server.connections == 2

    async def test_a_connection_that_was_idle_too_long_is_made_again(self) -> None:
        server = Server()
        server.ends = True
        async with asked(server) as livez:
            assert [await livez() for _ in range(3)] == [ALIVE] * 3
        assert server.connections == 3

    @pytest.mark.parametrize(
        "answer",
        [b"", b"HTTP/1.1 200", b"garbage\r\n\r\n", b"HTTP/1.1 two\r\n\r\n", b"x" * 100_000, b"\r\n\r\n"],
    )
    async def test_whoever_turns_us_away_or_talks_nonsense_is_alive(self, answer: bytes) -> None:
        """A server under a flood resets connections: it must not be killed for that."""
        server = Server()
        server.answer, server.ends = answer, True
        async with asked(server) as livez:
            assert await livez() == ALIVE

    @pytest.mark.parametrize("more", [b"Connection: close\r\n", b""])
    async def test_an_answer_that_ends_its_connection(self, more: bytes) -> None:
        server = Server()
        server.answer = b"HTTP/1.1 200 OK\r\n" + more + b"\r\n"
        async with asked(server) as livez:
            assert [await livez(), await livez()] == [ALIVE, ALIVE]
        assert server.connections == 2

    async def test_nobody_listens(self) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            address = addresses.Address("127.0.0.1", sock.getsockname()[1])
            found = await watchdog.Livez(address, tls.unsafe_unverified_context(), 5.0)()
        assert found == (watchdog.Sign.TROUBLE, f"nobody listens on {address}")

    @pytest.mark.parametrize(
        "host, sign", [("192.0.2.1", "NOTHING"), ("2001:db8::1", "NOTHING"), ("a.name", "TROUBLE")]
    )
    async def test_an_address_that_this_machine_has_lost_says_nothing(
        self, host: str, sign: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def hangs(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio, "open_connection", hangs)
        assert (await watchdog.Livez(addresses.Address(host, 1), None, 0.01)())[0] is watchdog.Sign[sign]

    async def test_no_descriptor_to_ask_with_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def fails(*_: object, **__: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(asyncio, "open_connection", fails)
        found = await watchdog.Livez(addresses.Address("127.0.0.1", 1), None, 1.0)()
        assert found == (watchdog.Sign.NOTHING, "it cannot be asked: too many open files")
