# SPDX-License-Identifier: Apache-2.0
"""The stations in order, with the last ones played: what becomes of every kind of outcome."""

from __future__ import annotations

import asyncio
import types
from typing import Any
from unittest import mock

import aiohttp
import msgspec
import pytest
import structlog
from aiohttp.test_utils import make_mocked_request

from handfast import errors
from handfast.api import status
from handfast.apiserver import audit, calls, identity, limits, loop_holds, pipeline
from handfast.apiserver.access import authn, standing
from handfast.pki import bundles
from handfast.rules import access, decision
from handfast.serving import answers, peer
from handfast.telemetry import metrics
from tests.unit.pki.making import NOW, ca
from tests.world import leftovers
from tests.world.clock import MovableClock, settle

OPEN = "/healthz"


class Line:
    """A pipeline whose last stations do as they are told."""

    def __init__(self, outcome: Any = None, limit: limits.Limits | None = None) -> None:
        self.clock = MovableClock(NOW)
        self.metrics = metrics.ApiServerMetrics()
        self.seen: list[Any] = []

        def answer(asked: Any) -> answers.Answer:
            self.seen.append(asked)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome(asked) if callable(outcome) else answers.Answer(b"fine")

        async def answer_later(asked: Any) -> answers.Answer:
            return answer(asked)

        authenticator, authorizers = authn.Authenticator(bundles.TrustBundle.of([ca().der])), access.Authorizers(())
        self.pipeline = pipeline.Pipeline(
            authenticator=authenticator,
            authorizers=authorizers,
            standing=standing.Standing(authenticator, authorizers, self.clock),
            resources=mock.Mock(answer=answer_later),
            nonresources=mock.Mock(answer=answer_later),
            auditor=audit.Audit(self.metrics),
            holds=loop_holds.LoopHolds(self.metrics, self.clock),
            limits=limit or limits.Limits(lifted=True),
            clock=self.clock,
        )

    async def ask(
        self, path: str = OPEN, method: str = "GET", source: str = "192.0.2.1", **more: Any
    ) -> answers.Answer:
        protocol = types.SimpleNamespace(
            peer=peer.Peer.of((), source, "tls"), on_proved=None, ssl_context=None, peername=None, sockname=None
        )
        sent = make_mocked_request(method, path, more.pop("headers", {}), protocol=protocol, **more)
        response = await self.pipeline.handle(sent)
        assert isinstance(response, answers.Answer)
        return response

    def counted(self) -> str:
        return self.metrics.text().decode()


def body(response: answers.Answer) -> Any:
    return msgspec.json.decode(response.body)


class TestOutcomes:
    async def test_an_answer_has_an_audit_id_and_is_counted(self) -> None:
        line = Line()
        response = await line.ask()
        assert response.status == 200
        assert dict(response.added)["Audit-Id"]
        assert line.seen[0].decision == "health is open to everyone"
        assert 'apiserver_request_total{code="200"' in line.counted()

    async def test_the_query_is_read_when_the_caller_is_known(self) -> None:
        line = Line()
        # It cannot be read, which only those learn who are known.
        for path in ("/healthz?a=%ff", "/api/v1/pods?fieldSelector=a"):
            refused = await line.ask(path, headers={"Authorization": "Bearer guess"})
            assert refused.status == 401
            assert line.seen == []
            assert (await line.ask(path)).status == 400
        answered = await line.ask("/healthz?verbose")
        assert answered.status == 200
        assert line.seen[0].info.query == {"verbose": ""}

    async def test_every_request_has_its_own_id(self) -> None:
        line = Line()
        assert len({dict((await line.ask()).added)["Audit-Id"] for _ in range(10)}) == 10

    async def test_a_refusal_is_answered_with_its_status(self) -> None:
        response = await Line(status.not_found("secrets", "", "a")).ask()
        assert response.status == 404
        assert response.headers["Content-Type"] == "application/json"
        assert dict(response.added)["Audit-Id"]
        assert body(response)["reason"] == "NotFound"

    async def test_what_is_unavailable_may_be_tried_again_and_is_no_error_in_the_log(self) -> None:
        with structlog.testing.capture_logs() as logs:
            response = await Line(errors.Unavailable("the disk is full")).ask()
        assert response.status == 503
        assert dict(response.added)["Retry-After"] == "1"
        assert not [entry for entry in logs if entry["log_level"] == "error"]

    @pytest.mark.parametrize("error", [ValueError("s3cret"), errors.Misuse("s3cret"), RecursionError("s3cret")])
    async def test_a_bug(self, error: Exception) -> None:
        with structlog.testing.capture_logs() as logs:
            response = await Line(error).ask()
        assert response.status == 500
        assert "s3cret" not in str(body(response))
        assert "Traceback" not in str(body(response))
        assert logs[0]["exc_info"] is error
        assert logs[0]["id"] == dict(response.added)["Audit-Id"]

    @pytest.mark.parametrize(
        ("headers", "code"),
        [({}, 403), ({"Authorization": "Bearer abcdef.0123456789abcdef"}, 401), ({"Authorization": "Basic abc"}, 401)],
    )
    async def test_a_refusal_leaves_nothing_for_the_collector(self, headers: dict[str, str], code: int) -> None:
        # In a flood of refusals the collector would stop the server for all of them at once.
        line = Line()
        with leftovers.without_collector(calls.Call) as left:
            assert (await line.ask("/secret", headers=headers)).status == code
            assert left() == []

    async def test_the_client_went_away(self) -> None:
        line = Line(ConnectionResetError())
        with pytest.raises(ConnectionResetError):
            await line.ask()
        assert 'code="499"' in line.counted()

    async def test_a_request_that_holds_the_event_loop_is_named(self) -> None:
        def slow(call: calls.Call) -> answers.Answer:
            line.clock.hold(0.2)
            return answers.Answer(b"fine")

        line = Line(slow)
        with structlog.testing.capture_logs() as logs:
            response = await line.ask(f"{OPEN}?verbose&token=s3cret")
        assert [(entry["event"], entry["milliseconds"]) for entry in logs] == [("a request held the event loop", 200)]
        assert (logs[0]["id"], logs[0]["path"]) == (dict(response.added)["Audit-Id"], OPEN)
        assert 'handfast_apiserver_request_held_loop_total{resource="",verb="get"} 1.0' in line.counted()

    async def test_a_request_that_only_waits_is_not_named(self) -> None:
        line = Line()

        async def waits(call: calls.Call) -> answers.Answer:
            await line.clock.sleep(10.0)
            return answers.Answer(b"fine")

        line.pipeline._resources = mock.Mock(answer=waits)
        line.pipeline._authorizers = mock.Mock(decide=lambda _: decision.Approve("Test", "for the test", "test"))
        with structlog.testing.capture_logs() as logs:
            asking = asyncio.create_task(line.ask("/api/v1/namespaces/default/secrets/a"))
            await settle()
            await line.clock.advance(10.0)
            assert (await asking).status == 200
        assert logs == []


class TestStations:
    async def test_a_bad_token_gets_a_401_and_is_not_logged(self) -> None:
        line = Line()
        with structlog.testing.capture_logs() as logs:
            response = await line.ask(headers={"Authorization": "Bearer s3cret"})
        assert response.status == 401
        assert body(response)["message"] == "Unauthorized"
        assert line.seen == []
        assert logs[0]["reason"] == "UnknownToken"
        assert "s3cret" not in str(logs)
        assert 'reason="UnknownToken",station="authenticate"} 1.0' in line.counted()

    async def test_whoever_may_not_gets_a_403_before_anything_is_looked_up(self) -> None:
        line = Line()
        with structlog.testing.capture_logs() as logs:
            response = await line.ask("/api/v1/secrets")
        assert response.status == 403
        assert line.seen == []
        assert (logs[0]["station"], logs[0]["user"]) == ("authorise", "system:anonymous")

    async def test_a_path_nobody_can_mean(self) -> None:
        assert (await Line().ask("/api/v1/namespaces/%ff")).status == 400

    async def test_before_http_1_0(self) -> None:
        line = Line()
        response = await line.ask(version=aiohttp.HttpVersion(0, 9))
        assert response.status == 400
        assert line.seen == []


class TestTime:
    ADMIN = identity.User("root", ("system:masters",))

    async def test_a_write_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        line = Line(limit=limits.Limits(lifted=True, request_seconds=0.01))

        async def hang(asked: Any) -> answers.Answer:
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(line.pipeline._resources, "answer", hang)
        monkeypatch.setattr(line.pipeline._authenticator, "authenticate", lambda *_: self.ADMIN)
        response = await line.ask("/api/v1/namespaces/a/configmaps", "POST")
        assert response.status == 504
        assert body(response)["reason"] == "Timeout"


class TestRate:
    LIMITS = limits.Limits(anonymous_per_second=2.0, anonymous_burst=3)

    async def test_anonymous_requests_are_limited_by_source(self) -> None:
        line = Line(limit=self.LIMITS)
        assert [(await line.ask()).status for _ in range(3)] == [200] * 3
        with structlog.testing.capture_logs() as logs:
            response = await line.ask()
        assert response.status == 429
        assert dict(response.added)["Retry-After"] == "1"
        assert body(response)["reason"] == "TooManyRequests"
        assert body(response)["details"] == {"retryAfterSeconds": 1}
        # A flood must not become a flood of log lines.
        assert logs == []
        assert 'reason="TooManyRequests",station="ratelimit"} 1.0' in line.counted()
        assert (await line.ask(source="192.0.2.2")).status == 200
        await line.clock.advance(0.5)
        assert (await line.ask()).status == 200

    async def test_guesses_of_a_token_are_limited_too(self) -> None:
        line = Line(limit=self.LIMITS)
        headers = {"Authorization": "Bearer guess"}
        assert [(await line.ask(headers=headers)).status for _ in range(5)] == [401, 401, 401, 429, 429]

    async def test_lifted_limits_refuse_nobody(self) -> None:
        line = Line(limit=limits.Limits(lifted=True, anonymous_burst=1))
        assert {(await line.ask()).status for _ in range(5)} == {200}


class TestWarnings:
    async def test_warnings_are_sent_as_headers_of_one_line(self) -> None:
        def warned(asked: Any) -> answers.Answer:
            asked.warnings = ['unknown field "a\\b"', "two\r\nX-Evil: 1"]
            return answers.Answer()

        response = await Line(warned).ask()
        assert [value for name, value in response.added if name == "Warning"] == [
            '299 - "unknown field \\"a\\\\b\\""',
            '299 - "two  X-Evil: 1"',
        ]

    @pytest.mark.parametrize("text", ["a\0b", "a\nb", "a\x7fb", "a\u2028b", "\x1b[31m"])
    def test_what_a_warning_quotes_is_made_printable(self, text: str) -> None:
        (only,) = pipeline.warning_headers([text])
        assert only.isprintable()

    def test_warnings_are_bounded_one_by_one_and_together(self) -> None:
        (only,) = pipeline.warning_headers(["x" * 100_000])
        assert len(only) < 1100
        assert sum(map(len, pipeline.warning_headers(["x" * 100_000] * 100))) < 5000
        assert sum(map(len, pipeline.warning_headers(['"' * 100] * 1000))) < 10_000

    def test_no_warning_makes_no_header(self) -> None:
        assert list(pipeline.warning_headers([])) == []


class TestProtocolError:
    @pytest.mark.parametrize(
        ("code", "message", "shown", "said"),
        [
            (400, "Invalid method encountered:\n\n  b'\\x00s3cret'", 400, "Invalid method encountered"),
            (400, "", 400, "malformed HTTP request"),
            (400, ":\n", 400, "malformed HTTP request"),
            (400, "x" * 1000, 400, "x" * 200),
            (431, "Got more than 32768 bytes", 431, "request header fields too large"),
            (500, "s3cret", 500, "Internal error occurred"),
            (504, "s3cret", 500, "Internal error occurred"),
        ],
    )
    def test_a_status_that_does_not_quote(self, code: int, message: str, shown: int, said: str) -> None:
        response = pipeline.protocol_error(code, message)
        assert response.status == shown
        assert body(response)["message"] == said
        assert body(response)["code"] == shown
