# SPDX-License-Identifier: Apache-2.0
"""What an update of a Service leaves as it was, and what goes because its new type has no use for it.

Nothing is allocated here, and nothing refused: what may not change is in `api.validation.network`.

1. Addresses and node ports that are left out are kept, while the type has a use for them: a client that does not know the field does not
   take it away.
2. `clusterIPs` follows `clusterIP` where only that was changed: old clients know no other.
3. What the new type has no use for goes, unless the same update changed it: then it is an error.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.api import jsonpath, objects

_EXTERNAL: Final = "ExternalName"
_PORTED: Final = frozenset({"NodePort", "LoadBalancer"})
_ADDRESSES: Final = ("clusterIP", "clusterIPs")


def settle(document: objects.Document, old: objects.Document) -> None:
    """Complete the new document by the old one (1 to 3)."""
    spec, before = document.get("spec"), jsonpath.mapping(old, "spec")
    if not isinstance(spec, dict):
        return
    # A type that is left out is the default one.
    kinds = spec.get("type") or "ClusterIP", before.get("type") or "ClusterIP"
    # 1. what is left out is kept
    if _EXTERNAL not in kinds:
        _keep_addresses(spec, before)
    if _PORTED.issuperset(kinds):
        _keep_node_ports(spec, before)
    # 2. the list follows the one address
    if spec.get("clusterIP") and not _is_same(spec, before, "clusterIP") and _is_same(spec, before, "clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    # 3. what has no use goes
    for is_used, fields in _uses(spec, kinds):
        if not is_used and all(_is_same(spec, before, field) for field in fields):
            for field in fields:
                spec.pop(field, None)
    if kinds[0] not in _PORTED and kinds[1] in _PORTED:
        _drop_node_ports(spec, before)
    if kinds[0] != "LoadBalancer" and kinds[1] == "LoadBalancer":
        document["status"] = {**jsonpath.mapping(document, "status"), "loadBalancer": {}}


def _keep_addresses(spec: dict[str, Any], before: dict[str, Any]) -> None:
    for field in _ADDRESSES:
        if not spec.get(field) and before.get(field):
            spec[field] = before[field]


def _keep_node_ports(spec: dict[str, Any], before: dict[str, Any]) -> None:
    """By the name of the port: the rest of it may be what changes."""
    rows = jsonpath.mappings(spec, "ports")
    taken = _node_ports(spec)
    known = {jsonpath.text(port, "name"): port.get("nodePort") for port in jsonpath.mappings(before, "ports")}
    for port in rows:
        number = known.get(jsonpath.text(port, "name"))
        if number and not port.get("nodePort") and number not in taken:
            port["nodePort"] = number


def _uses(spec: dict[str, Any], kinds: tuple[str, str]) -> list[tuple[bool, tuple[str, ...]]]:
    """(whether the new type has a use for them, fields that stand and fall together); what is not asked about has one."""
    kind, was = kinds
    from_outside = kind in _PORTED or (kind != _EXTERNAL and bool(spec.get("externalIPs")))
    has_address, is_balanced = kind != _EXTERNAL or was == _EXTERNAL, kind == "LoadBalancer" or was != "LoadBalancer"
    is_checked = kind == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
    return [
        (has_address, _ADDRESSES),
        (has_address, ("ipFamilies",)),
        (has_address, ("ipFamilyPolicy",)),
        (is_balanced, ("allocateLoadBalancerNodePorts",)),
        (is_balanced, ("loadBalancerClass",)),
        (is_checked, ("healthCheckNodePort",)),
        (from_outside, ("externalTrafficPolicy",)),
    ]


def _is_same(spec: dict[str, Any], before: dict[str, Any], field: str) -> bool:
    return (spec.get(field) or None) == (before.get(field) or None)


def _drop_node_ports(spec: dict[str, Any], before: dict[str, Any]) -> None:
    if _node_ports(spec) <= _node_ports(before):
        for port in jsonpath.mappings(spec, "ports"):
            port.pop("nodePort", None)


def _node_ports(spec: dict[str, Any]) -> set[int]:
    return {port["nodePort"] for port in jsonpath.mappings(spec, "ports") if port.get("nodePort")}
