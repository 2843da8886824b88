# SPDX-License-Identifier: Apache-2.0
"""The cells of the core kinds other than Pod: namespaces, nodes, configuration, services, events and volumes.

Each function gives the cells between name and the end of the row; `printers` puts the name in front, except for
events, whose name comes last. Secrets are counted, never shown.
"""

from __future__ import annotations

import datetime
from typing import Any

from handfast.api import jsonpath
from handfast.api.printing import ages, workloads

_NONE = "<none>"
_UNSET = "<unset>"
_UNKNOWN = ages.UNKNOWN
_SHOWN = 3
_ROLE_LABEL = "node-role.kubernetes.io/"
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def age(document: dict[str, Any], now: datetime.datetime) -> str:
    """Time since the object was created."""
    return ages.since(jsonpath.at(document, "metadata", "creationTimestamp"), now)


def namespace(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [jsonpath.text(document, "status", "phase"), age(document, now)]


def secret(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [jsonpath.text(document, "type"), len(jsonpath.mapping(document, "data")), age(document, now)]


def configmap(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    count = len(jsonpath.mapping(document, "data")) + len(jsonpath.mapping(document, "binaryData"))
    return [count, age(document, now)]


def serviceaccount(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [age(document, now)]


def node(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    info = jsonpath.mapping(document, "status", "nodeInfo")
    return [
        _node_status(document),
        _node_roles(document),
        age(document, now),
        jsonpath.text(info, "kubeletVersion"),
        _node_address(document, "InternalIP"),
        _node_address(document, "ExternalIP"),
        *(jsonpath.text(info, key) or _UNKNOWN for key in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _node_status(document: dict[str, Any]) -> str:
    words = [
        "Ready" if jsonpath.text(row, "status") == "True" else "NotReady"
        for row in jsonpath.mappings(document, "status", "conditions")
        if jsonpath.text(row, "type") == "Ready"
    ][:1] or ["Unknown"]
    if jsonpath.at(document, "spec", "unschedulable") is True:
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(document: dict[str, Any]) -> str:
    labels = jsonpath.mapping(document, "metadata", "labels")
    roles = {key.removeprefix(_ROLE_LABEL) for key in labels if key.startswith(_ROLE_LABEL)}
    roles.add(jsonpath.text(labels, "kubernetes.io/role"))
    return ",".join(sorted(roles - {""})) or _NONE


def _node_address(document: dict[str, Any], kind: str) -> str:
    rows = jsonpath.mappings(document, "status", "addresses")
    found = (jsonpath.text(row, "address") for row in rows if jsonpath.text(row, "type") == kind)
    return next(found, "") or _NONE


def service(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    several = jsonpath.texts(spec, "clusterIPs")
    return [
        jsonpath.text(spec, "type"),
        (several[0] if several else jsonpath.text(spec, "clusterIP")) or _NONE,
        _external_ip(document),
        ",".join(_service_port(row) for row in jsonpath.mappings(spec, "ports")) or _NONE,
        age(document, now),
        workloads.labels_text(jsonpath.mapping(spec, "selector")),
    ]


def _external_ip(document: dict[str, Any]) -> str:
    spec = jsonpath.mapping(document, "spec")
    kind, external = jsonpath.text(spec, "type"), jsonpath.texts(spec, "externalIPs")
    if kind == "ExternalName":
        return jsonpath.text(spec, "externalName")
    if kind == "LoadBalancer":
        rows = jsonpath.mappings(document, "status", "loadBalancer", "ingress")
        found = [jsonpath.text(row, "ip") or jsonpath.text(row, "hostname") for row in rows]
        return ",".join([*filter(None, found), *external]) or "<pending>"
    return (",".join(external) or _NONE) if kind in {"ClusterIP", "NodePort"} else _UNKNOWN


def _service_port(row: dict[str, Any]) -> str:
    node_port = jsonpath.number(row, "nodePort")
    port = f"{jsonpath.number(row, 'port')}:{node_port}" if node_port else str(jsonpath.number(row, "port"))
    return f"{port}/{jsonpath.text(row, 'protocol')}"


def _first(texts: list[str], empty: str) -> str:
    """The first few, and how many more there are."""
    more = len(texts) - _SHOWN
    return (",".join(texts[:_SHOWN]) + (f" + {more} more..." if more > 0 else "")) or empty


def endpoints(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    shown: list[str] = []
    for subset in jsonpath.mappings(document, "subsets"):
        addresses = [jsonpath.text(row, "ip") for row in jsonpath.mappings(subset, "addresses")]
        ports = [jsonpath.number(row, "port") for row in jsonpath.mappings(subset, "ports")]
        shown += [_host_port(address, port) for port in ports for address in addresses] if ports else addresses
    return [_first(shown, _NONE), age(document, now)]


def _host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def endpointslice(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    rows = jsonpath.mappings(document, "ports")
    ports = ["*" if row.get("port") is None else str(row["port"]) for row in rows]
    addresses = [
        address for row in jsonpath.mappings(document, "endpoints") for address in jsonpath.texts(row, "addresses")
    ]
    kind = jsonpath.text(document, "addressType")
    return [kind, _first(ports, _UNSET), _first(addresses, _UNSET), age(document, now)]


def event(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    """The whole row of a core/v1 Event."""
    event_time = jsonpath.at(document, "eventTime")
    last = jsonpath.at(document, "lastTimestamp") or event_time
    count = jsonpath.number(document, "count") or 1
    series = document.get("series")
    if isinstance(series, dict):
        last, count = series.get("lastObservedTime"), jsonpath.number(series, "count")
    involved = jsonpath.mapping(document, "involvedObject")
    target = [jsonpath.text(involved, "kind").lower(), jsonpath.text(involved, "name")]
    source = [
        jsonpath.text(document, "source", "component") or jsonpath.text(document, "reportingComponent"),
        jsonpath.text(document, "source", "host") or jsonpath.text(document, "reportingInstance"),
    ]
    return [
        ages.since(last, now),
        jsonpath.text(document, "type"),
        jsonpath.text(document, "reason"),
        "/".join(target) if target[1] else target[0],
        jsonpath.text(involved, "fieldPath"),
        ", ".join(source) if source[1] else source[0],
        jsonpath.text(document, "message").strip(),
        ages.since(jsonpath.at(document, "firstTimestamp") or event_time, now),
        count,
        jsonpath.text(document, "metadata", "name"),
    ]


def _access_modes(modes: list[str]) -> str:
    return ",".join(short for name, short in _ACCESS_MODES.items() if name in modes)


def _phase(document: dict[str, Any]) -> str:
    deleted = jsonpath.text(document, "metadata", "deletionTimestamp")
    return "Terminating" if deleted else jsonpath.text(document, "status", "phase")


def persistentvolume(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    claim = jsonpath.mapping(spec, "claimRef")
    return [
        _quantity(jsonpath.at(spec, "capacity", "storage")),
        _access_modes(jsonpath.texts(spec, "accessModes")),
        jsonpath.text(spec, "persistentVolumeReclaimPolicy"),
        _phase(document),
        f"{jsonpath.text(claim, 'namespace')}/{jsonpath.text(claim, 'name')}" if claim else "",
        jsonpath.text(spec, "storageClassName"),
        jsonpath.text(spec, "volumeAttributesClassName") or _UNSET,
        jsonpath.text(document, "status", "reason"),
        age(document, now),
        jsonpath.text(spec, "volumeMode") or _UNSET,
    ]


def persistentvolumeclaim(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec, status = jsonpath.mapping(document, "spec"), jsonpath.mapping(document, "status")
    volume = jsonpath.text(spec, "volumeName")
    return [
        _phase(document),
        volume,
        _quantity(jsonpath.at(status, "capacity", "storage")) if volume else "",
        _access_modes(jsonpath.texts(status, "accessModes")) if volume else "",
        jsonpath.text(spec, "storageClassName"),
        jsonpath.text(spec, "volumeAttributesClassName") or _UNSET,
        age(document, now),
        jsonpath.text(spec, "volumeMode") or _UNSET,
    ]


def _quantity(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else ""
