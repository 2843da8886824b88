# SPDX-License-Identifier: Apache-2.0
"""Memory of `up --mesh` beside `up`, both idle: what the three services of the mesh add. It sends no requests.

PSS shares what processes have in common among them, so that another process makes the others smaller. What counts is the
difference of the sums.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bench import measure, servers, settings

LIMIT_MIB: Final = 190.0
_SERVICES: Final = ("identity", "destination", "injector")


async def mesh_idle(run: settings.Run) -> list[measure.Figure]:
    """PSS of all processes with a mesh, less that of all processes without one."""
    async with servers.plane(run.directory / "plain") as plane:
        plain, _ = await _sums(plane, run)
    async with servers.plane(run.directory / "mesh", "--mesh", *servers.MESH_PORTS) as plane:
        sums, roles = await _sums(plane, run)
    added = [one - other for one, other in zip(sums, plain, strict=True)]
    services = {role: size for role, size in roles.items() if role in _SERVICES}
    return [
        measure.Figure("mesh.memory", "up --mesh, empty: PSS that the mesh adds", "MiB", added, LIMIT_MIB),
        *(
            measure.Figure(f"mesh.memory.{role}", f"  of it the {role}", "MiB", [size])
            for role, size in services.items()
        ),
        measure.Figure("mesh.memory.all", "  PSS of all processes", "MiB", sums),
    ]


async def _sums(plane: servers.Server, run: settings.Run) -> tuple[Sequence[float], dict[str, float]]:
    sums = []
    for _ in range(run.sizes.rounds):
        await asyncio.sleep(run.sizes.idle_seconds)
        sums.append(sum(map(measure.pss, plane.pids.values())) / measure.MIB)
    return sums, {role: measure.pss(pid) / measure.MIB for role, pid in plane.pids.items()}
