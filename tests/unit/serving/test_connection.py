# SPDX-License-Identifier: Apache-2.0
"""One connection on a real socket: its requests one after the other, deadlines, refused bodies, and what is said to those
who speak no HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import Any, cast

import pytest
import structlog
from aiohttp import web

from handfast.serving import aiohttp_parts, answers, connection, limits, sending
from tests.scenarios import wire
from tests.unit.serving.doors import LIFTED, Held, Opener, client, tell
from tests.world import leftovers


async def test_a_connection_leaves_nothing_for_the_collector(door: Opener) -> None:
    async with door() as opened:
        with leftovers.without_collector(connection.Connection) as left:
            async with opened.line(client()) as line:
                await line.ask("POST", "/", body=b"x")
            async with asyncio.timeout(5):
                while left():
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("sent", [b"no HTTP\r\n\r\n", b"GET http://xn--/ HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_what_is_no_request_leaves_nothing_for_the_collector(door: Opener, sent: bytes) -> None:
    async with door() as opened:
        with leftovers.without_collector(connection.Connection) as left:
            async with opened.line(client()) as line:
                await line.send(sent)
                assert (await line.reply()).status == 400
            async with asyncio.timeout(5):
                while left():
                    await asyncio.sleep(0.01)


class TestRequests:
    """One task takes one request after another."""

    async def test_one_task_from_the_handshake_to_the_end(self, door: Opener) -> None:
        seen: list[asyncio.Task[None] | None] = []

        async def notes(http: web.BaseRequest) -> web.StreamResponse:
            seen.append(asyncio.current_task())
            return await tell(http)

        async with door(LIFTED, notes) as opened:
            async with opened.line(client()) as line:
                for _ in range(2):
                    assert (await line.ask("GET", "/")).status == 200
            async with opened.line(client()) as other:
                assert (await other.ask("GET", "/")).status == 200
        first, second, third = seen
        assert first is second
        assert first is not third
        # It ended with its connection, and not by being cancelled.
        assert first is not None
        assert cast("Any", first.get_coro()).__qualname__ == "Listener._serve"
        assert first.done()
        assert not first.cancelled()

    async def test_requests_sent_at_once_are_answered_in_their_order(self, door: Opener) -> None:
        async def echoes(http: web.BaseRequest) -> answers.Response:
            body = await http.read()
            # The first takes longest.
            for _ in range(5 - int(body)):
                await asyncio.sleep(0)
            return answers.Answer(body)

        async with door(LIFTED, echoes) as opened, opened.line(client()) as line:
            await line.send(b"".join(wire.request("POST", "/", body=b"%d" % number) for number in range(5)))
            assert [(await line.reply()).body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]

    async def test_everybody_has_a_turn_between_requests_sent_at_once(self, door: Opener) -> None:
        loop = asyncio.get_running_loop()
        turns, seen = 0, []

        def count() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(count)

        async def notes(_: web.BaseRequest) -> answers.Response:
            seen.append(turns)
            return answers.Answer(b"")

        async with door(LIFTED, notes) as opened, opened.line(client()) as line:
            loop.call_soon(count)
            await line.send(wire.request("GET", "/") * 100)
            for _ in range(100):
                assert (await line.reply()).status == 200
        assert len(set(seen)) == 100

    async def test_http_1_0_ends_after_one(self, door: Opener) -> None:
        async with door() as opened, opened.line(client()) as line:
            await line.send(b"GET / HTTP/1.0\r\n\r\n")
            assert (await line.reply()).status == 200
            assert await line.rest() == b""

    async def test_an_idle_connection_ends(self, door: Opener) -> None:
        bounds = limits.Limits(lifted=True, anonymous_idle_seconds=0.05)
        async with door(bounds) as opened, opened.line(client()) as line:
            assert (await line.ask("GET", "/")).status == 200
            async with asyncio.timeout(5):
                assert await line.rest() == b""

    async def test_a_client_that_leaves_before_its_answer_leaves_nothing(self, door: Opener) -> None:
        held = Held()
        async with door(LIFTED, held) as opened:
            with leftovers.without_collector(connection.Connection) as left:
                async with opened.line(client()) as line:
                    await line.send(wire.request("GET", "/"))
                    await held.started.wait()
                async with asyncio.timeout(5):
                    while any(found.transport for found in opened.listener._server.connections):
                        await asyncio.sleep(0.01)
                    held.go.set()
                    # No timer, no task: nothing waits for its next request.
                    while left():
                        await asyncio.sleep(0.01)

    async def test_hooks_learn_that_the_connection_ended(self, door: Opener) -> None:
        ended = asyncio.Event()

        async def waits(http: web.BaseRequest) -> web.StreamResponse:
            cast("connection.Connection", http.protocol).closed_hooks.add(ended.set)
            return await tell(http)

        async with door(LIFTED, waits) as opened:
            async with opened.line(client()) as line:
                await line.ask("GET", "/")
            async with asyncio.timeout(5):
                await ended.wait()
                while opened.listener.connections:
                    await asyncio.sleep(0)

    async def test_a_body_is_not_read_after_the_answer(self, door: Opener) -> None:
        held: list[web.BaseRequest] = []

        async def keeps(http: web.BaseRequest) -> web.StreamResponse:
            held.append(http)
            return await tell(http)

        async with door(LIFTED, keeps) as opened, opened.line(client()) as line:
            assert (await line.ask("POST", "/", body=b"x")).status == 200
            assert (await line.ask("GET", "/")).status == 200
            with pytest.raises(web.PayloadAccessError):
                await held[0].content.read()

    async def test_a_body_nobody_read_does_not_keep_the_next_request_waiting(self, door: Opener) -> None:
        async with door() as opened, opened.line(client()) as line:
            # More than is read ahead: unless it is thrown away, the next request never comes in.
            await line.send(wire.request("POST", "/", body=b"GET /smuggled HTTP/1.1\r\n\r\n" * 50_000))
            assert (await line.reply()).status == 200
            assert (await line.ask("GET", "/")).status == 200

    async def test_a_body_that_breaks_off_ends_the_connection(self, door: Opener, monkeypatch: Any) -> None:
        monkeypatch.setattr(aiohttp_parts, "LINGERING_SECONDS", 60.0)
        with structlog.testing.capture_logs() as lines:
            async with door() as opened, opened.line(client()) as line, asyncio.timeout(5):
                await line.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
                assert (await line.reply()).status == 200
                await line.send(b"no length\r\n")
                assert await line.rest() == b""
        assert lines == []

    async def test_a_body_that_does_not_end_ends_the_connection(self, door: Opener, monkeypatch: Any) -> None:
        monkeypatch.setattr(aiohttp_parts, "LINGERING_SECONDS", 0.05)
        async with door() as opened, opened.line(client()) as line:
            await line.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nx")
            assert (await line.reply()).status == 200
            async with asyncio.timeout(5):
                assert await line.rest() == b""

    async def test_a_fault_in_answering_ends_that_connection_only(self, door: Opener) -> None:
        async def odd(_: web.BaseRequest) -> answers.Response:
            answer = answers.Answer(b"")
            answer.added.append(("X", "a line\r\nand another"))
            return answer

        with structlog.testing.capture_logs() as lines:
            async with door(LIFTED, odd) as opened:
                for _ in range(2):
                    async with opened.line(client()) as line:
                        await line.send(wire.request("GET", "/"))
                        assert await line.rest() == b""
                async with asyncio.timeout(5):
                    while opened.listener.connections:
                        await asyncio.sleep(0.01)
        assert [entry["source"] for entry in lines if entry["event"] == "answering failed"] == ["127.0.0.1"] * 2


@pytest.mark.slow
class TestHeads:
    """A head has a deadline, however it comes."""

    BOUNDS = limits.Limits(lifted=True, head_seconds=0.15)
    # Just past the deadline, which is itself as short as a busy machine allows.
    PAST = 0.17

    @pytest.mark.parametrize("start", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
    async def test_a_head_that_does_not_end(self, door: Opener, start: bytes) -> None:
        async with door(self.BOUNDS) as opened, opened.line(client()) as line:
            await line.send(start)
            assert await line.rest() == b""

    async def test_strangers_have_less_time_for_their_first_head(self, door: Opener) -> None:
        async with door(limits.Limits(lifted=True, first_head_seconds=0.15)) as opened:
            async with opened.line(client()) as line:
                assert await line.rest() == b""
            # A second head has the usual time.
            async with opened.line(client()) as line:
                assert (await line.ask("GET", "/")).status == 200
                await line.send(b"GET / HTTP/1.1\r\n")
                await asyncio.sleep(self.PAST)
                await line.send(b"Host: x\r\n\r\n")
                assert (await line.reply()).status == 200

    async def test_byte_by_byte_does_not_buy_time(self, door: Opener) -> None:
        async with door(self.BOUNDS) as opened, opened.line(client()) as line:
            loop = asyncio.get_running_loop()
            began = loop.time()
            while not line.reader.at_eof() and loop.time() < began + 5:
                await line.send(b"G")
                with contextlib.suppress(TimeoutError, ConnectionError):
                    await asyncio.wait_for(line.reader.read(1), 0.02)
            assert loop.time() < began + 3

    async def test_the_second_head_has_a_deadline_too(self, door: Opener) -> None:
        async with door(self.BOUNDS) as opened, opened.line(client()) as line:
            assert (await line.ask("GET", "/")).status == 200
            await line.send(b"GET / HT")
            assert await line.rest() == b""

    async def test_the_rest_of_a_refused_body_is_no_head(self, door: Opener) -> None:
        async with door(self.BOUNDS) as opened, opened.line(client()) as line:
            await line.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nx")
            assert (await line.reply()).status == 200
            for _ in range(2):
                await asyncio.sleep(0.01)
                await line.send(b"x")
            await asyncio.sleep(self.PAST)
            assert (await line.ask("GET", "/")).status == 200

    async def test_a_long_answer_is_not_a_slow_head(self, door: Opener) -> None:
        async def slow(http: web.BaseRequest) -> web.StreamResponse:
            await asyncio.sleep(self.PAST)
            return await tell(http)

        async with door(self.BOUNDS, slow) as opened, opened.line(client()) as line:
            assert (await line.ask("GET", "/")).status == 200
            # Nor is the silence between two requests.
            await asyncio.sleep(self.PAST)
            assert (await line.ask("GET", "/")).status == 200


class TestErrors:
    @pytest.mark.parametrize(
        ("sent", "code"),
        [
            (b"\x16\x03\x01garbage\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
            (b"GET http://xn--/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
            (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
        ],
    )
    async def test_no_http(self, door: Opener, sent: bytes, code: int) -> None:
        with structlog.testing.capture_logs() as lines:
            async with door() as opened, opened.line(client()) as line:
                await line.send(sent)
                reply = await line.reply()
                assert (reply.status, reply.json()["code"], reply.json()["kind"]) == (code, code, "Status")
                assert await line.rest() == b""
        told = [entry["source"] for entry in lines if entry["event"] == "request head refused"]
        assert told == (["127.0.0.1"] if code == 431 else [])

    async def test_what_escapes_the_pipeline(self, door: Opener) -> None:
        async def broken(_: web.BaseRequest) -> web.StreamResponse:
            raise ValueError("s3cret")

        async with door(LIFTED, broken) as opened, opened.line(client()) as line:
            await line.send(wire.request("GET", "/"))
            reply = await line.reply()
            assert (reply.status, reply.message) == (500, "Internal error occurred")
            assert await line.rest() == b""


@pytest.mark.parametrize("stepwise", [False, True])
async def test_who_does_not_read_a_whole_answer_is_given_up(door: Opener, *, stepwise: bool) -> None:
    """2. 32 MiB are more than both sockets hold."""

    async def large(_http: web.BaseRequest) -> answers.Response:
        body = b"x" * (32 << 20)
        return web.Response(body=io.BytesIO(body)) if stepwise else answers.Answer(body)

    bounds = limits.Limits(lifted=True, write_seconds=0.1)
    async with door(bounds, large) as opened, opened.line(client()) as line:
        await line.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(5):
            while not opened.listener.connections:
                await asyncio.sleep(0.01)
            while opened.listener.connections:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["whole", "parts", "stepwise"])
@pytest.mark.parametrize("end", ["left", "too slow"])
async def test_an_unread_answer_leaves_nothing_for_the_collector(door: Opener, kind: str, end: str) -> None:
    """7. Neither when the client leaves, nor when it is given up."""

    async def large(http: web.BaseRequest) -> answers.Response:
        body = b"x" * (32 << 20)
        if kind != "parts":
            return web.Response(body=io.BytesIO(body)) if kind == "stepwise" else answers.Answer(body)
        response = web.StreamResponse()
        await response.prepare(http)
        await sending.send(http, response, body, 0.3)
        return response

    bounds = limits.Limits(lifted=True, write_seconds=30.0 if end == "left" else 0.3)
    async with door(bounds, large) as opened:
        with leftovers.without_collector(connection.Connection) as left:
            async with opened.line(client()) as line:
                await line.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                async with asyncio.timeout(5):
                    while not any(cast("connection.Connection", found)._paused for found in left()):
                        await asyncio.sleep(0.01)
                    while end != "left" and opened.listener.connections:
                        await asyncio.sleep(0.01)
            async with asyncio.timeout(5):
                while left():
                    await asyncio.sleep(0.01)
        assert opened.listener.unread.held() == 0


async def test_a_long_answer_that_is_read_arrives_whole(door: Opener) -> None:
    body = bytes(range(256)) * (8 << 10)

    async def large(_http: web.BaseRequest) -> answers.Response:
        return answers.Answer(body)

    async with door(LIFTED, large) as opened, opened.line(client()) as line:
        for _ in range(2):
            assert (await line.ask("GET", "/")).body == body
