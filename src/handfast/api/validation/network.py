# SPDX-License-Identifier: Apache-2.0
"""What is asked of Services, Endpoints and EndpointSlices.

Whether an address or node port is free is not known here. Loopback addresses of endpoints are let through, unlike in
Kubernetes: a control plane on one machine has its workloads there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_FAMILY = {"IPv4": 4, "IPv6": 6}
_PORTED = frozenset({"LoadBalancer", "NodePort"})
_FAMILIES = 2
# Kubernetes' own default for what a node port may be.
_NODE_PORTS = (30_000, 32_767)
_MANY = 100
_MANY_ENDPOINTS = 1000


def service(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    kind, headless = jsonpath.text(spec, "type"), spec.get("clusterIP") == "None"
    ports = jsonpath.mappings(spec, "ports")
    if not ports and not headless and kind != "ExternalName":
        yield fields.required("spec.ports")
    yield from _service_ports(ports, kind)
    yield from fields.labels("spec.selector", jsonpath.mapping(spec, "selector"))
    yield from fields.one_of("spec.type", kind, _TYPES)
    yield from fields.one_of("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))
    yield from fields.optional_one_of(
        "spec.internalTrafficPolicy", spec.get("internalTrafficPolicy"), ("Cluster", "Local")
    )
    yield from _cluster_ip(spec, kind)
    for index, address in enumerate(jsonpath.texts(spec, "externalIPs")):
        if fields.address(address) is None:
            yield fields.invalid(f"spec.externalIPs[{index}]", address, fields.IP_TEXT)


def _cluster_ip(spec: dict[str, Any], kind: str) -> fields.Causes:
    address, several = jsonpath.text(spec, "clusterIP"), jsonpath.texts(spec, "clusterIPs")
    if kind == "ExternalName":
        for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(key) or (key == "clusterIPs" and address):
                yield fields.forbidden(f"spec.{key}", "may not be set for ExternalName services")
        yield from fields.named(
            "spec.externalName", jsonpath.text(spec, "externalName").removesuffix("."), objects.dns_subdomain
        )
        return
    if address == "None" and kind in _PORTED:
        yield fields.invalid("spec.clusterIPs[0]", address, f"may not be set to 'None' for {kind} services")
    if address and several and several[0] != address:
        yield fields.invalid("spec.clusterIPs", several, "first value must match `clusterIP`")
    if several and not address:
        yield fields.invalid("spec.clusterIPs", several, "must be empty when `clusterIP` is not specified")
    yield from _addresses(several or [address])


def _addresses(several: list[str]) -> fields.Causes:
    """One of each family at most, or `None` alone."""
    path = "spec.clusterIPs"
    if several in (["None"], [""]):
        return
    if several[0] == "None":
        yield fields.invalid(path, several, "'None' must be the first and only value")
        return
    found = [fields.address(each) for each in several]
    if len(several) > _FAMILIES:
        yield fields.invalid(path, several, f"may only hold up to {_FAMILIES} values")
    for index, address in enumerate(found):
        if address is None:
            yield fields.invalid(f"{path}[{index}]", several[index], fields.IP_TEXT)
    if None not in found and len({each.version for each in found if each is not None}) < len(found):
        yield fields.invalid(path, several, "may specify no more than one IP for each IP family")


def new_service(document: dict[str, Any]) -> fields.Causes:
    yield from _node_port_range(document, ())


def _node_port_range(document: dict[str, Any], known: Collection[int]) -> fields.Causes:
    """A node port is from the range that Kubernetes keeps for them, unless it was there before."""
    first, last = _NODE_PORTS
    for index, port in enumerate(jsonpath.mappings(document, "spec", "ports")):
        number = jsonpath.number(port, "nodePort")
        if number and number not in known and not first <= number <= last:
            detail = f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
            yield fields.invalid(f"spec.ports[{index}].nodePort", number, detail)


def _service_ports(ports: list[dict[str, Any]], kind: str) -> fields.Causes:
    names: set[str] = set()
    pairs = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        yield from _port_label(path, jsonpath.text(port, "name"), names, needed=len(ports) > 1)
        yield from fields.port_number(f"{path}.port", port.get("port"))
        yield from fields.one_of(f"{path}.protocol", port.get("protocol"), fields.PROTOCOLS)
        target = port.get("targetPort")
        if isinstance(target, str):
            yield from fields.port_name(f"{path}.targetPort", target)
        elif target is not None:
            yield from fields.port_number(f"{path}.targetPort", target)
        if port.get("nodePort") and kind == "ClusterIP":
            yield fields.forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'")
        pair = (jsonpath.number(port, "port"), jsonpath.text(port, "protocol"))
        if pair in pairs:
            yield fields.duplicate(path, {"port": pair[0], "protocol": pair[1]})
        pairs.add(pair)


def _port_label(path: str, name: str, seen: set[str], *, needed: bool) -> fields.Causes:
    """The name of a port: a DNS label that no port before it has; needed where there are several."""
    if needed and not name:
        yield fields.required(f"{path}.name")
    yield from fields.optional_name(f"{path}.name", name, objects.dns_label)
    if name and name in seen:
        yield fields.duplicate(f"{path}.name", name)
    seen.add(name)


def service_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    """Addresses stay, but for a second one, unless the Service has or gets a type without any."""
    known = {jsonpath.number(port, "nodePort") for port in jsonpath.mappings(old, "spec", "ports")}
    yield from _node_port_range(document, known)
    if "ExternalName" in {jsonpath.text(document, "spec", "type"), jsonpath.text(old, "spec", "type")}:
        return
    before, after = _own_addresses(old), _own_addresses(document)
    # Left out means kept: the server carries the addresses over. One that got none when it was made gets none later.
    if not after:
        return
    for index, (new, was) in enumerate(zip(after, before or [""], strict=False)):
        if new != was:
            yield fields.invalid(f"spec.clusterIPs[{index}]", after, "may not change once set")
    if len(before) > len(after) and jsonpath.text(document, "spec", "ipFamilyPolicy") != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        yield fields.invalid("spec.ipFamilyPolicy", jsonpath.at(document, "spec", "ipFamilyPolicy"), detail)


def _own_addresses(document: dict[str, Any]) -> list[str]:
    single = jsonpath.text(document, "spec", "clusterIP")
    return jsonpath.texts(document, "spec", "clusterIPs") or ([single] if single else [])


def endpoints(document: dict[str, Any]) -> fields.Causes:
    for index, subset in enumerate(jsonpath.mappings(document, "subsets")):
        path = f"subsets[{index}]"
        if not jsonpath.sequence(subset, "addresses") and not jsonpath.sequence(subset, "notReadyAddresses"):
            yield fields.required(path, "must specify `addresses` or `notReadyAddresses`")
        for key in ("addresses", "notReadyAddresses"):
            for position, row in enumerate(jsonpath.mappings(subset, key)):
                yield from _endpoint_address(f"{path}.{key}[{position}].ip", jsonpath.text(row, "ip"))
        ports = jsonpath.mappings(subset, "ports")
        names: set[str] = set()
        for position, port in enumerate(ports):
            place = f"{path}.ports[{position}]"
            yield from _port_label(place, jsonpath.text(port, "name"), names, needed=len(ports) > 1)
            yield from fields.port_number(f"{place}.port", port.get("port"))
            yield from fields.one_of(f"{place}.protocol", port.get("protocol"), fields.PROTOCOLS)


def _endpoint_address(path: str, value: str, family: int = 0) -> fields.Causes:
    address = fields.address(value)
    if address is None or (family and address.version != family):
        yield fields.invalid(path, value, f"must be an IPv{family} address" if family else fields.IP_TEXT)
    elif address.is_unspecified:
        yield fields.invalid(path, value, f"may not be unspecified ({address})")
    elif address.is_link_local:
        yield fields.invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    elif address.is_multicast:
        yield fields.invalid(path, value, "may not be in the multicast range (224.0.0.0/4, ff00::/8)")


def endpointslice(document: dict[str, Any]) -> fields.Causes:
    kind = jsonpath.text(document, "addressType")
    yield from fields.one_of("addressType", document.get("addressType"), _ADDRESS_TYPES)
    rows = jsonpath.mappings(document, "endpoints")
    if len(rows) > _MANY_ENDPOINTS:
        yield fields.too_many("endpoints", len(rows), _MANY_ENDPOINTS)
    for index, row in enumerate(rows):
        path = f"endpoints[{index}].addresses"
        addresses = jsonpath.texts(row, "addresses")
        if not addresses:
            yield fields.required(path, "must contain at least 1 address")
        if len(addresses) > _MANY:
            yield fields.too_many(path, len(addresses), _MANY)
        for position, value in enumerate(addresses):
            if kind in _FAMILY:
                yield from _endpoint_address(f"{path}[{position}]", value, _FAMILY[kind])
            elif kind == "FQDN":
                yield from fields.named(f"{path}[{position}]", value, objects.dns_subdomain)
    yield from _slice_ports(jsonpath.mappings(document, "ports"))


def _slice_ports(ports: list[dict[str, Any]]) -> fields.Causes:
    if len(ports) > _MANY:
        yield fields.too_many("ports", len(ports), _MANY)
    names: set[str] = set()
    for index, port in enumerate(ports):
        name = jsonpath.text(port, "name")
        if name in names:
            yield fields.duplicate(f"ports[{index}].name", name)
        names.add(name)
        yield from fields.optional_name(f"ports[{index}].name", name, objects.dns_label)
        yield from fields.one_of(f"ports[{index}].protocol", port.get("protocol"), fields.PROTOCOLS)
        if port.get("port") is not None:
            yield from fields.port_number(f"ports[{index}].port", port["port"])


def endpointslice_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    yield from fields.immutable("addressType", document.get("addressType"), old.get("addressType"))
