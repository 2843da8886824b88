# SPDX-License-Identifier: Apache-2.0
"""What is asked of the kinds that keep pods running: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob.

The template is judged as a pod is, and its labels have to match the selector. Of a cron schedule little more than the
number of its fields is looked at: whoever runs it reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, selectors, status
from handfast.api.validation import pods

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
# How messages name the kind: in the text on selectors, and in the one on deadlines.
_OWNERS = {
    "deployment": "ReplicaSet",
    "replica set": "ReplicaSet",
    "statefulset": "StatefulSet",
    "daemonset": "DaemonSet",
}
_STATEFULSET_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_JOB_RESTARTS = ("OnFailure", "Never")
_JOB_NUMBERS = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_JOB_NAME_LIMIT = 52


def label_selector(path: str, selector: Any) -> fields.Causes:
    """A LabelSelector: its labels and its expressions."""
    yield from fields.labels(f"{path}.matchLabels", jsonpath.mapping(selector, "matchLabels"))
    for index, row in enumerate(jsonpath.mappings(selector, "matchExpressions")):
        place, operator = f"{path}.matchExpressions[{index}]", jsonpath.text(row, "operator")
        values = jsonpath.sequence(row, "values")
        if operator not in _OPERATORS:
            yield fields.invalid(f"{place}.operator", operator, "not a valid selector operator")
        elif operator in {"In", "NotIn"} and not values:
            yield fields.required(f"{place}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in {"Exists", "DoesNotExist"} and values:
            yield fields.forbidden(
                f"{place}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )
        yield from fields.labels(f"{place}.key", {jsonpath.text(row, "key"): None})


def _matches(selector: Any, labels: Mapping[str, Any]) -> bool:
    """Whether a selector selects the labels; one that is wrong in itself was reported as that."""
    try:
        return selectors.from_label_selector(selector).match(labels)
    except status.StatusError:
        return True


def _template(path: str, spec: dict[str, Any], restarts: tuple[str, ...]) -> fields.Causes:
    """The template of a spec: a pod like any other, but for when it is started again."""
    pod_spec = jsonpath.mapping(spec, "template", "spec")
    claims = [jsonpath.text(row, "metadata", "name") for row in jsonpath.mappings(spec, "volumeClaimTemplates")]
    place = f"{path}.template"
    yield from fields.labels(f"{place}.metadata.labels", jsonpath.mapping(spec, "template", "metadata", "labels"))
    yield from pods.pod_spec(f"{place}.spec", pod_spec, claims)
    if jsonpath.text(pod_spec, "restartPolicy") not in (*restarts, ""):
        yield fields.not_supported(f"{place}.spec.restartPolicy", pod_spec["restartPolicy"], restarts)


def _lasting(spec: dict[str, Any], kind: str) -> fields.Causes:
    """A template whose pods run until they are told to stop."""
    yield from _template("spec", spec, ("Always",))
    if jsonpath.at(spec, "template", "spec", "activeDeadlineSeconds") is not None:
        yield fields.forbidden(
            "spec.template.spec.activeDeadlineSeconds", f"activeDeadlineSeconds in {kind} is not Supported"
        )


def _selected(document: dict[str, Any], kind: str) -> fields.Causes:
    """Selector and template of the kinds of group `apps`."""
    spec = jsonpath.mapping(document, "spec")
    selector, labels = spec.get("selector"), jsonpath.mapping(spec, "template", "metadata", "labels")
    if selector is None:
        yield fields.required("spec.selector")
    else:
        yield from label_selector("spec.selector", selector)
        if not fields.meaning(selector):
            yield fields.invalid("spec.selector", selector, f"empty selector is invalid for {kind}")
        elif not _matches(selector, labels):
            yield fields.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from _lasting(spec, _OWNERS[kind])
    for key in ("replicas", "minReadySeconds", "revisionHistoryLimit"):
        yield from fields.not_negative(f"spec.{key}", spec.get(key))


def _strategy(path: str, strategy: dict[str, Any], types: tuple[str, ...]) -> fields.Causes:
    yield from fields.optional_one_of(f"{path}.type", strategy.get("type"), types)
    if strategy.get("type") != "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        yield fields.forbidden(
            f"{path}.rollingUpdate", f"may not be specified when strategy `type` is '{strategy.get('type')}'"
        )


def deployment(document: dict[str, Any]) -> fields.Causes:
    yield from _selected(document, "deployment")
    strategy = jsonpath.mapping(document, "spec", "strategy")
    yield from _strategy("spec.strategy", strategy, ("Recreate", "RollingUpdate"))
    rolling = jsonpath.mapping(strategy, "rollingUpdate")
    if rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
        yield fields.invalid(
            "spec.strategy.rollingUpdate.maxUnavailable",
            rolling["maxUnavailable"],
            "may not be 0 when `maxSurge` is 0",
        )


def replicaset(document: dict[str, Any]) -> fields.Causes:
    yield from _selected(document, "replica set")


def daemonset(document: dict[str, Any]) -> fields.Causes:
    yield from _selected(document, "daemonset")
    strategy = jsonpath.mapping(document, "spec", "updateStrategy")
    yield from _strategy("spec.updateStrategy", strategy, ("OnDelete", "RollingUpdate"))


def statefulset(document: dict[str, Any]) -> fields.Causes:
    yield from _selected(document, "statefulset")
    spec = jsonpath.mapping(document, "spec")
    yield from _strategy("spec.updateStrategy", jsonpath.mapping(spec, "updateStrategy"), ("OnDelete", "RollingUpdate"))
    yield from fields.optional_one_of(
        "spec.podManagementPolicy", spec.get("podManagementPolicy"), ("OrderedReady", "Parallel")
    )


def replicationcontroller(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    selector, labels = jsonpath.mapping(spec, "selector"), jsonpath.mapping(spec, "template", "metadata", "labels")
    if not selector:
        yield fields.required("spec.selector")
    elif not isinstance(spec.get("template"), dict):
        yield fields.required("spec.template")
    elif not _matches({"matchLabels": selector}, labels):
        yield fields.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from _lasting(spec, "ReplicationController")
    yield from fields.not_negative("spec.replicas", spec.get("replicas"))
    yield from fields.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))


def selector_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    yield from fields.immutable(
        "spec.selector", jsonpath.at(document, "spec", "selector"), jsonpath.at(old, "spec", "selector")
    )


def statefulset_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    fixed = [
        {key: value for key, value in jsonpath.mapping(row, "spec").items() if key not in _STATEFULSET_MUTABLE}
        for row in (document, old)
    ]
    if fields.differ(fixed[0], fixed[1]):
        names = ", ".join(f"'{key}'" for key in _STATEFULSET_MUTABLE[:-1])
        yield fields.forbidden(
            "spec",
            f"updates to statefulset spec for fields other than {names} and '{_STATEFULSET_MUTABLE[-1]}' are forbidden",
        )


def job(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    yield from _job_spec("spec", spec)
    selector, labels = spec.get("selector"), jsonpath.mapping(spec, "template", "metadata", "labels")
    if spec.get("manualSelector") is True and selector is None:
        yield fields.required("spec.selector")
    if selector is not None:
        yield from label_selector("spec.selector", selector)
        if not _matches(selector, labels):
            yield fields.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _job_spec(path: str, spec: dict[str, Any]) -> fields.Causes:
    for key in _JOB_NUMBERS:
        yield from fields.not_negative(f"{path}.{key}", spec.get(key))
    yield from fields.optional_one_of(f"{path}.completionMode", spec.get("completionMode"), ("NonIndexed", "Indexed"))
    yield from _template(path, spec, _JOB_RESTARTS)


def job_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    new_spec, old_spec = jsonpath.mapping(document, "spec"), jsonpath.mapping(old, "spec")
    keys = ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"]
    # An indexed job can be made larger or smaller while it runs.
    if old_spec.get("completionMode") != "Indexed":
        keys.append("completions")
    # A suspended job that never started can still be told where to run.
    if old_spec.get("suspend") is not True:
        keys.append("template")
    for key in keys:
        yield from fields.immutable(f"spec.{key}", new_spec.get(key), old_spec.get(key))


def cronjob(document: dict[str, Any]) -> fields.Causes:
    spec, name = jsonpath.mapping(document, "spec"), jsonpath.text(document, "metadata", "name")
    if len(name) > _JOB_NAME_LIMIT:
        yield fields.invalid("metadata.name", name, f"must be no more than {_JOB_NAME_LIMIT} characters")
    yield from _schedule(jsonpath.text(spec, "schedule"))
    yield from fields.one_of("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"))
    for key in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from fields.not_negative(f"spec.{key}", spec.get(key))
    job_spec = jsonpath.mapping(spec, "jobTemplate", "spec")
    if job_spec.get("manualSelector") is True:
        yield fields.not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false"))
    yield from _job_spec("spec.jobTemplate.spec", job_spec)


def _schedule(schedule: str) -> fields.Causes:
    parts = schedule.split()
    if not parts:
        yield fields.required("spec.schedule")
    elif "TZ" in schedule:
        yield fields.invalid(
            "spec.schedule", schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        )
    elif not schedule.startswith("@") and len(parts) != 5:
        yield fields.invalid(
            "spec.schedule", schedule, f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
        )
