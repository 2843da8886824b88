# SPDX-License-Identifier: Apache-2.0
"""What the node's endpoint answers, and to whom it says why. That it speaks TLS is shown in test_serving.py."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import test_utils
from prometheus_client import core

from handfast.node import endpoint, serving
from handfast.rules import networks
from handfast.runtime import proxied
from handfast.serving import listener as listener_module
from handfast.serving import peer, server_tls
from handfast.telemetry import health
from tests.world.clock import MovableClock

METRICS = core.CollectorRegistry()
HERE, AWAY = "127.0.0.1", "192.0.2.1"


async def ask(path, host=HERE, certificate=(), method="GET"):
    request = test_utils.make_mocked_request(method, path)
    cast("Any", request._protocol).peer = peer.Peer.of(certificate, host or "", "tls")
    checks = {"good": lambda: None, "bad": lambda: "because"}
    return await endpoint.Endpoint(health.Health(ready=checks), METRICS, MovableClock()).answer(request)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/livez", 200),
        ("/healthz", 200),
        ("/readyz", 500),
        ("/readyz/good", 200),
        ("/readyz/bad", 500),
        ("/readyz/none", 404),
        ("/metrics", 200),
        ("/", 404),
        ("/pods", 404),
    ],
)
async def test_each_path_has_its_code(path, code):
    assert (await ask(path)).status == code


async def test_it_is_read_only():
    assert (await ask("/livez", method="POST")).status == 405


async def test_a_verbose_answer_lists_the_checks():
    assert "[+]ping ok" in (await ask("/livez?verbose")).body.decode()


@pytest.mark.parametrize(
    ("host", "certificate", "trusted"),
    [
        (HERE, (), True),
        ("::1", (), True),
        ("::ffff:127.0.0.1", (), True),
        (AWAY, (), False),
        ("2001:db8::1%eth0", (), False),
        ("not an address", (), False),
        (None, (), False),
        (AWAY, (b"a certificate",), True),
    ],
)
async def test_who_is_told_why(host, certificate, trusted):
    text = (await ask("/readyz", host, certificate)).body.decode()
    assert ("because" in text) is trusted
    assert (health.WITHHELD in text) is not trusted
    assert ("because" in (await ask("/readyz/bad", host, certificate)).body.decode()) is trusted
    assert (await ask("/metrics", host, certificate)).status == (200 if trusted else 403)


def test_a_connection_that_is_gone_is_not_trusted():
    assert not endpoint.is_trusted(peer.Peer((), "", "none"))


@contextlib.asynccontextmanager
async def served(
    tmp_path: pathlib.Path, ca: bytes | None = None, balancers: str = "none"
) -> AsyncIterator[tuple[listener_module.Listener, int]]:
    """The door, and its port."""
    clock = MovableClock()
    own = serving.SelfSigned(tmp_path, serving.sans("n", (HERE,)), clock)
    named = proxied.Proxied(networks.Networks.parse(balancers))
    doors = endpoint.Endpoint(health.Health(), METRICS, clock, named)
    with socket.create_server((HERE, 0)) as listener:
        await doors.start(listener, server_tls.ServerTLS(own.current, clock, ca))
        try:
            assert doors.service is not None
            assert doors.service.listener is not None
            yield doors.service.listener, listener.getsockname()[1]
        finally:
            await doors.stop()


@contextlib.asynccontextmanager
async def connected(port: int, *, tls: bool = True) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(HERE, port, ssl=context if tls else None)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read(reader: asyncio.StreamReader) -> bytes:
    """What comes until the end, be it clean or not."""
    async with asyncio.timeout(5):
        with contextlib.suppress(OSError):
            return await reader.read()
    return b""


async def healthy(port: int) -> bool:
    async with connected(port) as (reader, writer):
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        return (await reader.readline()).startswith(b"HTTP/1.1 200")


async def proxied_answer(port: int, source: str, header: bytes, path: str) -> bytes:
    """The first line of an answer, by way of `source`; nothing if there was none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(HERE, port, local_addr=(source, 0))
    writer.write(header)
    try:
        async with asyncio.timeout(10):
            await writer.start_tls(context)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return await reader.readline()
    except (OSError, asyncio.IncompleteReadError):
        return b""
    finally:
        writer.transport.abort()


async def test_behind_a_balancer_on_this_machine(tmp_path):
    """Its clients are not this machine, though their connections come from here."""
    balancer, header = "127.0.0.2", b"PROXY TCP4 192.0.2.1 192.0.2.9 1 2\r\n"
    async with served(tmp_path, balancers=f"{balancer}/32") as (_, port):
        assert b" 200 " in await proxied_answer(port, balancer, header, "/livez")
        assert b" 403 " in await proxied_answer(port, balancer, header, "/metrics")
        assert b" 200 " in await proxied_answer(port, balancer, b"PROXY UNKNOWN\r\n", "/metrics")
        assert await proxied_answer(port, balancer, b"", "/livez") == b""
        assert await proxied_answer(port, HERE, header, "/livez") == b""
        assert b" 200 " in await proxied_answer(port, HERE, b"", "/metrics")


BALANCER = "127.0.0.2"


@contextlib.asynccontextmanager
async def connected_from(port: int, client: str) -> AsyncIterator[asyncio.StreamReader]:
    """A connection of `client`, by way of a balancer, whose handshake is over."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(HERE, port, local_addr=(BALANCER, 0))
    writer.write(f"PROXY TCP4 {client} 192.0.2.99 1 2\r\n".encode())
    await writer.start_tls(context)
    try:
        yield reader
    finally:
        writer.transport.abort()


async def nobody(door: listener_module.Listener) -> None:
    """Until nobody is counted any more."""
    async with asyncio.timeout(5):
        while door._gate.counts != (0, 0, 0):
            await asyncio.sleep(0.01)


class TestCrowds:
    async def test_this_machine_has_its_own(self, tmp_path, monkeypatch):
        """However many come from elsewhere; and it has no more than that."""
        monkeypatch.setattr(endpoint, "MAX_LOCAL", 1)
        monkeypatch.setattr(endpoint, "MAX_CONNECTIONS", 1)
        async with served(tmp_path, balancers=f"{BALANCER}/32") as (_, port), connected_from(port, AWAY) as away:
            assert await healthy(port)
            async with connected(port) as (first, _), connected(port):
                assert await read(first) == b""
            # Whoever is elsewhere is still there, until somebody else from elsewhere comes.
            assert not away.at_eof()
            async with connected_from(port, "192.0.2.2"):
                assert await read(away) == b""

    async def test_one_machine_does_not_take_all(self, tmp_path, monkeypatch):
        monkeypatch.setattr(endpoint, "MAX_PER_SOURCE", 2)
        async with contextlib.AsyncExitStack() as stack:
            door, port = await stack.enter_async_context(served(tmp_path, balancers=f"{BALANCER}/32"))
            other = await stack.enter_async_context(connected_from(port, "192.0.2.2"))
            first, second, third = [await stack.enter_async_context(connected_from(port, AWAY)) for _ in range(3)]
            assert await read(first) == b""
            assert door._gate.counts[0] == 3
            assert not any(one.at_eof() for one in (other, second, third))

    async def test_what_failed_is_not_counted(self, tmp_path):
        async with served(tmp_path) as (door, port):
            async with connected(port, tls=False) as (reader, writer):
                writer.write(b"no TLS\r\n\r\n")
                await read(reader)
            await nobody(door)

    @pytest.mark.parametrize("tls", [False, True])
    @pytest.mark.parametrize("start", [b"", b"\x16", b"GET /livez HTTP/1.1\r\nHost: "])
    async def test_silence_ends(self, tmp_path, monkeypatch, tls, start):
        for name in ("STRANGER_SECONDS", "_HANDSHAKE_SECONDS", "_SILENCE_SECONDS"):
            monkeypatch.setattr(endpoint, name, 0.05)
        async with served(tmp_path) as (door, port), connected(port, tls=tls) as (reader, writer):
            writer.write(start)
            await read(reader)
            await nobody(door)

    async def test_whoever_goes_on_asking_stays(self, tmp_path, monkeypatch):
        monkeypatch.setattr(endpoint, "STRANGER_SECONDS", 0.2)
        async with served(tmp_path) as (_, port), connected(port) as (reader, writer):
            for _ in range(10):
                writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                await reader.readexactly(2)
                await asyncio.sleep(0.05)
            assert await read(reader) == b""

    async def test_out_of_file_descriptors(self, tmp_path):
        async with served(tmp_path) as (door, port):
            plain = door._accept_one

            def full() -> Any:
                door._accept_one = plain
                raise OSError(24, "too many open files")

            door._accept_one = full
            assert await healthy(port)

    async def test_stopped_while_somebody_is_silent(self, tmp_path):
        async with served(tmp_path) as (door, port), connected(port, tls=False) as (reader, writer):
            # Half a handshake.
            writer.write(b"\x16")
            async with asyncio.timeout(5):
                while not door._begun:
                    await asyncio.sleep(0.01)
            await door.stop(0.1)
            assert door._gate.counts == (0, 0, 0)
            assert await read(reader) == b""


async def test_stopped_before_it_started():
    await endpoint.Endpoint(health.Health(), METRICS, MovableClock()).stop()
