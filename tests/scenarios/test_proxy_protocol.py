# SPDX-License-Identifier: Apache-2.0
"""A TCP balancer in front of the real server: limits, audit, `--cidr` of tokens and sources see the client behind it.

The balancer is a small one of this test, which connects from an address of its own and says who its client is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import pathlib
import struct
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from handfast.apiserver import limits
from handfast.assembly import apiserver
from handfast.bootstrap import token_limits
from tests.scenarios import callers, test_token_limits, wire
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

BALANCER = "127.0.0.9"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
A, B, C = "192.0.2.7", "192.0.2.8", "2001:db8::7"


def version_1(client: str) -> bytes:
    family, server = ("TCP6", "2001:db8::1") if ":" in client else ("TCP4", "192.0.2.1")
    return f"PROXY {family} {client} {server} 50000 6443\r\n".encode()


def version_2(client: str) -> bytes:
    packed = ipaddress.ip_address(client).packed
    body = packed * 2 + struct.pack("!HH", 50000, 6443) + b"\x04\x00\x02no"
    return b"\r\n\r\n\x00\r\nQUIT\n" + struct.pack("!BBH", 0x21, 0x21 if ":" in client else 0x11, len(body)) + body


LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
Header = Callable[[str], bytes]


@contextlib.asynccontextmanager
async def balancing(world: worlds.World, header: bytes, source: str = BALANCER) -> AsyncIterator[int]:
    """The port of a balancer that puts `header` before what each of its clients sends."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(1 << 16):
                writer.write(part)
        writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection("127.0.0.1", world.server.address[1], local_addr=(source, 0))
        here.write(header)
        await asyncio.gather(pump(reader, here), pump(there, writer))

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ask(world: worlds.World, header: bytes, path: str = "/version", source: str = BALANCER, **more: str) -> int:
    """The code of one answer by way of the balancer; 0: the connection was refused."""
    async with balancing(world, header, source) as port:
        try:
            async with wire.line(port, world.anonymous_context()) as line:
                return (await line.ask("GET", path, b"", **more)).status
        except (OSError, asyncio.IncompleteReadError):
            return 0


@pytest.mark.parametrize("header", [version_1, version_2])
async def test_the_audit_log_has_the_client(tmp_path: pathlib.Path, header: Header) -> None:
    log = tmp_path / "audit.log"
    options = apiserver.AuditOptions(path=str(log))
    async with worlds.world(tmp_path / "d", audit=options, balancers=f"{BALANCER}/32") as world:
        for client in (A, C):
            assert await ask(world, header(client)) == 200
        # The balancer's own: it looks whether somebody is there.
        assert await ask(world, LOCAL, "/healthz") == 200
        assert await ask(world, b"PROXY UNKNOWN\r\n", "/healthz") == 200
    seen = [line["sourceIPs"] for line in callers.audited(log) if line["user"]["username"] == "system:anonymous"]
    assert seen == [[A], [C], [BALANCER], [BALANCER]]


async def test_the_network_of_a_token_is_the_clients(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d", balancers=f"{BALANCER}/32") as world:
        await test_token_limits.limited(world, allowed_cidrs=f"{A}/32")
        document = test_token_limits.csr("a", test_token_limits.new_key())
        codes = []
        for client in (B, A):
            async with balancing(world, version_2(client)) as port, wire.line(port, world.anonymous_context()) as line:
                body, bearer = msgspec.json.encode(document), callers.bearer(test_token_limits.TOKEN)
                reply = await line.ask("POST", CSRS, body, Content_Type="application/json", **bearer)
                codes.append(reply.status)
        assert codes == [401, 201]
        assert [use.source for use in token_limits.uses(await test_token_limits.secret(world))] == [A]


async def test_limits_are_the_clients(tmp_path: pathlib.Path) -> None:
    bounds = limits.Limits(anonymous_per_second=0.001, anonymous_burst=2)
    async with worlds.world(tmp_path / "d", limits=bounds, balancers=f"{BALANCER}/32") as world:
        assert [await ask(world, version_1(A)) for _ in range(3)] == [200, 200, 429]
        # Of nobody else behind the same balancer, nor of the balancer.
        assert [await ask(world, version_1(B)) for _ in range(3)] == [200, 200, 429]
        assert [await ask(world, LOCAL) for _ in range(3)] == [200, 200, 429]
        # One /64 is one source, behind a balancer, too.
        assert [await ask(world, version_2(f"2001:db8::{number}")) for number in range(1, 4)] == [200, 200, 429]


async def test_connections_are_the_clients(tmp_path: pathlib.Path) -> None:
    few = {"connections_per_second": 0.001, "connections_burst": 1, "waiting_seconds": 0.0}
    bounds = dataclasses.replace(limits.Limits(), **few)  # type: ignore[arg-type]
    async with worlds.world(tmp_path / "d", limits=bounds, balancers=f"{BALANCER}/32") as world:
        for client in (A, B, C):
            assert [await ask(world, version_2(client)) for _ in range(2)] == [200, 0], client


async def test_what_is_refused(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d", balancers=f"{BALANCER}/32") as world:
        # From anybody who is not named.
        assert await ask(world, version_1(A), source="127.0.0.1") == 0
        assert await ask(world, version_2(A), source="127.0.0.10") == 0
        # From the balancer: none, somebody else's behind the right one, this machine, half of one.
        for header in (
            b"",
            version_1(A) + version_1(B),
            version_2(A) + version_1(B),
            version_1("127.0.0.1"),
            b"PROXY TCP4",
        ):
            assert await ask(world, header) == 0, header
        assert await ask(world, version_1(A)) == 200
        refused = dict(world.server.listener.headers_refused)
        text = (await world.get("/metrics")).body.decode()
        # The last one goes on with what the client says, which is no address.
        assert refused == {"NotNamed": 2, "NoHeader": 1, "SecondHeader": 2, "BadAddress": 1, "TooLong": 1}
        assert 'handfast_proxy_headers_refused_total{reason="SecondHeader"} 2.0' in text
        # Nothing of it is left.
        async with asyncio.timeout(10):
            while world.server.listener._gate.counts[0] > world.server.listener.connections:
                await asyncio.sleep(0.01)


async def test_nobody_is_named_by_default(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        assert await ask(world, version_1(A)) == 0
        assert world.server.listener.headers_refused == {"NotNamed": 1}
