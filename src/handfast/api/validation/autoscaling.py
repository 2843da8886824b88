# SPDX-License-Identifier: Apache-2.0
"""What is asked of HorizontalPodAutoscalers: bounds, a target, and what each metric is measured against.

Whether the target or a metric exists is not looked at, and nothing here scales.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.api.schema import quantities
from handfast.api.validation import workloads

# The type of a metric, and where its source is.
_SOURCES: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_PERIOD: Final = 1800
_WINDOW: Final = 3600
_TARGETS: Final = ("Utilization", "Value", "AverageValue")


def horizontalpodautoscaler(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    low, high = spec.get("minReplicas"), jsonpath.number(spec, "maxReplicas")
    if isinstance(low, int) and low < 1:
        yield fields.invalid("spec.minReplicas", low, "must be greater than or equal to 1")
    if high == 0:
        yield fields.required("spec.maxReplicas", "must be set and greater than 0")
    elif high < 0:
        yield fields.invalid("spec.maxReplicas", high, "must be greater than or equal to 1")
    if isinstance(low, int) and high < low:
        yield fields.invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`")
    yield from _reference("spec.scaleTargetRef", jsonpath.mapping(spec, "scaleTargetRef"))
    for index, metric in enumerate(jsonpath.mappings(spec, "metrics")):
        yield from _metric(f"spec.metrics[{index}]", metric)
    for key in ("scaleUp", "scaleDown"):
        if jsonpath.at(spec, "behavior", key) is not None:
            yield from _rules(f"spec.behavior.{key}", jsonpath.mapping(spec, "behavior", key))
    for key in ("currentReplicas", "desiredReplicas"):
        yield from fields.not_negative(f"status.{key}", jsonpath.at(document, "status", key))


def _reference(path: str, reference: dict[str, Any]) -> fields.Causes:
    for key in ("kind", "name"):
        yield from fields.named(f"{path}.{key}", jsonpath.text(reference, key), objects.path_segment)
    version = jsonpath.text(reference, "apiVersion")
    if version.count("/") > 1:
        yield fields.invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")


def _metric(path: str, metric: dict[str, Any]) -> fields.Causes:
    kind = jsonpath.text(metric, "type")
    if not kind:
        yield fields.required(f"{path}.type", "must specify a metric source type")
    wanted = _SOURCES.get(kind)
    if wanted is None:
        yield fields.not_supported(f"{path}.type", kind, _SOURCES)
    elif metric.get(wanted) is None:
        yield fields.required(f"{path}.{wanted}", "must populate information for the given metric source")
    present = [key for key in _SOURCES.values() if metric.get(key) is not None]
    for key in present[:1]:
        yield from _CHECKS[key](f"{path}.{key}", jsonpath.mapping(metric, key))
    if len(present) > 1:
        for key in present:
            if key != wanted:
                yield fields.forbidden(f"{path}.{key}", "must populate the given metric source only")


def _target(path: str, target: dict[str, Any]) -> fields.Causes:
    kind = jsonpath.text(target, "type")
    if not kind:
        yield fields.required(f"{path}.type", "must specify a metric target type")
    if kind not in _TARGETS:
        yield fields.invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for key in ("value", "averageValue"):
        amount = quantities.parse(target.get(key))
        if amount is not None and amount <= 0:
            yield fields.invalid(f"{path}.{key}", str(target[key]), "must be positive")
    percent = target.get("averageUtilization")
    if isinstance(percent, int) and percent < 1:
        yield fields.invalid(f"{path}.averageUtilization", percent, "must be greater than 0")


def _identifier(path: str, source: dict[str, Any]) -> fields.Causes:
    name = jsonpath.text(source, "metric", "name")
    if not name:
        yield fields.required(f"{path}.metric.name", "must specify a metric name")
    yield from fields.optional_name(f"{path}.metric.name", name, objects.path_segment)
    yield from workloads.label_selector(f"{path}.metric.selector", jsonpath.at(source, "metric", "selector"))


def _object(path: str, source: dict[str, Any]) -> fields.Causes:
    yield from _reference(f"{path}.describedObject", jsonpath.mapping(source, "describedObject"))
    yield from _identifier(path, source)
    yield from _target(f"{path}.target", jsonpath.mapping(source, "target"))
    if not _has(source, "value") and not _has(source, "averageValue"):
        yield fields.required(f"{path}.target.averageValue", "must set either a target value or averageValue")


def _external(path: str, source: dict[str, Any]) -> fields.Causes:
    yield from _identifier(path, source)
    yield from _target(f"{path}.target", jsonpath.mapping(source, "target"))
    value, average = _has(source, "value"), _has(source, "averageValue")
    if not value and not average:
        detail = "must set either a target value for metric or a per-pod target"
        yield fields.required(f"{path}.target.averageValue", detail)
    if value and average:
        detail = "may not set both a target value for metric and a per-pod target"
        yield fields.forbidden(f"{path}.target.value", detail)


def _pods(path: str, source: dict[str, Any]) -> fields.Causes:
    yield from _identifier(path, source)
    yield from _target(f"{path}.target", jsonpath.mapping(source, "target"))
    if not _has(source, "averageValue"):
        yield fields.required(f"{path}.target.averageValue", "must specify a positive target averageValue")


def _resource(path: str, source: dict[str, Any]) -> fields.Causes:
    if not jsonpath.text(source, "name"):
        yield fields.required(f"{path}.name", "must specify a resource name")
    yield from _target(f"{path}.target", jsonpath.mapping(source, "target"))
    percent, average = _has(source, "averageUtilization"), _has(source, "averageValue")
    if not percent and not average:
        detail = "must set either a target raw value or a target utilization"
        yield fields.required(f"{path}.target.averageUtilization", detail)
    if percent and average:
        detail = "may not set both a target raw value and a target utilization"
        yield fields.forbidden(f"{path}.target.averageValue", detail)


def _container_resource(path: str, source: dict[str, Any]) -> fields.Causes:
    yield from _resource(path, source)
    container = jsonpath.text(source, "container")
    if not container:
        yield fields.required(f"{path}.container", "must specify a container")
    yield from fields.optional_name(f"{path}.container", container, objects.dns_label)


def _has(source: dict[str, Any], key: str) -> bool:
    return jsonpath.at(source, "target", key) is not None


_CHECKS: Final[dict[str, Callable[[str, dict[str, Any]], fields.Causes]]] = {
    "containerResource": _container_resource,
    "external": _external,
    "object": _object,
    "pods": _pods,
    "resource": _resource,
}


def _rules(path: str, rules: dict[str, Any]) -> fields.Causes:
    window = rules.get("stabilizationWindowSeconds")
    if isinstance(window, int) and window < 0:
        yield fields.invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if isinstance(window, int) and window > _WINDOW:
        yield fields.invalid(f"{path}.stabilizationWindowSeconds", window, f"must be less than or equal to {_WINDOW}")
    yield from fields.optional_one_of(f"{path}.selectPolicy", rules.get("selectPolicy"), ("Disabled", "Max", "Min"))
    policies = jsonpath.mappings(rules, "policies")
    if not policies:
        yield fields.required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        yield from _policy(f"{path}.policies[{index}]", policy)


def _policy(path: str, policy: dict[str, Any]) -> fields.Causes:
    if policy.get("type") not in {"Percent", "Pods"}:
        yield fields.not_supported(f"{path}.type", jsonpath.text(policy, "type"), ("Percent", "Pods"))
    for key in ("value", "periodSeconds"):
        if jsonpath.number(policy, key) <= 0:
            yield fields.invalid(f"{path}.{key}", policy.get(key), "must be greater than zero")
    if jsonpath.number(policy, "periodSeconds") > _PERIOD:
        yield fields.invalid(
            f"{path}.periodSeconds", policy["periodSeconds"], f"must be less than or equal to {_PERIOD}"
        )
