# SPDX-License-Identifier: Apache-2.0
"""The page of machines and their pools, and that of one machine. Who waits and why is `rules.console.machines`' to say.

1. Machines are followed from the beginning, where the cluster has such a kind. Pools and what their nodes have are many objects, and are followed
   from the first time on that somebody opens the page.
2. How far one machine is takes questions that no informer answers: they are asked when its page is opened, and the page is as old as it says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import machine_kinds
from handfast.client import api, machine_explanation, machine_inventory, machine_rollout
from handfast.console import doors, needs, page
from handfast.console import known as known_module
from handfast.rules.console import machines, questions
from handfast.rules.machine_config import rollout_progress
from handfast.rules.machines import explanation, inventory, listing

_NEEDS: Final = (needs.NODES, needs.REQUESTS, needs.MACHINES, needs.CLUSTER_API_MACHINES, needs.POOLS)
_FACTS: Final = "facts of machines"
_CLUSTER_API: Final = needs.CLUSTER_API_MACHINES.kind


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """The machines that are asked for, and every pool."""
    everything = _rows(known)
    counts = dict.fromkeys(machines.ORDER, 0)
    for row in everything:
        counts[row.state] += 1
    fleet = _pools(known)
    return {
        "range": machines.page(everything, question),
        "counts": list(counts.items()),
        "pools": machines.pools(fleet),
        "outside": machines.behind(fleet.outside),
        "chosen": question.more.get("state", ""),
        "served": bool(everything) or await _is_served(known),
        "has_page": _has_page(known),
    }


async def _is_served(known: known_module.Known) -> bool:
    """Whether the cluster has a kind of Machine at all; asked only where there are none."""
    try:
        return await known.ask(lambda: _serves_machines(known.client))
    except (errors.Refused, errors.Unavailable):
        return True


async def _serves_machines(client: api.Client) -> bool:
    return await client.serves(machine_kinds.MACHINE) or await client.serves(_CLUSTER_API)


class _Facts:
    """The facts of every Machine, read when it changes."""

    def __init__(self, known: known_module.Known) -> None:
        self.all: dict[inventory.Key, inventory.Machine] = {}
        for need in (needs.MACHINES, needs.CLUSTER_API_MACHINES):
            known.of(need).subscribe(functools.partial(self._changed, need.kind.group))

    def _changed(self, group: str, old: machine_inventory.View | None, new: machine_inventory.View | None) -> None:
        if (changed := new or old) is not None:
            self.all.pop((group, changed.metadata.namespace, changed.metadata.name), None)
        if new is not None:
            machine = inventory.read({"apiVersion": f"{group}/", **msgspec.to_builtins(new)})
            self.all[machine.key] = machine


def _rows(known: known_module.Known) -> list[machines.Row]:
    table = known.fleet.table
    facts = known.following(_FACTS, lambda _informers, _changed: _Facts(known))

    def make() -> list[machines.Row]:
        nodes = None if known.trouble(needs.NODES) is not None else _is_registered
        return machines.all_rows(facts.all.values(), nodes, _waiting, known.now())

    def _is_registered(name: str) -> bool:
        record = table.get(name)
        return record is not None and record.registered

    def _waiting(name: str) -> Any:
        record = table.get(name)
        return () if record is None else record.requests

    return known.once("machines", _NEEDS, make, seconds=2.0)


def _pools(known: known_module.Known) -> rollout_progress.Fleet:
    # 1. only where there are pools
    if not len(known.of(needs.POOLS)):
        return rollout_progress.Fleet()
    fleet = known.following(needs.POOLS.name, machine_rollout.Fleet)
    # What is not read yet is not kept: its first pool would be seen half a minute later.
    if not fleet.pools:
        return rollout_progress.Fleet()

    def make() -> rollout_progress.Fleet:
        return rollout_progress.as_rendered(tuple(fleet.pools.values()), tuple(fleet.nodes.values()), fleet.renderings)

    return known.once("pools", _NEEDS, make, seconds=5.0, at_most=5.0)


def _badge(known: known_module.Known) -> page.Badge | None:
    needing = [row for row in _rows(known) if row.state not in machines.CALM]
    urgent = any(row.state in {listing.FAILED, listing.NODE_GONE} for row in needing)
    return page.Badge(len(needing), urgent) if needing else None


async def show_one(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """How far a machine has come (2)."""
    namespace, _, name = question.of.partition("/")
    row = next((each for each in _rows(known) if each.key == question.of), None)
    if row is None:
        raise doors.NotOurs(
            404,
            f'there is no Machine "{question.of}"',
            reason="NotFound",
            hint="the page of machines has those that there are: /machines",
        )
    stages: tuple[explanation.Stage, ...] = ()
    unread: list[str] = []
    try:
        look = functools.partial(machine_explanation.look, known.client, name, namespace, known.now())
        facts, unread = await known.ask(look)
        stages = explanation.walk(facts)
    except (errors.Refused, errors.Unavailable) as error:
        unread = [error.message]
    return {"row": row, "machine": row.machine, "stages": stages, "unread": unread, "has_page": _has_page(known)}


def _has_page(known: known_module.Known) -> Callable[[str], bool]:
    """Whether there is a page of a node: it is there, or somebody asks to be it."""
    return lambda name: known.fleet.table.get(name) is not None


PAGE: Final = page.Page(
    path="/machines",
    name="Machines",
    title="Machines",
    template="machines.html",
    needs=_NEEDS,
    show=show,
    live=("summary", "pools"),
    rows=True,
    badge=_badge,
)
ONE: Final = page.Page(path="/machines/*", title="Machine", template="machine.html", needs=_NEEDS, show=show_one)
