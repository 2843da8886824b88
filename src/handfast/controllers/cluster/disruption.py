# SPDX-License-Identifier: Apache-2.0
"""Keeps the status of PodDisruptionBudgets: how many Pods there should be, how many are healthy, how many may go.

How many there should be is the number of those that are there, or, for percentages and `maxUnavailable`, what their controllers
want: `spec.replicas` of the ReplicaSet, ReplicationController or StatefulSet, or of the Deployment behind it. Where that
cannot be read, the budget allows nothing. Pods without a controller are not expected, as in Kubernetes.

It evicts nobody. The status is written at the version that was read, so that no eviction that was let through is lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from handfast.api import jsonpath, objects, resources, selectors
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop, served
from handfast.controllers.cluster import slicing
from handfast.rules import disruption
from handfast.runtime import clock as clocks

NAME = "disruption-controller"


class Budget(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget: whom it selects."""

    metadata: partial.Meta = partial.Meta()
    spec: dict[str, Any] = {}


_SOURCE = watch.Source(resource=resources.POD_DISRUPTION_BUDGETS, view=Budget)


class Budgets:
    """Handles one budget, by namespace and name."""

    def __init__(self, client: api.Client, clock: clocks.Clock, pods: cache.Informer[slicing.Pod]) -> None:
        self._client = client
        self._clock = clock
        self._pods = pods

    async def reconcile(self, key: partial.Key) -> float | None:
        namespace, name = key
        budget = await self._client.find(resources.POD_DISRUPTION_BUDGETS, name, namespace=namespace)
        if budget is None:
            return None
        selector = disruption.selector(budget)
        there = self._pods.by_index("namespace", namespace) if selector is not None else ()
        selected = [pod for pod in there if selector is not None and selector.match(pod.metadata.labels)]
        wanted = await self._status(budget, selected)
        if wanted != budget.get("status"):
            await self._client.update_status(resources.POD_DISRUPTION_BUDGETS, {**budget, "status": wanted})
        # Who was to be evicted and is still there counts again after a while.
        return disruption.NOTED.total_seconds() if wanted.get("disruptedPods") else None

    async def _status(self, budget: objects.Document, selected: list[slicing.Pod]) -> dict[str, Any]:
        now = self._clock.now()
        expected: int | str = len(selected)
        if disruption.needs_expected(budget):
            expected = await self._expected(selected)
        if isinstance(expected, str):
            return disruption.failed(budget, expected, now)
        pods = [
            disruption.Pod(pod.metadata.name, pod.ready, pod.metadata.deletion_timestamp is not None)
            for pod in selected
        ]
        return disruption.counted(budget, pods, expected, now)

    async def _expected(self, selected: list[slicing.Pod]) -> int | str:
        """What the controllers of the Pods want, or why nobody knows."""
        owners: dict[str, tuple[str, partial.OwnerReference]] = {}
        for pod in selected:
            for reference in pod.metadata.owner_references or ():
                if reference.controller:
                    owners[reference.uid] = (pod.metadata.namespace, reference)
        replicas: dict[str, int] = {}
        for namespace, reference in owners.values():
            found = await self._wanted(namespace, reference)
            if found is None:
                return f"{reference.kind} {reference.name} does not say how many pods it wants"
            replicas[found[0]] = found[1]
        return sum(replicas.values())

    async def _wanted(self, namespace: str, reference: partial.OwnerReference) -> tuple[str, int] | None:
        """The uid of the controller that decides, and how many Pods it wants."""
        group = reference.api_version.rpartition("/")[0]
        rows = [row for row in served.builtin() if (row.group, row.kind) == (group, reference.kind) and row.namespaced]
        document = await self._client.find(rows[0], reference.name, namespace=namespace) if rows else None
        if document is None or document["metadata"].get("uid") != reference.uid:
            return None
        # One step, from a ReplicaSet: tenants can let Deployments own each other, in circles.
        owners = jsonpath.mappings(document, "metadata", "ownerReferences") if reference.kind == "ReplicaSet" else ()
        for row in owners:
            if row.get("controller") is True and row.get("kind") == "Deployment":
                behind = msgspec.convert(row, partial.OwnerReference)
                return await self._wanted(namespace, behind)
        number = jsonpath.at(document, "spec", "replicas")
        return (reference.uid, number) if isinstance(number, int) else None


class Selectors:
    """Whom each budget selects: read once a budget, since every change of a Pod is matched with all of its namespace."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, selectors.LabelSelector]] = {}

    def changed(self, old: Budget | None, new: Budget | None) -> None:
        if old is not None:
            left = self._by_namespace.get(old.metadata.namespace, {})
            left.pop(old.metadata.name, None)
            if not left:
                self._by_namespace.pop(old.metadata.namespace, None)
        selector = None if new is None else disruption.selector({"spec": new.spec})
        if new is not None and selector is not None:
            self._by_namespace.setdefault(new.metadata.namespace, {})[new.metadata.name] = selector

    def of(self, pod: slicing.Pod) -> list[partial.Key]:
        """The budgets that select a Pod."""
        namespace = pod.metadata.namespace
        rows = self._by_namespace.get(namespace, {})
        return [(namespace, name) for name, selector in rows.items() if selector.match(pod.metadata.labels)]


def build(context: loop.Context) -> loop.Controller[partial.Key]:
    budgets = context.informers.get(_SOURCE)
    pods = context.informers.get(slicing.PODS, slicing.BY_NAMESPACE)
    handler = Budgets(context.client, context.clock, pods)
    controller: loop.Controller[partial.Key] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    controller.watches(budgets, lambda budget: [budget.metadata.key])
    selecting = Selectors()
    budgets.subscribe(selecting.changed)
    controller.watches(pods, selecting.of)
    return controller
