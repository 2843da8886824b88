# SPDX-License-Identifier: Apache-2.0
"""How much each outbound cluster is used, from Envoy's own figures. It asks for none, and forgets nobody.

1. A colon or a dot in the name of a cluster is an underscore in its figures. Two clusters that differ by that alone are counted as one.
2. What cannot be read counts as no use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from handfast.rules.envoy import outbound

_PREFIX: Final = "cluster."
_TOTALS: Final = ("upstream_rq_total", "upstream_cx_total", "upstream_cx_none_healthy")
# A request that goes on; of a tunnel, its connection. Those of requests are kept for the next one, and are no use.
_ACTIVE: Final = {outbound.HTTP: "upstream_rq_active", outbound.TCP: "upstream_cx_active"}
_FIGURES: Final = "|".join((*_TOTALS, *_ACTIVE.values()))
# What Envoy's admin port is asked.
PATH: Final = f"/stats?format=json&usedonly&filter=^cluster.(http|tcp)/.*({_FIGURES})$"


class Use(msgspec.Struct, frozen=True):
    """All that it was ever called, and whether something goes on now."""

    total: int = 0
    active: int = 0


def read(octets: bytes, names: Iterable[str]) -> Mapping[str, Use]:
    """The use of each of these clusters."""
    figures = _figures(octets)
    return {name: _use(name, figures.get(_figure(name), {})) for name in names}


def _figures(octets: bytes) -> Mapping[str, dict[str, int]]:
    # 2. no use
    try:
        rows = json.loads(octets)["stats"]
    except (ValueError, KeyError, TypeError):
        return {}
    figures: dict[str, dict[str, int]] = {}
    for row in rows if isinstance(rows, list) else ():
        _add(row, figures)
    return figures


def _add(row: Any, figures: dict[str, dict[str, int]]) -> None:
    if not isinstance(row, dict):
        return
    name, value = row.get("name"), row.get("value")
    if isinstance(name, str) and isinstance(value, int) and name.startswith(_PREFIX):
        cluster, _, figure = name.removeprefix(_PREFIX).rpartition(".")
        figures.setdefault(cluster, {})[figure] = value


def _figure(name: str) -> str:
    # 1. as Envoy writes it
    return name.replace(":", "_").replace(".", "_")


def _use(name: str, row: Mapping[str, int]) -> Use:
    active = next((figure for prefix, figure in _ACTIVE.items() if name.startswith(prefix)), "")
    return Use(sum(row.get(each, 0) for each in _TOTALS), row.get(active, 0))
