# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator

import aiohttp

from handfast.rules import networks
from handfast.runtime import proxied
from handfast.telemetry import admin, health


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


async def test_well():
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
