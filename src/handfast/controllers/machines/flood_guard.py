# SPDX-License-Identifier: Apache-2.0
"""The flood guard: how many nodes wait for certificates, how many may, and which requests are parked. It judges no request.

`rules.machines.pressure` counts. The gauges have the real product's names, so that its alert works here.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

import prometheus_client

from handfast.rules.machines import pressure
from handfast.runtime import clock as clocks

# At least so long between two looks at the pressure that only time brings about.
_LOOK_SECONDS: Final = 30.0

# The real product's names.
PENDING = prometheus_client.Gauge("mapi_current_pending_csr", "Nodes that wait for a certificate, by the flood guard.")
LIMIT = prometheus_client.Gauge(
    "mapi_max_pending_csr", "How many may wait before requests without a Machine are parked."
)
PARKED = prometheus_client.Gauge("handfast_machine_approver_parked", "Requests without a Machine that are parked.")


class Guard:
    """The flood guard: who waits, how many may, and who is parked."""

    def __init__(self, clock: clocks.Clock, limit: Callable[[], int]) -> None:
        self.clock = clock
        self.limit = limit
        self.pending = pressure.Pending()
        self.parked: set[str] = set()
        # Whether it was told of since it was over the limit.
        self.is_told = False
        PENDING.set_function(self.count)
        LIMIT.set_function(limit)
        PARKED.set_function(lambda: len(self.parked))

    def count(self) -> int:
        return self.pending.count(self.clock.now())

    def is_over(self) -> bool:
        return self.count() > self.limit()

    def forget(self, name: str) -> None:
        self.pending.remove(name)
        self.parked.discard(name)

    def released(self) -> set[str]:
        """Everybody who was parked."""
        released, self.parked, self.is_told = self.parked, set(), False
        return released

    def next_look(self) -> datetime.datetime:
        """When the pressure can have dropped by itself."""
        soon = self.clock.now() + datetime.timedelta(seconds=_LOOK_SECONDS)
        return max(self.pending.next_end() or soon, soon)
