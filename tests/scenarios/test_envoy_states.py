# SPDX-License-Identifier: Apache-2.0
"""A real Envoy in each state of its certificate: what it does with TLS of its own name, other TLS, HTTP and TCP.

The certificates are of a CA of the test: who signs them, and when, is told elsewhere. What is judged for each request: `test_envoy_judging`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile

import pytest

from handfast.pki import keys, pairs
from handfast.rules.envoy import http, tls
from handfast.wire import ads
from tests.scenarios import envoy_world as world
from tests.scenarios import up_world
from tests.unit.wire import greeting
from tests.world import mesh_client

pytestmark = pytest.mark.slow
HOUR = datetime.timedelta(hours=1)


async def forwards_plaintext(proxy, application):
    async with world.http1(proxy.port) as connection:
        status, _, seen = await connection.get()
    assert status == 200
    assert seen["line"] == "GET /x HTTP/1.1"
    assert await world.exchange(proxy.port, b"\x00\x01 no HTTP\r\n", enough=12) == b"\x00\x01 no HTTP\r\n"
    assert application.connections


async def passes_other_tls(proxy, application):
    """Byte for byte: the application echoes it."""
    for name in ("other.ns1.example", None):
        hello = world.client_hello(name)
        assert await world.exchange(proxy.port, hello, enough=len(hello)) == hello
        assert hello in application.octets


async def refuses_its_own_name(proxy, application, *pieces):
    before = application.connections, len(application.octets)
    hello = world.client_hello(world.IDENTITY)
    for data in (hello, world.in_records(hello, 50), world.client_hello(world.IDENTITY.upper())):
        for piece in pieces or (0,):
            # Not an octet, and so no certificate.
            assert await world.exchange(proxy.port, data, piece=piece) == b""
    assert (application.connections, len(application.octets)) == before


async def test_before_the_first_certificate_the_own_name_is_refused_and_all_else_forwarded():
    async with world.application() as application, world.proxy(application.port, greeting.Anchor()) as proxy:
        await refuses_its_own_name(proxy, application, 0, 1)
        await forwards_plaintext(proxy, application)
        await passes_other_tls(proxy, application)
        await refuses_its_own_name(proxy, application)
        assert await proxy.refused() == {"no-certificate": 9}


async def test_where_not_everybody_may_come_in_bytes_without_a_name_reach_nobody():
    anchor = greeting.Anchor()
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        proxy.facts = dataclasses.replace(proxy.facts, tcp=False)
        await proxy.certify(anchor.pair(world.IDENTITY))
        await world.until(lambda: _refuses_bytes(proxy), "the refusal")
        before, counted = application.connections, await proxy.refused()
        for name in ("other.ns1.example", None):
            assert await world.exchange(proxy.port, world.client_hello(name)) == b""
        for data, end in ((b"\x00\x01 no HTTP\r\n", False), (b"\n", True), (b"GET", True)):
            assert await world.exchange(proxy.port, data, end=end) == b""
        assert application.connections == before
        after = await proxy.refused()
        assert after["tls-without-identity"] == 2
        assert after["tcp-without-identity"] > counted.get("tcp-without-identity", 0)
        # Who has a request, or a name, is judged by the routes.
        async with world.http1(proxy.port) as connection:
            assert (await connection.get())[0] == 200
        assert await world.is_served(proxy.port, greeting.context(anchor))


async def test_what_is_open_is_cut_when_its_chain_has_drained_and_nothing_else_is():
    """Bytes that a policy lets in no longer, and a WebSocket of a certificate that is over."""
    anchor = greeting.Anchor()
    async with (
        world.application() as application,
        world.proxy(application.port, anchor, drain=1) as proxy,
        world.http1(proxy.port) as plaintext,
    ):
        await proxy.certify(anchor.pair(world.IDENTITY))
        raw, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"\x00\x01raw")
        assert await raw.readexactly(5) == b"\x00\x01raw"
        assert (await plaintext.get())[0] == 200
        async with world.http1(proxy.port, greeting.context(anchor)) as secured:
            upgrade = {"upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
            assert (await secured.get(connection="Upgrade", **upgrade))[0] == 101
            proxy.facts = dataclasses.replace(proxy.facts, tcp=False)
            await proxy.expire()
            await world.until(lambda: _is_cut(secured), "the end of the WebSocket")
            with contextlib.suppress(ConnectionError):
                assert await raw.read() == b""
        assert (await plaintext.get())[0] == 200
        writer.close()


async def _is_cut(connection):
    try:
        await connection.echo(b"still there")
    except (ConnectionError, asyncio.IncompleteReadError):
        return True
    return False


async def _refuses_bytes(proxy):
    return await world.exchange(proxy.port, b"\x00\x01 no HTTP\r\n") == b""


async def test_http_1_0_is_forwarded():
    async with world.application() as application, world.proxy(application.port, None) as proxy:
        for head in (b"host: web\r\n", b""):
            answer = await world.exchange(proxy.port, b"GET /old HTTP/1.0\r\n" + head + b"\r\n", enough=20)
            assert answer.startswith((b"HTTP/1.0 200", b"HTTP/1.1 200")), answer
        assert b"GET /old HTTP/1.1" in application.octets


async def test_with_a_certificate_tls_1_3_is_served_and_a_client_certificate_is_optional():
    anchor = greeting.Anchor()
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        async with world.http1(proxy.port, greeting.context(anchor)) as connection:
            status, answer, seen = await connection.get(l5d_client_id="liar", L5D_Anything="liar")
            assert connection.tls.version() == "TLSv1.3"
        assert status == 200
        assert not [name for name in seen["headers"] if name.startswith("l5d-")]
        assert "l5d-server-id" not in answer
        async with world.http1(proxy.port, greeting.context(anchor, anchor.pair(world.CLIENT))) as connection:
            _, _, seen = await connection.get(l5d_client_id="liar")
        assert seen["headers"]["l5d-client-id"] == world.CLIENT
        await forwards_plaintext(proxy, application)
        await passes_other_tls(proxy, application)


async def test_a_client_of_another_authority_or_past_its_end_is_refused():
    anchor, other = greeting.Anchor(ago=24 * HOUR), greeting.Anchor()
    expired = anchor.pair(world.CLIENT, ttl=HOUR, ago=3 * HOUR)
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        assert await world.is_served(proxy.port, greeting.context(anchor, anchor.pair(world.CLIENT)))
        assert not await world.is_served(proxy.port, greeting.context(anchor, other.pair(world.CLIENT)))
        assert not await world.is_served(proxy.port, greeting.context(anchor, expired))
        assert not await world.is_served(proxy.port, world.context_of_tls_1_2(anchor))
        assert await proxy.refused() == {"client-certificate": 2}


async def test_a_rotation_reaches_new_connections_and_touches_no_open_one():
    anchor = greeting.Anchor()
    first, second = anchor.pair(world.IDENTITY), anchor.pair(world.IDENTITY)
    context = greeting.context(anchor)
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(first)
        async with world.http1(proxy.port, context) as kept:
            assert (await kept.get())[0] == 200
            await proxy.rotate(second)
            await world.until(lambda: _serves(proxy, context, second), "the second certificate")
            assert (await kept.get())[0] == 200
            assert kept.tls.getpeercert(binary_form=True) == first.chain[0]


async def _serves(proxy, context, pair):
    return await world.served_serial(proxy.port, context) == pair.chain[0]


async def test_at_expiry_the_own_name_is_refused_and_a_new_certificate_is_served_again():
    anchor = greeting.Anchor()
    context = greeting.context(anchor)
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        for _ in range(3):
            assert await world.is_served(proxy.port, context)
            await proxy.expire()
            await world.until(lambda: _refuses(proxy, context), "the refusal")
            await refuses_its_own_name(proxy, application)
            await forwards_plaintext(proxy, application)
            fresh = anchor.pair(world.IDENTITY)
            await proxy.certify(fresh)
            await world.until(lambda: world.is_served(proxy.port, context), "the recovery")
            assert await _serves(proxy, context, fresh)


async def _refuses(proxy, context):
    return not await world.is_served(proxy.port, context)


async def test_a_plain_proxy_has_no_name_of_its_own():
    async with world.application() as application, world.proxy(application.port, None) as proxy:
        await forwards_plaintext(proxy, application)
        await passes_other_tls(proxy, application)
        hello = world.client_hello(world.IDENTITY)
        assert await world.exchange(proxy.port, hello, enough=len(hello)) == hello


async def test_grpc_is_forwarded_without_tls():
    async with greeting.serving() as address, world.proxy(address.port, greeting.Anchor()) as proxy:
        answer = await mesh_client.call(f"127.0.0.1:{proxy.port}", f"/{greeting.SERVICE}/Greet", b"")
        assert mesh_client.certified(answer).leaf == b""


async def test_what_envoy_rejects_is_said_in_its_words_and_changes_nothing():
    anchor = greeting.Anchor()
    good = anchor.pair(world.IDENTITY)
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(good)
        foreign = keys.generate()
        proxy.ads.put(world.KIND.SECRET, tls.IDENTITY, tls.identity(good.certificate_pem, foreign.to_pem()))
        with pytest.raises(ads.Rejected, match="identity") as rejected:
            await proxy.ads.acknowledged([(world.KIND.SECRET, tls.IDENTITY)])
        assert "BEGIN" not in str(rejected.value)
        assert await _serves(proxy, greeting.context(anchor), good)
        await proxy.rotate(pairs.Pair(good.chain, good.key))


async def test_what_nobody_reads_is_held_within_bounds():
    """By itself Envoy would take 16 MiB on each of 1,024 streams of a connection, for a server that reads slowly."""
    async with _unread() as port, world.proxy(port, None) as proxy:
        taken = await _sent_until_it_stops(proxy.port)
    assert http.STREAM_WINDOW <= taken < 4 << 20


@contextlib.asynccontextmanager
async def _unread():
    """An application that answers nothing, and reads nothing."""

    async def stall(_, writer):
        writer.transport.pause_reading()
        await over.wait()
        writer.close()

    over = asyncio.Event()
    server = await asyncio.start_server(stall, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        over.set()
        server.close()


def _frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


async def _sent_until_it_stops(port):
    """How much of a body is taken on one stream of HTTP/2, by a client that keeps to the window that it is told."""
    settings, headers, data, window_update, octets = 4, 1, 0, 8, 16384
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    # POST http://a/x
    begin = _frame(headers, 4, 1, b"\x83\x86\x04\x02/x\x01\x01a")
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(settings, 0, 0) + begin)
    left, taken = {0: 65535, 1: 65535}, 0
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(2):
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            kind, stream = head[3], int.from_bytes(head[5:], "big")
            if kind == window_update:
                left[stream] += int.from_bytes(payload, "big")
            for at in range(0, len(payload) if kind == settings else 0, 6):
                if payload[at : at + 2] == b"\x00\x04":
                    left[1] += int.from_bytes(payload[at + 2 : at + 6], "big") - 65535
            while min(left.values()) >= octets:
                writer.write(_frame(data, 0, 1, bytes(octets)))
                left, taken = {each: window - octets for each, window in left.items()}, taken + octets
            await writer.drain()
    writer.close()
    return taken


async def test_its_sockets_are_for_this_user_alone_and_its_environment_is_empty():
    async with world.application() as application, world.proxy(application.port, greeting.Anchor()) as proxy:
        options = proxy.envoy._options
        for path in (options.agent_socket, options.admin_socket):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert world.environment_of(proxy.envoy.pid) == b""
        assert (await proxy.envoy.ask("/ready"))[0] == 200
        _, dump = await proxy.envoy.ask("/config_dump")
        assert b"PRIVATE KEY" not in dump


async def test_an_envoy_that_dies_is_told_of_started_anew_and_sent_everything_again():
    anchor = greeting.Anchor()
    async with world.application() as application, world.proxy(application.port, anchor) as proxy:
        await proxy.certify(anchor.pair(world.IDENTITY))
        first = proxy.envoy.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await world.until(lambda: _is_another(proxy, first), "another Envoy")
        assert proxy.ends == [-9]
        await world.until(proxy.listens, "the listener")
        await world.until(lambda: world.is_served(proxy.port, greeting.context(anchor)), "TLS")


async def _is_another(proxy, pid):
    return proxy.envoy.pid not in {None, pid}


PARENT = """\
import asyncio, pathlib, sys
from handfast.proxy import envoy
from handfast.runtime import clock

async def main():
    options = envoy.Options(node="pod", directory=pathlib.Path(sys.argv[1]))
    async with envoy.running(options, clock.SystemClock()) as running:
        while not options.admin_socket.exists():
            await asyncio.sleep(0.02)
        (options.directory / "pid").write_text(f"{running.pid}\\n")
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_envoy_is_gone_when_its_parent_is_killed():
    with tempfile.TemporaryDirectory(prefix="hf-") as directory:
        written = pathlib.Path(directory) / "pid"
        with subprocess.Popen([sys.executable, "-c", PARENT, directory]) as parent:
            up_world.until(lambda: written.exists() and written.read_text().endswith("\n"), what="Envoy")
            pid = int(written.read_text())
            assert up_world.alive(pid)
            parent.kill()
        up_world.until(lambda: not up_world.alive(pid), what="the end of Envoy")
