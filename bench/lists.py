# SPDX-License-Identifier: Apache-2.0
"""Large lists: what they do to other requests and to the server's memory, and how fast they are.

The list client is a process of its own, the GETs come from this one, so that neither waits for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from bench import load, measure, preload, servers, settings

P99_LIMIT_MILLISECONDS = 15.0
GROWTH_LIMIT_MIB = 20.0
_SAMPLE_SECONDS = 0.02
_PAUSE_SECONDS = 0.002
_CONNECTIONS = 4


async def lists(run: settings.Run) -> list[measure.Figure]:
    sizes = run.sizes
    directory = run.directory / "lists"
    preload.fill(directory, sizes.list_objects)
    async with servers.plane(directory) as plane:
        clients = await load.Clients.open(plane.port, plane.context, _CONNECTIONS)
        # The same requests without lists: the memory before, and a latency to compare with.
        quiet = [await _gets(clients, sizes) for _ in range(2)]
        before = measure.rss(plane.pids["apiserver"])
        highest: list[int] = []
        rounds: list[list[float]] = []
        listed: list[float] = []
        for _ in range(sizes.rounds):
            async with _listing(plane, listed), _sampled(plane.pids["apiserver"], highest):
                rounds.append(await _gets(clients, sizes))
        clients.close()
    growth = [(value - before) / measure.MIB for value in highest]
    title = f"GET during lists of {sizes.list_objects} objects"
    return [
        measure.Figure("lists.get_p99", f"{title}: p99", "ms", _shares(rounds, 0.99), P99_LIMIT_MILLISECONDS),
        measure.Figure("lists.get_p50", "  p50", "ms", _shares(rounds, 0.5)),
        measure.Figure("lists.quiet_p99", "  p99 without lists", "ms", _shares(quiet[1:], 0.99)),
        measure.Figure(
            "lists.memory", "RSS of the apiserver, growth during lists", "MiB", [max(growth)], GROWTH_LIMIT_MIB
        ),
        measure.Figure("lists.seconds", "  seconds per list", "s", listed),
        measure.Figure("lists.rate", "  objects listed per second", "/s", [sizes.list_objects / s for s in listed]),
    ]


def _shares(rounds: list[list[float]], share: float) -> list[float]:
    return [measure.percentile(row, share) * 1e3 for row in rounds]


async def _gets(clients: load.Clients, sizes: settings.Sizes) -> list[float]:
    """GETs for a while, at a modest rate."""
    ask = load.get(f"{preload.COLLECTION}/{preload.name(0, sizes.list_objects)}")
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    until = loop.time() + sizes.list_seconds
    while loop.time() < until:
        latencies += await clients.run(lambda _: ask, _CONNECTIONS * 20, pause=_PAUSE_SECONDS)
    return latencies


@contextlib.asynccontextmanager
async def _listing(plane: servers.Server, listed: list[float]) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.load", str(plane.place.admin_kubeconfig), str(plane.port), preload.COLLECTION),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if process.stdout is None or not await process.stdout.readline():
        raise load.UnexpectedAnswer("the list client did not start")
    try:
        yield
    finally:
        # An empty input, not None: that would leave it open.
        printed, _ = await process.communicate(b"")
    if process.returncode or not printed:
        raise load.UnexpectedAnswer("the list client failed")
    listed += [float(line) for line in printed.split()]


@contextlib.asynccontextmanager
async def _sampled(pid: int, highest: list[int]) -> AsyncIterator[None]:
    """Adds the highest RSS seen while the block runs."""
    seen = [measure.rss(pid)]

    async def sample() -> None:
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            seen.append(measure.rss(pid))

    task = asyncio.create_task(sample())
    try:
        yield
    finally:
        task.cancel()
        highest.append(max(seen))
