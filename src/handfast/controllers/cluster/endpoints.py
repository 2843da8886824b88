# SPDX-License-Identifier: Apache-2.0
"""Keeps the older Endpoints object beside the EndpointSlices, for clients that still read it.

It has the Service's name, holds at most a thousand addresses, leaves out Pods that are ending, and goes with the
Service, which owns it. Endpoints of Services without a selector belong to whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from handfast.api import objects, resources
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop
from handfast.controllers.cluster import slicing

NAME = "endpoints-controller"
MAX_ADDRESSES = 1000
_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_MANAGER = "endpoint-controller"
_HEADLESS = "service.kubernetes.io/headless"
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"


class Endpoints:
    """Handles one Service, by namespace and name."""

    def __init__(
        self,
        client: api.Client,
        services: cache.Informer[slicing.Service],
        pods: cache.Informer[slicing.Pod],
    ) -> None:
        self._client = client
        self._services = services
        self._pods = pods

    async def reconcile(self, key: partial.Key) -> None:
        service = self._services.get(*key)
        if service is None or not service.selects or service.metadata.deletion_timestamp is not None:
            return
        namespace, name = key
        pods = [pod for pod in self._pods.by_index("namespace", namespace) if slicing.selects(service, pod)]
        wanted = document(service, pods)
        existing = await self._client.find(resources.ENDPOINTS, name, namespace=namespace)
        if existing is None:
            await self._client.create(resources.ENDPOINTS, wanted, namespace=namespace)
        elif not _says(existing, wanted):
            wanted["metadata"]["resourceVersion"] = existing["metadata"]["resourceVersion"]
            await self._client.update(resources.ENDPOINTS, wanted)


def document(service: slicing.Service, pods: Iterable[slicing.Pod]) -> objects.Document:
    """The Endpoints that a Service should have."""
    ready: dict[slicing.Ports, list[dict[str, Any]]] = {}
    unready: dict[slicing.Ports, list[dict[str, Any]]] = {}
    family = slicing.families(service)[0]
    room = MAX_ADDRESSES
    left_out = False
    publish = bool(service.spec.publish_not_ready_addresses)
    # Ready ones first, so that they are not those left out.
    for pod in sorted(pods, key=lambda pod: (not pod.ready, pod.metadata.name)):
        address = pod.address(family)
        if address is None or not slicing.is_endpoint(pod) or (pod.metadata.deletion_timestamp and not publish):
            continue
        left_out = left_out or room == 0
        if room:
            room -= 1
            group = ready if pod.ready or publish else unready
            group.setdefault(slicing.ports_of(service, pod), []).append(_address(service, pod, address))
    subsets = [
        {
            **({"addresses": ready[ports]} if ports in ready else {}),
            **({"notReadyAddresses": unready[ports]} if ports in unready else {}),
            **({"ports": [_port(port) for port in ports]} if ports else {}),
        }
        for ports in sorted({*ready, *unready}, key=repr)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": _metadata(service, left_out=left_out),
        **({"subsets": subsets} if subsets else {}),
    }


def _metadata(service: slicing.Service, *, left_out: bool) -> dict[str, Any]:
    meta = service.metadata
    labels = {key: value for key, value in (meta.labels or {}).items() if key != _HEADLESS}
    labels[_MANAGED_BY] = _MANAGER
    if service.spec.cluster_ip == "None":
        labels[_HEADLESS] = ""
    owner = {"apiVersion": "v1", "kind": "Service", "name": meta.name, "uid": meta.uid, "controller": True}
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": labels,
        "ownerReferences": [owner],
        **({"annotations": {_OVER_CAPACITY: "truncated"}} if left_out else {}),
    }


def _address(service: slicing.Service, pod: slicing.Pod, address: str) -> dict[str, Any]:
    meta = pod.metadata
    named = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return {
        "ip": address,
        **({"hostname": pod.spec.hostname} if named else {}),
        **({"nodeName": pod.spec.node_name} if pod.spec.node_name else {}),
        "targetRef": {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
    }


def _port(port: slicing.Port) -> dict[str, Any]:
    # Unlike slices, this object leaves out a name that is empty.
    return {key: value for key, value in msgspec.to_builtins(port).items() if value != ""}


def _says(document: objects.Document, wanted: objects.Document) -> bool:
    """Whether what is there already says what it should."""
    meta, ours = document["metadata"], wanted["metadata"]
    return (
        (document.get("subsets") or []) == wanted.get("subsets", [])
        and (meta.get("labels") or {}) == ours["labels"]
        and (meta.get("annotations") or {}).get(_OVER_CAPACITY) == ours.get("annotations", {}).get(_OVER_CAPACITY)
        and any(row.get("uid") == ours["ownerReferences"][0]["uid"] for row in meta.get("ownerReferences") or ())
    )


def build(context: loop.Context) -> loop.Controller[partial.Key]:
    services = context.informers.get(slicing.SERVICES, slicing.BY_NAMESPACE)
    pods = context.informers.get(slicing.PODS, slicing.BY_NAMESPACE)
    # Only to notice that one was changed or deleted: what it says is read from the server when it matters.
    endpoints = context.informers.get(watch.Source(resource=resources.ENDPOINTS, view=partial.Partial, metadata=True))
    handler = Endpoints(context.client, services, pods)
    controller: loop.Controller[partial.Key] = loop.Controller(NAME, handler.reconcile, clock=context.clock, workers=2)
    controller.watches(services, lambda item: [item.metadata.key])
    controller.watches(endpoints, lambda item: [item.metadata.key])
    controller.watches(pods, lambda pod: slicing.services_of(pod, services))
    return controller
