# SPDX-License-Identifier: Apache-2.0
"""What more stored objects do to the cost of a request, and to a start.

The small and the large control plane run at the same time and take turns within each round. All objects are in one
namespace, which is the worst case, and new ones get names all over it; they are deleted again, unmeasured.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bench import load, measure, preload, servers, settings

LIMIT_RATIO = 1.3
START_LIMIT_SECONDS = 3.0
_PAGE = 100


@dataclass(slots=True)
class _Side:
    """One of the two control planes, its connections, and the CPU seconds of each operation by name and round."""

    server: servers.Server
    clients: load.Clients
    objects: int
    used: dict[str, list[float]] = field(default_factory=dict)


async def _get(side: _Side, sizes: settings.Sizes) -> int:
    chosen = random.Random(1)
    asks = [
        load.get(f"{preload.COLLECTION}/{preload.name(chosen.randrange(side.objects), side.objects)}")
        for _ in range(sizes.growth_gets)
    ]
    await side.clients.run(asks.__getitem__, len(asks))
    return len(asks)


async def _create(side: _Side, sizes: settings.Sizes) -> int:
    total = sizes.growth_creates
    bodies = [load.send("POST", preload.COLLECTION, preload.body(preload.between(n, total))) for n in range(total)]
    random.Random(2).shuffle(bodies)
    await side.clients.run(bodies.__getitem__, total, expect=201)
    return total


async def _list(side: _Side, sizes: settings.Sizes) -> int:
    ask = load.get(f"{preload.COLLECTION}?limit={_PAGE}")
    await side.clients.run(lambda _: ask, sizes.growth_lists)
    return sizes.growth_lists


async def _clean(side: _Side, sizes: settings.Sizes) -> None:
    total = sizes.growth_creates
    asks = [load.delete(f"{preload.COLLECTION}/{preload.between(n, total)}") for n in range(total)]
    await side.clients.run(asks.__getitem__, total)


_OPERATIONS: dict[str, tuple[str, Callable[[_Side, settings.Sizes], Awaitable[int]]]] = {
    "get": ("GET", _get),
    "create": ("create", _create),
    "list": (f"list of {_PAGE}", _list),
}


async def growth(run: settings.Run) -> list[measure.Figure]:
    sizes = run.sizes
    few, many = run.directory / "few", run.directory / "many"
    preload.fill(few, sizes.few_objects)
    preload.fill(many, sizes.many_objects)
    async with servers.plane(few) as small, servers.plane(many) as large:
        sides = [
            _Side(server, await load.Clients.open(server.port, server.context, 16), objects)
            for server, objects in ((small, sizes.few_objects), (large, sizes.many_objects))
        ]
        for number in range(sizes.rounds + 1):
            for name, (_title, operation) in _OPERATIONS.items():
                # Whoever comes first in a pair may find the machine in another state: take turns at it.
                for side in sides if number % 2 else sides[::-1]:
                    async with side.server.meter() as meter:
                        done = await operation(side, sizes)
                    # The first round warms up.
                    if number:
                        side.used.setdefault(name, []).append(meter.total / done)
            for side in sides:
                await _clean(side, sizes)
        for side in sides:
            side.clients.close()
    return [figure for name, (title, _) in _OPERATIONS.items() for figure in _figures(name, title, sides)]


def _figures(name: str, title: str, sides: list[_Side]) -> list[measure.Figure]:
    few, many = sides
    ratios = [large / small for small, large in zip(few.used[name], many.used[name], strict=True)]
    title = f"{title} at {many.objects} objects: CPU ÷ that at {few.objects}"
    return [
        measure.Figure(f"growth.{name}", title, "×", ratios, LIMIT_RATIO),
        *(
            measure.Figure(
                f"growth.{name}.{side.objects}",
                f"  CPU at {side.objects}",
                "µs",
                measure.microseconds(side.used[name], 1),
            )
            for side in sides
        ),
    ]


async def start(run: settings.Run) -> list[measure.Figure]:
    """From the command to a 200 from /readyz, with objects in the store."""
    plain = await _starts(run, "start", mixed=False)
    # What the node graph and the RBAC policy are built of is read before anyone is let in.
    mixed = await _starts(run, "mixed", mixed=True)
    title = f"start to /readyz with {run.sizes.start_objects} objects"
    return [
        measure.Figure("start.readyz", title, "s", [start.readyz for start in plain], START_LIMIT_SECONDS),
        measure.Figure("start.everything", "  to every role ready", "s", [start.everything for start in plain]),
        measure.Figure(
            "start.cpu", "  CPU until then, of the processes that stay", "s", [start.cpu for start in plain]
        ),
        measure.Figure(
            "start.mixed.readyz", "  half of them Pods, a fifth RoleBindings", "s", [start.readyz for start in mixed]
        ),
        measure.Figure("start.mixed.everything", "  to every role ready", "s", [start.everything for start in mixed]),
    ]


async def _starts(run: settings.Run, name: str, *, mixed: bool) -> list[servers.Start]:
    directory = run.directory / name
    preload.fill(directory, run.sizes.start_objects, mixed=mixed)
    # The first start makes what every cluster has; later ones are like any other.
    await servers.timed_start(directory)
    return [await servers.timed_start(directory) for _ in range(run.sizes.starts)]
