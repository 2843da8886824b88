# SPDX-License-Identifier: Apache-2.0
"""A new worker credential on its way to a thousand nodes that follow, beside as many fetches of the configuration that carries it.

The workers' Secret is deleted, as `handfast machine credentials revoke --kind worker` does it. Its controllers make another one, render it,
and send every node there at once. A follower does what the agent does on the wire: it watches its own Node, fetches the
configuration with its own certificate on a new connection, and reports on its Node over a connection that it keeps. It writes no files. All
followers live in this process, whose CPU does not count. What counts is every process of the control plane, from the DELETE until all
have reported and nothing is left to do.

Beside it the same nodes fetch the configuration once, with the same certificates, each on a new connection. The chains of their certificates were
verified before on both sides. Every follower has an address of its own, and limits of the servers are on. Before each round all renew
their Leases, which is not measured.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from bench import configurations, identities, joins, load, machines, measure, preload, servers, settings
from handfast.api import machine_config_kinds, resources
from handfast.client import api
from handfast.rules import user_names
from handfast.rules.machine_config import names
from handfast.rules.machines import bootstrapper

LIMIT_RATIO = 1.5
_AT_A_TIME = 32
_LONGEST_SECONDS = 120.0
_SECRET = api.path(resources.SECRETS, namespace=bootstrapper.NAMESPACE, name=bootstrapper.TOKEN_SECRET)
_DESIRED = re.compile(rb'"%b":"(rendered-[^"]+)"' % re.escape(names.DESIRED.encode()))


class _Watch(asyncio.Protocol):
    """A watch of one Node: tells which rendering it is to have."""

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        self._tell = tell
        self._line = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if match := _DESIRED.search(line):
                self._tell(match[1])


@dataclass(slots=True)
class _Tally:
    """Who has a rendering, and when all have another one than before."""

    count: int
    before: bytes = b""
    have: dict[str, bytes] = field(default_factory=dict)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    last: float = 0.0

    def has(self, node: str, rendering: bytes) -> None:
        self.have[node] = rendering
        self.last = time.perf_counter()
        if len(self.have) == self.count and len(set(self.have.values())) == 1 and rendering != self.before:
            self.before = rendering
            self.reached.set()


class _Follower:
    """One node, and its agent as far as servers see it."""

    def __init__(self, name: str, context: ssl.SSLContext, source: str, tally: _Tally) -> None:
        self._node = name
        self._context = context
        self._source = source
        self._tally = tally
        self._path = api.path(resources.NODES, name=name)
        self._desired: asyncio.Queue[bytes] = asyncio.Queue()
        self._kept: load.Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._wanted = b""

    async def start(self, plane: servers.Server, fleet: servers.Server) -> None:
        self._kept = await load.connect(plane.port, self._context, source=self._source)
        watch: tuple[asyncio.Transport, _Watch] = await asyncio.get_running_loop().create_connection(
            lambda: _Watch(self._changed),
            load.HOST,
            plane.port,
            ssl=self._context,
            server_hostname=load.HOST,
            local_addr=(self._source, 0),
        )
        selector = f"fieldSelector=metadata.name%3D{self._node}"
        watch[0].write(load.get(f"{api.path(resources.NODES)}?watch=true&resourceVersion=0&{selector}"))
        self._task = asyncio.get_running_loop().create_task(self._follow(fleet))
        # Nobody is sent anywhere before.
        await self._report({names.AGENT: names.AGENT_VERSION})

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._kept is not None:
            self._kept.close()

    def _changed(self, desired: bytes) -> None:
        if desired != self._wanted:
            self._wanted = desired
            self._desired.put_nowait(desired)

    async def _follow(self, fleet: servers.Server) -> None:
        while True:
            desired = await self._desired.get()
            while await self.fetch(fleet) != 200:
                # The rendering before has gone, or that of the new credential is not there yet.
                await asyncio.sleep(1.0)
            await self._tell(desired.decode())
            self._tally.has(self._node, desired)

    async def _tell(self, rendering: str) -> None:
        """What the agent tells of a new credential: that it is there. The first rendering is told as work, too."""
        if self._node not in self._tally.have:
            await self._report({names.STATE: names.WORKING, names.REASON: ""})
            await self._report({names.STATE: names.DONE, names.CURRENT: rendering})
        else:
            await self._report({names.CURRENT: rendering})

    async def fetch(self, fleet: servers.Server) -> int:
        """The configuration, on a new connection."""
        connection: load.Connection = await load.connect(fleet.port, self._context, source=self._source)
        status = await connection.request(configurations.ask_for(configurations.SMALL))
        connection.close()
        return status

    async def renew(self) -> None:
        """Its Lease, as a heartbeat does."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        at = api.path(resources.LEASES, namespace="kube-node-lease", name=self._node)
        await self._patch(at, {"spec": {"renewTime": now}})

    async def _report(self, annotations: dict[str, str]) -> None:
        await self._patch(self._path, {"metadata": {"annotations": annotations}})

    async def _patch(self, path: str, patch: object) -> None:
        if self._kept is None:
            raise load.UnexpectedAnswer(f"{self._node} has not started")
        ask = load.send("PATCH", path, msgspec.json.encode(patch))
        status = await self._kept.request(
            ask.replace(b"application/json\r\nContent-L", b"application/merge-patch+json\r\nContent-L")
        )
        if status != 200:
            raise load.UnexpectedAnswer(f"{self._node}: a patch of {path} was answered with {status}")


async def followers(run: settings.Run) -> list[measure.Figure]:
    sizes, directory = run.sizes, run.directory / "followers"
    nodes = [f"worker-{number:04d}.bench.example" for number in range(sizes.followers)]
    labels = {f"{configurations.ROLE}/{machine_config_kinds.WORKER}": ""}
    preload.write(directory, [stored for name in nodes for stored in preload.node(name, labels)])
    async with servers.plane(directory, "--machines") as plane:
        await machines.declare(plane, nodes)
        for document in configurations.of_workers():
            await configurations.create(plane, api.path(machine_config_kinds.MACHINE_CONFIG), document)
        await plane.settle()
        issuer, tally = identities.Issuer(plane), _Tally(len(nodes))
        fleet = configurations.machine_config_server(plane)
        everyone = [
            _Follower(name, issuer.context(user_names.node_user(name), user_names.NODES), _address(number), tally)
            for number, name in enumerate(nodes)
        ]
        await _each(everyone, lambda follower: follower.start(plane, fleet))
        try:
            rounds = await _rounds(plane, fleet, everyone, tally, sizes)
        finally:
            await _each(everyone, _Follower.stop)
    return _figures(rounds, len(nodes))


def _address(number: int) -> str:
    return f"127.7.{number // 250}.{number % 250 + 1}"


@dataclass(slots=True)
class _Rounds:
    """CPU seconds by process of each roll-out, of each set of fetches, and how long a roll-out took."""

    rolled: list[dict[str, float]] = field(default_factory=list)
    fetched: list[dict[str, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


async def _rounds(
    plane: servers.Server, fleet: servers.Server, everyone: Sequence[_Follower], tally: _Tally, sizes: settings.Sizes
) -> _Rounds:
    rounds = _Rounds()
    async with asyncio.timeout(_LONGEST_SECONDS):
        # Everybody gets a first rendering.
        await tally.reached.wait()
    for number in range(sizes.rounds + 1):
        await _each(everyone, _Follower.renew)
        async with plane.meter() as fetching:
            await _each(everyone, lambda follower: _fetch(follower, fleet))
        await _each(everyone, _Follower.renew)
        tally.reached.clear()
        async with asyncio.timeout(_LONGEST_SECONDS), plane.meter() as rolling:
            begun = time.perf_counter()
            joins.require(await load.exchange(plane.port, plane.context, load.delete(_SECRET)), 200)
            await tally.reached.wait()
        # The first round warms up.
        if number:
            rounds.rolled.append(rolling.used)
            rounds.fetched.append(fetching.used)
            rounds.seconds.append(tally.last - begun)
    return rounds


async def _fetch(follower: _Follower, fleet: servers.Server) -> None:
    if (status := await follower.fetch(fleet)) != 200:
        raise load.UnexpectedAnswer(f"a configuration was answered with {status}")


async def _each(everyone: Sequence[_Follower], do: Callable[[_Follower], object]) -> None:
    """Have all do something, so many at a time."""
    waiting = iter(everyone)

    async def work() -> None:
        for follower in waiting:
            await do(follower)  # type: ignore[misc]

    await asyncio.gather(*(work() for _ in range(_AT_A_TIME)))


def _figures(rounds: _Rounds, count: int) -> list[measure.Figure]:
    rolled, fetched = ([sum(used.values()) for used in row] for row in (rounds.rolled, rounds.fetched))
    title = f"new worker credential to {count:,} followers: CPU ÷ {count:,} fetches of it"
    parts = [
        measure.Figure(
            f"followers.{role}", f"  of it the {role}", "ms", [used[role] / count * 1e3 for used in rounds.rolled]
        )
        for role in rounds.rolled[0]
    ]
    return [
        measure.Figure("followers.ratio", title, "×", measure.ratios(rolled, fetched), LIMIT_RATIO),
        measure.Figure("followers.seconds", "  until the last has reported", "s", rounds.seconds),
        measure.Figure("followers.cpu", "  CPU per follower", "ms", [value / count * 1e3 for value in rolled]),
        *parts,
        measure.Figure("followers.fetch", "  CPU per fetch", "ms", [value / count * 1e3 for value in fetched]),
    ]
