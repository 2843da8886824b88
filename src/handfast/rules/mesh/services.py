# SPDX-License-Identifier: Apache-2.0
"""The Services of the control plane, and the EndpointSlices that say where they are when they run outside the cluster. It applies none.

1. Every door of the control plane is a port of one Service. Workloads and the API server know it by that name, wherever it runs.
2. A Service without a selector has slices that are written here, one for each door. Whoever changes them leads workloads elsewhere, and gets no
   further: what answers has to show the name of the service.
3. A slice has IP addresses. A host name, or an address that leads to nobody or to every machine itself, is refused by its door.
4. Loopback leads to the API server's own machine. Handfast's own server takes it, since everything may run there; others refuse it.
5. What others wrote on these objects stays, and so does an address that the cluster gave a Service.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_services.py |
|---|---|---|---|---|
| a tired operator | an address of this machine alone | tell a cluster to call its webhook there | 4 | test_loopback_is_for_handfasts_own_server_alone |
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.bootstrap import first_objects
from handfast.rules.mesh import addresses, control_plane, webhook

PLURAL: Final = "services"
SLICES: Final = "endpointslices"
_DISCOVERY: Final = "discovery.k8s.io"
_SERVICE_NAME: Final = "kubernetes.io/service-name"
_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_US: Final = "handfast.dev"
_TCP: Final = "TCP"


class Unreachable(errors.Refused):
    """An address to which a Service cannot lead (3, 4)."""

    reason = "BadMeshEndpoint"


class Door(msgspec.Struct, frozen=True):
    """A port of a Service: its name and number, and where the process listens in a Pod."""

    service: str
    port: str
    number: int
    target: int


# 1. each door is a port of one Service
DOORS: Final[Mapping[str, Door]] = {
    "identity": Door(control_plane.IDENTITY, "grpc", addresses.PORTS[control_plane.IDENTITY], 8080),
    "destination": Door(control_plane.DESTINATION, "grpc", addresses.PORTS[control_plane.DESTINATION], 8086),
    "agents": Door(control_plane.DESTINATION, "agents", addresses.AGENTS_PORT, 8089),
    "policy": Door(control_plane.POLICY, "grpc", addresses.PORTS[control_plane.POLICY], 8090),
    "injector": Door(control_plane.INJECTOR, "https", webhook.PORT, webhook.TARGET),
}


def require(endpoints: Mapping[str, str], *, loopback: bool) -> None:
    """Return if a slice can have each of these addresses, HOST:PORT by door, else refuse; `loopback`: it may be this machine."""
    for door, text in endpoints.items():
        if door not in DOORS:
            raise errors.Refused(
                f"there is no door {door[:80]!r}", reason="NoSuchMeshDoor", hint=f"there are {', '.join(DOORS)}"
            )
        addresses.require(text)
        _require_reachable(door, text, loopback=loopback)


def _require_reachable(door: str, text: str, *, loopback: bool) -> None:
    try:
        address = _ip(text)
    except ValueError:
        # 3. addresses, not names
        raise Unreachable(
            f"{door}: {text} has a host name, and an EndpointSlice has IP addresses",
            hint="give the address, as in 192.0.2.1:8443",
        ) from None
    if address.is_unspecified or address.is_link_local or address.is_multicast:
        raise Unreachable(f"{door}: {text} leads to no machine", hint="give an address that the API server reaches")
    # 4. the API server's own machine
    if address.is_loopback and not loopback:
        raise Unreachable(
            f"{door}: {text} is a loopback address, which leads each machine to itself; this API server refuses it",
            hint="give an address that the API server and the nodes reach",
        )


def service(name: str, namespace: str, selector: Mapping[str, str] | None = None) -> first_objects.FirstObject:
    """One Service of the control plane; without a selector its slices are written here (2)."""
    ports = [
        {"name": door.port, "port": door.number, "protocol": _TCP, "targetPort": door.target}
        for door in DOORS.values()
        if door.service == name
    ]
    spec = {"type": "ClusterIP", "ports": ports, **({"selector": dict(selector)} if selector else {})}
    metadata = {"name": name, "namespace": namespace}
    document = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return first_objects.FirstObject("", "v1", PLURAL, True, document)


def outside(namespace: str, endpoints: Mapping[str, str]) -> Iterator[first_objects.FirstObject]:
    """The Services without selectors, and their slices, for what runs at these addresses."""
    for name in dict.fromkeys(DOORS[door].service for door in endpoints):
        yield service(name, namespace)
    for door, text in endpoints.items():
        yield _slice(door, namespace, text)


def _slice(door: str, namespace: str, text: str) -> first_objects.FirstObject:
    row, address = DOORS[door], _ip(text)
    labels = {_SERVICE_NAME: row.service, _MANAGED_BY: _US}
    document: dict[str, Any] = {
        "apiVersion": f"{_DISCOVERY}/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{row.service}-{door}", "namespace": namespace, "labels": labels},
        "addressType": f"IPv{address.version}",
        "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
        "ports": [{"name": row.port, "port": int(text.rpartition(":")[2]), "protocol": _TCP}],
    }
    return first_objects.FirstObject(_DISCOVERY, "v1", SLICES, True, document)


def endpoints_of(door: str, slices: Iterable[objects.Document]) -> tuple[int, str]:
    """How many endpoints of a door are ready, and HOST:PORT of the one outside the cluster, where a slice of ours names it."""
    row, ready, outside = DOORS[door], 0, ""
    for each in slices:
        labels = jsonpath.mapping(each, "metadata", "labels")
        ports = [port for port in jsonpath.mappings(each, "ports") if port.get("name") == row.port]
        if labels.get(_SERVICE_NAME) != row.service or not ports:
            continue
        there = [
            address
            for endpoint in jsonpath.mappings(each, "endpoints")
            if jsonpath.at(endpoint, "conditions", "ready") is not False
            for address in jsonpath.texts(endpoint, "addresses")
        ]
        ready += len(there)
        if there and labels.get(_MANAGED_BY) == _US:
            host = f"[{there[0]}]" if ":" in there[0] else there[0]
            outside = f"{host}:{jsonpath.number(ports[0], 'port')}"
    return ready, outside


def updated(there: objects.Document, wanted: first_objects.FirstObject) -> objects.Document:
    """The object that is there, with what is wanted in it (5)."""
    labels = {
        **jsonpath.mapping(there, "metadata", "labels"),
        **jsonpath.mapping(wanted.document, "metadata", "labels"),
    }
    metadata = {**there["metadata"], **({"labels": labels} if labels else {})}
    if wanted.plural == SLICES:
        parts = {key: wanted.document[key] for key in ("addressType", "endpoints", "ports")}
        return {**there, **parts, "metadata": metadata}
    spec = {**jsonpath.mapping(there, "spec"), **wanted.document["spec"]}
    if "selector" not in wanted.document["spec"]:
        spec.pop("selector", None)
    return {**there, "metadata": metadata, "spec": spec}


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text.rpartition(":")[0].strip("[]"))
