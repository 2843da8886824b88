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
from handfast.telemetry import health
from tests.world.clock import MovableClock

METRICS = core.CollectorRegistry()
HERE, AWAY = "127.0.0.1", "192.0.2.1"


class Connection:
    """A connection as the server sees it."""

    def __init__(self, certificate=None):
        self._known = {"peercert": certificate}

    def get_extra_info(self, name):
        return self._known[name]


async def ask(path, host=HERE, certificate=None, method="GET"):
    request = test_utils.make_mocked_request(method, path)
    request._protocol.transport = cast("asyncio.Transport", Connection(certificate))
    cast("Any", request._protocol).client = host or ""
    checks = {"good": lambda: None, "bad": lambda: "because"}
    return await endpoint.Endpoint(health.Health(ready=checks), METRICS).answer(request)


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
async def test_answers(path, code):
    assert (await ask(path)).status == code


async def test_it_is_read_only():
    assert (await ask("/livez", method="POST")).status == 405


async def test_verbose():
    assert "[+]ping ok" in (await ask("/livez?verbose")).text


@pytest.mark.parametrize(
    ("host", "certificate", "trusted"),
    [
        (HERE, None, True),
        ("::1", None, True),
        ("::ffff:127.0.0.1", None, True),
        (AWAY, None, False),
        ("2001:db8::1%eth0", None, False),
        ("not an address", None, False),
        (None, None, False),
        (AWAY, {"subject": ()}, True),
    ],
)
async def test_who_is_told_why(host, certificate, trusted):
    text = (await ask("/readyz", host, certificate)).text
    assert ("because" in text) is trusted
    assert (health.WITHHELD in text) is not trusted
    assert ("because" in (await ask("/readyz/bad", host, certificate)).text) is trusted
    assert (await ask("/metrics", host, certificate)).status == (200 if trusted else 403)


def test_a_connection_that_is_gone_is_not_trusted():
    assert not endpoint._is_trusted(None, HERE)


@contextlib.asynccontextmanager
async def served(
    tmp_path: pathlib.Path, ca: bytes | None = None, balancers: str = "none"
) -> AsyncIterator[tuple[endpoint._Door, int]]:
    """The door, and its port."""
    clock = MovableClock()
    own = serving.SelfSigned(tmp_path, serving.sans("n", (HERE,)), clock)
    doors = endpoint.Endpoint(health.Health(), METRICS, proxied.Proxied(networks.Networks.parse(balancers)))
    with socket.create_server((HERE, 0)) as listener:
        await doors.start(listener, serving.ServingTLS(own.current, clock, ca).context)
        try:
            assert doors._door is not None
            yield doors._door, listener.getsockname()[1]
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


class TestCrowds:
    async def test_this_machine_has_its_own(self, tmp_path, monkeypatch):
        """However many come from elsewhere; and it has no more than that."""
        monkeypatch.setattr(endpoint, "MAX_LOCAL", 1)
        async with served(tmp_path) as (door, port):
            door._sources.update(
                {f"192.0.2.{number}": {cast("Any", number)} for number in range(endpoint.MAX_CONNECTIONS)}
            )
            assert not door._has_room(AWAY)
            assert await healthy(port)
            async with asyncio.timeout(5):
                while HERE in door._sources:
                    await asyncio.sleep(0.01)
            async with connected(port), connected(port, tls=False) as (reader, _):
                assert await read(reader) == b""

    async def test_one_machine_does_not_take_all(self, tmp_path):
        async with served(tmp_path) as (door, _):
            for number in range(endpoint.MAX_PER_SOURCE):
                assert door._has_room(AWAY)
                door._sources.setdefault(AWAY, set()).add(cast("Any", number))
            assert not door._has_room(AWAY)
            assert door._has_room("192.0.2.2")
            # One that ends in two ways ends once.
            door._left(AWAY, cast("Any", 0))
            door._left(AWAY, cast("Any", 0))
            assert door._has_room(AWAY)
            assert len(door._sources[AWAY]) == endpoint.MAX_PER_SOURCE - 1

    async def test_what_failed_is_not_counted(self, tmp_path):
        async with served(tmp_path) as (door, port):
            async with connected(port, tls=False) as (reader, writer):
                writer.write(b"no TLS\r\n\r\n")
                await read(reader)
            async with asyncio.timeout(5):
                while door._sources:
                    await asyncio.sleep(0.01)

    @pytest.mark.parametrize("tls", [False, True])
    @pytest.mark.parametrize("start", [b"", b"\x16", b"GET /livez HTTP/1.1\r\nHost: "])
    async def test_silence_ends(self, tmp_path, monkeypatch, tls, start):
        monkeypatch.setattr(endpoint, "STRANGER_SECONDS", 0.05)
        monkeypatch.setattr(endpoint, "_HANDSHAKE_SECONDS", 0.05)
        async with served(tmp_path) as (door, port), connected(port, tls=tls) as (reader, writer):
            writer.write(start)
            await read(reader)
            async with asyncio.timeout(5):
                while door._sources:
                    await asyncio.sleep(0.01)

    async def test_whoever_goes_on_asking_stays(self, tmp_path, monkeypatch):
        monkeypatch.setattr(endpoint, "STRANGER_SECONDS", 0.2)
        async with served(tmp_path) as (_, port), connected(port) as (reader, writer):
            for _ in range(10):
                writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                await reader.readexactly(2)
                await asyncio.sleep(0.05)
            assert await read(reader) == b""

    async def test_out_of_file_descriptors(self, tmp_path, monkeypatch):
        async with served(tmp_path) as (door, port):
            plain = door._listener

            class Full:
                def accept(self):
                    door._listener = plain
                    raise OSError(24, "too many open files")

                def fileno(self):
                    return plain.fileno()

            door._listener = cast("socket.socket", Full())
            assert await healthy(port)

    async def test_stopped_while_somebody_is_silent(self, tmp_path):
        async with served(tmp_path) as (door, port), connected(port, tls=False):
            async with asyncio.timeout(5):
                while not door._begun:
                    await asyncio.sleep(0.01)
            await door.stop()
            assert not door._sources


async def test_stopped_before_it_started():
    await endpoint.Endpoint(health.Health(), METRICS).stop()
