# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from handfast.rules import networks
from handfast.runtime import proxied
from handfast.serving import admin
from handfast.serving import listener as listener_module
from handfast.telemetry import health
from tests.world.clock import MovableClock


@contextlib.asynccontextmanager
async def serving(balancers: str = "none", **wrong: str | None) -> AsyncIterator[aiohttp.ClientSession]:
    checks: dict[str, health.Check] = {name: functools.partial(wrong.get, name) for name in wrong}
    doors = admin.Admin(health.Health(ready=checks), proxied.Proxied(networks.Networks.parse(balancers)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await doors.start(listener)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.getsockname()[1]}") as session:
            yield session
        await doors.stop()


async def get(session: aiohttp.ClientSession, path: str, method: str = "GET") -> tuple[int, str]:
    async with session.request(method, path) as answer:
        return answer.status, await answer.text()


async def test_a_healthy_process_answers_ok():
    async with serving(watches=None) as session:
        for path in ("/healthz", "/livez", "/readyz", "/readyz/watches", "/livez/ping"):
            assert await get(session, path) == (200, "ok")
        assert await get(session, "/readyz?verbose") == (
            200,
            "[+]ping ok\n[+]watches ok\nreadyz check passed\n",
        )
        assert await get(session, "/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")


async def test_not_ready_but_alive():
    async with serving(watches="not synced: a", other=None) as session:
        assert await get(session, "/livez") == (200, "ok")
        assert await get(session, "/readyz") == (
            500,
            "[+]ping ok\n[-]watches failed: not synced: a\n[+]other ok\nreadyz check failed\n",
        )
        assert await get(session, "/readyz/other") == (200, "ok")
        assert await get(session, "/readyz/watches") == (500, "watches failed: not synced: a\n")


async def test_a_flood_from_this_machine_does_not_silence_the_probes():
    """Everybody here comes from the same address: a rate would be everybody's. On a clock that stands still none is refilled."""
    doors = admin.Admin(health.Health(), clock=MovableClock())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await doors.start(listener)
        for _ in range(600):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            async with asyncio.timeout(5):
                assert (await reader.readline()).endswith(b" 200 OK\r\n")
            writer.close()
        await doors.stop()


async def test_metrics_and_nothing_else():
    async with serving() as session:
        code, text = await get(session, "/metrics")
        assert code == 200
        assert "# HELP python_info" in text
        assert (await get(session, "/"))[0] == 404
        assert (await get(session, "/nothing/ping"))[0] == 404
        assert (await get(session, "/livez/unknown"))[0] == 404
        assert (await get(session, "/livez", "POST"))[0] == 405


async def test_stopping_what_was_never_started():
    await admin.Admin(health.Health()).stop()


async def raw(port: int, source: str, header: bytes) -> bytes:
    """The first line of an answer, or nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(header + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_behind_a_balancer():
    header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"
    async with serving("127.0.0.2/32") as session:
        port = int(str(session._base_url).rpartition(":")[2].strip("/"))
        assert b" 200 " in await raw(port, "127.0.0.2", header)
        assert b" 200 " in await raw(port, "127.0.0.1", b"")
        # Without a header from there, with one from elsewhere, with two.
        assert await raw(port, "127.0.0.2", b"") == b""
        # What was not there yet when the connection came is refused as what it is then: no HTTP.
        assert await raw(port, "127.0.0.1", header) in {b"", b"HTTP/1.0 400 Bad Request\r\n"}
        assert await raw(port, "127.0.0.2", header * 2) == b""
        metrics = (await get(session, "/metrics"))[1]
        assert 'handfast_proxy_headers_refused_total{reason="NoHeader"} 1.0' in metrics
        assert 'handfast_proxy_headers_refused_total{reason="SecondHeader"} 1.0' in metrics


async def test_whoever_bound_the_socket_may_close_it_first():
    doors = admin.Admin(health.Health())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await doors.start(listener)
    await doors.stop()


class Full:
    """The accepting of a process that has no file descriptor left."""

    def __init__(self, accept: Callable[[], Any]) -> None:
        self._accept = accept
        self.asked = 0
        self.full = True

    def __call__(self) -> Any:
        self.asked += 1
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._accept()


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[tuple[listener_module.Listener, int]]:
    doors = admin.Admin(health.Health())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await doors.start(listener)
        try:
            assert doors.service.listener is not None
            yield doors.service.listener, listener.getsockname()[1]
        finally:
            await doors.stop()


async def test_without_descriptors_it_pauses_instead_of_spinning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listener_module, "PAUSE_SECONDS", 3600.0)
    async with opened() as (door, port):
        door._accept_one = full = Full(door._accept_one)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(5):
            while not full.asked:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert full.asked == 1
        # After the pause whoever waited is answered.
        full.full = False
        door._resume()
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()
        full.full = True
        _, late = await asyncio.open_connection("127.0.0.1", port)
        late.write(b"G")
        async with asyncio.timeout(5):
            while not door._paused:
                await asyncio.sleep(0)
        pause = door._resuming
        late.close()
    # Nothing goes on after it was stopped in a pause.
    assert pause is not None
    assert pause.cancelled()


async def test_a_connection_that_cannot_begin_is_closed_and_forgotten(monkeypatch: pytest.MonkeyPatch):
    async def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with opened() as (door, port):
        monkeypatch.setattr(asyncio.get_running_loop(), "connect_accepted_socket", fails)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET")
        # There may be a reset, for what it said was not read.
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        assert not door._begun
        assert door._gate.counts == (0, 0, 0)
        writer.close()
