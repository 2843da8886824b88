# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import AsyncIterator

import aiohttp

from handfast.telemetry import admin, health


@contextlib.asynccontextmanager
async def serving(**wrong: str | None) -> AsyncIterator[aiohttp.ClientSession]:
    checks: dict[str, health.Check] = {name: functools.partial(wrong.get, name) for name in wrong}
    doors = admin.Admin(health.Health(ready=checks))
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
