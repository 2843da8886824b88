# SPDX-License-Identifier: Apache-2.0
"""The API server is killed while many watch: how many have to list again, and what its new process takes until all go on.

A watcher comes back with the version that it had when it began, on a connection of its own, and counts as resumed with its
first event. One whose version is refused would have to list again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import msgspec

from bench import load, measure, preload, servers, settings

# The aim of the store: nobody lists again.
LIMIT_RELISTS = 0.0
_NAME = "restarted"
_PATH = f"{preload.COLLECTION}/{_NAME}"
_SECONDS = 60.0
# The supervisor gives up a process that dies five times in a row soon after its start.
_ROUNDS = 3


async def restarts(run: settings.Run) -> list[measure.Figure]:
    relists, used, seconds = [], [], []
    async with servers.plane(run.directory / "restarts", "--unsafe-lift-limits") as plane:
        await load.exchange(plane.port, plane.context, load.send("POST", preload.COLLECTION, preload.body(_NAME)))
        for number in range(min(_ROUNDS, run.sizes.rounds)):
            round_relists, round_used, round_seconds = await _round(plane, run.sizes.watchers, number + 1)
            relists.append(round_relists)
            used.append(round_used)
            seconds.append(round_seconds)
    title = f"{run.sizes.watchers} watches after kill -9 of the API server: have to list again"
    return [
        measure.Figure("restarts.relists", title, "", relists, LIMIT_RELISTS),
        measure.Figure("restarts.cpu", "  CPU of the new process until all go on", "ms", [each * 1e3 for each in used]),
        measure.Figure("restarts.time", "  from the kill until all go on", "ms", [each * 1e3 for each in seconds]),
    ]


async def _round(plane: servers.Server, watchers: int, number: int) -> tuple[float, float, float]:
    found = msgspec.json.decode(await load.fetch(plane.port, plane.context, _PATH))
    version = found["metadata"]["resourceVersion"]
    watch = load.get(f"{preload.COLLECTION}?watch=true&resourceVersion={version}")
    await load.exchange(plane.port, plane.context, load.send("PUT", _PATH, preload.body(_NAME, number)))
    killed = servers.described(plane.place.root).pids["apiserver"]
    begun = time.perf_counter()
    os.kill(killed, signal.SIGKILL)
    firsts = await asyncio.gather(*(_first(plane, watch) for _ in range(watchers)))
    seconds = time.perf_counter() - begun
    pids = servers.described(plane.place.root).pids
    if pids["apiserver"] == killed:
        raise load.UnexpectedAnswer("the API server was not started again")
    return float(sum(kind == "ERROR" for kind in firsts)), measure.cpu_total([pids["apiserver"]]), seconds


async def _first(plane: servers.Server, watch: bytes) -> str:
    """The type of the first event, however many connections it takes."""
    async with asyncio.timeout(_SECONDS):
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                return await _attempt(plane, watch)
            await asyncio.sleep(0.05)


async def _attempt(plane: servers.Server, watch: bytes) -> str:
    reader, writer = await asyncio.open_connection(load.HOST, plane.port, ssl=plane.context, server_hostname=load.HOST)
    try:
        writer.write(watch)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"\r\n")
        return str(msgspec.json.decode(await reader.readuntil(b"\n"))["type"])
    finally:
        writer.close()
