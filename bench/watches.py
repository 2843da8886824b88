# SPDX-License-Identifier: Apache-2.0
"""A delivered watch event beside a direct TLS broadcast of the same bytes.

What the same writes cost without watchers is measured in the same round and taken off, on both sides.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from bench import load, measure, preload, servers, settings

LIMIT_RATIO = 1.6
_NAME = "watched"
_PATH = f"{preload.COLLECTION}/{_NAME}"


@dataclass(slots=True)
class _Side:
    """One of the two servers: how to write to it, how to watch from now on, and what its rounds came to."""

    server: servers.Server
    write: Callable[[int], bytes]
    watch: Callable[[], Awaitable[bytes]]
    used: list[float] = field(default_factory=list)
    times: list[list[float]] = field(default_factory=list)


async def watch(pair: settings.Pair, sizes: settings.Sizes) -> list[measure.Figure]:
    numbers = itertools.count(1)
    clients = await load.Clients.open(pair.plane.port, pair.plane.context, 1)
    await clients.run(lambda _: load.send("POST", preload.COLLECTION, preload.body(_NAME)), 1, expect=201)
    clients.close()
    floor, plane = _floor(pair), _plane(pair)
    for _ in range(sizes.rounds):
        for side in (floor, plane):
            await _round(side, sizes, numbers)
    deliveries = sizes.watchers * sizes.updates
    ratios = [ours / least for ours, least in zip(plane.used, floor.used, strict=True)]
    title = f"watch event to {sizes.watchers} watchers: CPU ÷ a broadcast's"
    return [
        measure.Figure("watch.ratio", title, "×", ratios, LIMIT_RATIO),
        measure.Figure("watch.cpu", "  CPU per delivered event", "µs", measure.microseconds(plane.used, deliveries)),
        measure.Figure("watch.floor", "  the floor's", "µs", measure.microseconds(floor.used, deliveries)),
        _time("watch.p50", "  until all have an update, p50", plane, 0.5),
        _time("watch.p99", "  until all have an update, p99", plane, 0.99),
        _time("watch.floor_p50", "  the floor's p50", floor, 0.5),
    ]


def _time(name: str, title: str, side: _Side, share: float) -> measure.Figure:
    return measure.Figure(name, title, "ms", [measure.percentile(row, share) * 1e3 for row in side.times])


def _plane(pair: settings.Pair) -> _Side:
    async def from_now_on() -> bytes:
        found = msgspec.json.decode(await load.fetch(pair.plane.port, pair.plane.context, _PATH))
        version = found["metadata"]["resourceVersion"]
        return load.get(f"{preload.COLLECTION}?watch=true&resourceVersion={version}")

    return _Side(pair.plane, lambda number: load.send("PUT", _PATH, preload.body(_NAME, number)), from_now_on)


def _floor(pair: settings.Pair) -> _Side:
    async def from_now_on() -> bytes:
        return load.get("/watch")

    return _Side(pair.floor, lambda number: load.send("POST", "/broadcast", preload.body(_NAME, number)), from_now_on)


async def _round(side: _Side, sizes: settings.Sizes, numbers: itertools.count[int]) -> None:
    watchers = load.Watchers()
    await watchers.open(side.server.port, side.server.context, await side.watch(), sizes.watchers)
    connection: load.Connection = await load.connect(side.server.port, side.server.context)
    async with side.server.meter() as with_watchers:
        times = await _write(side, connection, sizes, numbers, watchers)
    if watchers.events != sizes.watchers * sizes.updates:
        raise load.UnexpectedAnswer(
            f"{watchers.events} events came, not {sizes.updates} for each of {sizes.watchers} watchers"
        )
    watchers.close()
    await side.server.settle()
    async with side.server.meter() as without:
        await _write(side, connection, sizes, numbers, None)
    connection.close()
    side.used.append(with_watchers.total - without.total)
    side.times.append(times)


async def _write(
    side: _Side,
    connection: load.Connection,
    sizes: settings.Sizes,
    numbers: itertools.count[int],
    watchers: load.Watchers | None,
) -> list[float]:
    """Write at a fixed rate; the seconds from each write to the last watcher's event of it."""
    times = []
    begun = time.perf_counter()
    for number in range(1, sizes.updates + 1):
        sent = time.perf_counter()
        status = await connection.request(side.write(next(numbers)))
        if status != 200:
            raise load.UnexpectedAnswer(f"an update was answered with {status}")
        if watchers is not None:
            await watchers.until(number * sizes.watchers)
            times.append(time.perf_counter() - sent)
        await asyncio.sleep(max(0.0, begun + number / sizes.updates_per_second - time.perf_counter()))
    return times
