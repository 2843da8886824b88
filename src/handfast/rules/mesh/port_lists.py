# SPDX-License-Identifier: Apache-2.0
"""Lists of ports as they are on Pods and Services that exist: numbers, ranges and names of ports, as in `80,8000-8010,admin`. It decides nothing.

What the injector takes from annotations, and refuses, is in `port_annotations`.

1. A part that is no port is left out, and the others count: what exists cannot be refused any more. Whoever asks takes what is not on the list as
   the safer of two.
2. A list has so many parts, and no more are read.
3. Ranges stay ranges: `1-65535` costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from handfast.rules.mesh import port_annotations

MOST_PARTS: Final = port_annotations.MOST_PARTS


class Ports(msgspec.Struct, frozen=True):
    """Ranges of ports, ends included."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, port: int) -> bool:
        return any(first <= port <= last for first, last in self.ranges)


# Where nobody says otherwise.
OPAQUE: Final = Ports(tuple((port, port) for port in port_annotations.OPAQUE_PORTS))


def parse(text: str, named: Mapping[str, int] | None = None) -> Ports:
    """The ports of a list; `named` are those that a name may mean."""
    rows = []
    # 2. so many parts
    for part in text.split(",", MOST_PARTS)[:MOST_PARTS]:
        row = _row(part.strip(), named or {})
        # 1. what is no port is left out
        if row is not None:
            rows.append(row)
    return Ports(tuple(rows))


def _row(part: str, named: Mapping[str, int]) -> tuple[int, int] | None:
    # 3. a range stays one
    return (named[part], named[part]) if part in named else port_annotations.port_range(part)
