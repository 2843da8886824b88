# SPDX-License-Identifier: Apache-2.0
"""Whom a workload talks to, as its Envoy sees it: who calls, by entries of the access log, and whom it calls, by the counters of its clusters. It changes no traffic.

What is kept of it, and when it is told, is in `rules.mesh.sightings`; who is told, `announcements` says.

1. Nothing here is done for each request: Envoy tells a few of many (`rules.envoy.observing`), and counters are looked at every ten seconds.
2. Counters begin anew with Envoy: one that is smaller than before has begun anew.
3. Counters of endpoints that are gone are forgotten.
4. A refusal that Envoy tells of is logged: the first of a client at a port, then one in ten seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import structlog

from handfast import errors
from handfast.proxy import envoy
from handfast.rules.envoy import calls, observing
from handfast.rules.mesh import reports, sightings
from handfast.runtime import clock as clocks
from handfast.wire import access_logs, server

# 1. how often counters are looked at
_LOOK_SECONDS: Final = 10.0
_CLUSTERS: Final = "/clusters?format=json"
_log = structlog.get_logger("handfast.proxy")


class Edges:
    """The edges of one workload."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._table = sightings.Table()
        self._totals: dict[tuple[str, str, int], int] = {}
        # Called when there is something to be told at once.
        self.on_news: Callable[[], None] = lambda: None

    @property
    def services(self) -> server.Services:
        """What Envoy tells requests and connections to."""
        return access_logs.services(self.take)

    def rows(self) -> tuple[reports.Edge, ...]:
        """What is to be told."""
        return self._table.edges(self._now())

    def take(self, entry: access_logs.Entry) -> None:
        """Requests to the workload, or a connection that is none."""
        unsecured = entry.unsecured
        if not unsecured and not entry.peer:
            unsecured = observing.NO_CERTIFICATE if entry.tls else observing.PLAINTEXT
        sighting = sightings.Sighting(
            direction=reports.INBOUND,
            port=entry.port,
            count=entry.count,
            peer=entry.peer,
            unsecured=unsecured,
            refused=entry.refused,
            would_be_refused=entry.would_be_refused,
        )
        self._see(sighting)
        if entry.refused:
            # 4. one of many
            _log.warning("a request is refused", reason=entry.refused, client=entry.peer, port=entry.port)

    async def run(self, ask: envoy.Ask) -> None:
        """Look at the counters, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            try:
                status, body = await ask(_CLUSTERS)
                self.count(json.loads(body) if status == 200 else {})
            except (errors.Unavailable, ValueError):
                # It is started anew, and the next look finds it.
                continue

    def count(self, document: Any) -> None:
        """Calls of the workload since the last look."""
        totals: dict[tuple[str, str, int], int] = {}
        for row in calls.called(document):
            key = (row.cluster, row.address, row.port)
            totals[key] = row.total
            before = self._totals.get(key, 0)
            # 2. begun anew
            count = row.total - before if row.total >= before else row.total
            if count:
                self._see(_outbound(row, count))
        # 3. forgotten
        self._totals = totals

    def _see(self, sighting: sightings.Sighting) -> None:
        if self._table.see(sighting, self._now()):
            self.on_news()

    def _now(self) -> int:
        return int(self._clock.now().timestamp())


def _outbound(row: calls.Called, count: int) -> sightings.Sighting:
    return sightings.Sighting(
        direction=reports.OUTBOUND,
        port=row.port,
        count=count,
        peer=row.peer,
        destination=row.destination,
        unsecured=row.unsecured,
    )
