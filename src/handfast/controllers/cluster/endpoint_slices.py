# SPDX-License-Identifier: Apache-2.0
"""Keeps the EndpointSlices of every Service that selects Pods.

What they should hold is decided in `slicing`. Services without a selector, and slices of other managers, are left
alone; the slices of a deleted Service go with it, because it owns them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from handfast.api import resources
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop
from handfast.controllers.cluster import slicing

NAME = "endpointslice-controller"
_MANAGED = api.Scope(label_selector=f"{slicing.MANAGED_BY}={slicing.MANAGER}")


class EndpointSlices:
    """Handles one Service, by namespace and name."""

    def __init__(
        self,
        client: api.Client,
        services: cache.Informer[slicing.Service],
        pods: cache.Informer[slicing.Pod],
        slices: cache.Informer[slicing.Slice],
    ) -> None:
        self._client = client
        self._services = services
        self._pods = pods
        self._slices = slices

    async def reconcile(self, key: partial.Key) -> None:
        service = self._services.get(*key)
        if service is None or not service.selects or service.metadata.deletion_timestamp is not None:
            return
        namespace, name = key
        pods = [pod for pod in self._pods.by_index("namespace", namespace) if slicing.selects(service, pod)]
        existing = [
            row
            for row in self._slices.by_index("service", f"{namespace}/{name}")
            if row.metadata.deletion_timestamp is None
        ]
        plan = slicing.plan(service, pods, existing)
        for slice_ in plan.write:
            await self._write(service, slice_)
        for slice_ in plan.delete:
            await self._delete(slice_)

    async def _write(self, service: slicing.Service, slice_: slicing.Slice) -> None:
        meta = slice_.metadata
        document = _document(service, slice_)
        if meta.resource_version:
            await self._client.update(resources.ENDPOINT_SLICES, document)
        else:
            await self._client.create(resources.ENDPOINT_SLICES, document, namespace=meta.namespace)

    async def _delete(self, slice_: slicing.Slice) -> None:
        meta = slice_.metadata
        with api.MISSING_OK:
            await self._client.delete(
                resources.ENDPOINT_SLICES,
                meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
            )


def _document(service: slicing.Service, slice_: slicing.Slice) -> dict[str, Any]:
    meta = slice_.metadata
    owner = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": service.metadata.name,
        "uid": service.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": meta.labels,
            "ownerReferences": [owner],
            **({"resourceVersion": meta.resource_version} if meta.resource_version else {}),
        },
        "addressType": slice_.address_type,
        "endpoints": msgspec.to_builtins(slice_.endpoints or ()),
        "ports": msgspec.to_builtins(slice_.ports or ()),
    }


def _service_of(slice_: slicing.Slice) -> partial.Key:
    return (slice_.metadata.namespace, (slice_.metadata.labels or {}).get(slicing.SERVICE_NAME, ""))


def build(context: loop.Context) -> loop.Controller[partial.Key]:
    services = context.informers.get(slicing.SERVICES, slicing.BY_NAMESPACE)
    pods = context.informers.get(slicing.PODS, slicing.BY_NAMESPACE)
    slices = context.informers.get(
        watch.Source(resource=resources.ENDPOINT_SLICES, view=slicing.Slice, scope=_MANAGED),
        {"service": lambda item: ["/".join(_service_of(item))]},
    )
    handler = EndpointSlices(context.client, services, pods, slices)
    controller: loop.Controller[partial.Key] = loop.Controller(NAME, handler.reconcile, clock=context.clock, workers=2)
    controller.watches(services, lambda item: [item.metadata.key])
    controller.watches(slices, lambda item: [_service_of(item)])
    controller.watches(pods, lambda pod: slicing.services_of(pod, services))
    return controller
