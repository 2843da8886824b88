# SPDX-License-Identifier: Apache-2.0
"""What is asked of Ingresses, IngressClasses, NetworkPolicies, ServiceCIDRs and IPAddresses.

They are stored for whoever acts on them. Whether a Service, Secret or class is there is not looked at, and nothing here
routes or filters.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.api.validation import workloads

_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_WRONG_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_WRONG_ENDS = ("/..", "/.")
_SCOPES = ("Cluster", "Namespace")
_CONTROLLER_BYTES = 250
_POLICY_TYPES = ("Ingress", "Egress")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_MOST_CIDRS = 2


def ingress(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    rules, default = jsonpath.mappings(spec, "rules"), spec.get("defaultBackend")
    if not rules and default is None:
        yield fields.invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified")
    if default is not None:
        yield from _backend("spec.defaultBackend", jsonpath.mapping(spec, "defaultBackend"))
    for index, rule in enumerate(rules):
        yield from _rule(f"spec.rules[{index}]", rule)
    for index, row in enumerate(jsonpath.mappings(spec, "tls")):
        for position, host in enumerate(jsonpath.texts(row, "hosts")):
            yield from _host(f"spec.tls[{index}].hosts[{position}]", host)
        yield from fields.optional_name(
            f"spec.tls[{index}].secretName", jsonpath.text(row, "secretName"), objects.dns_subdomain
        )
    yield from fields.optional_name(
        "spec.ingressClassName", jsonpath.text(spec, "ingressClassName"), objects.dns_subdomain
    )


def new_ingress(document: dict[str, Any]) -> fields.Causes:
    """Of a new Ingress: the old way to name its class and the new one agree."""
    annotation = jsonpath.mapping(document, "metadata", "annotations").get(_CLASS_ANNOTATION)
    named = jsonpath.at(document, "spec", "ingressClassName")
    if annotation is not None and named is not None and annotation != named:
        detail = "must match `ingressClassName` when both are specified"
        yield fields.invalid(f"annotations.{_CLASS_ANNOTATION}", annotation, detail)


def _host(path: str, host: str) -> fields.Causes:
    rule = objects.wildcard_subdomain if "*" in host else objects.dns_subdomain
    wrong = rule(host)
    if wrong is not None:
        yield fields.invalid(path, host, wrong)


def _rule(path: str, rule: dict[str, Any]) -> fields.Causes:
    host = jsonpath.text(rule, "host")
    if host:
        if fields.address(host) is not None:
            yield fields.invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
        yield from _host(f"{path}.host", host)
    if rule.get("http") is None:
        return
    paths = jsonpath.mappings(rule, "http", "paths")
    if not paths:
        yield fields.required(f"{path}.http.paths")
    for index, row in enumerate(paths):
        yield from _path(f"{path}.http.paths[{index}]", row)


def _path(path: str, row: dict[str, Any]) -> fields.Causes:
    kind, value = row.get("pathType"), jsonpath.text(row, "path")
    if kind is None:
        yield fields.required(f"{path}.pathType", "pathType must be specified")
        return
    if kind not in _PATH_TYPES:
        yield fields.not_supported(f"{path}.pathType", kind, _PATH_TYPES)
    elif kind == "ImplementationSpecific":
        if value and not value.startswith("/"):
            yield fields.invalid(f"{path}.path", value, "must be an absolute path")
    else:
        yield from _plain_path(f"{path}.path", value)
    yield from _backend(f"{path}.backend", jsonpath.mapping(row, "backend"))


def _plain_path(path: str, value: str) -> fields.Causes:
    if not value.startswith("/"):
        yield fields.invalid(path, value, "must be an absolute path")
    for part in _WRONG_IN_PATHS:
        if part in value:
            yield fields.invalid(path, value, f"must not contain '{part}'")
    for end in _WRONG_ENDS:
        if value.endswith(end):
            yield fields.invalid(path, value, f"cannot end with '{end}'")


def _backend(path: str, backend: dict[str, Any]) -> fields.Causes:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield fields.invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _reference(f"{path}.resource", jsonpath.mapping(backend, "resource"))
    elif service is not None:
        yield from _service(path, jsonpath.mapping(backend, "service"))
    else:
        yield fields.invalid(path, "", "resource or service backend is required")


def _service(path: str, service: dict[str, Any]) -> fields.Causes:
    yield from fields.named(f"{path}.service.name", jsonpath.text(service, "name"), objects.dns_label)
    name, number = jsonpath.text(service, "port", "name"), jsonpath.number(service, "port", "number")
    if name and number:
        yield fields.invalid(path, "", "cannot set both port name & port number")
    elif name:
        yield from fields.port_name(f"{path}.service.port.name", name)
    elif number:
        yield from fields.port_number(f"{path}.service.port.number", number)
    else:
        yield fields.required(path, "port name or number is required")


def _reference(path: str, reference: dict[str, Any]) -> fields.Causes:
    if reference.get("apiGroup") is not None:
        yield from _host(f"{path}.apiGroup", jsonpath.text(reference, "apiGroup"))
    for key in ("kind", "name"):
        yield from fields.named(f"{path}.{key}", jsonpath.text(reference, key), objects.path_segment)


# --- classes


def ingressclass(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    controller = jsonpath.text(spec, "controller")
    if len(controller.encode("utf-8", "replace")) > _CONTROLLER_BYTES:
        yield fields.too_long("spec.controller", _CONTROLLER_BYTES)
    yield from _prefixed_path("spec.controller", controller)
    if spec.get("parameters") is not None:
        yield from _parameters("spec.parameters", jsonpath.mapping(spec, "parameters"))


def _prefixed_path(path: str, value: str) -> fields.Causes:
    domain, _, rest = value.partition("/")
    if not value:
        yield fields.required(path)
    elif not domain or not rest:
        yield fields.invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        yield from fields.optional_name(path, domain, objects.dns_subdomain)


def _parameters(path: str, parameters: dict[str, Any]) -> fields.Causes:
    yield from _reference(path, parameters)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    yield from fields.one_of(f"{path}.scope", scope, _SCOPES)
    if scope == "Namespace":
        if namespace is None:
            yield fields.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            yield from fields.named(f"{path}.namespace", jsonpath.text(parameters, "namespace"), objects.dns_label)
    elif scope == "Cluster" and namespace is not None:
        yield fields.forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


def ingressclass_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    before, after = (jsonpath.at(each, "spec", "controller") for each in (old, document))
    yield from fields.immutable("spec.controller", after, before)


# --- policies


def networkpolicy(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    yield from workloads.label_selector("spec.podSelector", spec.get("podSelector"))
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(jsonpath.mappings(spec, direction)):
            path = f"spec.{direction}[{index}]"
            for position, port in enumerate(jsonpath.mappings(rule, "ports")):
                yield from _policy_port(f"{path}.ports[{position}]", port)
            for position, peer in enumerate(jsonpath.mappings(rule, peers)):
                yield from _peer(f"{path}.{peers}[{position}]", peer)
    types = jsonpath.sequence(spec, "policyTypes")
    if len(types) > len(_POLICY_TYPES):
        yield fields.invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, kind in enumerate(types):
        if kind not in _POLICY_TYPES:
            yield fields.not_supported(f"spec.policyTypes[{index}]", kind, _POLICY_TYPES)


def _policy_port(path: str, row: dict[str, Any]) -> fields.Causes:
    yield from fields.optional_one_of(f"{path}.protocol", row.get("protocol"), _PROTOCOLS)
    port, end = row.get("port"), row.get("endPort")
    if port is None:
        if end is not None:
            yield fields.invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified")
    elif isinstance(port, str):
        if end is not None:
            yield fields.invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
        yield from fields.port_name(f"{path}.port", port)
    else:
        yield from fields.port_number(f"{path}.port", port)
        if isinstance(end, int) and end < jsonpath.number(row, "port"):
            yield fields.invalid(f"{path}.endPort", port, "must be greater than or equal to `port`")
        if end is not None:
            yield from fields.port_number(f"{path}.endPort", end)


def _peer(path: str, peer: dict[str, Any]) -> fields.Causes:
    named = [key for key in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(key) is not None]
    for key in named:
        if key == "ipBlock":
            yield from _ip_block(f"{path}.ipBlock", jsonpath.mapping(peer, key))
        else:
            yield from workloads.label_selector(f"{path}.{key}", peer[key])
    if not named:
        yield fields.required(path, "must specify a peer")
    elif len(named) > 1 and "ipBlock" in named:
        yield fields.forbidden(path, "may not specify both ipBlock and another peer")


def _ip_block(path: str, block: dict[str, Any]) -> fields.Causes:
    cidr = jsonpath.text(block, "cidr")
    if not cidr:
        yield fields.required(f"{path}.cidr")
        return
    wrong = list(fields.cidr(f"{path}.cidr", cidr))
    yield from wrong
    for index, text in enumerate([] if wrong else jsonpath.texts(block, "except")):
        place = f"{path}.except[{index}]"
        wrong = list(fields.cidr(place, text))
        yield from wrong
        if not wrong and not _is_part(text, cidr):
            yield fields.invalid(place, text, "must be a strict subset of `cidr`")


def _is_part(inner: str, outer: str) -> bool:
    """Whether one network lies in another, and is not the whole of it."""
    small, large = (ipaddress.ip_network(each, strict=False) for each in (inner, outer))
    if small.version != large.version or small.prefixlen <= large.prefixlen:
        return False
    return small.network_address in large


# --- addresses of Services


def ip_address(document: dict[str, Any]) -> fields.Causes:
    path, parent = "spec.parentRef", jsonpath.at(document, "spec", "parentRef")
    if not isinstance(parent, dict):
        yield fields.required(path)
        return
    yield from fields.optional_name(f"{path}.group", jsonpath.text(parent, "group"), objects.dns_subdomain)
    for key in ("resource", "name"):
        yield from fields.named(f"{path}.{key}", jsonpath.text(parent, key), objects.path_segment)
    yield from fields.optional_name(f"{path}.namespace", jsonpath.text(parent, "namespace"), objects.path_segment)


def ip_address_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    after, before = (jsonpath.at(each, "spec", "parentRef") for each in (document, old))
    yield from fields.immutable("spec.parentRef", after, before)


def servicecidr(document: dict[str, Any]) -> fields.Causes:
    path, cidrs = "spec.cidrs", jsonpath.texts(document, "spec", "cidrs")
    if not cidrs:
        yield fields.required(path, "at least one CIDR required")
    elif len(cidrs) > _MOST_CIDRS:
        yield fields.invalid(path, cidrs, "may only hold up to 2 values")
    else:
        wrong = [cause for index, each in enumerate(cidrs) for cause in fields.cidr(f"{path}[{index}]", each)]
        yield from wrong
        if not wrong and len({":" in each for each in cidrs}) < len(cidrs):
            detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            yield fields.invalid(path, cidrs, detail)


def servicecidr_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    after, before = (jsonpath.texts(each, "spec", "cidrs") for each in (document, old))
    # A second one, of the other family, may come later.
    if after[: len(before)] != before:
        yield fields.invalid("spec.cidrs", after, fields.IMMUTABLE)
