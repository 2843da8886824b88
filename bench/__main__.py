# SPDX-License-Identifier: Apache-2.0
"""`python -m bench`: runs the cases, prints the figures, writes them down, and fails when one is over its limit.

Limits are on ratios to the floor, and on the few figures that decision 27 lists; rates are never judged. It measures
nothing itself.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import pathlib
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence

import uvloop

from bench import (
    access,
    certify,
    checks,
    configurations,
    console,
    decisions,
    definitions,
    denials,
    destinations,
    discovery,
    etcd,
    followers,
    growth,
    injections,
    joins,
    lists,
    machines,
    measure,
    mesh_memory,
    proxies,
    requests,
    restarts,
    restores,
    revocation,
    rules,
    servers,
    settings,
    watches,
    workloads,
)

# These share one control plane and one floor.
_PAIRED: dict[str, Callable[[settings.Pair, settings.Sizes], Awaitable[list[measure.Figure]]]] = {
    "get": requests.get,
    "access": access.access,
    "create": requests.create,
    "rules": rules.rules,
    "connections": requests.connections,
    "watch": watches.watch,
    "cluster-info": discovery.cluster_info,
}
_ALONE: dict[str, Callable[[settings.Run], Awaitable[list[measure.Figure]]]] = {
    "idle": requests.idle,
    "lists": lists.lists,
    "growth": growth.growth,
    "decisions": decisions.decisions,
    "start": growth.start,
    "restore": restores.restores,
    "restarts": restarts.restarts,
    "etcd": etcd.etcd,
    "definitions": definitions.definitions,
    "discovery": discovery.discovery,
    "tokens": discovery.many_tokens,
    "joins": joins.joins,
    "crowded": joins.crowded,
    "storm": joins.storm,
    "machines": machines.machines,
    "revocation": revocation.revocation,
    "configurations": configurations.configurations,
    "followers": followers.followers,
    "injections": injections.injections,
    "certify": certify.certify,
    "destination": destinations.destination,
    "mesh-idle": mesh_memory.mesh_idle,
    "workloads": workloads.workloads,
    "proxies": proxies.proxies,
    "denials": denials.denials,
    "console": console.console,
    "check": checks.checks,
    "demo": checks.demo,
}
_NAMES = (*_PAIRED, *_ALONE)
_LATEST = pathlib.Path(__file__).parent / "results" / "latest.json"
_HEAD = f"{'':70} {'median':>9} {'min – max':>19}  {'limit':>7}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the control plane beside the floor.")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds; nothing is judged or written")
    parser.add_argument(
        "--only", action="append", choices=_NAMES, metavar="NAME", help=f"one of {', '.join(_NAMES)}; may be repeated"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, default=_LATEST, help="where the JSON goes  [default: bench/results/latest.json]"
    )
    return parser.parse_args()


async def _measure(run: settings.Run, wanted: Sequence[str], show: Callable[[Sequence[measure.Figure]], None]) -> None:
    paired = [_PAIRED[name] for name in _PAIRED if name in wanted]
    if paired:
        async with servers.plane(run.directory / "paired") as plane:
            body = await requests.prepare(plane)
            async with servers.floor(plane, body) as floor:
                for case in paired:
                    show(await case(settings.Pair(plane, floor), run.sizes))
    for name in wanted:
        if name in _ALONE:
            show(await _ALONE[name](run))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _line(figure: measure.Figure, *, judged: bool) -> str:
    spread = ""
    if len(figure.values) > 1:
        spread = f"{_number(min(figure.values))} – {_number(max(figure.values))}"
    verdict = ""
    if figure.limit is not None:
        verdict = f"≤ {figure.limit:g}"
        if judged:
            verdict = f"{verdict:>7}  {'ok' if figure.passed else 'OVER'}"
    title = f"{figure.title} [{figure.unit}]"
    return f"{title:70} {_number(figure.median):>9} {spread:>19}  {verdict:>7}".rstrip()


def _write(path: pathlib.Path, machine: object, figures: Sequence[measure.Figure], seconds: float) -> None:
    document = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seconds": round(seconds),
        "machine": machine,
        "figures": [figure.document() for figure in figures],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


async def _main(chosen: argparse.Namespace) -> int:
    sizes = settings.QUICK if chosen.quick else settings.FULL
    figures: list[measure.Figure] = []

    def show(fresh: Sequence[measure.Figure]) -> None:
        figures.extend(fresh)
        for figure in fresh:
            print(_line(figure, judged=not chosen.quick), flush=True)

    machine = measure.machine()
    print(f"{machine['cpus']} × {machine['cpu']}, Python {machine['python']}, load {machine['loadAverage'][0]}")
    print(_HEAD)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with tempfile.TemporaryDirectory(prefix="handfast-bench-") as directory:
        await _measure(settings.Run(sizes, pathlib.Path(directory)), chosen.only or _NAMES, show)
    if chosen.quick:
        return 0
    _write(chosen.output, machine, figures, loop.time() - begun)
    failed = [figure for figure in figures if not figure.passed]
    for figure in failed:
        print(
            f"over the limit: {figure.name}: {_number(figure.median)} {figure.unit}, limit {figure.limit:g}",
            file=sys.stderr,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(_main(_arguments())))
