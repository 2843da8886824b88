# SPDX-License-Identifier: Apache-2.0
"""Writes what agents reported, as MeshWorkload objects owned by their Pods. `rules.mesh.observed` says what they hold, and when one is due.

1. Of each workload the newest counts: what comes before it is written is written once.
2. One write after the other, so that reports never take the account's whole budget of requests.
3. The object is that of this Pod: one that an earlier Pod of the name has left is deleted first, by its UID.
4. What cannot be written is tried again with the next report, and not before a while.
5. A workload that is silent is forgotten here. Its object stays, and goes with its Pod.
6. A report costs the same however many workloads there are: what is due is kept in order.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from typing import Any, Final

import prometheus_client
import structlog

from handfast import errors
from handfast.api import jsonpath, status
from handfast.client import api
from handfast.rules.mesh import holders, observed
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

_KIND: Final = observed.KIND
_PRUNE_SECONDS: Final = 30.0
_log = structlog.get_logger("handfast.mesh.agents")

WRITES = prometheus_client.Counter("handfast_mesh_workload_writes", "Writes of MeshWorkloads, by result.", ["result"])


class Workloads:
    """What is to be written."""

    def __init__(self, client: api.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock
        self._pending: dict[holders.Holder, observed.Observed] = {}
        self._written: dict[holders.Holder, observed.Written] = {}
        # 6. when each is due, and the same in order; what is in order and not here is out of date
        self._due: dict[holders.Holder, float] = {}
        self._order: list[tuple[float, int, holders.Holder]] = []
        self._numbers = itertools.count()
        # The UID of each object that is known to be there.
        self._objects: dict[holders.Holder, str] = {}
        self._changed = asyncio.Event()

    def observe(self, holder: holders.Holder, seen: observed.Observed) -> None:
        """Have it written when it is due."""
        now = self._clock.monotonic()
        due = now + observed.due(seen, self._written.get(holder), now)
        # 1. the newest counts
        self._pending[holder] = seen
        if due < self._due.get(holder, math.inf):
            self._due[holder] = due
            heapq.heappush(self._order, (due, next(self._numbers), holder))
            self._changed.set()

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            self._changed.clear()
            while self._order and self._order[0][0] <= self._clock.monotonic():
                due, _, holder = heapq.heappop(self._order)
                if self._due.get(holder) == due:
                    del self._due[holder]
                    # 2. one after the other
                    await self._try(holder, self._pending.pop(holder))
            self._prune()
            left = self._order[0][0] - self._clock.monotonic() if self._order else _PRUNE_SECONDS
            await tasks.wait_for_event(self._changed, self._clock, max(0.0, min(left, _PRUNE_SECONDS)))

    async def _try(self, holder: holders.Holder, seen: observed.Observed) -> None:
        try:
            await self._write(holder, seen)
        except (errors.Refused, errors.Unavailable) as error:
            # 4. with the next report
            WRITES.labels(error.reason).inc()
            self._objects.pop(holder, None)
            _log.warning("a report was not written", pod=holder.revocable, reason=error.reason, error=error.message)
        else:
            WRITES.labels("ok").inc()
        self._written[holder] = observed.Written(seen, self._clock.monotonic())

    async def _write(self, holder: holders.Holder, seen: observed.Observed) -> None:
        if holder in self._objects:
            with api.MISSING_OK:
                await self._patch(holder, seen)
                return
        self._objects[holder] = await self._have(holder)
        await self._patch(holder, seen)

    async def _patch(self, holder: holders.Holder, seen: observed.Observed) -> None:
        change: dict[str, Any] = {
            # 3. that object, and no other of its name
            "metadata": {"uid": self._objects[holder]},
            "status": observed.status(seen, self._clock.now()),
        }
        await self._client.patch(
            _KIND, holder.pod, change, namespace=holder.namespace, subresource="status", metadata=True
        )

    async def _have(self, holder: holders.Holder) -> str:
        """Have the object of this Pod there; its UID."""
        there = await self._client.find(_KIND, holder.pod, namespace=holder.namespace)
        if there is not None and not observed.is_of(there, holder):
            # 3. what an earlier Pod has left
            with api.MISSING_OK:
                await self._client.delete(
                    _KIND, holder.pod, namespace=holder.namespace, uid=jsonpath.text(there, "metadata", "uid")
                )
            there = None
        if there is None:
            there = await self._create(holder)
        return jsonpath.text(there, "metadata", "uid")

    async def _create(self, holder: holders.Holder) -> Any:
        try:
            return await self._client.create(_KIND, observed.document(holder), namespace=holder.namespace)
        except status.StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            # Another replica was faster.
            there = await self._client.get(_KIND, holder.pod, namespace=holder.namespace)
            if not observed.is_of(there, holder):
                raise
            return there

    def _prune(self) -> None:
        # 5. who is silent is forgotten
        limit = self._clock.monotonic() - 2 * observed.SILENT_SECONDS
        for holder in [holder for holder, written in self._written.items() if written.at < limit]:
            del self._written[holder]
            self._objects.pop(holder, None)
