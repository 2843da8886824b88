# SPDX-License-Identifier: Apache-2.0
"""Single requests beside the floor: get, create, new connections; and what an empty control plane occupies.

Each round measures the floor and then the control plane, so that both see the same machine.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from bench import aims, identities, load, measure, preload, servers, settings

# Above the floor.
GET_AIM_MICROSECONDS = 60.0
CREATE_LIMIT_RATIO = 5.0
IDLE_LIMIT_MIB = 200.0
OBJECT = "measured"
_CONNECTIONS = 16


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


@dataclass(slots=True)
class _Reader:
    """Who reads, what they ask, and what their rounds came to."""

    server: servers.Server
    clients: load.Clients
    ask: bytes
    used: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    async def warm_up(self, total: int) -> None:
        await self.clients.run(lambda _: self.ask, total)

    async def run(self, total: int) -> None:
        async with self.server.meter() as meter:
            begun = time.perf_counter()
            await self.clients.run(lambda _: self.ask, total)
            self.rates.append(total / (time.perf_counter() - begun))
        self.used.append(meter.total)


async def get(pair: settings.Pair, sizes: settings.Sizes) -> list[measure.Figure]:
    """As the administrator, and as users whom a RoleBinding lets read: each has a budget, so there are several."""
    total, ask = sizes.gets, load.get(f"{preload.COLLECTION}/{OBJECT}")
    least = await load.Clients.open(pair.floor.port, pair.floor.context, _CONNECTIONS)
    admin = await load.Clients.open(pair.plane.port, pair.plane.context, _CONNECTIONS)
    users = load.Clients([await load.connect(pair.plane.port, context) for context in await _users(pair.plane)])
    floor = _Reader(pair.floor, least, load.get("/object"))
    readers = (floor, _Reader(pair.plane, admin, ask), _Reader(pair.plane, users, ask))
    for reader in readers:
        await reader.warm_up(sizes.warm_up)
    for _ in range(sizes.short_rounds):
        for reader in readers:
            await reader.run(total)
    for reader in readers:
        reader.clients.close()
    return [
        *_get_figures("get", "GET, 16 connections", readers[1], floor, total),
        *_get_figures("get.user", "GET as 16 users, by RBAC", readers[2], floor, total),
        measure.Figure("get.floor", "GET on the floor", "µs", measure.microseconds(floor.used, total)),
    ]


def _get_figures(name: str, title: str, reader: _Reader, floor: _Reader, total: int) -> list[measure.Figure]:
    return [
        *above_floor(name, title, measure.microseconds(reader.used, total), measure.microseconds(floor.used, total)),
        measure.Figure(f"{name}.cpu", "  CPU per GET", "µs", measure.microseconds(reader.used, total)),
        measure.Figure(f"{name}.rate", "  GETs per second", "/s", reader.rates),
    ]


def above_floor(name: str, title: str, ours: Sequence[float], floors: Sequence[float]) -> list[measure.Figure]:
    """What a GET costs more than on the floor, in GETs of the floor and in microseconds."""
    above = [used - least for used, least in zip(ours, floors, strict=True)]
    ratios = [more / least for more, least in zip(above, floors, strict=True)]
    limit = aims.gets(GET_AIM_MICROSECONDS)
    return [
        measure.Figure(f"{name}.above_floor", f"{title}: CPU above the floor ÷ the floor's", "×", ratios, limit),
        measure.Figure(f"{name}.above_floor_cpu", "  CPU above the floor", "µs", above),
    ]


async def _users(plane: servers.Server) -> list[ssl.SSLContext]:
    """TLS of users who may read the namespace, by one RoleBinding to the ClusterRole `view`."""
    who = [f"reader-{number:02d}" for number in range(_CONNECTIONS)]
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name} for name in who],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{preload.NAMESPACE}/rolebindings"
    status, body = await load.exchange(plane.port, plane.context, load.send("POST", path, msgspec.json.encode(binding)))
    if status != 201:
        raise load.UnexpectedAnswer(f"the RoleBinding was answered with {status} {body[:200]!r}")
    issuer = identities.Issuer(plane)
    return [issuer.context(name) for name in who]


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
