# SPDX-License-Identifier: Apache-2.0
"""The Leases of nodes, followed: when each was last seen to be renewed. `rules.nodes.liveness` says what that means.

It decides nothing and writes nothing. One small struct a node is kept.

1. A renewal that the watch tells of, or that somebody reads on the server before the watch does, was seen to happen. What
   is there when the watch begins was not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from handfast.api import resources
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop
from handfast.rules.nodes import liveness
from handfast.runtime import clock as clocks


class _Spec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class Lease(msgspec.Struct, frozen=True, gc=False):
    """When it was renewed, and for how long."""

    metadata: partial.Meta = partial.Meta()
    spec: _Spec = _Spec()


SOURCE = watch.Source(resource=resources.LEASES, view=Lease, scope=api.Scope(namespace=liveness.NAMESPACE))


class NodeLeases:
    """What is known of each node's Lease, by the node's name. `notify` gets the name of every Lease that comes, changes or goes."""

    def __init__(
        self, informer: cache.Informer[Lease], clock: clocks.Clock, notify: Callable[[str], None] = lambda _: None
    ) -> None:
        self._informer = informer
        self._clock = clock
        self._pulses: dict[str, liveness.Pulse] = {}
        self._notify = notify
        informer.subscribe(self._changed)

    async def wait_synced(self) -> None:
        await self._informer.wait_synced()

    async def wait_answered(self) -> None:
        await self._informer.wait_answered()

    def pulse(self, node: str) -> liveness.Pulse | None:
        """What was last seen of a node's Lease; None: it has none, or none that was ever renewed."""
        return self._pulses.get(node)

    async def read(self, client: api.Client, node: str) -> liveness.Pulse | None:
        """As `pulse`, by what the server has now: the watch may be late."""
        return self._take(node, await client.find(resources.LEASES, node, namespace=liveness.NAMESPACE))

    def _changed(self, old: Lease | None, new: Lease | None) -> None:
        node = (new or old or Lease()).metadata.name
        self._take(node, None if new is None else msgspec.to_builtins(new))
        self._notify(node)

    def _take(self, node: str, lease: Any) -> liveness.Pulse | None:
        # 1. seen to happen, once the watch has begun
        pulse = liveness.seen(lease, self._pulses.get(node), self._clock.monotonic(), beat=self._informer.synced)
        if pulse is None:
            self._pulses.pop(node, None)
        else:
            self._pulses[node] = pulse
        return pulse


def follow(context: loop.Context, notify: Callable[[str], None] = lambda _: None) -> NodeLeases:
    """The Leases of this process's watch, which all its controllers share."""
    return NodeLeases(context.informers.get(SOURCE), context.clock, notify)
