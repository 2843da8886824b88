# SPDX-License-Identifier: Apache-2.0
"""What a new cluster starts with: four namespaces, two priorities, the Service through which Pods reach this server, and its range.

Made when absent, at every start; the endpoints of the Service follow what the servers advertise. Nothing an operator made is
overwritten. An EndpointSlice has one list of ports: in it are the servers that listen on the port of the first one; in
Endpoints are all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

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


class Server(NamedTuple):
    """Where one API server is to be reached."""

    addresses: tuple[str, ...]
    port: int


def _documents(servers: Sequence[Server]) -> list[tuple[str, str, objects.Document]]:
    """(kind's plural, namespace, document) of what must be there."""
    named = {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}}
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
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": servers[0].port}],
    }
    documents.append(("services", "default", {"metadata": named, "spec": service}))
    documents.append(
        ("servicecidrs", "", {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [objects.SERVICE_RANGE]}})
    )
    family, by_port = _by_port(servers)
    if not by_port:
        return documents
    subsets = [
        {"addresses": [{"ip": address} for address in found], "ports": [_port_row(port)]}
        for port, found in by_port.items()
    ]
    skip = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    documents.append(("endpoints", "default", {"metadata": {"name": "kubernetes", "labels": skip}, "subsets": subsets}))
    port, found = next(iter(by_port.items()))
    slice_ = {
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in found],
        "ports": [_port_row(port)],
    }
    documents.append(("endpointslices", "default", slice_))
    return documents


def _port_row(port: int) -> objects.Document:
    return {"name": "https", "port": port, "protocol": "TCP"}


def _by_port(servers: Sequence[Server]) -> tuple[str, dict[int, list[str]]]:
    """The family of the first address there is, and the servers' addresses of that family by port, each once."""
    versions = [ipaddress.ip_address(address).version for server in servers for address in server.addresses]
    by_port: dict[int, dict[str, None]] = {}
    for server in servers:
        for address in server.addresses:
            if ipaddress.ip_address(address).version == versions[0]:
                by_port.setdefault(server.port, {})[address] = None
    return ("IPv6" if versions[:1] == [6] else "IPv4"), {port: list(found) for port, found in by_port.items()}


async def ensure(store: storage.Storage, clock: clocks.Clock, servers: Sequence[Server]) -> None:
    """Create what is missing; bring the endpoints of the servers up to date. There is at least one."""
    rows = {kind.plural: kind for kind in kinds.builtin() if kind.group in _GROUPS}
    for plural, namespace, document in _documents(servers):
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
