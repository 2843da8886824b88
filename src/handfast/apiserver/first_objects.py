# SPDX-License-Identifier: Apache-2.0
"""What a new cluster starts with: four namespaces, two priorities, the Service through which Pods reach this server, and its range.

Made when absent, at every start; the endpoints of the Service follow what is advertised. Nothing an operator made is
overwritten.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from handfast.api import kinds, objects
from handfast.api.defaulting import defaults
from handfast.api.validation import scheduling
from handfast.apiserver import identity
from handfast.apiserver.state import items, storage
from handfast.apiserver.strategy import strategies
from handfast.rules import access
from handfast.runtime import clock as clocks
from handfast.store import protocol

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_GROUPS = frozenset({"", "discovery.k8s.io", "networking.k8s.io", "scheduling.k8s.io"})
# What is said of the range, once, when it is made: nobody should wait for addresses out of it.
_NOT_GIVEN = "Services get no addresses from this range: it is the one that kubeadm-config names."
_SYSTEM = identity.User("system:apiserver", (access.MASTERS,))


def _documents(addresses: Sequence[str], port: int) -> list[tuple[str, str, objects.Document]]:
    """(kind's plural, namespace, document) of what must be there."""
    named = {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}}
    port_row = {"name": "https", "port": port, "protocol": "TCP"}
    documents: list[tuple[str, str, objects.Document]] = [
        ("namespaces", "", {"metadata": {"name": name}}) for name in NAMESPACES
    ]
    documents += [
        ("priorityclasses", "", {"metadata": {"name": name}, "value": value, "description": scheduling.SYSTEM_CLASS})
        for name, value in scheduling.SYSTEM_CLASSES.items()
    ]
    service = {
        "type": "ClusterIP",
        "clusterIP": objects.KUBERNETES_SERVICE_IP,
        "clusterIPs": [objects.KUBERNETES_SERVICE_IP],
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
    }
    documents.append(("services", "default", {"metadata": named, "spec": service}))
    documents.append(
        ("servicecidrs", "", {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [objects.SERVICE_RANGE]}})
    )
    if not addresses:
        return documents
    family = "IPv4" if ipaddress.ip_address(addresses[0]).version == 4 else "IPv6"
    ready = [address for address in addresses if (ipaddress.ip_address(address).version == 4) == (family == "IPv4")]
    subset = {"addresses": [{"ip": address} for address in ready], "ports": [port_row]}
    skip = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    documents.append(
        ("endpoints", "default", {"metadata": {"name": "kubernetes", "labels": skip}, "subsets": [subset]})
    )
    slice_ = {
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in ready],
        "ports": [port_row],
    }
    documents.append(("endpointslices", "default", slice_))
    return documents


async def ensure(store: storage.Storage, clock: clocks.Clock, addresses: Sequence[str], port: int) -> None:
    """Create what is missing; bring the server's own endpoints up to date."""
    rows = {kind.plural: kind for kind in kinds.builtin() if kind.group in _GROUPS}
    for plural, namespace, document in _documents(addresses, port):
        kind = rows[plural]
        item = await store.find(kind, namespace, document["metadata"]["name"])
        if item is None:
            await _create(store, clock, kind, namespace, document)
        elif plural in {"endpoints", "endpointslices"}:
            await _refresh(store, kind, item, document)


async def _create(
    store: storage.Storage, clock: clocks.Clock, kind: kinds.Kind, namespace: str, document: objects.Document
) -> None:
    document = {"apiVersion": kind.api_version, "kind": kind.kind, **document}
    strategies.prepare_create(kind, document, namespace, _SYSTEM, clock.now())
    defaults.apply(kind, document)
    if kind.plural == "servicecidrs":
        document["status"] = {"conditions": [_not_ready(clock)]}
    try:
        await store.create(kind, document)
    except protocol.Mismatch:
        return  # another server was faster


def _not_ready(clock: clocks.Clock) -> dict[str, str]:
    return {
        "type": "Ready",
        "status": "False",
        "reason": "NotAllocated",
        "message": _NOT_GIVEN,
        "lastTransitionTime": objects.timestamp(clock.now()),
    }


async def _refresh(store: storage.Storage, kind: kinds.Kind, item: items.Item, wanted: objects.Document) -> None:
    document = item.document()
    for field in ("subsets", "endpoints", "ports", "addressType"):
        if field in wanted:
            document[field] = wanted[field]
    defaults.apply(kind, document)
    try:
        await store.replace(kind, document, item)
    except protocol.Mismatch:
        return  # another server was faster; the next start looks again
