# SPDX-License-Identifier: Apache-2.0
"""Follows the Pods that are bound to this node, and no others: one list and one watch, both with `spec.nodeName`.

The Node authorizer lets a node list and watch Pods with that selector only. It reads nothing that the Pods name, runs
no containers and writes no status: whoever does finds the Pods in `informer`.
"""

from __future__ import annotations

import msgspec
import structlog

from handfast.api import resources
from handfast.client import api, cache, partial, watch
from handfast.runtime import clock as clocks

_log = structlog.get_logger("handfast.node")


class Spec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Where a Pod is bound to."""

    node_name: str = ""


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A Pod as far as the agent looks at it."""

    metadata: partial.Meta = partial.Meta()
    spec: Spec = Spec()


def scope(node: str) -> api.Scope:
    """What the Node authorizer allows to be listed."""
    return api.Scope(field_selector=f"spec.nodeName={node}")


class Pods:
    """The Pods of one node, once `run` has begun."""

    def __init__(self, client: api.Client, node: str, clock: clocks.Clock) -> None:
        source = watch.Source(resource=resources.PODS, view=Pod, scope=scope(node))
        self.informer: cache.Informer[Pod] = cache.Informer(source)
        self._reflector = watch.Reflector(client, source, self.informer, clock=clock)
        self.synced = False
        self.informer.subscribe(self._changed)

    async def run(self) -> None:
        """Never returns."""
        await self._reflector.run()

    async def wait_synced(self) -> None:
        """Until the first list is complete."""
        await self.informer.wait_synced()
        self.synced = True

    def problem(self) -> str | None:
        """For a health check."""
        return None if self.synced else "the Pods of this node are not listed yet"

    @staticmethod
    def _changed(old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None:
            return
        found = new or old
        if found is not None:
            word = "bound to" if new is not None else "gone from"
            _log.info(f"Pod {word} this node", namespace=found.metadata.namespace, name=found.metadata.name)
