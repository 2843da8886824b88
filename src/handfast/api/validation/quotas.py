# SPDX-License-Identifier: Apache-2.0
"""What is asked of ResourceQuotas and LimitRanges: known names, amounts that fit together, scopes that fit the names.

What they limit is decided in `rules.quotas`. Whether somebody stays within them is not looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.api.schema import quantities

# Counted, never measured.
COUNTS: Final = (
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
)
_COMPUTE: Final = ("cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory")
_QUOTA: Final = frozenset(
    {
        *COUNTS,
        *_COMPUTE,
        "ephemeral-storage",
        "limits.ephemeral-storage",
        "requests.ephemeral-storage",
        "requests.storage",
    }
)
_HUGE: Final = ("hugepages-", "requests.hugepages-")
_CONTAINER: Final = ("cpu", "ephemeral-storage", "memory")
_NATIVE: Final = "kubernetes.io/"
_OF_PODS: Final = frozenset({"pods", *_COMPUTE})
# A scope, and what a quota of that scope may limit.
SCOPES: Final[Mapping[str, frozenset[str]]] = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "BestEffort": frozenset({"pods"}),
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
_VALUED: Final = ("PriorityClass", "VolumeAttributesClass")
_OPPOSITES: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_LIMIT_TYPES: Final = ("Container", "PersistentVolumeClaim", "Pod")
_LISTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def _is_huge(name: str) -> bool:
    return name.startswith(_HUGE)


def _resource_name(path: str, name: str) -> fields.Causes:
    wrong = objects.qualified_name(name)
    if wrong is not None:
        yield fields.invalid(path, name, wrong)
    elif "/" not in name and name not in _QUOTA | {"storage"} and not _is_huge(name):
        yield fields.invalid(path, name, "must be a standard resource type or fully qualified")


# --- quotas


def resourcequota(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    hard = jsonpath.mapping(spec, "hard")
    yield from _amounts("spec.hard", hard)
    yield from _amounts("status.hard", jsonpath.mapping(document, "status", "hard"))
    yield from _amounts("status.used", jsonpath.mapping(document, "status", "used"))
    scopes = jsonpath.sequence(spec, "scopes")
    for scope in scopes:
        yield from _scope("spec.scopes", scope, scopes, hard)
    yield from _opposites("spec.scopes", scopes, scopes)
    rows = jsonpath.mappings(spec, "scopeSelector", "matchExpressions")
    path = "spec.scopeSelector.matchExpressions"
    for row in rows:
        yield from _requirement(path, row, spec, hard)
    yield from _opposites(path, [row.get("scopeName") for row in rows], scopes)


def _amounts(path: str, amounts: dict[str, Any]) -> fields.Causes:
    for name, value in amounts.items():
        place = f"{path}[{name}]"
        yield from _resource_name(place, name)
        if "/" not in name and name not in _QUOTA and not _is_huge(name):
            yield fields.invalid(place, name, "must be a standard resource for quota")
        amount = quantities.parse(value)
        if amount is not None and amount < 0:
            yield fields.invalid(place, str(value), fields.NOT_NEGATIVE)
        elif amount is not None and _is_counted(name) and amount != amount.to_integral_value():
            yield fields.invalid(place, str(value), "must be an integer")


def _is_counted(name: str) -> bool:
    extended = "/" in name and _NATIVE not in name and not name.startswith("requests.")
    return name in COUNTS or extended


def _scope(path: str, scope: Any, shown: Any, hard: Mapping[str, Any]) -> fields.Causes:
    fitting = SCOPES.get(scope) if isinstance(scope, str) else None
    if fitting is None:
        yield fields.invalid(path, shown, "unsupported scope")
        return
    for name in sorted(hard):
        if (name in _QUOTA or _is_huge(name)) and name not in fitting:
            yield fields.invalid(path, shown, "unsupported scope applied to resource")


def _requirement(path: str, row: dict[str, Any], spec: dict[str, Any], hard: Mapping[str, Any]) -> fields.Causes:
    scope, operator = jsonpath.text(row, "scopeName"), jsonpath.text(row, "operator")
    values = jsonpath.sequence(row, "values")
    if scope in SCOPES:
        yield from _scope(path, scope, spec.get("scopeSelector"), hard)
    else:
        yield fields.invalid(f"{path}.scopeName", scope, "unsupported scope")
    if scope in SCOPES and scope not in _VALUED and operator != "Exists":
        detail = (
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
            "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
            "ResourceQuotaScopeCrossNamespacePodAffinity"
        )
        yield fields.invalid(f"{path}.operator", operator, detail)
    if operator in {"In", "NotIn"}:
        if not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield fields.required(f"{path}.values", detail)
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield fields.invalid(f"{path}.values", values, detail)
    else:
        yield fields.invalid(f"{path}.operator", operator, "not a valid selector operator")


def _opposites(path: str, named: list[Any], shown: list[Any]) -> fields.Causes:
    texts = {name for name in named if isinstance(name, str)}
    for pair in _OPPOSITES:
        if pair <= texts:
            yield fields.invalid(path, shown, "conflicting scopes")


def resourcequota_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    after, before = (set(jsonpath.texts(each, "spec", "scopes")) for each in (document, old))
    if after != before:
        yield fields.invalid("spec.scopes", jsonpath.sequence(document, "spec", "scopes"), fields.IMMUTABLE)


# --- limit ranges


def limitrange(document: dict[str, Any]) -> fields.Causes:
    seen: set[str] = set()
    for index, row in enumerate(jsonpath.mappings(document, "spec", "limits")):
        path, kind = f"spec.limits[{index}]", jsonpath.text(row, "type")
        yield from _limit_type(f"{path}.type", kind)
        if kind in seen:
            yield fields.duplicate(f"{path}.type", kind)
        seen.add(kind)
        yield from _limit_lists(path, kind, row)
        for name in _named(kind, row):
            yield from _bounds(path, name, row)


def _limit_type(path: str, kind: str) -> fields.Causes:
    wrong = objects.qualified_name(kind)
    if wrong is not None:
        yield fields.invalid(path, kind, wrong)
    elif "/" not in kind and kind not in _LIMIT_TYPES:
        yield fields.invalid(path, kind, "must be a standard limit type or fully qualified")


def _limit_lists(path: str, kind: str, row: dict[str, Any]) -> fields.Causes:
    for key in _LISTS:
        if kind == "Pod" and key in {"default", "defaultRequest"}:
            if jsonpath.mapping(row, key):
                yield fields.forbidden(f"{path}.{key}", "may not be specified when `type` is 'Pod'")
            continue
        for name in jsonpath.mapping(row, key):
            yield from _limited_name(f"{path}.{key}[{name}]", kind, name)
    if kind == "PersistentVolumeClaim" and not any("storage" in jsonpath.mapping(row, key) for key in ("max", "min")):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield fields.required(f"{path}.limits", detail)


def _limited_name(path: str, kind: str, name: str) -> fields.Causes:
    yield from _resource_name(path, name)
    if kind not in {"Container", "Pod"}:
        return
    if "/" not in name:
        if name not in _CONTAINER and not name.startswith(_HUGE[0]):
            yield fields.invalid(path, name, "must be a standard resource for containers")
    elif _NATIVE not in name and (name.startswith("requests.") or objects.qualified_name(f"requests.{name}")):
        yield fields.invalid(path, name, "doesn't follow extended resource name standard")


def _named(kind: str, row: dict[str, Any]) -> Iterator[str]:
    """Every resource that the row says something of, once."""
    keys = _LISTS if kind != "Pod" else ("max", "min", "maxLimitRequestRatio")
    yield from dict.fromkeys(name for key in keys for name in jsonpath.mapping(row, key))


# What may not be greater than what, as (left, right, where the cause is, which value is shown, what the text calls them).
_ORDER: Final = (
    ("min", "max", "min", "min", ("min value", "max value")),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest", ("min value", "default request value")),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest", ("default request value", "max value")),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest", ("default request value", "default limit value")),
    ("min", "default", "default", "min", ("min value", "default value")),
    ("default", "max", "default", "max", ("default value", "max value")),
)


def _bounds(path: str, name: str, row: dict[str, Any]) -> fields.Causes:
    texts = {key: jsonpath.mapping(row, key).get(name) for key in _LISTS}
    amounts = {key: quantities.parse(value) for key, value in texts.items()}
    for left, right, place, shown, words in _ORDER:
        low, high = amounts[left], amounts[right]
        if low is not None and high is not None and low > high:
            detail = f"{words[0]} {texts[left]} is greater than {words[1]} {texts[right]}"
            yield fields.invalid(f"{path}.{place}[{name}]", str(texts[shown]), detail)
    ratio = amounts["maxLimitRequestRatio"]
    if ratio is not None:
        place = f"{path}.maxLimitRequestRatio[{name}]"
        yield from _ratio(place, str(texts["maxLimitRequestRatio"]), ratio, amounts["min"], amounts["max"])
    default, request = amounts["default"], amounts["defaultRequest"]
    fixed = name.startswith(_HUGE[0]) or ("/" in name and _NATIVE not in name)
    if fixed and default is not None and request is not None and default != request:
        detail = (
            f"default value {texts['default']} must equal to defaultRequest value {texts['defaultRequest']} in {name}"
        )
        yield fields.invalid(f"{path}.defaultRequest[{name}]", str(texts["defaultRequest"]), detail)


def _ratio(path: str, shown: str, ratio: Decimal, low: Decimal | None, high: Decimal | None) -> fields.Causes:
    if ratio < 1:
        yield fields.invalid(path, shown, f"ratio {shown} is less than 1")
    if low is not None and high is not None and low > 0 and ratio > high / low:
        yield fields.invalid(path, shown, f"ratio {shown} is greater than max/min = {float(high / low):f}")
