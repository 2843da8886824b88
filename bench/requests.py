# SPDX-License-Identifier: Apache-2.0
"""Single requests beside the floor: get, create, new connections; and what an empty control plane occupies.

Each round measures the floor and then the control plane, so that both see the same machine.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Callable

from bench import load, measure, preload, servers, settings

GET_LIMIT_MICROSECONDS = 60.0
CREATE_LIMIT_RATIO = 5.0
IDLE_LIMIT_MIB = 200.0
OBJECT = "measured"


async def prepare(plane: servers.Server) -> bytes:
    """Create the object that is read by the others; its bytes as served, for the floor."""
    clients = await load.Clients.open(plane.port, plane.context, 1)
    await clients.run(lambda _: load.send("POST", preload.COLLECTION, preload.body(OBJECT)), 1, expect=201)
    clients.close()
    return await load.fetch(plane.port, plane.context, f"{preload.COLLECTION}/{OBJECT}")


async def idle(run: settings.Run) -> list[measure.Figure]:
    """Memory of all processes with nothing stored but what every cluster has, and the CPU time of doing nothing."""
    sums, shares = [], []
    async with servers.plane(run.directory / "idle") as plane:
        for _ in range(run.sizes.rounds):
            before = measure.cpu_total(plane.pids.values())
            await asyncio.sleep(run.sizes.idle_seconds)
            shares.append((measure.cpu_total(plane.pids.values()) - before) / run.sizes.idle_seconds * 100)
            sums.append(sum(map(measure.pss, plane.pids.values())) / measure.MIB)
        roles = {role: measure.pss(pid) / measure.MIB for role, pid in plane.pids.items()}
    return [
        measure.Figure("idle.memory", "empty: PSS of all processes", "MiB", sums, IDLE_LIMIT_MIB),
        *(measure.Figure(f"idle.memory.{role}", f"  of it the {role}", "MiB", [size]) for role, size in roles.items()),
        measure.Figure("idle.cpu", "  CPU of doing nothing", "%", shares),
    ]


async def get(pair: settings.Pair, sizes: settings.Sizes) -> list[measure.Figure]:
    total, floors, planes, rates = sizes.gets, [], [], []
    floor = await load.Clients.open(pair.floor.port, pair.floor.context, 16)
    plane = await load.Clients.open(pair.plane.port, pair.plane.context, 16)
    ask_floor, ask_plane = load.get("/object"), load.get(f"{preload.COLLECTION}/{OBJECT}")
    await floor.run(lambda _: ask_floor, sizes.warm_up)
    await plane.run(lambda _: ask_plane, sizes.warm_up)
    for _ in range(sizes.short_rounds):
        async with pair.floor.meter() as meter:
            await floor.run(lambda _: ask_floor, total)
        floors.append(meter.total)
        async with pair.plane.meter() as meter:
            begun = time.perf_counter()
            await plane.run(lambda _: ask_plane, total)
            rates.append(total / (time.perf_counter() - begun))
        planes.append(meter.total)
    floor.close()
    plane.close()
    above = [ours - least for ours, least in zip(planes, floors, strict=True)]
    return [
        measure.Figure(
            "get.above_floor",
            "GET, 16 connections: CPU above the floor",
            "µs",
            measure.microseconds(above, total),
            GET_LIMIT_MICROSECONDS,
        ),
        measure.Figure("get.cpu", "  CPU per GET", "µs", measure.microseconds(planes, total)),
        measure.Figure("get.floor", "  the floor's", "µs", measure.microseconds(floors, total)),
        measure.Figure("get.rate", "  GETs per second", "/s", rates),
    ]


def creator(body_names: str) -> Callable[[int], bytes]:
    return lambda number: load.send("POST", preload.COLLECTION, preload.body(f"{body_names}-{number:06d}"))


async def create(pair: settings.Pair, sizes: settings.Sizes) -> list[measure.Figure]:
    total = sizes.creates
    floors, planes, controllers, rates = [], [], [], []
    floor = await load.Clients.open(pair.floor.port, pair.floor.context, 64)
    plane = await load.Clients.open(pair.plane.port, pair.plane.context, 64)
    run = secrets.token_hex(3)
    await floor.run(lambda _: load.send("POST", "/echo", preload.body("warm")), sizes.warm_up, expect=201)
    await plane.run(creator(f"warm-{run}"), sizes.warm_up, expect=201)
    for number in range(sizes.short_rounds):
        # Made beforehand, so that the generator does not hold the servers up.
        bodies = [creator(f"made-{run}-{number}")(index) for index in range(total)]
        echoes = [body.replace(preload.COLLECTION.encode(), b"/echo", 1) for body in bodies]
        async with pair.floor.meter() as meter:
            await floor.run(echoes.__getitem__, total, expect=201)
        floors.append(meter.total)
        async with pair.plane.meter() as meter:
            begun = time.perf_counter()
            await plane.run(bodies.__getitem__, total, expect=201)
            rates.append(total / (time.perf_counter() - begun))
        planes.append(meter.total)
        controllers.append(meter.used["controllers"])
    floor.close()
    plane.close()
    ratios = [ours / least for ours, least in zip(planes, floors, strict=True)]
    return [
        measure.Figure("create.ratio", "create, 64 connections: CPU ÷ an echo's", "×", ratios, CREATE_LIMIT_RATIO),
        measure.Figure("create.cpu", "  CPU per create, all processes", "µs", measure.microseconds(planes, total)),
        measure.Figure(
            "create.controllers", "  of it the controllers'", "µs", measure.microseconds(controllers, total)
        ),
        measure.Figure("create.floor", "  an echo's on the floor", "µs", measure.microseconds(floors, total)),
        measure.Figure("create.rate", "  creates per second", "/s", rates),
    ]


async def connections(pair: settings.Pair, sizes: settings.Sizes) -> list[measure.Figure]:
    """A new TLS connection with a client certificate and one GET. Below the limit per source, so rates mean little."""
    total = sizes.connections
    floors: list[float] = []
    planes: list[float] = []
    rounds = ((pair.floor, "/object", floors), (pair.plane, f"{preload.COLLECTION}/{OBJECT}", planes))
    for _ in range(sizes.rounds):
        for server, path, used in rounds:
            async with server.meter() as meter:
                await asyncio.gather(*(_connect_in_turn(server, path, total // 8) for _ in range(8)))
            used.append(meter.total / (total // 8 * 8))
        await asyncio.sleep(1.0)
    ratio = [ours / least for ours, least in zip(planes, floors, strict=True)]
    return [
        measure.Figure("connection.ratio", "new TLS connection and a GET: CPU ÷ the floor's", "×", ratio),
        measure.Figure("connection.cpu", "  CPU per connection", "µs", measure.microseconds(planes, 1)),
        measure.Figure(
            "connection.rate", "  connections per second of one core", "/s", [1 / statistics.median(planes)]
        ),
    ]


async def _connect_in_turn(server: servers.Server, path: str, total: int) -> None:
    for _ in range(total):
        clients = await load.Clients.open(server.port, server.context, 1)
        await clients.run(lambda _: load.get(path), 1)
        clients.close()
