# SPDX-License-Identifier: Apache-2.0
"""Takes an eviction from the PodDisruptionBudget of its Pod, before the Pod is deleted. `rules.disruption` decides.

The disruption is written to the budget's status by compare-and-swap: of any number of evictions at once, exactly as many
succeed as the budget allows. A dry run is judged and takes nothing. The Pod is deleted by `deletes`.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.api import jsonpath, kinds, objects, status
from handfast.apiserver import calls
from handfast.apiserver.state import items, storage
from handfast.rules import disruption
from handfast.runtime import clock as clocks
from handfast.store import protocol

_BUDGETS: Final = kinds.row("poddisruptionbudgets", "policy")
_TRIES: Final = 16
_AT_ONCE: Final = 50


class Evictions:
    """The budgets at this server."""

    def __init__(self, store: storage.Storage, clock: clocks.Clock) -> None:
        self._storage = store
        self._clock = clock

    async def take(self, call: calls.Call, pod: objects.Document, *, dry_run: bool) -> str:
        """Let a Pod be evicted, or refuse it. The name of the budget if the Pod must not have changed when it is deleted, else nothing."""
        for _ in range(_TRIES):
            item = None if disruption.is_exempt(pod) else await self._budget(call, pod)
            if item is None:
                return ""
            budget = item.document()
            if disruption.spares(budget, pod):
                return item.name
            after = disruption.taken(budget, str(pod["metadata"]["name"]), self._clock.now())
            if dry_run or await self._written(after, item):
                return ""
            await self._storage.replica.fresh()
        raise status.StatusError("ServerTimeout", "the disruption budget changes all the time; please try again")

    async def _budget(self, call: calls.Call, pod: objects.Document) -> items.Item | None:
        labels = jsonpath.mapping(pod, "metadata", "labels")
        there = self._storage.replica.collection(_BUDGETS.prefix).snapshot(str(pod["metadata"]["namespace"]))
        concerning = []
        # As many, and as large, as a tenant made them: heavy ones are read aside, and others get their turn in between.
        for number, item in enumerate(there, start=1):
            call.weigh(item.body)
            if await call.work(_concerns, item, labels):
                concerning.append(item)
            if not number % _AT_ONCE:
                await self._clock.sleep(0)
        return disruption.the_budget(concerning)

    async def _written(self, budget: objects.Document, item: items.Item) -> bool:
        try:
            await self._storage.replace(_BUDGETS, budget, item)
        except protocol.Mismatch:
            return False
        return True


def _concerns(item: items.Item, labels: dict[str, Any]) -> bool:
    return disruption.concerns(item.document(), labels)
