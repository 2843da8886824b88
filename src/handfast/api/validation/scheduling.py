# SPDX-License-Identifier: Apache-2.0
"""What is asked of PodDisruptionBudgets, PriorityClasses and PodTemplates, and of revisions of workloads.

No Pod is looked at: how many are there is the business of the controller that writes a budget's status.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.api import field_errors as fields
from handfast.api import jsonpath
from handfast.api.validation import pods, workloads

_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")
_BUDGETS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_SYSTEM: Final = "system-"
# Classes that every cluster has, and their values; Kubernetes' names and numbers.
SYSTEM_CLASSES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
SYSTEM_CLASS: Final = "For Pods that a node, or the cluster, cannot do without."
_HIGHEST: Final = 1_000_000_000


def poddisruptionbudget(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield fields.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for key in ("minAvailable", "maxUnavailable"):
        yield from fields.amount_or_percent(f"spec.{key}", spec.get(key))
    if spec.get("selector") is not None:
        yield from workloads.label_selector("spec.selector", spec["selector"])
    yield from fields.optional_one_of(
        "spec.unhealthyPodEvictionPolicy", spec.get("unhealthyPodEvictionPolicy"), _POLICIES
    )
    for key in _BUDGETS:
        yield from fields.not_negative(f"status.{key}", jsonpath.at(document, "status", key))


def priorityclass(document: dict[str, Any]) -> fields.Causes:
    name, value = jsonpath.text(document, "metadata", "name"), jsonpath.number(document, "value")
    if name.startswith(_SYSTEM):
        wrong = _wrong_system_class(name, value, document.get("globalDefault") is True)
        if wrong:
            detail = f"priority class names with '{_SYSTEM}' prefix are reserved for system use only. error: {wrong}"
            yield fields.forbidden("metadata.name", detail)
    elif value > _HIGHEST:
        yield fields.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST}")
    yield from fields.optional_one_of(
        "preemptionPolicy", document.get("preemptionPolicy"), ("PreemptLowerPriority", "Never")
    )


def _wrong_system_class(name: str, value: int, is_default: bool) -> str:
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if value != known:
        return f"value of {name} PriorityClass must be {known}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def priorityclass_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    if jsonpath.number(document, "value") != jsonpath.number(old, "value"):
        yield fields.forbidden("value", "may not be changed in an update.")
    yield from fields.immutable("preemptionPolicy", document.get("preemptionPolicy"), old.get("preemptionPolicy"))


def podtemplate(document: dict[str, Any]) -> fields.Causes:
    template = jsonpath.mapping(document, "template")
    yield from fields.labels("template.metadata.labels", jsonpath.mapping(template, "metadata", "labels"))
    yield from pods.pod_spec("template.spec", jsonpath.mapping(template, "spec"))


def controllerrevision(document: dict[str, Any]) -> fields.Causes:
    if not isinstance(document.get("data"), dict):
        detail = "data is mandatory" if document.get("data") is None else "data must be a valid JSON object"
        yield fields.required("data", detail)
    yield from fields.not_negative("revision", document.get("revision"))


def controllerrevision_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    if document.get("data") != old.get("data"):
        yield fields.invalid("data", document.get("data"), fields.IMMUTABLE)
