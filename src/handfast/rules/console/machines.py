# SPDX-License-Identifier: Apache-2.0
"""The Machines page: which machines have joined, which wait and why, and how far each pool is with its roll-out. It reads nothing.

1. The state of a machine is that of `handfast machine list`. Beside it stands what it waits for, and the command that goes on.
2. Those that need somebody come first: failed, whose Node is gone, without a name, waiting. Then by name.
3. What a request waits for is said by the request itself, where there is one in the name of the machine's node.
4. Pools are those of `handfast machine pools`. Of the machines that are behind a few are named for each reason: a pool may have thousands.
"""

from __future__ import annotations

import collections
import datetime
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast.rules.console import questions, rows
from handfast.rules.machine_config import following, rollout_progress
from handfast.rules.machines import explanation, inventory, join_window, listing
from handfast.rules.nodes import overview

# 2. those that need somebody first
ORDER: Final = (
    listing.FAILED,
    listing.NODE_GONE,
    listing.NO_NAME,
    listing.WAITING,
    listing.APPROVED,
    listing.DELETING,
    listing.JOINED,
)
CALM: Final = frozenset({listing.JOINED, listing.DELETING})
# 4. so many for each reason
_NAMED: Final = 5

# The requests that wait in the name of a node.
Waiting = Callable[[str], Sequence[overview.Request]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One machine. `node` is the name of the Node that it is, or is to be."""

    machine: inventory.Machine
    state: str
    node: str
    problem: str
    next_step: str

    @property
    def key(self) -> str:
        """By which its page is found."""
        return f"{self.machine.namespace}/{self.machine.name}"

    @property
    def addresses(self) -> tuple[str, ...]:
        return self.machine.texts(*inventory.NAME_TYPES, *inventory.IP_TYPES)


_COLUMNS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": lambda row: (row.machine.name, row.machine.key),
    "role": lambda row: (row.machine.role, row.machine.name),
    "state": lambda row: (row.state, row.machine.name),
    "created": lambda row: (row.machine.created, row.machine.name),
}


@dataclass(frozen=True, slots=True)
class Behind:
    """Why some machines of a pool do not have its configuration, and a few of them by name."""

    reason: str
    count: int
    some: tuple[following.Follower, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool: how many have its configuration, and who is behind."""

    progress: rollout_progress.Progress
    machines: int
    have: int
    behind: tuple[Behind, ...]

    @property
    def done(self) -> float:
        """How many of a thousand have it."""
        return round(1000 * self.have / self.machines, 1) if self.machines else 0.0


def all_rows(
    machines: Iterable[inventory.Machine], nodes: Callable[[str], bool] | None, waiting: Waiting, now: datetime.datetime
) -> list[Row]:
    """Every machine, those that need somebody first (2). `nodes` says whether there is a Node of a name; None: that may not be read."""
    found = [_row(machine, nodes, waiting, now) for machine in machines]
    return sorted(found, key=lambda row: (ORDER.index(row.state), row.machine.name, row.machine.key))


def page(everything: Sequence[Row], question: questions.Question) -> rows.Range[Row]:
    """The rows that are asked for; a word is looked for in names, addresses, role, state, node and hardware."""
    state = question.more.get("state", "")
    chosen = [row for row in everything if row.state == state] if state in ORDER else everything
    return rows.select(chosen, question, text=_text, columns=_COLUMNS)


def _text(row: Row) -> str:
    machine = row.machine
    words = (row.key, machine.role, row.state, row.node, machine.serial, machine.provider_id)
    return " ".join((*words, *row.addresses, *machine.macs))


def _row(
    machine: inventory.Machine, nodes: Callable[[str], bool] | None, waiting: Waiting, now: datetime.datetime
) -> Row:
    there = None if nodes is None else {machine.node} if nodes(machine.node) else set[str]()
    state = listing.state(machine, there)
    node = machine.node or explanation.node_name(machine)
    problem, step = _why(machine, state, waiting(node) if node else (), now)
    return Row(machine=machine, state=state, node=node, problem=problem, next_step=step)


def _why(
    machine: inventory.Machine, state: str, requests: Sequence[overview.Request], now: datetime.datetime
) -> tuple[str, str]:
    """What it waits for, and the next step (1)."""
    quoted = shlex.quote(f"{machine.namespace}/{machine.name}")
    explain = f"handfast machine explain {quoted}"
    if state == listing.NODE_GONE:
        return f"its Node {machine.node} is gone", f"handfast machine readmit {quoted}"
    if state == listing.FAILED:
        return "its provider says that it has failed", "make another Machine"
    if state == listing.NO_NAME:
        return f"it has no {inventory.INTERNAL_DNS} name, so that no request can be its own", explain
    if state == listing.APPROVED:
        return "a key was approved for it, and its Node has not registered", explain
    if state != listing.WAITING:
        return "", ""
    # 3. what a request says
    if requests:
        first = requests[0]
        why = first.why or f"{first.requester} asks for its certificate, and nobody has decided"
        return f"{why} ({first.name})", f"handfast csr explain {shlex.quote(first.name)}"
    if now - machine.created > join_window.DEFAULT:
        return "nobody has asked in its name, and the usual time to join is over", explain
    return "nobody has asked in its name yet", explain


def pools(fleet: rollout_progress.Fleet) -> tuple[Pool, ...]:
    """Every pool (4)."""
    return tuple(
        Pool(each, len(each.nodes), len(each.nodes) - len(each.late), behind(each.late)) for each in fleet.pools
    )


def behind(late: Sequence[following.Follower]) -> tuple[Behind, ...]:
    """Machines that are behind, by reason in the order in which reasons are looked at."""
    by_reason: dict[str, list[following.Follower]] = collections.defaultdict(list)
    for each in late:
        by_reason[each.reason].append(each)
    known = sorted(by_reason, key=following.REASONS.index)
    return tuple(Behind(reason, len(by_reason[reason]), tuple(by_reason[reason][:_NAMED])) for reason in known)
