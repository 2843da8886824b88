# SPDX-License-Identifier: Apache-2.0
"""Sends the nodes of a pool to its rendering, no more at once than the pool allows, and reports how far they are.

`rules.machine_config.candidates` says who is sent. It renders nothing, serves nothing, and changes nothing on a machine: the agent there does,
and says so on its Node.

1. Who is sent is computed anew from the objects, at most once a second for each pool. Nobody is sent to a rendering that is not there,
   or that is another pool's.
2. Each Node is written on its own, a few at a time, at the version that it was judged in. A node counts as sent from the moment it is
   chosen: while the watch is late, nobody else is sent in its place.
3. Before a Node is written its pool is looked at again. If it was paused since, or has another rendering, nobody is sent.
4. If `spec.maxUnavailable` cannot be read, an Event and a condition name it. A new credential goes to the nodes all the same.
5. The status is written when it differs, at the version that it was computed from.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Final

import prometheus_client
import structlog

from handfast.api import resources
from handfast.client import api, cache, events
from handfast.controllers import loop, views
from handfast.controllers.machines import pool_members, pool_views
from handfast.rules.machine_config import candidates, max_unavailable, members, names, pool_status, pools

NAME = "machine-config-pool-controller"
COMPLETED: Final = "Completed"
_EVERY_SECONDS: Final = 1.0
# Nodes that are written at the same time.
_WORKERS: Final = 8

Key = tuple[str, str]
_POOL: Final = "pool"
_NODE: Final = "node"

_log = structlog.get_logger("handfast.machine_config")
SENT = prometheus_client.Counter("handfast_pool_nodes_sent", "Nodes that were sent to a rendering, by pool.", ["pool"])
BEHIND = prometheus_client.Gauge(
    "handfast_pool_nodes_behind", "Nodes of a pool that do not have its rendering.", ["pool"]
)


class Pools:
    """Handles one pool or one Node, by kind and name."""

    def __init__(
        self,
        context: loop.Context,
        configs: cache.Informer[pool_views.Config],
        inside: pool_members.PoolMembers,
        look: Callable[[Key], None],
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._inside = inside
        self._look = look
        self._recorder = events.Recorder(context.client, context.clock, NAME)
        self._renderings: dict[str, members.Rendering] = {}
        configs.subscribe(self._config_changed)
        # 2. where each chosen Node is sent; the version of each written one, and where it was sent
        self._chosen: dict[str, str] = {}
        self._written: dict[str, tuple[str, str]] = {}
        # 1. when each pool was last looked at, and what was told of it
        self._last: dict[str, float] = {}
        self._told: dict[str, tuple[str, str]] = {}

    async def reconcile(self, key: Key) -> float | None:
        kind, name = key
        if kind == _NODE:
            await self._send(name)
            return None
        # 1. at most once a second
        wait = self._last.get(name, float("-inf")) + _EVERY_SECONDS - self._clock.monotonic()
        if wait > 0:
            return wait
        await self._pool(name)
        return None

    async def _pool(self, name: str) -> None:
        pool = self._inside.by_name.get(name)
        if pool is None:
            self._forget(name)
            return
        nodes = [self._as_sent(node) for node in self._inside.of(name)]
        limit, refusal = _limit(pool, len(nodes))
        # 1. nobody to what is not there, or is another's
        rendering = self._renderings.get(pool.target)
        own = rendering is not None and rendering.pool == name
        plan = candidates.plan(pool, nodes, self._renderings, limit) if own else candidates.Plan()
        for node in plan.sent:
            self._chosen[node] = pool.target
            self._look((_NODE, node))
        if plan.sent:
            _log.info(
                "nodes are sent to a rendering",
                pool=name,
                rendering=pool.target,
                nodes=len(plan.sent),
                wait=len(plan.waiting),
            )
        # 4. a maxUnavailable that cannot be read
        await self._tell(pool, refusal)
        await self._report(pool, nodes, refusal)
        self._last[name] = self._clock.monotonic()

    async def _report(
        self, pool: pools.Pool, nodes: list[members.Node], refusal: max_unavailable.Refused | None
    ) -> None:
        status = pool_status.compute(pool, nodes, self._renderings, refusal=refusal, now=self._clock.now())
        BEHIND.labels(pool.name).set(status["machineCount"] - status["updatedMachineCount"])
        # 5. when it differs, at its version
        if status == pool.status:
            return
        configuration = status.get("configuration", {})
        replaced = {"configuration": pool_views.instead(pool.status.get("configuration") or {}, configuration)}
        patch = {"metadata": {"resourceVersion": pool.version}, "status": {**status, **replaced}}
        with api.MISSING_OK:
            await self._client.patch(pool_views.POOLS, pool.name, patch, subresource="status", metadata=True)
            settled = configuration.get("name", "")
            if settled not in {"", pool.settled} and nodes:
                await self._recorder.record(
                    pool_views.regarding(pool), COMPLETED, f"all machines of the pool have {settled}"
                )

    async def _tell(self, pool: pools.Pool, refusal: max_unavailable.Refused | None) -> None:
        said = (pool.uid, "" if refusal is None else refusal.message)
        if refusal is not None and self._told.get(pool.name) != said:
            _log.warning("maxUnavailable cannot be read", pool=pool.name, reason=refusal.reason, why=refusal.message)
            await self._recorder.record(
                pool_views.regarding(pool), refusal.reason, refusal.message, severity=events.WARNING
            )
        self._told[pool.name] = said

    async def _send(self, name: str) -> None:
        target, node, pool = self._chosen.get(name), self._inside.node(name), self._inside.pool_of(name)
        # 3. its pool is looked at again
        if target is None or node is None or pool is None or pool.paused or pool.target != target:
            self._chosen.pop(name, None)
            if pool is not None:
                self._look((_POOL, pool.name))
            return
        if node.desired != target:
            # 2. at the version that it was judged in
            patch = {"metadata": {"resourceVersion": node.version, "annotations": {names.DESIRED: target}}}
            with api.MISSING_OK:
                await self._client.patch(resources.NODES, name, patch, metadata=True)
                self._written[name] = (node.version, target)
                SENT.labels(pool.name).inc()
        self._chosen.pop(name, None)

    def _as_sent(self, node: members.Node) -> members.Node:
        # 2. a watch that is late
        if node.name in self._chosen:
            return dataclasses.replace(node, desired=self._chosen[node.name])
        version, target = self._written.get(node.name, ("", ""))
        if version == node.version:
            return dataclasses.replace(node, desired=target)
        self._written.pop(node.name, None)
        return node

    def _config_changed(self, old: pool_views.Config | None, new: pool_views.Config | None) -> None:
        if new is None and old is not None:
            self._renderings.pop(old.metadata.name, None)
        elif new is not None and pool_views.is_rendered(new):
            self._renderings[new.metadata.name] = pool_views.rendering(new)
            # A pool that goes there may have been looked at before this was known.
            for pool in self._inside.by_name.values():
                if pool.target == new.metadata.name:
                    self._look((_POOL, pool.name))

    def _forget(self, name: str) -> None:
        for kept in (self._last, self._told):
            kept.pop(name, None)
        with contextlib.suppress(KeyError):
            BEHIND.remove(name)


def _limit(pool: pools.Pool, machines: int) -> tuple[int | None, max_unavailable.Refused | None]:
    try:
        return max_unavailable.of(pool.max_unavailable, machines, pool.name), None
    except max_unavailable.Refused as refused:
        return None, refused


def build(context: loop.Context) -> loop.Controller[Key]:
    all_pools = context.informers.get(pool_views.ALL_POOLS)
    nodes = context.informers.get(views.ALL_NODES)
    configs = context.informers.get(pool_views.ALL_CONFIGS)

    async def reconcile(key: Key) -> float | None:
        return await handler.reconcile(key)

    controller: loop.Controller[Key] = loop.Controller(NAME, reconcile, clock=context.clock, workers=_WORKERS)
    inside = pool_members.PoolMembers(all_pools, nodes, lambda name: controller.queue.add((_POOL, name)))
    handler = Pools(context, configs, inside, controller.queue.add)
    for informer in (all_pools, nodes, configs):
        controller.needs(informer)
    return controller
