# SPDX-License-Identifier: Apache-2.0
"""Links Nodes with their Machines: `status.nodeRef` of the Machine, an annotation of the Node. `rules.machines.linking` says which.

It approves no request, and takes no link back. It runs only where it is named: a cluster with a machine-api-operator has its own.

1. The Machine first, at the version that it was judged in; then the Node, at its version. Of several copies one writes.
2. A Node that is not linked, and should have been, has a Warning Event that names its Machines. It is written when the reason
   changes, and not again with every heartbeat of the node.
3. Where Machines cannot be read nobody is linked anew: what was known may be old.
"""

from __future__ import annotations

from typing import Final

import msgspec
import prometheus_client
import structlog

from handfast.api import resources
from handfast.client import api, cache, events
from handfast.client import machine_inventory as followed
from handfast.controllers import loop, views
from handfast.rules.machines import inventory, linking

NAME = "node-link-controller"
_COMPONENT: Final = "nodelink"
LINKED: Final = "NodeLinked"

_log = structlog.get_logger("handfast.node_link")
LINKS = prometheus_client.Counter(
    "handfast_node_links", "Nodes that were linked with their Machine, or were not, by why.", ["result"]
)


class NodeLink:
    """Handles one Node, by name."""

    def __init__(self, context: loop.Context, nodes: cache.Informer[views.Node], machines: followed.Inventory) -> None:
        self._client = context.client
        self._nodes = nodes
        self._machines = machines
        self._recorder = events.Recorder(context.client, context.clock, _COMPONENT)
        # What was last told of each Node (2).
        self._told: dict[str, tuple[str, str]] = {}

    async def reconcile(self, name: str) -> None:
        item = self._nodes.get("", name)
        if item is None:
            self._told.pop(name, None)
            return
        # 3. what was known may be old
        if refusals := self._machines.refusals:
            raise loop.NotYet(f"Machines cannot be read: {', '.join(refusals)}")
        node = linking.read_node(msgspec.to_builtins(item))
        verdict = linking.judge(node, self._machines.index, self._there)
        if isinstance(verdict, linking.Link):
            self._told.pop(name, None)
            await self._link(node, verdict.machine)
        else:
            await self._tell(node, verdict)

    def _there(self, name: str) -> bool:
        return self._nodes.get("", name) is not None

    async def _link(self, node: linking.Node, machine: inventory.Machine) -> None:
        # 1. the Machine first, at its version
        patch = linking.machine_patch(node, machine)
        if patch is not None:
            await self._machines.client.patch(
                self._machines.resource(machine),
                machine.name,
                patch,
                namespace=machine.namespace,
                subresource="status",
                metadata=True,
            )
            _log.info(
                "a Node is linked with its Machine", node=node.name, machine=f"{machine.namespace}/{machine.name}"
            )
            LINKS.labels("linked").inc()
            await self._recorder.record(_about(node), LINKED, f"it is {machine.title}")
        patch = linking.node_patch(node, machine)
        if patch is not None:
            with api.MISSING_OK:
                await self._client.patch(resources.NODES, node.name, patch, metadata=True)

    async def _tell(self, node: linking.Node, verdict: linking.NoLink) -> None:
        # 2. once for each reason
        said = (node.uid, verdict.sentence)
        if self._told.get(node.name) == said:
            return
        self._told[node.name] = said
        if verdict.reason not in linking.TOLD:
            return
        LINKS.labels(verdict.reason).inc()
        _log.warning("a Node is not linked", node=node.name, reason=verdict.reason, why=verdict.sentence)
        await self._recorder.record(_about(node), verdict.reason, verdict.sentence, severity=events.WARNING)


def _about(node: linking.Node) -> events.Regarding:
    return events.Regarding(api_version="v1", kind="Node", name=node.name, uid=node.uid)


def build(context: loop.Context, *, options: followed.Options = followed.DEFAULT) -> loop.Controller[str]:
    nodes = context.informers.get(views.ALL_NODES)
    machines = followed.follow(context.client, context.informers, options)
    handler = NodeLink(context, nodes, machines)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)

    def of_machine(old: inventory.Machine | None, new: inventory.Machine | None) -> None:
        for machine in (old, new):
            if machine is not None:
                for name in linking.affected(machine, machines.index):
                    controller.queue.add(name)

    machines.subscribe(of_machine)
    controller.watches(nodes, lambda node: [node.metadata.name], unless=views.only_rolled_out)
    controller.uses(machines)
    return controller
