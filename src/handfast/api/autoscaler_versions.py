# SPDX-License-Identifier: Apache-2.0
"""Turns a HorizontalPodAutoscaler of `autoscaling/v1` into one of `autoscaling/v2`, and back.

v1 knows one target, the CPU in percent. What else v2 says is carried in annotations of the v1 form, under Kubernetes' names, so that
whoever reads v1 and writes it back loses nothing. An annotation that does not hold what it should is left out. Inside the
annotations the metrics have the form of v2. Nothing is checked or defaulted here.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from handfast.api import jsonpath
from handfast.api.schema import structs

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
# Annotation -> where v2 has it, and the message of it or of its items.
_CARRIED: Final = {
    "metrics": ("spec", "metrics", "autoscaling.v2.MetricSpec"),
    "behavior": ("spec", "behavior", "autoscaling.v2.HorizontalPodAutoscalerBehavior"),
    "current-metrics": ("status", "currentMetrics", "autoscaling.v2.MetricStatus"),
    "conditions": ("status", "conditions", "autoscaling.v2.HorizontalPodAutoscalerCondition"),
}
_CPU, _NOW_CPU = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"


def to_v1(document: dict[str, Any]) -> dict[str, Any]:
    """The v1 form of a v2 document; a new dictionary."""
    metadata = _bare(document)
    spec, status = ({**jsonpath.mapping(document, part)} for part in ("spec", "status"))
    metrics = jsonpath.mappings(spec, "metrics")
    cpu = next((row for row in metrics if _percent(row) is not None), None)
    if cpu is not None:
        spec[_CPU] = _percent(cpu)
    spec["metrics"] = [row for row in metrics if row is not cpu]
    now = [jsonpath.mapping(row, "resource") for row in jsonpath.mappings(status, "currentMetrics")]
    percents = [
        row["current"].get("averageUtilization") for row in now if row.get("name") == "cpu" and row.get("current")
    ]
    if percents and percents[0] is not None:
        status[_NOW_CPU] = percents[0]
    parts = {"spec": spec, "status": status}
    for name, (part, key, _) in _CARRIED.items():
        value = parts[part].pop(key, None)
        if value:
            metadata.setdefault("annotations", {})[_PREFIX + name] = json.dumps(value, separators=(",", ":"))
    return _with(document, "autoscaling/v1", metadata, spec, status)


def to_v2(document: dict[str, Any]) -> dict[str, Any]:
    """The v2 form of a v1 document; a new dictionary."""
    metadata = _bare(document)
    parts = {part: {**jsonpath.mapping(document, part)} for part in ("spec", "status")}
    annotations = jsonpath.mapping(document, "metadata", "annotations")
    for name, (part, key, message) in _CARRIED.items():
        value = _carried(annotations.get(_PREFIX + name), message)
        if value:
            parts[part][key] = value
    parts["status"].pop(_NOW_CPU, None)
    percent = parts["spec"].pop(_CPU, None)
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        cpu = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
        parts["spec"]["metrics"] = [*jsonpath.sequence(parts["spec"], "metrics"), cpu]
    return _with(document, "autoscaling/v2", metadata, parts["spec"], parts["status"])


def _with(
    document: dict[str, Any], version: str, metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]
) -> dict[str, Any]:
    changed = {**document, "apiVersion": version, "metadata": metadata, "spec": spec}
    if "status" in document:
        changed["status"] = status
    return changed


def _percent(metric: dict[str, Any]) -> Any:
    resource = jsonpath.mapping(metric, "resource")
    is_cpu = metric.get("type") == "Resource" and resource.get("name") == "cpu"
    return jsonpath.at(resource, "target", "averageUtilization") if is_cpu else None


def _bare(document: dict[str, Any]) -> dict[str, Any]:
    """The metadata without the annotations that carry something; a new dictionary."""
    metadata = {**jsonpath.mapping(document, "metadata")}
    annotations = jsonpath.mapping(metadata, "annotations")
    kept = {key: value for key, value in annotations.items() if key.removeprefix(_PREFIX) not in _CARRIED}
    if kept:
        metadata["annotations"] = kept
    elif annotations:
        del metadata["annotations"]
    return metadata


def _carried(text: Any, message: str) -> Any:
    """What an annotation holds, if that is what it should hold."""
    if not isinstance(text, str):
        return None
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    rows = value if isinstance(value, list) else [value]
    is_list = message != _CARRIED["behavior"][2]
    if isinstance(value, list) != is_list or not all(isinstance(row, dict) for row in rows):
        return None
    return value if all(_fits(message, row) for row in rows) else None


def _fits(message: str, row: dict[str, Any]) -> bool:
    findings = structs.check(message, row)
    return not findings.unknown and not findings.type_error and not findings.nulls
