# SPDX-License-Identifier: Apache-2.0
"""Which Nodes are in which pool, kept as Nodes and pools change. `rules.machine_config.pools` says which.

It writes nothing. When a Node changes, the pools' selectors are looked at once. Only when a pool comes, goes or changes its selector are all
Nodes looked at again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from handfast.client import cache
from handfast.controllers import views
from handfast.controllers.machines import pool_views
from handfast.rules.machine_config import members, pools

_log = structlog.get_logger("handfast.machine_config")


class PoolMembers:
    """The facts of all pools and Nodes."""

    def __init__(
        self,
        all_pools: cache.Informer[pool_views.Pool],
        nodes: cache.Informer[views.Node],
        changed: Callable[[str], None],
    ) -> None:
        self._changed = changed
        self._pools: dict[str, pools.Pool] = {}
        self._nodes: dict[str, members.Node] = {}
        # The pool of a Node, empty where it is in none; and the Nodes of a pool.
        self._pool_of: dict[str, str] = {}
        self._inside: dict[str, dict[str, members.Node]] = {}
        all_pools.subscribe(self._pool_changed)
        nodes.subscribe(self._node_changed)

    @property
    def by_name(self) -> Mapping[str, pools.Pool]:
        """The pools."""
        return self._pools

    def node(self, name: str) -> members.Node | None:
        return self._nodes.get(name)

    def of(self, pool: str) -> Sequence[members.Node]:
        """The Nodes of a pool."""
        return tuple(self._inside.get(pool, {}).values())

    def pool_of(self, node: str) -> pools.Pool | None:
        return self._pools.get(self._pool_of.get(node, ""))

    def _pool_changed(self, old: pool_views.Pool | None, new: pool_views.Pool | None) -> None:
        before = None if old is None else self._pools.pop(old.metadata.name, None)
        after = None if new is None else pool_views.pool(new)
        if after is not None:
            self._pools[after.name] = after
        if (before and before.nodes) != (after and after.nodes):
            for node in tuple(self._nodes.values()):
                self._place(node)
        if new is None and old is not None:
            self._inside.pop(old.metadata.name, None)
        for item in (old, new):
            if item is not None:
                self._changed(item.metadata.name)

    def _node_changed(self, old: views.Node | None, new: views.Node | None) -> None:
        if new is None:
            if old is not None:
                self._leave(old.metadata.name)
                self._nodes.pop(old.metadata.name, None)
            return
        node = members.read(msgspec.to_builtins(new))
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        # A heartbeat changes nothing but the version.
        same = before is not None and dataclasses.replace(before, version=node.version) == node
        if same and (pool := self._pool_of[node.name]):
            self._inside[pool][node.name] = node
        elif not same:
            self._place(node)

    def _place(self, node: members.Node) -> None:
        chosen = pools.primary(self._pools.values(), node)
        if isinstance(chosen, pools.Contested):
            _log.warning("a Node is in no pool", node=node.name, reason=pools.SEVERAL_POOLS, why=chosen.sentence)
        name = chosen.name if isinstance(chosen, pools.Pool) else ""
        if self._pool_of.get(node.name, "") != name:
            self._leave(node.name)
        self._pool_of[node.name] = name
        if name:
            self._inside.setdefault(name, {})[node.name] = node
            self._changed(name)

    def _leave(self, node: str) -> None:
        pool = self._pool_of.pop(node, "")
        if pool:
            self._inside.get(pool, {}).pop(node, None)
            self._changed(pool)
