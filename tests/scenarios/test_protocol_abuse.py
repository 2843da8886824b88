# SPDX-License-Identifier: Apache-2.0
"""Clients that break the protocol, dawdle, vanish or flood, byte for byte against a real server.

Proves: what is not HTTP gets a 400-class Status or a closed connection, one request never becomes two, nobody who dawdles
or floods keeps others from being served, and memory stays bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.apiserver import limits
from tests.scenarios import up_world, wire
from tests.scenarios.refusals import CONFIG_MAPS
from tests.world import world as worlds

NODES = "/api/v1/nodes"
HOST = b"Host: localhost\r\n"
FAULTS = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "world") as made:
        yield made
        assert (await made.get("/healthz")).body == b"ok"


def line(world: worlds.World, context: ssl.SSLContext | None = None, **options: Any) -> Any:
    return wire.line(world.server.address[1], context or world.admin_context(), **options)


def post(headers: bytes, body: bytes = b"") -> bytes:
    return b"POST " + CONFIG_MAPS.encode() + b" HTTP/1.1\r\n" + HOST + headers + b"\r\n" + body


def get(headers: bytes = b"", target: bytes = b"/healthz", version: bytes = b"HTTP/1.1") -> bytes:
    return b"GET " + target + b" " + version + b"\r\n" + HOST + headers + b"\r\n"


SMUGGLED = post(b"Content-Length: 25\r\n", b'{"metadata":{"name":"s"}}')
BROKEN = {
    "garbage": (b"\x00\x01\x02\x03\r\n\r\n", 400),
    "words": (b"hello world, how are you\r\n\r\n", 400),
    "http 2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "http 0.9": (b"GET /healthz\r\n\r\n", 400),
    "http 1.2": (get(version=b"HTTP/1.2"), 400),
    "http 9": (get(version=b"HTTP/9.9"), 400),
    "no version": (get(version=b"HTTP/"), 400),
    "unknown method": (b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "method in small letters": (b"get / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "bare line feeds": (b"GET /healthz HTTP/1.1\nHost: x\n\n", 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two hosts": (get(b"Host: other\r\n"), 400),
    "blank before the colon": (get(b"X-A : b\r\n"), 400),
    "folded header": (get(b"X-A: b\r\n c\r\n"), 400),
    "nul in a header": (get(b"X-A: b\x00c\r\n"), 400),
    "header without a name": (get(b": b\r\n"), 400),
    "bytes in the path": (get(target=b"/\xff\xfe"), 400),
    "blank in the path": (get(target=b"/a b"), 400),
    "a long header": (get(b"X-A: " + b"a" * 40_000 + b"\r\n"), 431),
    "a long header name": (get(b"X" * 40_000 + b": a\r\n"), 431),
    "a long path": (get(target=b"/" + b"a" * 40_000), 431),
    "many headers": (get(b"X-A: b\r\n" * 1000), 431),
    "two lengths": (post(b"Content-Length: 2\r\nContent-Length: 3\r\n", b"{} "), 400),
    "a negative length": (post(b"Content-Length: -1\r\n"), 400),
    "a signed length": (post(b"Content-Length: +2\r\n", b"{}"), 400),
    "a length in hex": (post(b"Content-Length: 0x2\r\n", b"{}"), 400),
    "an endless length": (post(b"Content-Length: 99999999999999999999999\r\n"), 400),
    "length and chunks": (post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED), 400),
    "chunks and length": (post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + SMUGGLED), 400),
    "an unknown coding": (post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n" + SMUGGLED), 400),
    "a coding after chunked": (post(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n" + SMUGGLED), 400),
    "chunked twice": (
        post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
        400,
    ),
    "a chunk size that is none": (post(b"Transfer-Encoding: chunked\r\n", b"zz\r\n{}\r\n0\r\n\r\n" + SMUGGLED), 400),
    "a chunk longer than it says": (post(b"Transfer-Encoding: chunked\r\n", b"1\r\n{}\r\n0\r\n\r\n" + SMUGGLED), 400),
    "a negative chunk": (post(b"Transfer-Encoding: chunked\r\n", b"-1\r\n{}\r\n0\r\n\r\n" + SMUGGLED), 400),
}


async def test_what_is_not_http(world: worlds.World) -> None:
    before = world.server.replica.version
    for label, (sent, code) in BROKEN.items():
        async with line(world) as opened:
            await opened.send(sent)
            reply = await opened.reply()
            assert (reply.status, reply.json()["kind"], reply.json()["code"]) == (code, "Status", code), label
            assert "Traceback" not in str(reply.body), label
            # One answer, then the end: what stood behind was not taken for a request.
            assert await opened.rest() == b"", label
    assert world.server.replica.version == before


@pytest.mark.slow
async def test_only_tls_is_spoken(world: worlds.World) -> None:
    for sent in (
        get(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,
        b"\x80\x2e\x01\x00\x02",
        b"\n" * 999,
    ):
        async with wire.line(world.server.address[1], None) as opened:
            await opened.send(sent)
            # Nothing but a TLS alert comes back.
            assert b"HTTP" not in await asyncio.wait_for(_closed(opened), wire.PATIENCE)


async def _closed(opened: wire.Line) -> bytes:
    # A hello that is not complete keeps the door open until its deadline: the client gives up first.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            return await opened.rest()
    return b""


async def test_old_http(world: worlds.World) -> None:
    for number in range(4):
        await world.create_config_map(f"big-{number}", data="x" * 200_000)
    async with line(world) as opened:
        await opened.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await opened.reply()).body == b"ok"
        assert await opened.rest() == b""
    async with line(world) as opened:
        await opened.send(f"GET {CONFIG_MAPS} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await opened.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200")
        assert b"chunked" not in head.lower()
        assert body.startswith(b'{"kind":"ConfigMapList"')
        assert body.endswith(b"]}\n")
    async with line(world) as opened:
        await opened.send(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.0\r\n\r\n".encode())
        assert (await opened.reply()).message == "a watch needs HTTP/1.1"
    # The same list with HEAD has no body, and the next answer is not taken for one.
    async with line(world) as opened:
        assert (await opened.ask("HEAD", CONFIG_MAPS)).status == 200
        assert (await opened.ask("GET", "/healthz")).body == b"ok"


async def test_pipelined_requests_are_answered_in_order_up_to_the_first_bad_one(world: worlds.World) -> None:
    async with line(world) as opened:
        names = [f"c{number}" for number in range(20)]
        bodies = [f'{{"metadata":{{"name":"{name}"}}}}'.encode() for name in names]
        await opened.send(b"".join(wire.request("POST", CONFIG_MAPS, body) for body in bodies))
        assert [(await opened.reply()).json()["metadata"]["name"] for _ in names] == names
        # After what is no request, nothing is answered any more.
        await opened.send(get() + b"garbage\r\n\r\n" + get() * 3)
        answers = (await opened.rest()).split(b"HTTP/1.")[1:]
        assert answers[-1][2:].startswith(b"400")
        assert len(answers) <= 2


@pytest.mark.slow
async def test_a_body_that_breaks_off(world: worlds.World) -> None:
    before = world.server.replica.version
    for part in (b"zz\r\n", b"-1\r\n", b"1\r\n{}\r\n"):
        async with line(world) as opened:
            await opened.send(post(b"Transfer-Encoding: chunked\r\n", b"1\r\n{\r\n"))
            # The request has begun when the nonsense arrives.
            await asyncio.sleep(0.02)
            await opened.send(part + SMUGGLED)
            assert (await opened.reply()).status == 400
            await opened.rest()
    assert world.server.replica.version == before


async def test_100_continue_is_answered_before_the_body_and_other_expectations_are_refused(world: worlds.World) -> None:
    body = b'{"metadata":{"name":"e"}}'
    async with line(world) as opened:
        await opened.send(post(b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(body)))
        assert (await opened.reply()).status == 100
        await opened.send(body)
        assert (await opened.reply()).status == 201
    async with line(world) as opened:
        await opened.send(post(b"Expect: 100-continue\r\nContent-Length: 4000000\r\n"))
        assert (await opened.reply()).status == 413
    async with line(world) as opened:
        await opened.send(post(b"Expect: miracles\r\nContent-Length: 2\r\n"))
        assert (await opened.reply()).status == 417
    # Who may not write is told so before sending anything.
    async with line(world, world.anonymous_context()) as opened:
        await opened.send(post(b"Expect: 100-continue\r\nContent-Length: 2\r\n"))
        assert (await opened.reply()).status == 403


async def test_upgrades_are_ignored(world: worlds.World) -> None:
    offers = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n",
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n",
    )
    for offer in offers:
        async with line(world) as opened:
            for _ in range(2):
                await opened.send(get(offer))
                assert (await opened.reply()).body == b"ok"
    async with line(world) as opened:
        await opened.send(b"CONNECT example.com:443 HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await opened.reply()).status == 405
    async with line(world) as opened:
        await opened.send(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await opened.reply()).status == 405


async def test_an_absolute_target_names_nothing_here(world: worlds.World) -> None:
    for target in (b"http://evil.example/healthz", b"https://127.0.0.1/api/v1/secrets"):
        async with line(world, world.anonymous_context()) as opened:
            await opened.send(get(target=target))
            assert (await opened.reply()).status == 403


async def test_the_address_of_a_proxied_client_is_not_believed(world: worlds.World) -> None:
    headers = b"X-Forwarded-For: 10.0.0.1\r\nX-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n"
    headers += b"Impersonate-User: admin\r\nImpersonate-Group: system:masters\r\nX-Forwarded-Client-Cert: x\r\n"
    async with line(world, world.anonymous_context()) as opened:
        await opened.send(get(headers, target=NODES.encode()))
        reply = await opened.reply()
        assert reply.status == 403
        assert 'User "system:anonymous"' in reply.message


@pytest.mark.slow
async def test_who_sends_too_slowly_is_cut_off(tmp_path: pathlib.Path) -> None:
    bounds = limits.Limits(lifted=True, head_seconds=0.2, body_seconds=0.2)
    async with worlds.world(tmp_path / "world", limits=bounds) as world:
        # A head, byte by byte.
        async with line(world) as opened:
            await opened.send(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
            began = asyncio.get_running_loop().time()
            while not opened.reader.at_eof():
                await opened.send(b"x")
                with contextlib.suppress(TimeoutError, ConnectionError):
                    await asyncio.wait_for(opened.reader.read(1), 0.02)
            assert asyncio.get_running_loop().time() - began < 3
        # A body that does not come.
        async with line(world) as opened:
            await opened.send(post(b"Content-Length: 100\r\n", b"{"))
            assert (await opened.reply()).status == 408
        async with line(world) as opened:
            await opened.send(post(b"Transfer-Encoding: chunked\r\n", b"1\r\n{\r\n"))
            assert (await opened.reply()).status == 408
        assert (await world.get("/healthz")).status == 200


@pytest.mark.slow
async def test_those_who_vanish(world: worlds.World) -> None:
    before = world.server.replica.version
    for sent in (
        b"GET /hea",
        post(b"Content-Length: 100\r\n", b'{"metadata":'),
        post(b"Transfer-Encoding: chunked\r\n", b"5\r\n{"),
        get(),
        get() * 50,
        wire.request("GET", CONFIG_MAPS + "?watch=1"),
    ):
        async with line(world) as opened:
            await opened.send(sent)
            await asyncio.sleep(0.02)
    async with asyncio.timeout(5):
        while len(world.server.hub) or world.server.listener.connections > 1:
            await asyncio.sleep(0.01)
    assert world.server.replica.version == before


async def test_half_closed_watch(world: worlds.World) -> None:
    async with line(world) as opened:
        await opened.send(wire.request("GET", CONFIG_MAPS + "?watch=1"))
        await opened.reply(head_only=True)
        await world.create_config_map("seen")
        chunks = opened.chunks()
        assert b'"seen"' in await anext(chunks)
        assert len(world.server.hub) == 1
        sock = opened.writer.get_extra_info("socket")
        with socket.socket(fileno=socket.dup(sock.fileno())) as raw:
            raw.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(5):
            while len(world.server.hub):
                await asyncio.sleep(0.01)
        await chunks.aclose()


@pytest.mark.slow
async def test_a_watcher_that_never_reads(tmp_path: pathlib.Path) -> None:
    bounds = limits.Limits(lifted=True, watch_buffer_bytes=64 << 10)
    async with worlds.world(tmp_path / "world", limits=bounds) as world, line(world) as deaf, line(world) as other:
        for opened in (deaf, other):
            await opened.send(wire.request("GET", CONFIG_MAPS + "?watch=1&resourceVersion=1"))
            await opened.reply(head_only=True)
        deaf.writer.transport.pause_reading()
        chunks = other.chunks()
        for number in range(60):
            await world.create_config_map(f"big-{number}", data="x" * 400_000)
            while b'"big-%d"' % number not in await anext(chunks):
                pass
            if world.server.hub.dropped:
                break
        assert world.server.hub.dropped == 1
        assert len(world.server.hub) == 1
        await world.create_config_map("after")
        while b'"after"' not in await anext(chunks):
            pass
        await chunks.aclose()


async def test_a_flood_of_connections(tmp_path: pathlib.Path) -> None:
    bounds = limits.Limits(
        connections_per_second=1.0, connections_burst=10, proven_per_second=1.0, proven_burst=5, waiting_seconds=0.0
    )
    async with worlds.world(tmp_path / "world", limits=bounds) as world, line(world) as early:
        assert (await early.ask("GET", "/healthz")).status == 200

        async def knock() -> int:
            try:
                async with line(world, world.anonymous_context()) as opened:
                    return int((await opened.ask("GET", "/healthz")).status)
            except FAULTS:
                return 0

        found = await asyncio.gather(*(knock() for _ in range(40)))
        # Who is known costs its source nothing, and gives it more than strangers have: both are bounded.
        assert found.count(200) == 15
        assert found.count(0) == 25
        assert world.server.listener.refused == 25
        # Who is in stays in, and time makes room again.
        assert (await early.ask("GET", NODES)).status == 200
        await world.movable().advance(2)
        assert await knock() == 200


async def test_a_flood_of_anonymous_requests(tmp_path: pathlib.Path) -> None:
    bounds = limits.Limits(anonymous_per_second=5.0, anonymous_burst=10)
    async with (
        worlds.world(tmp_path / "world", limits=bounds) as world,
        line(world, world.anonymous_context()) as nobody,
        line(world) as admin,
    ):
        replies = [await nobody.ask("GET", "/healthz") for _ in range(30)]
        assert [reply.status for reply in replies] == [200] * 10 + [429] * 20
        assert replies[-1].headers["retry-after"] == "1"
        assert replies[-1].json()["reason"] == "TooManyRequests"
        assert replies[-1].json()["details"]["retryAfterSeconds"] == 1
        # Another connection does not help, and those with a certificate do not suffer.
        async with line(world, world.anonymous_context()) as again:
            assert (await again.ask("GET", "/healthz")).status == 429
        assert [(await admin.ask("GET", NODES)).status for _ in range(30)] == [200] * 30
        await world.movable().advance(1)
        assert (await nobody.ask("GET", "/healthz")).status == 200


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(row.split()[1]) for row in text.splitlines() if row.startswith("VmRSS:")) << 10


@pytest.mark.slow
async def test_memory_stays_bounded(tmp_path: pathlib.Path) -> None:
    """Every kind of flood at a real process: its memory ends about where it began."""
    with up_world.Up(tmp_path / "data").ready() as up:
        pid = up.pids()["apiserver"]
        port = int(up.facts["apiserver"].rpartition(":")[2])
        context = up.context()
        many = asyncio.Semaphore(20)

        async def tried(*parts: bytes, secure: bool = True) -> None:
            async with many:
                with contextlib.suppress(*FAULTS, TimeoutError):
                    async with wire.line(port, context if secure else None) as opened:
                        await opened.send(*parts)
                        async with asyncio.timeout(1):
                            await opened.reader.read(1 << 16)

        big = b'{"metadata":{"name":"t"},"data":{"a":"' + b"x" * (3 << 20)
        deep = b"[" * 1_000_000
        floods: list[tuple[bytes, ...]] = [
            (post(b"Content-Length: %d\r\n" % (2 * len(big))), big),
            (post(b"Transfer-Encoding: chunked\r\n"), b"%x\r\n" % len(big), big, b"\r\n"),
            (post(b"Content-Length: %d\r\n" % len(deep), deep),),
            (post(b"Content-Type: application/yaml\r\nContent-Length: %d\r\n" % len(deep), deep),),
            (get(b"X-A: " + b"a" * 60_000 + b"\r\n"),),
            (b"garbage\r\n" * 5000,),
            (get() * 500,),
            (wire.request("GET", CONFIG_MAPS + "?labelSelector=" + "a," * 4000),),
            (wire.request("GET", CONFIG_MAPS + "?watch=1"),),
        ]

        async def flood(rounds: int) -> None:
            jobs = [tried(*parts) for _ in range(rounds) for parts in floods]
            jobs += [tried(b"\x00" * 5000, secure=False) for _ in range(5 * rounds)]
            await asyncio.gather(*jobs)

        # Long enough that as many large bodies as ever will be have been in flight at once.
        await flood(12)
        warm = resident(pid)
        await flood(20)
        grown = resident(pid) - warm
        assert grown < 64 << 20, f"{grown >> 20} MiB more than after the first flood"
        assert warm < 400 << 20
        assert up.call("GET", "/api/v1/namespaces/default")[0] == 200
        assert "Traceback" not in up.log.read_text()
