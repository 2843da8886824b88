# SPDX-License-Identifier: Apache-2.0
"""What an API server tells of its store to whoever asks over the API: for the console. It asks nobody.

1. Its readiness, one line for each part, as `/readyz?verbose` says it.
2. Its figures, as far as they are about the store and about what is held in memory for it, of `/metrics`. What is not there is not shown: another API server has others.
3. The servers that share the store, by their Leases. One whose Lease has ended is said to be off.
4. Sentences for what needs somebody: no space, writes whose outcome nobody knows, a member of the etcd that does not answer, a server that lags, several versions at once.
5. How the store itself is, row by row, is `store_facts`'. What the API does not show, where it lies and whether every value can be read, is told by commands: they are named.
"""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handfast.api import objects
from handfast.rules import server_leases
from handfast.rules.console import exposition, store_facts

COMMAND: Final = "handfast store status"
# What only the store itself knows (5), and what says it.
ONLY_BY_COMMAND: Final[Mapping[str, str]] = {
    "where it lies, and all of this also when no server answers": COMMAND,
    "whether every value can be read": "handfast store verify",
}
_LAG: Final = 1000


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a server that is ready, or not."""

    name: str
    ready: bool
    said: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, as people read it."""

    name: str
    value: str
    about: str


@dataclass(frozen=True, slots=True)
class Need:
    """Something that needs somebody, and the next step (4)."""

    text: str
    urgent: bool
    hint: str


@dataclass(frozen=True, slots=True)
class _Wanted:
    metric: str
    name: str
    about: str
    unit: str = ""


_WANTED: Final = (
    _Wanted("handfast_apiservers", "API servers", "that share this store"),
    _Wanted("handfast_store_lag_revisions", "lag", "revisions that its copy is behind the store"),
    _Wanted("handfast_store_free_bytes", "free space", "of the store's file system", "bytes"),
    _Wanted("handfast_store_reserve_bytes", "reserve", "kept so that a full disk still takes deletes", "bytes"),
    _Wanted("handfast_store_full", "full", "whether writes that add something find no space", "truth"),
    _Wanted("handfast_store_writes_refused_total", "writes refused", "because the store was full"),
    _Wanted("handfast_store_writes_uncertain_total", "writes uncertain", "whose answer was lost; each was read again"),
    _Wanted(
        "handfast_store_writes_unknown_total",
        "writes unknown",
        "answered with 504: nobody knows whether they were done",
    ),
    _Wanted("apiserver_longrunning_requests", "open watches", ""),
    _Wanted("apiserver_current_connections", "open connections", ""),
    _Wanted("handfast_watchers_dropped", "watchers dropped", "for being slow"),
    _Wanted("handfast_unread_answer_bytes", "unread answers", "held until they are read", "bytes"),
)


METRICS: Final = frozenset({each.metric for each in _WANTED}) | store_facts.METRICS


def readiness(text: str) -> tuple[Part, ...]:
    """The parts of a server (1)."""
    parts = []
    for line in text.splitlines():
        sign, name, said = line[:3], *line[3:].partition(" ")[::2]
        if sign in {"[+]", "[-]"} and name:
            parts.append(Part(name, sign == "[+]", said.strip()))
    return tuple(parts)


def values(samples: exposition.Samples) -> dict[str, float]:
    """The numbers without labels that are shown (2)."""
    read = {each.metric: exposition.number(samples, each.metric) for each in _WANTED}
    return {name: value for name, value in read.items() if value is not None}


def figures(read: Mapping[str, float]) -> tuple[Figure, ...]:
    """Those that are known, for people (2)."""
    return tuple(
        Figure(each.name, _written(read[each.metric], each.unit), each.about)
        for each in _WANTED
        if each.metric in read and math.isfinite(read[each.metric])
    )


def _written(value: float, unit: str) -> str:
    if unit == "truth":
        return "yes" if value else "no"
    if unit == "bytes":
        return store_facts.size(value)
    return f"{value:,.0f}"


def servers(leases: Iterable[objects.Document]) -> tuple[server_leases.Server, ...]:
    """Who shares the store, by name (3)."""
    there = [each for each in map(server_leases.read, leases) if each is not None]
    return tuple(sorted(there, key=lambda each: each.name))


def needing(
    parts: Sequence[Part],
    read: Mapping[str, float],
    there: Sequence[server_leases.Server],
    members: Sequence[store_facts.Member],
    now: datetime.datetime,
) -> tuple[Need, ...]:
    """What needs somebody, the most urgent first (4)."""
    rows = [
        Need(f"{part.name} is not ready: {part.said or 'it does not say why'}", True, "see the log of the API server")
        for part in parts
        if not part.ready
    ]
    if read.get("handfast_store_full"):
        rows.append(
            Need(
                "the store is full: writes that add something are refused",
                True,
                "make room on its disk, or in etcd, whose alarm is then to be cleared; deletes still work",
            )
        )
    if unknown := read.get("handfast_store_writes_unknown_total"):
        rows.append(Need(f"of {unknown:,.0f} writes nobody knows whether they were done", False, f"see {COMMAND}"))
    rows += _members(members)
    alive = [each for each in there if each.is_alive(now)]
    rows += [
        Need(
            f"{each.name} lags {each.lag:,} versions behind the store", False, "see the load and the log of that server"
        )
        for each in alive
        if each.lag > _LAG
    ]
    if len(versions := sorted({each.version for each in alive if each.version})) > 1:
        rows.append(
            Need(f"servers of several versions share the store: {', '.join(versions)}", False, "finish the upgrade")
        )
    return tuple(rows)


def _members(members: Sequence[store_facts.Member]) -> list[Need]:
    """Of an etcd: without a majority nothing is written."""
    silent = [each.address for each in members if not each.answers]
    lost = 2 * len(silent) >= len(members)
    follows = "without a majority nothing is written" if lost else "the others go on without it"
    return [
        Need(
            f"the member {address} of the etcd does not answer: {follows}",
            lost,
            "see its machine, and the log of etcd there",
        )
        for address in silent
    ]


def grant(user: str) -> str:
    """The command that lets somebody read the figures, for who may grant it."""
    who = shlex.quote(user) if user else "NAME"
    return f"kubectl create clusterrolebinding handfast-console:metrics --clusterrole=system:monitoring --user={who}"
