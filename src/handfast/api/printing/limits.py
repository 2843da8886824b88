# SPDX-License-Identifier: Apache-2.0
"""The cells of what limits and scales Pods, and of what the server shows of itself: rate limits, versions, its store.

The numbers are those of the status: nothing is counted here.
"""

from __future__ import annotations

import datetime
from typing import Any

from handfast.api import jsonpath
from handfast.api.printing import core

_METRICS = 2
_UNKNOWN = "<unknown>"


def resourcequota(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    hard, used = (jsonpath.mapping(document, "status", key) for key in ("hard", "used"))
    texts = {name: f"{name}: {used.get(name, 0)}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in texts.items() if name.startswith("limits.")]
    requests = [text for name, text in texts.items() if not name.startswith("limits.")]
    return [", ".join(requests), ", ".join(limits), core.age(document, now)]


def poddisruptionbudget(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    wanted = ["N/A" if spec.get(key) is None else str(spec[key]) for key in ("minAvailable", "maxUnavailable")]
    return [*wanted, jsonpath.number(document, "status", "disruptionsAllowed"), core.age(document, now)]


def priorityclass(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [
        jsonpath.number(document, "value"),
        document.get("globalDefault") is True,
        core.age(document, now),
        jsonpath.text(document, "preemptionPolicy"),
    ]


def horizontalpodautoscaler(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    target = jsonpath.mapping(spec, "scaleTargetRef")
    return [
        f"{jsonpath.text(target, 'kind')}/{jsonpath.text(target, 'name')}",
        _metrics(jsonpath.mappings(spec, "metrics"), jsonpath.mappings(document, "status", "currentMetrics")),
        "<unset>" if spec.get("minReplicas") is None else str(spec["minReplicas"]),
        jsonpath.number(spec, "maxReplicas"),
        jsonpath.number(document, "status", "currentReplicas"),
        core.age(document, now),
    ]


def _metrics(wanted: list[dict[str, Any]], measured: list[dict[str, Any]]) -> str:
    if not wanted:
        return "<none>"
    texts = [
        _metric(row, measured[index] if index < len(measured) else {}) for index, row in enumerate(wanted[:_METRICS])
    ]
    shown = ", ".join(texts)
    return shown if len(wanted) <= _METRICS else f"{shown} + {len(wanted) - _METRICS} more..."


def _metric(wanted: dict[str, Any], measured: dict[str, Any]) -> str:
    kind = jsonpath.text(wanted, "type")
    key = kind[:1].lower() + kind[1:]
    source, status = jsonpath.mapping(wanted, key), jsonpath.mapping(measured, key, "current")
    target = jsonpath.mapping(source, "target")
    if kind in {"Resource", "ContainerResource"}:
        name = jsonpath.text(source, "name")
        if target.get("averageValue") is not None:
            return f"{name}: {_amount(status, 'averageValue')}/{target['averageValue']}"
        percent, now = target.get("averageUtilization"), status.get("averageUtilization")
        return f"{name}: {_UNKNOWN if now is None else f'{now}%'}/{'<auto>' if percent is None else f'{percent}%'}"
    if kind == "Pods":
        return f"{_amount(status, 'averageValue')}/{target.get('averageValue', 0)}"
    if kind not in {"Object", "External"}:
        return "<unknown type>"
    if target.get("averageValue") is not None:
        return f"{_amount(status, 'averageValue')}/{target['averageValue']} (avg)"
    return f"{_amount(status, 'value')}/{target.get('value', 0)}"


def _amount(status: dict[str, Any], key: str) -> str:
    value = status.get(key)
    return _UNKNOWN if value is None else str(value)


# --- what the server shows of itself


def _condition(document: dict[str, Any], kind: str, *path: str) -> dict[str, Any]:
    return next((row for row in jsonpath.mappings(document, *path, "conditions") if row.get("type") == kind), {})


def componentstatus(document: dict[str, Any], _now: datetime.datetime) -> list[Any]:
    row = _condition(document, "Healthy")
    state = "Unknown" if not row else "Healthy" if row.get("status") == "True" else "Unhealthy"
    return [state, jsonpath.text(row, "message"), jsonpath.text(row, "error")]


def apiservice(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return ["Local", jsonpath.text(_condition(document, "Available", "status"), "status"), core.age(document, now)]


def flowschema(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    return [
        jsonpath.text(spec, "priorityLevelConfiguration", "name"),
        jsonpath.number(spec, "matchingPrecedence"),
        jsonpath.text(spec, "distinguisherMethod", "type") or "<none>",
        core.age(document, now),
        jsonpath.text(_condition(document, "Dangling", "status"), "status") or "?",
    ]


def prioritylevel(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    shares = jsonpath.at(document, "spec", "limited", "nominalConcurrencyShares")
    return [
        jsonpath.text(document, "spec", "type"),
        "<none>" if shares is None else shares,
        *["<none>"] * 3,
        core.age(document, now),
    ]
