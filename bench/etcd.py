# SPDX-License-Identifier: Apache-2.0
"""The same program on etcd beside SQLite: what a create and a GET take, in turns, one control plane on each.

The CPU is that of all our processes. etcd's own is shown beside it: it does the work of SQLite's thread, which is ours. It is
one member on loopback, with its defaults, so each write is synced to the disk, as SQLite's are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from bench import load, measure, preload, requests, servers, settings

CREATE_LIMIT_RATIO = 2.0
GET_LIMIT_RATIO = 1.4
_CONNECTIONS = 64
_SECONDS = 60.0


@dataclass(slots=True)
class _Side:
    """One control plane, the processes beside it that are not ours, and what its rounds came to."""

    plane: servers.Server
    clients: load.Clients
    beside: dict[str, int]
    used: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    async def run(self, make: Callable[[int], bytes], total: int, expect: int) -> None:
        others = measure.cpu_total(self.beside.values())
        async with self.plane.meter() as meter:
            begun = time.perf_counter()
            await self.clients.run(make, total, expect=expect)
            self.rates.append(total / (time.perf_counter() - begun))
        self.used.append(meter.total)
        self.theirs.append(measure.cpu_total(self.beside.values()) - others)

    def clear(self) -> None:
        for values in (self.used, self.theirs, self.rates):
            values.clear()


async def etcd(run: settings.Run) -> list[measure.Figure]:
    async with _etcd(run.directory / "etcd") as (address, pid):
        store = ("--store", f"etcd://{address}/bench")
        async with (
            servers.plane(run.directory / "on-sqlite") as local,
            servers.plane(run.directory / "on-etcd", *store) as remote,
        ):
            sides = [await _side(local, {}), await _side(remote, {"etcd": pid})]
            try:
                return [*await _create(sides, run.sizes), *await _get(sides, run.sizes)]
            finally:
                for side in sides:
                    side.clients.close()


async def _side(plane: servers.Server, beside: dict[str, int]) -> _Side:
    await requests.prepare(plane)
    return _Side(plane, await load.Clients.open(plane.port, plane.context, _CONNECTIONS), beside)


async def _create(sides: list[_Side], sizes: settings.Sizes) -> list[measure.Figure]:
    total, run = sizes.creates, secrets.token_hex(3)
    for side in sides:
        await side.clients.run(requests.creator(f"warm-{run}"), sizes.warm_up, expect=201)
    for number in range(sizes.short_rounds):
        # Made beforehand, so that the generator does not hold the servers up.
        bodies = [requests.creator(f"made-{run}-{number}")(index) for index in range(total)]
        for side in sides:
            await side.run(bodies.__getitem__, total, 201)
    return _figures("create", f"create, {_CONNECTIONS} connections", sides, total, CREATE_LIMIT_RATIO)


async def _get(sides: list[_Side], sizes: settings.Sizes) -> list[measure.Figure]:
    total, ask = sizes.gets, load.get(f"{preload.COLLECTION}/{requests.OBJECT}")
    for side in sides:
        side.clear()
        await side.clients.run(lambda _: ask, sizes.warm_up)
    for _ in range(sizes.short_rounds):
        for side in sides:
            await side.run(lambda _: ask, total, 200)
    return _figures("get", f"GET, {_CONNECTIONS} connections", sides, total, GET_LIMIT_RATIO)


def _figures(name: str, title: str, sides: list[_Side], total: int, limit: float) -> list[measure.Figure]:
    local, remote = sides

    def each(seconds: list[float]) -> list[float]:
        return measure.microseconds(seconds, total)

    ratios = measure.ratios(remote.used, local.used)
    return [
        measure.Figure(f"etcd.{name}.ratio", f"{title}: CPU on etcd ÷ on SQLite", "×", ratios, limit),
        measure.Figure(f"etcd.{name}.cpu", "  CPU of ours on etcd", "µs", each(remote.used)),
        measure.Figure(f"etcd.{name}.sqlite", "  CPU of ours on SQLite", "µs", each(local.used)),
        measure.Figure(f"etcd.{name}.etcd", "  etcd's own, which is not ours", "µs", each(remote.theirs)),
        measure.Figure(f"etcd.{name}.rate", "  a second on etcd", "/s", list(remote.rates)),
        measure.Figure(f"etcd.{name}.sqlite_rate", "  a second on SQLite", "/s", list(local.rates)),
    ]


@contextlib.asynccontextmanager
async def _etcd(directory: pathlib.Path) -> AsyncIterator[tuple[str, int]]:
    """Debian's etcd, or the one that `ETCD` names: its address and process."""
    binary = os.environ.get("ETCD") or shutil.which("etcd")
    if binary is None:
        raise load.UnexpectedAnswer("there is no etcd here: install Debian's etcd-server, or name one with ETCD=")
    directory.mkdir()
    address, peer = [f"{load.HOST}:{await servers.free_port()}" for _ in range(2)]
    with (directory / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(binary, "--name=one", f"--data-dir={directory / 'data'}", "--log-level=error"),
            *(f"--listen-client-urls=http://{address}", f"--advertise-client-urls=http://{address}"),
            *(f"--listen-peer-urls=http://{peer}", f"--initial-advertise-peer-urls=http://{peer}"),
            f"--initial-cluster=one=http://{peer}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        await _answers(address, process)
        yield address, process.pid
    finally:
        await servers.stop(process)


async def _answers(address: str, process: asyncio.subprocess.Process) -> None:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_SECONDS):
        while process.returncode is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                return
            await asyncio.sleep(0.05)
    raise load.UnexpectedAnswer(f"etcd ended with {process.returncode}")
