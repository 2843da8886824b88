# SPDX-License-Identifier: Apache-2.0
"""Which budget an eviction takes from, and where that is found out."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web

from handfast.apiserver import calls, request
from handfast.apiserver.verbs import evictions
from handfast.runtime import aside
from handfast.runtime import clock as clocks
from tests.unit.apiserver import admission_world

BUDGETS = ("policy", "poddisruptionbudgets")
POD = {"metadata": {"name": "p", "namespace": "a", "labels": {"app": "web"}}, "status": {"phase": "Running"}}
ALWAYS = {"selector": {"matchLabels": {"app": "web"}}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}


class _Aside(aside.Aside):
    """Counts what it is handed."""

    count = 0

    async def run(self, owner: str, do: Callable[..., Any], *arguments: Any) -> Any:
        self.count += 1
        return await super().run(owner, do, *arguments)


async def _taken(world: admission_world.World) -> tuple[str, int]:
    """The budget, and how many were read aside."""
    away = _Aside("test")
    call = calls.Call(cast("web.BaseRequest", None), "1", request.RequestInfo("create", ""), aside=away)
    store = cast("Any", types.SimpleNamespace(replica=world.replica))
    name = await evictions.Evictions(store, clocks.SystemClock()).take(call, POD, dry_run=True)
    return name, away.count


async def test_light_budgets_are_read_where_the_request_is() -> None:
    world = admission_world.World()
    world.put(BUDGETS, "other", "a", spec={"selector": {"matchLabels": {"app": "db"}}})
    world.put(BUDGETS, "web", "a", spec=ALWAYS)
    assert await _taken(world) == ("web", 0)


async def test_heavy_budgets_are_read_aside() -> None:
    world = admission_world.World()
    labels = {f"k{number}": "v" for number in range(5000)}
    world.put(BUDGETS, "heavy", "a", spec={"selector": {"matchLabels": labels}})
    world.put(BUDGETS, "web", "a", spec=ALWAYS)
    assert await _taken(world) == ("web", 2)


async def test_many_budgets_let_others_have_their_turn() -> None:
    world = admission_world.World()
    for number in range(120):
        world.put(BUDGETS, f"b{number}", "a", spec={"selector": {"matchLabels": {"app": "db"}}})
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    assert await _taken(world) == ("", 0)
    task.cancel()
    assert len(turns) >= 2
