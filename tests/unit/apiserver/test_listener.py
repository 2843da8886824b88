# SPDX-License-Identifier: Apache-2.0
"""The door on a real socket: TLS as it is offered, gates, deadlines, and what is said to those who speak no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
import ipaddress
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import structlog
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from handfast.apiserver import answers, limits, listener, pipeline
from handfast.runtime import tls
from tests.scenarios import wire
from tests.unit.pki.making import CLIENT, SERVER, Made, ca, leaf
from tests.world import leftovers
from tests.world.clock import START, MovableClock

DAY = datetime.timedelta(days=1)
NOW_VALID: dict[str, Any] = {"not_before": START - DAY, "not_after": START + DAY}
PAST: dict[str, Any] = {"not_before": START - 3 * DAY, "not_after": START - 2 * DAY}
ROOT = ca("the CA", **NOW_VALID)
FOREIGN = ca("a foreign CA", **NOW_VALID)
MIDDLE = ca("team", ROOT, **NOW_VALID)
SERVING = leaf(ROOT, SERVER, sans=[x509.IPAddress(ipaddress.ip_address("127.0.0.1"))], **NOW_VALID)
LIFTED = limits.Limits(lifted=True)


def key_pem(made: Made) -> bytes:
    form = serialization
    pem = made.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return cast("bytes", pem)


def client(made: Made | None = None, *more: Made) -> ssl.SSLContext:
    """TLS of a client that shows this certificate, with what it sends along."""
    if made is None:
        return tls.client_context(ROOT.pem)
    return tls.client_context(ROOT.pem, b"".join(part.pem for part in (made, *more)), key_pem(made))


class Door:
    """A listener whose pipeline only tells what it saw."""

    def __init__(self, made: listener.Listener, port: int) -> None:
        self.listener = made
        self.port = port

    def line(self, context: ssl.SSLContext | None, **options: Any) -> contextlib.AbstractAsyncContextManager[wire.Line]:
        return wire.line(self.port, context, **options)


async def _tell(http: web.BaseRequest) -> web.StreamResponse:
    connection = cast("listener.Connection", http.protocol)
    seen = connection.peer
    return web.json_response({"chain": [part.hex() for part in seen.chain], "address": seen.address, "via": seen.via})


Opener = Callable[..., contextlib.AbstractAsyncContextManager[Door]]


@pytest.fixture
def door(tmp_path: pathlib.Path) -> Opener:
    (tmp_path / "tls.crt").write_bytes(SERVING.pem)
    (tmp_path / "tls.key").write_bytes(key_pem(SERVING))

    @contextlib.asynccontextmanager
    async def opened(bounds: limits.Limits = LIFTED, handler: listener.Handler = _tell) -> AsyncIterator[Door]:
        context = listener.server_context(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), ROOT.pem.decode())
        sock = socket.create_server(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        made = listener.Listener(sock, context, handler, pipeline.protocol_error, bounds, MovableClock())
        made.start()
        try:
            yield Door(made, port)
        finally:
            await made.stop(0.1)

    return opened


async def seen_by(door: Door, context: ssl.SSLContext) -> Any:
    async with door.line(context) as line:
        return (await line.ask("GET", "/")).json()


class TestTls:
    async def test_who_is_at_the_other_end(self, door: Opener) -> None:
        jane = leaf(ROOT, CLIENT, **NOW_VALID)
        async with door() as opened:
            assert await seen_by(opened, client()) == {"chain": [], "address": "127.0.0.1", "via": "tls"}
            assert (await seen_by(opened, client(jane)))["chain"][0] == jane.der.hex()

    async def test_intermediates_come_along(self, door: Opener) -> None:
        jane = leaf(MIDDLE, CLIENT, **NOW_VALID)
        async with door() as opened:
            assert (await seen_by(opened, client(jane, MIDDLE)))["chain"][:2] == [jane.der.hex(), MIDDLE.der.hex()]

    async def test_an_expired_certificate_passes_the_handshake(self, door: Opener) -> None:
        late = leaf(ROOT, CLIENT, **PAST)
        async with door() as opened:
            assert (await seen_by(opened, client(late)))["chain"][0] == late.der.hex()

    async def test_a_foreign_certificate_does_not(self, door: Opener) -> None:
        stranger = leaf(FOREIGN, CLIENT, **NOW_VALID)
        async with door() as opened:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await seen_by(opened, client(stranger))
            # From now on it does, on new connections.
            opened.listener.trust(FOREIGN.pem.decode())
            assert (await seen_by(opened, client(stranger)))["chain"][0] == stranger.der.hex()

    async def test_a_serving_certificate_does_not(self, door: Opener) -> None:
        async with door() as opened:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await seen_by(opened, client(leaf(ROOT, SERVER, **NOW_VALID)))

    async def test_another_pair_for_new_connections(self, door: Opener, tmp_path: pathlib.Path) -> None:
        sans = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        renewed = leaf(ROOT, SERVER, subject="renewed", sans=sans, **NOW_VALID)
        (tmp_path / "new.crt").write_bytes(renewed.pem)
        (tmp_path / "new.key").write_bytes(key_pem(renewed))
        async with door() as opened, opened.line(client()) as old:
            opened.listener.renew(str(tmp_path / "new.crt"), str(tmp_path / "new.key"))
            async with opened.line(client()) as new:
                assert new.writer.get_extra_info("ssl_object").getpeercert(binary_form=True) == renewed.der
            assert (await old.ask("GET", "/")).status == 200

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    async def test_tls_1_1_is_refused(self, door: Opener) -> None:
        old = client()
        old.set_ciphers("DEFAULT@SECLEVEL=0")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        hello = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            old.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1").do_handshake()
        async with door() as opened, opened.line(None) as line:
            await line.send(hello.read())
            answer = await line.rest()
        # An alert, or nothing; never the handshake record of a server that would go on.
        assert not answer.startswith(b"\x16")

    async def test_http_1_1_is_agreed_on(self, door: Opener) -> None:
        modern = client()
        modern.set_alpn_protocols(["h2", "http/1.1"])
        async with door() as opened, opened.line(modern) as line:
            assert line.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


def _resumed(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[Any, bool, bytes]:
    with (
        socket.create_connection(("127.0.0.1", port)) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1", session=session) as line,
    ):
        line.sendall(wire.request("GET", "/", Connection="close"))
        answer = b""
        while part := line.recv(1 << 16):
            answer += part
        return line.session, bool(line.session_reused), answer.partition(b"\r\n\r\n")[2]


class TestResumption:
    """A resumed session must never hide whose connection it is."""

    async def test_tls_1_3_sessions_are_not_resumed(self, door: Opener) -> None:
        context = client(leaf(ROOT, CLIENT, **NOW_VALID))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        async with door() as opened:
            session, _, first = await asyncio.to_thread(_resumed, opened.port, context, None)
            assert not session.has_ticket
            _, reused, second = await asyncio.to_thread(_resumed, opened.port, context, session)
        assert not reused
        assert first == second

    async def test_a_tls_1_2_session_keeps_the_whole_chain(self, door: Opener) -> None:
        context = client(leaf(MIDDLE, CLIENT, **NOW_VALID), MIDDLE)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with door() as opened:
            session, _, first = await asyncio.to_thread(_resumed, opened.port, context, None)
            # There are no tickets; by its number OpenSSL finds a session again, and the chain with it.
            assert not session.has_ticket
            _, _, second = await asyncio.to_thread(_resumed, opened.port, context, session)
        assert first == second


class TestGates:
    async def test_a_source_over_its_rate_is_closed_before_tls(self, door: Opener) -> None:
        async with door(limits.Limits(connections_per_second=0.001, connections_burst=2)) as opened:
            for _ in range(2):
                assert (await seen_by(opened, client()))["chain"] == []
            for _ in range(3):
                with pytest.raises((ConnectionError, ssl.SSLError)):
                    await seen_by(opened, client())
            assert opened.listener.refused == 3

    async def test_connections_over_the_total_are_closed(self, door: Opener) -> None:
        async with (
            door(limits.Limits(connections=2)) as opened,
            opened.line(client()) as one,
            opened.line(client()) as other,
        ):
            # A client of TLS 1.3 is done before the server is: an answer tells that both are.
            assert [(await line.ask("GET", "/")).status for line in (one, other)] == [200, 200]
            assert opened.listener.connections == 2
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await seen_by(opened, client())

    async def test_whoever_says_nothing_stays_in_the_kernel(self, door: Opener) -> None:
        # For a second only, so that a test of what it does would depend on how fast the machine is.
        async with door() as opened:
            listening = opened.listener._socket
            assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT) > 0

    @pytest.mark.slow
    async def test_more_handshakes_than_allowed_wait_their_turn(self, door: Opener) -> None:
        bounds = limits.Limits(handshakes_in_flight=1, handshake_seconds=0.2, silence_seconds=0.2)
        # The one that stops in the middle keeps the only place until its deadline; the others come after.
        async with door(bounds) as opened, opened.line(None) as silent:
            await silent.send(b"\x16\x03\x01")
            found = await asyncio.gather(*(seen_by(opened, client()) for _ in range(5)))
            assert len(found) == 5
            assert await silent.rest() == b""

    @pytest.mark.slow
    @pytest.mark.parametrize("start", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
    async def test_a_handshake_that_does_not_go_on_ends(self, door: Opener, start: bytes) -> None:
        bounds = limits.Limits(handshake_seconds=0.1, silence_seconds=0.1)
        async with door(bounds) as opened, opened.line(None) as silent:
            await silent.send(start)
            assert await silent.rest() == b""


async def test_a_connection_leaves_nothing_for_the_collector(door: Opener) -> None:
    async with door() as opened:
        with leftovers.without_collector(listener.Connection) as left:
            async with opened.line(client()) as line:
                await line.ask("POST", "/", body=b"x")
            async with asyncio.timeout(5):
                while left():
                    await asyncio.sleep(0.01)


@pytest.mark.slow
class TestHeads:
    BOUNDS = limits.Limits(lifted=True, head_seconds=0.15)
    # Just past the deadline, which is itself as short as a busy machine allows.
    PAST = 0.17

    @pytest.mark.parametrize("start", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
    async def test_a_head_that_does_not_end(self, door: Opener, start: bytes) -> None:
        async with door(self.BOUNDS) as opened, opened.line(client()) as line:
            await line.send(start)
            assert await line.rest() == b""

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

    async def test_a_long_answer_is_not_a_slow_head(self, door: Opener) -> None:
        async def slow(http: web.BaseRequest) -> web.StreamResponse:
            await asyncio.sleep(self.PAST)
            return await _tell(http)

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

    async def test_hooks_learn_that_the_connection_ended(self, door: Opener) -> None:
        ended = asyncio.Event()

        async def waits(http: web.BaseRequest) -> web.StreamResponse:
            cast("listener.Connection", http.protocol).closed_hooks.add(ended.set)
            return await _tell(http)

        async with door(LIFTED, waits) as opened:
            async with opened.line(client()) as line:
                await line.ask("GET", "/")
            async with asyncio.timeout(5):
                await ended.wait()
                while opened.listener.connections:
                    await asyncio.sleep(0)


class TestStop:
    async def test_requests_in_flight_end_and_nobody_new_comes(self, door: Opener) -> None:
        started, go = asyncio.Event(), asyncio.Event()

        async def waits(http: web.BaseRequest) -> web.StreamResponse:
            started.set()
            await go.wait()
            return await _tell(http)

        async with door(LIFTED, waits) as opened, opened.line(client()) as line:
            await line.send(wire.request("GET", "/"))
            await started.wait()
            stopping = asyncio.ensure_future(opened.listener.stop(5.0))
            await asyncio.sleep(0)
            with pytest.raises(OSError):
                await seen_by(opened, client())
            go.set()
            assert (await line.reply()).status == 200
            await stopping


@pytest.mark.parametrize("stepwise", [False, True])
async def test_who_does_not_read_a_whole_answer_is_given_up(door: Opener, *, stepwise: bool) -> None:
    """Check 6: 32 MiB are more than both sockets hold."""

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


async def test_a_long_answer_that_is_read_arrives_whole(door: Opener) -> None:
    body = bytes(range(256)) * (8 << 10)

    async def large(_http: web.BaseRequest) -> answers.Response:
        return answers.Answer(body)

    async with door(LIFTED, large) as opened, opened.line(client()) as line:
        for _ in range(2):
            assert (await line.ask("GET", "/")).body == body
