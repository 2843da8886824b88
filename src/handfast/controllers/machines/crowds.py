# SPDX-License-Identifier: Apache-2.0
"""When so many requests wait for one reason that it is said once for all of them. It says nothing itself.

1. Within an hour the first hundred of a reason are told one by one.
2. The next one is told for all, once; those after it are not told. The metric counts each.
"""

from __future__ import annotations

import enum

from handfast.runtime import clock as clocks

MOST = 100
_SECONDS = 3600.0


class Telling(enum.Enum):
    """How a request is told why it waits."""

    EACH = "each"
    ALL = "all"
    NONE = "none"


class Crowds:
    """How many were told of each reason, since when."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._counted: dict[str, tuple[float, int]] = {}

    def next(self, reason: str) -> Telling:
        """One more request waits for this reason."""
        now = self._clock.monotonic()
        since, count = self._counted.get(reason, (now, 0))
        if now - since >= _SECONDS:
            since, count = now, 0
        self._counted[reason] = (since, count + 1)
        # 1. one by one, 2. then once for all
        if count < MOST:
            return Telling.EACH
        return Telling.ALL if count == MOST else Telling.NONE
