# SPDX-License-Identifier: Apache-2.0
"""A role of thirty lines (`role`) is a whole HTTPS service: what it wrote none of is there all the same."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import pathlib
import ssl
from collections.abc import AsyncIterator

import prometheus_client
import pytest
import structlog
from cryptography import x509
from prometheus_client import core

from handfast import errors
from handfast.runtime import following
from handfast.serving import answers, limits, server_tls, service
from tests.scenarios import wire
from tests.unit.pki.making import CLIENT, SERVER, Made, leaf
from tests.unit.serving import role
from tests.unit.serving.doors import FOREIGN, NOW_VALID, PAST, ROOT, SERVING, client
from tests.world.clock import MovableClock

JANE = leaf(ROOT, CLIENT, **NOW_VALID)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


def write(directory: pathlib.Path, made: Made, key: Made | None = None) -> None:
    (directory / "tls.crt").write_bytes(made.pem)
    (directory / "tls.key").touch(mode=0o600)
    (directory / "tls.key").write_bytes((key or made).key_pem)


@contextlib.asynccontextmanager
async def running(
    directory: pathlib.Path, clock: MovableClock, bounds: limits.Limits | None = None
) -> AsyncIterator[tuple[service.Service, int]]:
    """The role, and its port."""
    write(directory, SERVING)
    made = role.role(directory, ROOT.pem, clock, bounds)
    with role.bound() as sock:
        async with made.on(sock):
            yield made, sock.getsockname()[1]


async def get(port: int, context: ssl.SSLContext) -> tuple[int, str]:
    async with wire.line(port, context) as line:
        reply = await line.ask("GET", "/jane")
        return reply.status, reply.body.decode()


def test_the_role_has_thirty_lines_and_knows_serving_only():
    text = pathlib.Path(role.__file__).read_text()
    assert text.count("\n") <= 30
    taken = [line.split()[1] for line in text.splitlines() if line.startswith("from handfast")]
    assert set(taken) <= {"handfast.serving", "handfast.runtime", "handfast.telemetry"}


async def test_with_a_certificate_and_without(tmp_path, clock):
    async with running(tmp_path, clock) as (_, port):
        assert await get(port, client()) == (401, "show a certificate\n")
        assert await get(port, client(JANE)) == (200, "hello to /jane from 127.0.0.1\n")


@pytest.mark.parametrize("made", [leaf(FOREIGN, CLIENT, **NOW_VALID), leaf(ROOT, CLIENT, **PAST)])
async def test_a_certificate_that_is_not_good_does_not_pass(tmp_path, clock, made):
    async with running(tmp_path, clock) as (_, port):
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await get(port, client(made))


async def test_a_renewed_pair_is_taken_up_without_a_restart(tmp_path, clock):
    async def shown(port: int) -> bytes:
        async with wire.line(port, client()) as line:
            return bytes(line.writer.get_extra_info("ssl_object").getpeercert(binary_form=True))

    sans = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    renewed = leaf(ROOT, SERVER, subject="renewed", sans=sans, **NOW_VALID)
    async with running(tmp_path, clock) as (_, port), wire.line(port, client(JANE)) as old:
        assert await shown(port) == SERVING.der
        # Half of it: what was in force stays, and the log is told.
        write(tmp_path, renewed, key=SERVING)
        await clock.advance(following.SECONDS)
        with structlog.testing.capture_logs() as lines:
            assert await shown(port) == SERVING.der
        assert [line["reason"] for line in lines] == ["KeyMismatch"]
        write(tmp_path, renewed)
        await clock.advance(following.SECONDS)
        assert await shown(port) == renewed.der
        assert (await old.ask("GET", "/")).status == 200


async def test_files_that_cannot_be_used_are_told_at_the_start(tmp_path, clock):
    with pytest.raises(errors.Refused, match=r"cannot read .*/tls\.crt: no such file"):
        server_tls.PairFiles(tmp_path / "tls.crt", tmp_path / "tls.key", clock)


async def test_over_the_limit_connections_are_refused(tmp_path, clock):
    async with running(tmp_path, clock, limits.Limits(connections=1)) as (made, port):
        async with wire.line(port, client(JANE)) as jane:
            assert (await jane.ask("GET", "/")).status == 200
            # She is known, and makes room for nobody.
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await get(port, client())
            assert (await jane.ask("GET", "/")).status == 200
        assert made.listener is not None
        assert made.listener.refused == 1


async def test_a_stop_lets_requests_in_flight_end(tmp_path, clock):
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(_: service.Request) -> answers.Answer:
        begun.set()
        await go.wait()
        return answers.text(200, "done\n")

    write(tmp_path, SERVING)
    files = server_tls.PairFiles(tmp_path / "tls.crt", tmp_path / "tls.key", clock)
    made = service.Service(slow, tls=server_tls.ServerTLS(files.current, clock), clock=clock)
    with role.bound() as sock:
        made.start(sock)
        port = sock.getsockname()[1]
        async with wire.line(port, client()) as line:
            await line.send(wire.request("GET", "/"))
            await begun.wait()
            stopping = asyncio.create_task(made.stop())
            await asyncio.sleep(0)
            go.set()
            assert (await line.reply()).body == b"done\n"
            assert await line.rest() == b""
        await stopping
    with pytest.raises(ConnectionError):
        await get(port, client())


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"no HTTP\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nA: " + b"a" * (40 << 10) + b"\r\n\r\n", 431)],
)
async def test_what_is_no_request_is_refused_in_words(tmp_path, clock, sent, status):
    async with running(tmp_path, clock) as (_, port), wire.line(port, client()) as line:
        await line.send(sent)
        reply = await line.reply()
        assert (reply.status, reply.headers["content-type"]) == (status, answers.TEXT["Content-Type"])
        assert reply.body.startswith(str(status).encode())
        assert await line.rest() == b""


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (RuntimeError("secret"), 500, "500 Internal Server Error\n"),
        (errors.Refused("there is no such thing"), 400, "400 there is no such thing\n"),
        (errors.Unavailable("not now"), 503, "503 not now\n"),
    ],
)
async def test_a_handler_that_fails_is_an_answer_and_a_line_in_the_log(clock, error, status, text):
    async def fails(_: service.Request) -> answers.Answer:
        raise error

    made = service.Service(fails, tls=None, clock=clock)
    with structlog.testing.capture_logs() as lines, role.bound() as sock:
        async with made.on(sock), wire.line(sock.getsockname()[1], None) as line:
            for _ in range(2):
                reply = await line.ask("GET", "/")
                assert (reply.status, reply.body.decode()) == (status, text)
    # What is the caller's own fault, or nobody's, is not the operator's to read.
    assert [line["event"] for line in lines] == (["answering failed"] * 2 if status == 500 else [])


async def test_metrics_of_a_service(tmp_path, clock):
    registry = core.CollectorRegistry()
    write(tmp_path, SERVING)
    made = role.role(tmp_path, ROOT.pem, clock)
    registry.register(service.ServiceMetrics("role", made))
    assert prometheus_client.generate_latest(registry) == b""
    with role.bound() as sock:
        async with made.on(sock), wire.line(sock.getsockname()[1], client(JANE)) as line:
            await line.ask("GET", "/")
            text = prometheus_client.generate_latest(registry).decode()
    assert 'handfast_service_connections{service="role"} 1.0' in text
    assert 'handfast_service_connections_refused_total{service="role"} 0.0' in text
    assert "handfast_proxy_headers_refused" in text
