# SPDX-License-Identifier: Apache-2.0
"""Mirrors Endpoints that somebody wrote by hand into EndpointSlices, for those who read nothing else.

1. Only the Endpoints of a Service without a selector are mirrored: those of others are made by `endpoints`.
2. Those with the label `endpointslice.kubernetes.io/skip-mirror` are not, nor those that elected a leader.
3. Addresses with the same ports and of the same family share slices, at most a hundred in each; of a subset the first thousand
   count, and of all slices the first hundred: one object that somebody wrote does not become thousands, each with all its labels.
   Names of slices follow from what they hold in common, so that two copies of the controller make the same.
4. When the Endpoints go, or are no longer to be mirrored, so do their slices. Slices of others are left alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from handfast.api import resources
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop
from handfast.controllers.cluster import slicing

NAME = "endpointslice-mirroring-controller"
MANAGER = "endpointslicemirroring-controller.k8s.io"
MAX_ADDRESSES = 1000
MAX_SLICES = 100
_SKIP = "endpointslice.kubernetes.io/skip-mirror"
_LEADER = "control-plane.alpha.kubernetes.io/leader"
# Those that `endpoints` makes are as many as there are Services, and are not followed.
_BY_HAND = api.Scope(label_selector="!endpoints.kubernetes.io/managed-by")
_MANAGED = api.Scope(label_selector=f"{slicing.MANAGED_BY}={MANAGER}")


class _Address(msgspec.Struct, rename="camel", frozen=True, gc=False):
    ip: str = ""
    hostname: str | None = None
    node_name: str | None = None
    target_ref: slicing.TargetRef | None = None


class _Subset(msgspec.Struct, rename="camel", frozen=True, gc=False):
    addresses: tuple[_Address, ...] | None = None
    not_ready_addresses: tuple[_Address, ...] | None = None
    ports: tuple[slicing.Port, ...] | None = None


class _Meta(partial.LabelledMeta, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class Endpoints(msgspec.Struct, frozen=True, gc=False):
    """Endpoints, as they are mirrored."""

    metadata: _Meta = _Meta()
    subsets: tuple[_Subset, ...] | None = None

    @property
    def mirrored(self) -> bool:
        """Whether whoever wrote them lets them be mirrored (2)."""
        labels, annotations = self.metadata.labels or {}, self.metadata.annotations or {}
        return self.metadata.deletion_timestamp is None and labels.get(_SKIP) != "true" and _LEADER not in annotations


def slices_of(endpoints: Endpoints) -> Iterator[slicing.Slice]:
    """What is to be there (3)."""
    groups: dict[tuple[str, slicing.Ports], list[slicing.Endpoint]] = {}
    for subset in endpoints.subsets or ():
        ports = tuple(_port(port) for port in subset.ports or ())
        rows = [
            *((row, True) for row in subset.addresses or ()),
            *((row, False) for row in subset.not_ready_addresses or ()),
        ]
        for address, ready in rows[:MAX_ADDRESSES]:
            family = "IPv6" if ":" in address.ip else "IPv4"
            groups.setdefault((family, ports), []).append(_endpoint(address, ready=ready))
    meta = endpoints.metadata
    labels = {**(meta.labels or {}), slicing.MANAGED_BY: MANAGER, slicing.SERVICE_NAME: meta.name}
    for (family, ports), held in groups.items():
        for number, start in enumerate(range(0, len(held), slicing.MAX_ENDPOINTS)):
            part = tuple(held[start : start + slicing.MAX_ENDPOINTS])
            said = hashlib.sha256(repr((meta.uid, family, ports, number)).encode()).hexdigest()[:10]
            named = partial.LabelledMeta(name=f"{meta.name[:52]}-{said}", namespace=meta.namespace, labels=labels)
            yield slicing.Slice(metadata=named, address_type=family, endpoints=part, ports=ports)


def _port(port: slicing.Port) -> slicing.Port:
    return slicing.Port(
        name=port.name or "", port=port.port, protocol=port.protocol or "TCP", app_protocol=port.app_protocol
    )


def _endpoint(address: _Address, *, ready: bool) -> slicing.Endpoint:
    return slicing.Endpoint(
        addresses=(address.ip,),
        conditions=slicing.Conditions(ready=ready),
        hostname=address.hostname,
        target_ref=address.target_ref,
        node_name=address.node_name,
    )


class Mirroring:
    """Handles one Service, by namespace and name."""

    def __init__(
        self,
        client: api.Client,
        services: cache.Informer[slicing.Service],
        endpoints: cache.Informer[Endpoints],
        slices: cache.Informer[slicing.Slice],
    ) -> None:
        self._client = client
        self._services = services
        self._endpoints = endpoints
        self._slices = slices

    async def reconcile(self, key: partial.Key) -> None:
        existing = {row.metadata.name: row for row in self._slices.by_index("service", "/".join(key))}
        for wanted in self._wanted(key):
            await self._write(wanted, existing.pop(wanted.metadata.name, None))
        # 4. what is no longer wanted goes
        for row in existing.values():
            with api.MISSING_OK:
                await self._client.delete(
                    resources.ENDPOINT_SLICES, row.metadata.name, namespace=key[0], uid=row.metadata.uid
                )

    def _wanted(self, key: partial.Key) -> Sequence[slicing.Slice]:
        service, endpoints = self._services.get(*key), self._endpoints.get(*key)
        # 1. a Service without a selector; 2. and nobody forbids it
        if service is None or service.spec.selector or endpoints is None or not endpoints.mirrored:
            return ()
        return tuple(itertools.islice(slices_of(endpoints), MAX_SLICES))

    async def _write(self, wanted: slicing.Slice, existing: slicing.Slice | None) -> None:
        if existing is None:
            await self._client.create(resources.ENDPOINT_SLICES, _document(wanted), namespace=wanted.metadata.namespace)
        elif _said(existing) != _said(wanted):
            document = _document(wanted)
            document["metadata"]["resourceVersion"] = existing.metadata.resource_version
            await self._client.update(resources.ENDPOINT_SLICES, document)


def _said(slice_: slicing.Slice) -> tuple[Any, ...]:
    return slice_.metadata.labels, slice_.endpoints or (), slice_.ports or ()


def _document(slice_: slicing.Slice) -> dict[str, Any]:
    meta = slice_.metadata
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "labels": meta.labels},
        "addressType": slice_.address_type,
        "endpoints": msgspec.to_builtins(slice_.endpoints or ()),
        "ports": msgspec.to_builtins(slice_.ports or ()),
    }


def _service_of(slice_: slicing.Slice) -> partial.Key:
    return (slice_.metadata.namespace, (slice_.metadata.labels or {}).get(slicing.SERVICE_NAME, ""))


def build(context: loop.Context) -> loop.Controller[partial.Key]:
    services = context.informers.get(slicing.SERVICES, slicing.BY_NAMESPACE)
    endpoints = context.informers.get(watch.Source(resource=resources.ENDPOINTS, view=Endpoints, scope=_BY_HAND))
    slices = context.informers.get(
        watch.Source(resource=resources.ENDPOINT_SLICES, view=slicing.Slice, scope=_MANAGED),
        {"service": lambda item: ["/".join(_service_of(item))]},
    )
    handler = Mirroring(context.client, services, endpoints, slices)
    controller: loop.Controller[partial.Key] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    controller.watches(services, lambda item: [item.metadata.key])
    controller.watches(endpoints, lambda item: [item.metadata.key])
    controller.watches(slices, lambda item: [_service_of(item)])
    return controller
