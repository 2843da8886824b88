# SPDX-License-Identifier: Apache-2.0
"""How many requests wait, against how many machines there can be: more means that somebody floods, or that something is broken.

It parks nothing itself. Who is over the limit still has every request with a Machine judged; only requests without one are parked.

1. The limit is the number of Machines or of Nodes, whichever is larger, plus 100. As many as that may wait.
2. A node counts once for each signer, however often its kubelet asks again.
3. A request counts while it waits, for an hour from its creation, both ends left out. One that is stamped ahead of our clock counts
   once it is less than ten seconds ahead.
4. Looking costs the same however many are counted: each request is taken in once and let go once.
"""

from __future__ import annotations

import datetime
import heapq
from typing import Final

SLACK: Final = 100
RECENT: Final = datetime.timedelta(hours=1)
AHEAD: Final = datetime.timedelta(seconds=10)

# A node and a signer.
Pair = tuple[str, str]


def limit(machines: int, nodes: int) -> int:
    """How many may wait (1)."""
    return max(machines, nodes) + SLACK


class Pending:
    """The requests that wait, by name."""

    def __init__(self) -> None:
        self._requests: dict[str, tuple[Pair, datetime.datetime]] = {}
        # 2. whose requests are recent
        self._recent: dict[Pair, set[str]] = {}
        # 3. when each begins to count, and when it ends
        self._coming: list[tuple[datetime.datetime, str]] = []
        self._going: list[tuple[datetime.datetime, str]] = []

    def put(self, name: str, node: str, signer: str, created: datetime.datetime) -> None:
        """A request waits; one that is here already stays as it is."""
        if name not in self._requests:
            self._requests[name] = ((node, signer), created)
            heapq.heappush(self._coming, (created, name))

    def remove(self, name: str) -> None:
        """A request waits no more."""
        pair, _ = self._requests.pop(name, (None, None))
        if pair is not None:
            self._drop(pair, name)

    def count(self, now: datetime.datetime) -> int:
        """How many nodes wait for certificates, each signer for itself."""
        while self._coming and self._coming[0][0] < now + AHEAD:
            created, name = heapq.heappop(self._coming)
            if self._is_here(name, created):
                self._recent.setdefault(self._requests[name][0], set()).add(name)
                heapq.heappush(self._going, (created, name))
        while self._going and self._going[0][0] <= now - RECENT:
            created, name = heapq.heappop(self._going)
            if self._is_here(name, created):
                self._drop(self._requests[name][0], name)
        return len(self._recent)

    def next_end(self) -> datetime.datetime | None:
        """When the oldest that counts ceases to; None: none counts."""
        return self._going[0][0] + RECENT if self._going else None

    def _is_here(self, name: str, created: datetime.datetime) -> bool:
        """Whether an entry is still about the request of this name."""
        return self._requests.get(name, (None, None))[1] == created

    def _drop(self, pair: Pair, name: str) -> None:
        names = self._recent.get(pair, set())
        names.discard(name)
        if not names:
            self._recent.pop(pair, None)
