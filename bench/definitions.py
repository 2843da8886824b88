# SPDX-License-Identifier: Apache-2.0
"""What 500 definitions cost those who do not use them: starting the control plane, and its discovery, beside none.

Starts of both are timed in turn. Discovery is CPU of the API server for `/apis` as `kubectl` asks for it, all groups in one document.
"""

from __future__ import annotations

import pathlib

import msgspec

from bench import load, measure, rules, servers, settings

COUNT = 500
START_LIMIT_RATIO = 1.5
DISCOVERY_LIMIT_RATIO = 2.0
_AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
_ASKED = 20


async def definitions(run: settings.Run) -> list[measure.Figure]:
    """Each start and each question with 500 definitions, in starts and questions with none."""
    bare, full = run.directory / "no-definitions", run.directory / "definitions"
    async with servers.plane(bare):
        pass
    async with servers.plane(full) as plane:
        await _define(plane)
    starts, cpu = await _starts(run, bare, full)
    asked = await _asked(run, bare, full)
    return [
        measure.Figure(
            "definitions.start", f"start with {COUNT} definitions ÷ with none", "×", starts, START_LIMIT_RATIO
        ),
        measure.Figure(
            "definitions.start_cpu", "  CPU until every role is ready ÷ with none", "×", cpu, START_LIMIT_RATIO
        ),
        measure.Figure("definitions.discovery", "  discovery: CPU ÷ with none", "×", asked, DISCOVERY_LIMIT_RATIO),
    ]


async def _define(plane: servers.Server) -> None:
    clients = await load.Clients.open(plane.port, plane.context, 4)
    bodies = [msgspec.json.encode(rules.definition(f"kinds{number:03d}", rules.RULES)) for number in range(COUNT)]
    requests = [load.send("POST", rules.DEFINITIONS, body) for body in bodies]
    await clients.run(requests.__getitem__, COUNT, expect=201)
    clients.close()


async def _starts(run: settings.Run, bare: pathlib.Path, full: pathlib.Path) -> tuple[list[float], list[float]]:
    pairs = [[await servers.timed_start(each) for each in (full, bare)] for _ in range(run.sizes.starts)]
    seconds = [ours.everything / least.everything for ours, least in pairs]
    return seconds, [ours.cpu / least.cpu for ours, least in pairs]


async def _asked(run: settings.Run, bare: pathlib.Path, full: pathlib.Path) -> list[float]:
    request = load.get("/apis").replace(b"application/json", _AGGREGATED)
    used: list[list[float]] = []
    async with servers.plane(full) as ours, servers.plane(bare) as least:
        clients = [await load.Clients.open(each.port, each.context, 1) for each in (ours, least)]
        for number in range(-1, run.sizes.short_rounds):
            row = []
            for server, asking in zip((ours, least), clients, strict=True):
                async with server.meter() as meter:
                    await asking.run(lambda _: request, _ASKED)
                row.append(meter.total)
            # The first round is for warming up.
            if number >= 0:
                used.append(row)
        for asking in clients:
            asking.close()
    return [ours / least for ours, least in used]
