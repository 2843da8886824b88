# SPDX-License-Identifier: Apache-2.0
"""Lets go of Pods that are being deleted on a Node that does not exist: nobody is there to stop them, or to say so.

1. A Pod that is being deleted keeps its grace period, whether there is a Node or not.
2. After that, the API server is asked for the Node: what a watch has not shown may be there.
3. If there is none, the Pod is deleted without a grace period. Finalizers hold it as before.

Without it a namespace with such a Pod would never be empty. It deletes no Pod that nobody wanted to be deleted: a machine that has
joined may run workloads before its Node is registered.
"""

from __future__ import annotations

import datetime

import msgspec

from handfast.api import objects, resources
from handfast.client import api, cache, partial, timers
from handfast.controllers import loop, views
from handfast.controllers.cluster import slicing
from handfast.runtime import clock as clocks

NAME = "pod-garbage-collector-controller"

_pods = msgspec.json.Decoder(slicing.Pod)


class PodGarbage:
    """Handles one Pod."""

    def __init__(self, client: api.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock

    async def reconcile(self, key: partial.Key) -> datetime.datetime | None:
        namespace, name = key
        with api.MISSING_OK:
            pod = await self._client.view(resources.PODS, name, _pods, namespace=namespace)
            due = _due(pod)
            # 1. not before its grace period is over
            if due is None or due > self._clock.now():
                return due
            # 2. its Node is really not there
            node = await self._client.find(resources.NODES, pod.spec.node_name or "", metadata=True)
            if node is None:
                # 3. nobody else would end it
                await self._client.delete(
                    resources.PODS, name, namespace=namespace, uid=pod.metadata.uid, grace_seconds=0
                )
        return None


def _due(pod: slicing.Pod) -> datetime.datetime | None:
    """The end of its grace period; None of a Pod that nobody deletes, or that no Node was to run."""
    text = pod.metadata.deletion_timestamp
    if not text or not pod.spec.node_name:
        return None
    try:
        return objects.parse_timestamp(text)
    except ValueError:
        return timers.AT_ONCE


class _Orphans:
    """Finds the Pods that are to be handled among those that change, and those of a Node that goes."""

    def __init__(
        self,
        pods: cache.Informer[slicing.Pod],
        nodes: cache.Informer[views.Node],
        controller: loop.Controller[partial.Key],
    ) -> None:
        self._pods = pods
        self._nodes = nodes
        self._controller = controller

    def pod_changed(self, _: slicing.Pod | None, pod: slicing.Pod | None) -> None:
        due = None if pod is None else _due(pod)
        if pod is not None and due is not None and self._nodes.get("", pod.spec.node_name or "") is None:
            self._controller.queue.add_at(pod.metadata.key, due)

    def node_changed(self, old: views.Node | None, new: views.Node | None) -> None:
        if old is not None and new is None:
            for pod in self._pods:
                if pod.spec.node_name == old.metadata.name:
                    self.pod_changed(None, pod)


def build(context: loop.Context) -> loop.Controller[partial.Key]:
    pods = context.informers.get(slicing.PODS, slicing.BY_NAMESPACE)
    nodes = context.informers.get(views.ALL_NODES)
    handler = PodGarbage(context.client, context.clock)
    controller: loop.Controller[partial.Key] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    orphans = _Orphans(pods, nodes, controller)
    pods.subscribe(orphans.pod_changed)
    nodes.subscribe(orphans.node_changed)
    controller.needs(pods)
    controller.needs(nodes)
    return controller
