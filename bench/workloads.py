# SPDX-License-Identifier: Apache-2.0
"""Workloads of the mesh on one machine: how long many take to start and certify at once, what an idle agent and its Envoy take, and how fast Envoy changes.

Real `up --mesh`, real `handfast mesh run`, real Envoys. Nothing calls the workloads. Private memory is what a process does not share with another: what many
Envoys have in common, as their program, counts for none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench import load, measure, servers, settings
from handfast.proxy import envoy
from handfast.rules.envoy import application as application_clusters
from handfast.rules.envoy import inbound, inbound_routes, judging, ports, resources
from handfast.runtime import clock as clocks
from handfast.wire import ads

AGENT_MIB: Final = 50.0
ENVOY_MIB: Final = 20.0
IDLE_PER_CENT: Final = 0.2
CHANGE_MS: Final = 50.0
_IDLE_SECONDS: Final = 10.0
_DEADLINE: Final = 300.0
_COMMAND: Final = ("sh", "-c", "echo started; exec sleep 600")


@dataclass(frozen=True, slots=True)
class Pair:
    """The agent of one workload, and its Envoy."""

    agent: int
    envoy: int


async def workloads(run: settings.Run) -> list[measure.Figure]:
    """The figures of workloads."""
    async with servers.plane(run.directory / "workloads", "--mesh", *servers.MESH_PORTS) as plane:
        await _account(plane)
        async with _running(plane, 1) as (alone, _):
            pass
        async with _running(plane, run.sizes.workloads) as (together, processes):
            found = [_pair(process.pid) for process in processes]
            await asyncio.sleep(_IDLE_SECONDS)
            agents = [measure.private(pair.agent) / measure.MIB for pair in found]
            envoys = [measure.private(pair.envoy) / measure.MIB for pair in found]
            idle = await _idle(found)
    many = run.sizes.workloads
    return [
        measure.Figure("workloads.one", "one workload: from its start to its certificate", "s", [alone]),
        measure.Figure("workloads.many", f"{many} at once: until the last has its certificate", "s", [together]),
        measure.Figure("workloads.agent", "an idle agent: private memory", "MiB", agents, AGENT_MIB),
        measure.Figure("workloads.envoy", "its Envoy: private memory", "MiB", envoys, ENVOY_MIB),
        measure.Figure("workloads.idle", "both, idle: share of a core", "%", idle, IDLE_PER_CENT),
        await _changes(run),
    ]


async def _account(plane: servers.Server) -> None:
    await _made(plane, "/api/v1/namespaces", "shop")
    await _made(plane, "/api/v1/namespaces/shop/serviceaccounts", "web")


async def _made(plane: servers.Server, path: str, name: str) -> None:
    request = load.send("POST", path, json.dumps({"metadata": {"name": name}}).encode())
    status, body = await load.exchange(plane.port, plane.context, request)
    if status != 201:
        raise load.UnexpectedAnswer(f"POST {path} was answered with {status} {body[:200]!r}")


@contextlib.asynccontextmanager
async def _running(
    plane: servers.Server, number: int
) -> AsyncIterator[tuple[float, Sequence[asyncio.subprocess.Process]]]:
    """So many workloads, and the seconds until the last of them had its certificate: its command is started then."""
    words = ("mesh", "run", "--dir", str(plane.place.root), "--service-account", "shop/web", "--", *_COMMAND)
    log = plane.place.root.with_suffix(".workloads.log")
    processes: list[asyncio.subprocess.Process] = []
    begun = time.monotonic()
    try:
        with log.open("ab") as file:
            for _ in range(number):
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "handfast", *words),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=file,
                )
                processes.append(process)
        async with asyncio.timeout(_DEADLINE):
            for process in processes:
                if process.stdout is None or not await process.stdout.readline():
                    raise load.UnexpectedAnswer(log.read_text()[-2000:])
        yield time.monotonic() - begun, processes
    finally:
        await asyncio.gather(*map(servers.stop, processes))


def _pair(pid: int) -> Pair:
    """The agent below a `mesh run`, and the Envoy below that."""
    for child in _children(pid):
        below = _children(child)
        if below and b"\0proxy\0run\0" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
            return Pair(child, below[0])
    raise load.UnexpectedAnswer("a workload has no agent")


def _children(pid: int) -> list[int]:
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return [int(word) for task in tasks for word in (task / "children").read_text().split()]


async def _idle(found: Sequence[Pair]) -> list[float]:
    before = [measure.cpu_total((pair.agent, pair.envoy)) for pair in found]
    begun = time.monotonic()
    await asyncio.sleep(_IDLE_SECONDS)
    seconds = time.monotonic() - begun
    used = [measure.cpu_total((pair.agent, pair.envoy)) for pair in found]
    return [100 * (late - early) / seconds for early, late in zip(before, used, strict=True)]


async def _changes(run: settings.Run) -> measure.Figure:
    """How long until Envoy has acknowledged another state of its listener."""
    clock = clocks.SystemClock()
    times = []
    with tempfile.TemporaryDirectory(prefix="hf-") as name:
        options = envoy.Options(node="bench", directory=pathlib.Path(name))
        port = ports.Port(number=await servers.free_port(), application=1)
        facts = inbound.Facts(host="127.0.0.1", port=port, identity="web.shop.bench")
        key = (resources.Kind.LISTENER, port.listener)
        async with ads.Ads(clock).on(options.agent_socket) as sent, envoy.running(options, clock):
            for cluster in application_clusters.clusters(port):
                sent.put(resources.Kind.CLUSTER, cluster["name"], cluster)
            for document in inbound_routes.documents(
                port, [judging.PortJudgement()], judging.NOBODY_DENIED, identity_headers=True
            ):
                sent.put(resources.Kind.ROUTES, document["name"], document)
            for number in range(run.sizes.short_rounds + 1):
                # A policy that lets everybody in, and one that does not.
                changed = dataclasses.replace(facts, tcp=bool(number % 2))
                begun = time.monotonic()
                sent.put(*key, inbound.listener(changed, inbound.State.REFUSE))
                async with asyncio.timeout(_DEADLINE):
                    await sent.acknowledged([key])
                times.append(1000 * (time.monotonic() - begun))
    # The first is Envoy's own start.
    return measure.Figure(
        "workloads.change", "another state of a listener, until Envoy has acknowledged it", "ms", times[1:], CHANGE_MS
    )
