# SPDX-License-Identifier: Apache-2.0
"""What an operator waits for: `handfast check` and `handfast status` beside few nodes and beside many, and `handfast demo`.

Each is the whole command, as somebody types it. The two control planes have the nodes of the case `console`, and take turns within each round. Ratios and times are
reported, and none is judged: the aims, 5 s for a check and 60 s for the demo, are those of a machine that does nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import console, load, measure, preload, servers, settings
from handfast.runtime import clock as clocks

_COMMANDS = ("check", "status")


@dataclass(frozen=True, slots=True)
class Typed:
    """One command: how long it took, its own CPU with that of its children, and what it printed."""

    seconds: float
    cpu: float
    printed: bytes


async def checks(run: settings.Run) -> list[measure.Figure]:
    """The figures of both commands."""
    sizes, now = run.sizes, clocks.SystemClock().now()
    few, many = run.directory / "checks-few", run.directory / "checks-many"
    preload.write(few, console.fleet(sizes.few_nodes, now))
    preload.write(many, console.fleet(sizes.many_nodes, now))
    async with servers.plane(few) as beside_few, servers.plane(many) as beside_many:
        return [
            figure
            for command in _COMMANDS
            for figure in _figures(command, sizes, await _rounds(command, sizes, beside_few, beside_many))
        ]


@dataclass(frozen=True, slots=True)
class Round:
    """The same command beside few nodes and beside many, with the CPU of the control plane meanwhile."""

    few: Typed
    many: Typed
    few_plane: float
    many_plane: float


async def _rounds(
    command: str, sizes: settings.Sizes, beside_few: servers.Server, beside_many: servers.Server
) -> list[Round]:
    found = []
    for number in range(sizes.rounds + 1):
        few, few_plane = await _beside(command, sizes.few_nodes, beside_few)
        many, many_plane = await _beside(command, sizes.many_nodes, beside_many)
        if number:
            found.append(Round(few, many, few_plane, many_plane))
    return found


async def _beside(command: str, nodes: int, plane: servers.Server) -> tuple[Typed, float]:
    """Nothing is wrong there, and all nodes were looked at."""
    flags = ("--dir", plane.place.root) if command == "check" else ()
    words = (command, "--kubeconfig", plane.place.admin_kubeconfig, *flags)
    async with plane.meter() as meter:
        typed = await run_command(*map(str, words))
    if f"{nodes} good".encode() not in typed.printed:
        raise load.UnexpectedAnswer(f"`handfast {command}` printed {typed.printed.decode()}")
    return typed, meter.total


def _figures(command: str, sizes: settings.Sizes, rounds: Sequence[Round]) -> list[measure.Figure]:
    about = f"handfast {command}, {sizes.many_nodes:,} nodes: CPU of all processes ÷ that of {sizes.few_nodes}"
    ratios = [(each.many.cpu + each.many_plane) / (each.few.cpu + each.few_plane) for each in rounds]
    rows = (
        ("seconds", "time (aim for check: 5)", [each.many.seconds for each in rounds]),
        ("seconds.few", f"… of {sizes.few_nodes} nodes", [each.few.seconds for each in rounds]),
        ("cpu", "CPU of the command", [each.many.cpu for each in rounds]),
        ("cpu.few", f"… of {sizes.few_nodes} nodes", [each.few.cpu for each in rounds]),
        ("plane", "CPU of the control plane", [each.many_plane for each in rounds]),
        ("plane.few", f"… of {sizes.few_nodes} nodes", [each.few_plane for each in rounds]),
    )
    return [
        measure.Figure(f"{command}.ratio", about, "×", ratios),
        *(measure.Figure(f"{command}.{name}", f"  {title}", "s", values) for name, title, values in rows),
    ]


async def demo(_: settings.Run) -> list[measure.Figure]:
    """The demo from its first line to its last, with the time of its longest steps."""
    typed = await run_command("demo", "-o", "json")
    rows = [json.loads(line) for line in typed.printed.splitlines()]
    steps = sorted((row for row in rows if "step" in row), key=lambda row: -row["seconds"])
    return [
        measure.Figure("demo.seconds", "handfast demo (aim: 60)", "s", [typed.seconds]),
        measure.Figure("demo.cpu", "  CPU of all of its processes", "s", [typed.cpu]),
        *(
            measure.Figure(f"demo.step.{row['step']}", f"  step {row['step']}, {row['title']}", "s", [row["seconds"]])
            for row in steps[:3]
        ),
    ]


async def run_command(*words: str) -> Typed:
    """One command of this program; it has to end with 0."""
    command = [sys.executable, "-m", "handfast", *words]

    def done() -> Typed:
        reading, writing = os.pipe()
        begun = time.monotonic()
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, writing)]
        pid = os.posix_spawn(command[0], command, dict(os.environ), file_actions=actions)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            printed = file.read()
        _, code, usage = os.wait4(pid, 0)
        if code:
            raise load.UnexpectedAnswer(f"{' '.join(command)} ended with {code}: {printed.decode()}")
        return Typed(time.monotonic() - begun, usage.ru_utime + usage.ru_stime, printed)

    return await asyncio.to_thread(done)
