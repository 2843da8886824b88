# SPDX-License-Identifier: Apache-2.0
"""What an agent remembers of whom its workload talks to, and when it is to be told again. Who sees it, and who is told, is not known here.

1. Sightings of one peer, direction, port, destination and kind are one edge: counted together, with the first instant and the last. What was judged is what was judged last.
2. There is room for `reports.MOST_EDGES`. The one that was not seen for the longest time makes room.
3. What the control plane would refuse in a report is not remembered (`reports.require_edge`): one bad name does not cost the others.
4. A new edge, and another judgement of one, is told at once. Counts and instants alone are told once in `SECONDS`: each report is a write at the control plane.
5. What is told has less than so many octets, those that were seen last first: a report is refused as a whole.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_sightings.py |
|---|---|---|---|---|
| a client | a name, or a destination, that no report may have | have the agent cut off from the control plane | 3 | test_what_would_be_refused_is_not_remembered |
| a crowd of clients | long names | … | 5 | test_the_largest_edges_of_all_fit_into_a_report |
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from handfast.rules.mesh import certify, reports

SECONDS: Final = 60
_MOST_OCTETS: Final = reports.MAX_REPORT - (8 << 10)
# What an edge has beside its texts.
_NUMBERS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """`count` requests or connections of one kind; `unsecured` says why they are not secured, empty where they are."""

    direction: str
    port: int
    count: int
    peer: str = ""
    destination: str = ""
    unsecured: str = ""
    refused: str = ""
    would_be_refused: str = ""

    def edge(self, now: int) -> reports.Edge:
        fields = dataclasses.asdict(self)
        return reports.Edge(**fields, secured=not self.unsecured, first=now, last=now)


_Key = tuple[str, str, int, str, str]


class Table:
    """The edges of one workload. `now` is in seconds; a clock that is set back changes nothing."""

    def __init__(self) -> None:
        self._edges: OrderedDict[_Key, reports.Edge] = OrderedDict()
        self._told: tuple[reports.Edge, ...] = ()
        self._told_at = 0
        self._is_new = False

    def see(self, sighting: Sighting, now: int) -> bool:
        """Remember it; whether it is to be told at once."""
        edge = sighting.edge(now)
        try:
            # 3. what would be refused
            reports.require_edge(edge)
        except certify.Refusal:
            return False
        key = (edge.direction, edge.peer, edge.port, edge.destination, edge.unsecured)
        before = self._edges.pop(key, None)
        if before is not None:
            # 1. counted together
            last = max(before.last, now)
            edge = dataclasses.replace(edge, count=before.count + edge.count, first=before.first, last=last)
        # 4. another judgement
        if before is None or (before.refused, before.would_be_refused) != (edge.refused, edge.would_be_refused):
            self._is_new = True
        self._edges[key] = edge
        # 2. room
        if len(self._edges) > reports.MOST_EDGES:
            self._edges.popitem(last=False)
        return self._is_new

    def edges(self, now: int) -> tuple[reports.Edge, ...]:
        """What is to be told; the same as before while nothing is due."""
        # 4. at once, or once in a while
        if self._is_new or now >= self._told_at + SECONDS:
            self._told, self._told_at, self._is_new = self._bounded(), now, False
        return self._told

    def _bounded(self) -> tuple[reports.Edge, ...]:
        rows: list[reports.Edge] = []
        left = _MOST_OCTETS
        for edge in reversed(self._edges.values()):
            left -= _octets(edge)
            # 5. less than so many
            if left < 0:
                break
            rows.append(edge)
        return tuple(rows)


def _octets(edge: reports.Edge) -> int:
    texts = (edge.direction, edge.peer, edge.destination, edge.unsecured, edge.refused, edge.would_be_refused)
    return _NUMBERS + sum(map(len, texts))
