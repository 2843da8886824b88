# SPDX-License-Identifier: Apache-2.0
"""The cells of Ingresses, their classes, and NetworkPolicies. They say what is written there; nothing is looked up."""

from __future__ import annotations

import datetime
from typing import Any

from handfast.api import jsonpath
from handfast.api.printing import core, workloads

_NONE = "<none>"
_SHOWN = 3
_DEFAULT = "ingressclass.kubernetes.io/is-default-class"


def ingress(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    return [
        _NONE if spec.get("ingressClassName") is None else jsonpath.text(spec, "ingressClassName"),
        _hosts(jsonpath.mappings(spec, "rules")),
        _addresses(jsonpath.mappings(document, "status", "loadBalancer", "ingress")),
        "80, 443" if jsonpath.mappings(spec, "tls") else "80",
        core.age(document, now),
    ]


def _hosts(rules: list[dict[str, Any]]) -> str:
    hosts = [jsonpath.text(rule, "host") for rule in rules if jsonpath.text(rule, "host")]
    if not hosts:
        return "*"
    shown = ",".join(hosts[:_SHOWN])
    return shown if len(hosts) <= _SHOWN else f"{shown} + {len(rules) - _SHOWN} more..."


def _addresses(rows: list[dict[str, Any]]) -> str:
    return ",".join(sorted({jsonpath.text(row, "ip") or jsonpath.text(row, "hostname") for row in rows} - {""}))


def ingressclass(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    """The whole row: the name of the default class says so."""
    name = jsonpath.text(document, "metadata", "name")
    if jsonpath.mapping(document, "metadata", "annotations").get(_DEFAULT) == "true":
        name += " (default)"
    spec = jsonpath.mapping(document, "spec")
    return [name, jsonpath.text(spec, "controller"), _parameters(spec), core.age(document, now)]


def _parameters(spec: dict[str, Any]) -> str:
    if spec.get("parameters") is None:
        return _NONE
    parameters = jsonpath.mapping(spec, "parameters")
    group = jsonpath.text(parameters, "apiGroup")
    kind = jsonpath.text(parameters, "kind")
    return (
        f"{kind}.{group}/{jsonpath.text(parameters, 'name')}"
        if group
        else f"{kind}/{jsonpath.text(parameters, 'name')}"
    )


def networkpolicy(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    selector = jsonpath.mapping(document, "spec", "podSelector")
    return [workloads.selector_text(selector), core.age(document, now)]


def servicecidr(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [",".join(jsonpath.texts(document, "spec", "cidrs")), core.age(document, now)]


def ipaddress(document: dict[str, Any], _now: datetime.datetime) -> list[Any]:
    parent = jsonpath.mapping(document, "spec", "parentRef")
    if not parent:
        return [_NONE]
    group, resource = (jsonpath.text(parent, key) for key in ("group", "resource"))
    named = f"{resource}.{group}" if group else resource
    parts = (named.lower(), jsonpath.text(parent, "namespace"), jsonpath.text(parent, "name"))
    return ["/".join(part for part in parts if part)]
