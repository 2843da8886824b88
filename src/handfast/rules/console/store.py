# SPDX-License-Identifier: Apache-2.0
"""What an API server tells of its store to whoever asks over the API: for the console. It asks nobody.

1. Its readiness, one line for each part, as `/readyz?verbose` says it.
2. Its figures, as far as they are about the store and about what is held in memory for it, of `/metrics`. What is not there is not shown: another API server has others.
3. The servers that share the store, by their Leases. One whose Lease has ended is said to be gone.
4. Sentences for what needs somebody: no space, writes whose outcome nobody knows, a server that lags or is gone, several versions at once.
5. The rest of `handfast store status` is read off the store itself, which the API does not show: how large it is, how old its backup, which keys seal it. So the command is named.
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

COMMAND: Final = "handfast store status"
# What only the store itself knows (5), and what says it.
ONLY_BY_COMMAND: Final[Mapping[str, str]] = {
    "engine, place and size; revision and stored form; seal keys; restores; the last backup": COMMAND,
    "whether every value can be read": "handfast store verify",
}
_MOST: Final = 2 << 20
_LAG: Final = 1000
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


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
    _Wanted("handfast_resource_version", "resource version", "the newest that is applied"),
    _Wanted("handfast_apiservers", "API servers", "that share this store"),
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


def readiness(text: str) -> tuple[Part, ...]:
    """The parts of a server (1)."""
    parts = []
    for line in text.splitlines():
        sign, name, said = line[:3], *line[3:].partition(" ")[::2]
        if sign in {"[+]", "[-]"} and name:
            parts.append(Part(name, sign == "[+]", said.strip()))
    return tuple(parts)


def values(text: str) -> dict[str, float]:
    """The metrics without labels that are shown (2); what is no number is left out."""
    wanted = {each.metric for each in _WANTED}
    read = {}
    for line in text[:_MOST].splitlines():
        name, _, value = line.partition(" ")
        if name in wanted:
            try:
                read[name] = float(value)
            except ValueError:
                continue
    return read


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
        size, word = next(((size, word) for size, word in _SIZES if value >= size), (1, "B"))
        return f"{value / size:.1f} {word}" if size > 1 else f"{value:.0f} B"
    return f"{value:,.0f}"


def servers(leases: Iterable[objects.Document]) -> tuple[server_leases.Server, ...]:
    """Who shares the store, by name (3)."""
    there = [each for each in map(server_leases.read, leases) if each is not None]
    return tuple(sorted(there, key=lambda each: each.name))


def needing(
    parts: Sequence[Part],
    read: Mapping[str, float],
    there: Sequence[server_leases.Server],
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


def grant(user: str) -> str:
    """The command that lets somebody read the figures, for who may grant it."""
    who = shlex.quote(user) if user else "NAME"
    return f"kubectl create clusterrolebinding handfast-console:metrics --clusterrole=system:monitoring --user={who}"
