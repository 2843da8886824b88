# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib

import aiohttp
import pytest

from handfast import errors
from handfast.api import status
from handfast.client import connection, transport
from tests.unit.client import scripted
from tests.world import tls_cluster
from tests.world.clock import MovableClock


async def test_a_refusal_becomes_a_status_error():
    causes = [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.x"}]
    async with (
        scripted.serving(
            scripted.status(422, "Invalid", name="n", group="g", kind="K", causes=causes, retryAfterSeconds=3)
        ) as server,
        scripted.client_of(server) as client,
    ):
        with pytest.raises(status.StatusError) as caught:
            await client.transport.request("GET", "/x")
    error = caught.value
    assert (error.code, error.reason, error.message) == (422, "Invalid", "because Invalid")
    assert (error.name, error.group, error.kind, error.retry_after) == ("n", "g", "K", 3)
    assert error.causes == (status.Cause("FieldValueRequired", "Required value", "spec.x"),)


@pytest.mark.parametrize(
    ("code", "body", "retry_after", "expected"),
    [
        (404, b"page not found", "", ("NotFound", 404, "page not found", 0)),
        (409, b"", "", ("Conflict", 409, "the server answered 409 without a body", 0)),
        (502, b"<html>", "9", ("InternalError", 502, "<html>", 9)),
        (418, b'{"kind":"Teapot"}', "soon", ("BadRequest", 418, '{"kind":"Teapot"}', 0)),
        (410, b'{"kind":"Status","metadata":{"continue":"c"}}', "", ("Expired", 410, "", 0)),
        (400, b'{"kind":"Status","reason":"Own","message":"m","code":409}', "", ("Own", 409, "m", 0)),
    ],
)
def test_whatever_the_body_is(code: int, body: bytes, retry_after: str, expected: tuple[str, int, str, int]):
    error = transport.status_error(body, code, retry_after)
    assert (error.reason, error.code, error.message, error.retry_after) == expected
    assert error.continue_token == ("c" if code == 410 else "")


async def test_no_server_is_unavailable():
    async with scripted.serving() as server:
        pass
    async with scripted.client_of(server) as client:
        with pytest.raises(errors.Unavailable, match="cannot be reached") as caught:
            await client.transport.request("GET", "/x")
    assert caught.value.reason == "Unreachable"


async def test_one_request_may_have_less_time_than_others():
    async with scripted.serving() as server, scripted.client_of(server) as client:
        with pytest.raises(errors.Unavailable) as caught:
            await client.transport.request("GET", "/x", seconds=0.05)
    assert caught.value.reason == "Timeout"


async def test_it_is_known_that_nobody_answers_until_somebody_does():
    steps = [scripted.drop(), scripted.status(403, "Forbidden"), scripted.drop(), scripted.answer(200, {})]
    async with scripted.serving(*steps) as server, scripted.client_of(server) as client:
        link, known = client.transport, []
        for _ in steps:
            with contextlib.suppress(errors.HandfastError):
                # aiohttp asks again by itself where that changes nothing.
                await link.request("POST", "/x")
            known.append(link.unheard is None)
        # A refusal is an answer.
        assert known == [False, True, False, True]


async def test_a_server_that_does_not_answer_is_unavailable():
    async with scripted.serving() as server:
        link = transport.Transport(connection.Connection(server=server.url), clock=MovableClock(), seconds=0.05)
        with pytest.raises(errors.Unavailable) as caught:
            await link.request("GET", "/x")
        await link.close()
    assert caught.value.reason == "Timeout"


async def test_a_server_that_moved_behind_its_name_is_found_again(monkeypatch):
    """Its DNS name stays, its address does not. Only what the name resolves to is the test's."""
    plain, where = aiohttp.ThreadedResolver.resolve, ["127.0.0.1"]

    async def resolve(self, host, *rest, **named):
        rows = await plain(self, where[0] if host == "plane.example" else host, *rest, **named)
        return [{**row, "hostname": host} for row in rows]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", resolve)
    ca = tls_cluster.Authority()
    secure, respond = ca.context(["plane.example"]), tls_cluster.serve({})
    async with contextlib.AsyncExitStack() as first, contextlib.AsyncExitStack() as second:
        server = await first.enter_async_context(tls_cluster.listening(secure, respond))
        made = connection.Connection(server=f"https://plane.example:{server.port}", ca_pem=ca.pem)
        link = transport.Transport(made, clock=MovableClock())
        second.push_async_callback(link.close)
        assert await link.request("GET", "/before") == b"{}"
        await first.aclose()
        with pytest.raises(errors.Unavailable, match="cannot be reached"):
            await link.request("GET", "/between")
        where[0] = "127.0.0.2"
        moved = tls_cluster.listening(secure, respond, server.port, where[0])
        there = await second.enter_async_context(moved)
        assert await link.request("GET", "/after") == b"{}"
        assert [request.target for request in there.requests] == ["/after"]


async def test_headers_on_the_wire():
    async with (
        scripted.serving(scripted.answer(200, raw=b"{}"), scripted.answer(200, raw=b"{}")) as server,
        scripted.client_of(server, token="secret-token") as client,
    ):
        await client.transport.request("GET", "/a%2Fb", params={"x": "1 2"})
        await client.transport.request("POST", "/c", body=b"[]", content_type="text/x")
    first, second = server.requests
    assert (first.path, first.params) == ("/a%2Fb", {"x": "1 2"})
    assert first.headers["authorization"] == "Bearer secret-token"
    assert first.headers["user-agent"].startswith("handfast/")
    assert first.headers["accept-encoding"] == "identity"
    assert "content-type" not in first.headers
    assert (second.headers["content-type"], second.body) == ("text/x", b"[]")


async def test_a_token_file_is_read_again(tmp_path: pathlib.Path):
    path = tmp_path / "token"
    path.write_text("one\n")
    clock = MovableClock()
    async with (
        scripted.serving(*[scripted.answer(200, raw=b"{}") for _ in range(4)]) as server,
        scripted.client_of(server, clock, token_file=str(path)) as client,
    ):
        await client.transport.request("GET", "/")
        path.write_text("two\n")
        await client.transport.request("GET", "/")
        await clock.advance(11)
        await client.transport.request("GET", "/")
        path.unlink()
        await clock.advance(11)
        await client.transport.request("GET", "/")
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer one",
        "Bearer one",
        "Bearer two",
        "Bearer two",
    ]


async def test_a_refused_token_that_has_been_replaced_is_tried_once_more(tmp_path: pathlib.Path):
    path = tmp_path / "token"
    path.write_text("old")
    denied = scripted.status(401, "Unauthorized")
    async with (
        scripted.serving(scripted.answer(200, raw=b"{}"), denied, scripted.answer(200, raw=b"{}"), denied) as server,
        scripted.client_of(server, token_file=str(path)) as client,
    ):
        await client.transport.request("GET", "/")
        path.write_text("new")
        await client.transport.request("GET", "/")
        with pytest.raises(status.StatusError, match="because Unauthorized"):
            await client.transport.request("GET", "/")
    tokens = [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests]
    assert tokens == ["old", "old", "new", "new"]


@pytest.mark.parametrize("name", ["none", "pipe"])
async def test_no_token_file_is_unavailable(tmp_path: pathlib.Path, name: str):
    os.mkfifo(tmp_path / "pipe")
    async with (
        scripted.serving() as server,
        scripted.client_of(server, token_file=str(tmp_path / name)) as client,
    ):
        with pytest.raises(errors.Unavailable, match="token file"):
            await client.transport.request("GET", "/")


async def test_a_stream_arrives_as_it_is_written():
    async with (
        scripted.serving(scripted.stream(b"one\n", then="hold")) as server,
        scripted.client_of(server) as client,
        client.transport.stream("/", params={}, accept="x/y", idle_seconds=5) as body,
    ):
        assert await asyncio.wait_for(body.readany(), 5) == b"one\n"


async def test_a_silent_stream_is_given_up():
    async with scripted.serving(scripted.stream(b"one\n", then="hold")) as server, scripted.client_of(server) as client:

        async def read_all() -> None:
            async with client.transport.stream("/", params={}, accept="x/y", idle_seconds=0.05) as body:
                while await body.readany():
                    pass

        with pytest.raises(errors.Unavailable) as caught:
            await read_all()
        assert caught.value.reason == "Timeout"


def test_secrets_do_not_print():
    place = connection.Connection(server="https://x", token="hidden1", cert_pem=b"hidden2", key_pem=b"hidden3")
    assert "hidden" not in repr(place)


class TestUse:
    """Other credentials, while requests and streams are under way."""

    async def test_new_requests_have_the_new_credentials_and_streams_end(self):
        async with (
            scripted.serving(scripted.stream(b"{}\n", then="hold"), scripted.answer(200, raw=b"{}")) as server,
            scripted.client_of(server, token="old") as client,
        ):
            link = client.transport
            async with link.stream("/watch", params={}, accept="x", idle_seconds=60) as body:
                assert await body.readany() == b"{}\n"
                waiting = asyncio.create_task(body.readany())
                await asyncio.sleep(0)
                await link.use(connection.Connection(server=server.url, token="new"))
                # As if the server had closed it: whoever follows begins again, and tells nobody of trouble.
                assert await asyncio.wait_for(waiting, 5) == b""
            await link.request("GET", "/x")
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer new"]

    async def test_a_request_under_way_gets_its_answer_and_then_the_connection_goes(self):
        answer = asyncio.Event()

        async def slow(writer: asyncio.StreamWriter) -> None:
            await answer.wait()
            await scripted.answer(200, raw=b"late")(writer)

        async with scripted.serving(slow) as server, scripted.client_of(server) as client:
            link = client.transport
            asked = asyncio.create_task(link.request("GET", "/slow"))
            await server.saw(1)
            old = link._link
            await link.use(connection.Connection(server=server.url, token="new"))
            assert old._session is not None
            answer.set()
            assert await asked == b"late"
            assert old._session is None

    async def test_a_stream_whose_head_comes_after_the_switch_is_over_at_once(self):
        answer = asyncio.Event()

        async def slow(writer: asyncio.StreamWriter) -> None:
            await answer.wait()
            await scripted.stream(b"{}\n", then="hold")(writer)

        async with scripted.serving(slow) as server, scripted.client_of(server) as client:
            link = client.transport

            async def follow() -> list[bytes]:
                found = []
                async with link.stream("/watch", params={}, accept="x", idle_seconds=60) as body:
                    while chunk := await body.readany():
                        found.append(chunk)
                return found

            following = asyncio.create_task(follow())
            await server.saw(1)
            await link.use(connection.Connection(server=server.url, token="new"))
            answer.set()
            assert await asyncio.wait_for(following, 5) == []

    async def test_credentials_that_cannot_be_used_change_nothing(self):
        async with scripted.serving(scripted.answer(200, raw=b"{}")) as server, scripted.client_of(server) as client:
            bad = connection.Connection(server="https://127.0.0.1:1", ca_pem=b"garbage")
            with pytest.raises(errors.Refused, match="CA bundle"):
                await client.transport.use(bad)
            assert await client.transport.request("GET", "/x") == b"{}"

    async def test_close_ends_what_retires(self):
        async with scripted.serving() as server:
            link = transport.Transport(connection.Connection(server=server.url), clock=MovableClock())
            asked = asyncio.create_task(link.request("GET", "/never"))
            await server.saw(1)
            old = link._link
            await link.use(connection.Connection(server=server.url))
            await link.close()
            assert old._session is None
            with pytest.raises(errors.Unavailable):
                await asked


@pytest.mark.parametrize(("body", "kind"), [(b"<html>", True), (b'{"kind":"Status","code":403}', False)])
def test_an_answer_of_somebody_in_between(body: bytes, kind: bool):
    assert isinstance(transport.status_error(body, 403), transport.UnexpectedAnswer) is kind


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(code: int):
    async with (
        scripted.serving(scripted.answer(200, raw=b"{}")) as elsewhere,
        scripted.serving(scripted.answer(code, Location=f"{elsewhere.url}/evil")) as server,
        scripted.client_of(server, token="secret-token") as client,
    ):
        with pytest.raises(errors.Unavailable, match=f"a redirect \\({code}\\)") as caught:
            await client.transport.request("POST", "/x", body=b"{}")
    assert caught.value.reason == "BadAnswer"
    assert elsewhere.requests == []


class TestLargeAnswers:
    @staticmethod
    async def ask(step: scripted.Step) -> bytes:
        async with scripted.serving(step) as server:
            link = transport.Transport(connection.Connection(server=server.url), clock=MovableClock(), max_bytes=100)
            try:
                return await link.request("GET", "/x")
            finally:
                await link.close()

    @pytest.mark.parametrize("step", [scripted.answer(200, raw=b"x" * 100), scripted.stream(b"x" * 50, b"x" * 50)])
    async def test_as_large_as_allowed(self, step: scripted.Step):
        assert await self.ask(step) == b"x" * 100

    @pytest.mark.parametrize(
        "step",
        [
            scripted.answer(200, raw=b"x" * 101),
            scripted.answer(500, raw=b"x" * 101),
            scripted.stream(b"x" * 50, b"x" * 51, then="hold"),
        ],
    )
    async def test_an_answer_over_the_limit_is_refused(self, step: scripted.Step):
        with pytest.raises(errors.Unavailable, match="more than 100 bytes") as caught:
            await self.ask(step)
        assert caught.value.reason == "BadAnswer"


@pytest.mark.parametrize(
    ("body", "retry_after", "expected"),
    [
        (b'{"kind":"Status","metadata":' + b'{"a":' * 100_000, "", 0),
        (b'{"kind":"Status","details":{"retryAfterSeconds":' + b"9" * 400 + b"}}", "", 3600),
        (b"", "9" * 5000, 3600),
    ],
    ids=["deep", "details", "header"],
)
def test_a_refusal_that_means_harm_is_an_error_like_any_other(body: bytes, retry_after: str, expected: int):
    assert transport.status_error(body, 503, retry_after).retry_after == expected


class TestSeveralServers:
    """One cluster, several addresses: whoever answers is asked."""

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(first, *others, **more):
        made = connection.Connection(server=first, others=others, **more)
        link = transport.Transport(made, clock=MovableClock())
        try:
            yield link, made
        finally:
            await link.close()

    @staticmethod
    async def nowhere() -> str:
        async with scripted.serving() as server:
            return server.url

    @pytest.mark.parametrize("method", ["GET", "POST"])
    async def test_what_could_not_be_sent_goes_to_the_next_at_once(self, method):
        dead, gone = await self.nowhere(), await self.nowhere()
        async with (
            scripted.serving(*[scripted.answer(200, {})] * 2) as server,
            self.open(dead, gone, server.url) as (
                link,
                _,
            ),
        ):
            assert await link.request(method, "/x") == b"{}"
            assert link.server == server.url
            assert link.unheard is None
            # And stays there.
            await link.request(method, "/y")
            assert [request.path for request in server.requests] == ["/x", "/y"]

    async def test_a_get_that_was_not_answered_goes_on_and_a_write_does_not(self):
        # aiohttp asks once more by itself where that changes nothing.
        async with (
            scripted.serving(*[scripted.drop()] * 3) as dying,
            scripted.serving(*[scripted.answer(200, {})] * 3) as well,
        ):
            async with self.open(dying.url, well.url) as (link, _):
                assert await link.request("GET", "/x") == b"{}"
            dying.add(scripted.drop())
            async with self.open(dying.url, well.url) as (link, _):
                with pytest.raises(errors.Unavailable):
                    await link.request("POST", "/w")
                assert "/w" not in [request.path for request in well.requests]
                await link.request("POST", "/z")
        assert [request.path for request in well.requests] == ["/x", "/z"]

    async def test_a_server_that_says_nothing_is_left_for_the_next_request(self):
        async with (
            scripted.serving() as mute,
            scripted.serving(scripted.answer(200, {})) as well,
            self.open(mute.url, well.url) as (link, _),
        ):
            with pytest.raises(errors.Unavailable) as caught:
                await link.request("GET", "/x", seconds=0.05)
            assert caught.value.reason == "Timeout"
            assert await link.request("GET", "/y") == b"{}"

    async def test_nobody_answers_and_each_is_named(self):
        dead, gone = await self.nowhere(), await self.nowhere()
        async with self.open(dead, gone) as (link, _):
            for _attempt in range(3):
                with pytest.raises(errors.Unavailable) as caught:
                    await link.request("POST", "/x")
                assert dead in caught.value.message
                assert gone in caught.value.message
            assert caught.value.reason == "Unreachable"
            assert link.unheard is not None

    async def test_other_credentials_do_not_lead_back_to_the_dead(self):
        dead = await self.nowhere()
        async with (
            scripted.serving(*[scripted.answer(200, {})] * 2) as server,
            self.open(dead, server.url) as (link, made),
        ):
            await link.request("GET", "/x")
            await link.use(dataclasses.replace(made, token="new"))
            assert link.server == server.url
            await link.request("GET", "/y")
            assert server.requests[1].headers["authorization"] == "Bearer new"
            # Whoever names another server means it.
            await link.use(connection.Connection(server="http://127.0.0.1:1", others=(server.url,)))
            assert link.server == "http://127.0.0.1:1"

    async def test_a_watch_that_works_is_left_alone_until_the_credentials_change(self):
        watching = scripted.stream({"a": 1}, then="hold")
        async with (
            scripted.serving(watching, scripted.drop()) as first,
            scripted.serving() as second,
            self.open(first.url, second.url) as (link, made),
            link.stream("/w", params={}, accept="application/json", idle_seconds=30) as body,
        ):
            assert await body.readany() == b'{"a":1}\n'
            with pytest.raises(errors.Unavailable):
                await link.request("POST", "/x")
            assert link.server == second.url
            reading = asyncio.ensure_future(body.readany())
            done, _ = await asyncio.wait([reading], timeout=0.05)
            assert not done
            await link.use(dataclasses.replace(made, token="new"))
            assert await reading == b""

    async def test_an_explanation_is_of_all_and_a_refusal_goes_before_silence(self):
        async def explain(server, met):
            family = errors.Refused if server == gone else errors.Unavailable
            return family(f"{server}: {met.trouble.value}", reason="Told")

        dead, gone = await self.nowhere(), await self.nowhere()
        made = connection.Connection(server=dead, others=(gone,))
        link = transport.Transport(made, clock=MovableClock(), explain=explain)
        with pytest.raises(errors.Refused) as caught:
            await link.request("GET", "/x")
        await link.close()
        assert caught.value.message == f"{gone}: connection refused (and {dead}: connection refused)"
