# SPDX-License-Identifier: Apache-2.0
"""The cells of the kinds that keep pods running: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob.

Each function gives the cells between name and the end of the row; `printers` puts the name in front. Nothing is
counted here: the numbers are those of the status.
"""

from __future__ import annotations

import datetime
from typing import Any

from handfast.api import jsonpath, selectors, status
from handfast.api.printing import ages, pods

_NONE = "<none>"
_UNSET = "<unset>"
# Checked in this order: what has ended wins over what is wanted.
_ENDED = ("Complete", "Failed")
_BOUND_TO_END = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def labels_text(labels: dict[str, Any]) -> str:
    """`a=b,c=d` by key, or `<none>`."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE


def selector_text(selector: dict[str, Any]) -> str:
    """A label selector in the form `kubectl -l` takes."""
    try:
        return str(selectors.from_label_selector(selector)) or _NONE
    except status.StatusError:
        return "<error>"


def _age(document: dict[str, Any], now: datetime.datetime) -> str:
    return ages.since(jsonpath.at(document, "metadata", "creationTimestamp"), now)


def _containers(pod_spec: dict[str, Any]) -> list[Any]:
    containers = jsonpath.mappings(pod_spec, "containers")
    return [",".join(jsonpath.text(container, key) for container in containers) for key in ("name", "image")]


def _template(document: dict[str, Any]) -> list[Any]:
    return _containers(jsonpath.mapping(document, "spec", "template", "spec"))


def _selector(document: dict[str, Any]) -> str:
    return selector_text(jsonpath.mapping(document, "spec", "selector"))


def _statuses(document: dict[str, Any], *keys: str) -> list[Any]:
    return [jsonpath.number(document, "status", key) for key in keys]


def scale_cells(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    """The whole row of a Scale."""
    counts = [jsonpath.number(document, part, "replicas") for part in ("spec", "status")]
    return [jsonpath.text(document, "metadata", "name"), *counts, _age(document, now)]


def _ready(document: dict[str, Any]) -> str:
    return f"{jsonpath.number(document, 'status', 'readyReplicas')}/{jsonpath.number(document, 'spec', 'replicas')}"


def deployment(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [
        _ready(document),
        *_statuses(document, "updatedReplicas", "availableReplicas"),
        _age(document, now),
        *_template(document),
        _selector(document),
    ]


def statefulset(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [_ready(document), _age(document, now), *_template(document)]


def _replicas(document: dict[str, Any], now: datetime.datetime, selector: str) -> list[Any]:
    return [
        jsonpath.number(document, "spec", "replicas"),
        *_statuses(document, "replicas", "readyReplicas"),
        _age(document, now),
        *_template(document),
        selector,
    ]


def replicaset(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return _replicas(document, now, _selector(document))


def replicationcontroller(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return _replicas(document, now, labels_text(jsonpath.mapping(document, "spec", "selector")))


def daemonset(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [
        *_statuses(
            document,
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        ),
        labels_text(jsonpath.mapping(document, "spec", "template", "spec", "nodeSelector")),
        _age(document, now),
        *_template(document),
        _selector(document),
    ]


def job(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [
        _job_status(document),
        _completions(document),
        _job_duration(document, now),
        _age(document, now),
        *_template(document),
        _selector(document),
    ]


def _job_status(document: dict[str, Any]) -> str:
    status = jsonpath.mapping(document, "status")
    ended = next((name for name in _ENDED if pods.has_condition(status, name)), "")
    if ended:
        return ended
    if jsonpath.text(document, "metadata", "deletionTimestamp"):
        return "Terminating"
    return next((name for name in _BOUND_TO_END if pods.has_condition(status, name)), "Running")


def _completions(document: dict[str, Any]) -> str:
    succeeded = jsonpath.number(document, "status", "succeeded")
    if jsonpath.at(document, "spec", "completions") is not None:
        return f"{succeeded}/{jsonpath.number(document, 'spec', 'completions')}"
    parallelism = jsonpath.number(document, "spec", "parallelism")
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(document: dict[str, Any], now: datetime.datetime) -> str:
    start = ages.instant(jsonpath.at(document, "status", "startTime"))
    if start is None:
        return ""
    end = ages.instant(jsonpath.at(document, "status", "completionTime"))
    return ages.human_duration((now if end is None else end) - start)


def cronjob(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    suspend = spec.get("suspend")
    last = jsonpath.at(document, "status", "lastScheduleTime")
    job_spec = jsonpath.mapping(spec, "jobTemplate", "spec")
    return [
        jsonpath.text(spec, "schedule"),
        jsonpath.text(spec, "timeZone") or _NONE,
        str(suspend) if isinstance(suspend, bool) else _UNSET,
        len(jsonpath.sequence(document, "status", "active")),
        _NONE if last is None else ages.since(last, now),
        _age(document, now),
        *_containers(jsonpath.mapping(job_spec, "template", "spec")),
        selector_text(jsonpath.mapping(job_spec, "selector")),
    ]


def podtemplate(document: dict[str, Any], _now: datetime.datetime) -> list[Any]:
    template = jsonpath.mapping(document, "template")
    return [
        *_containers(jsonpath.mapping(template, "spec")),
        labels_text(jsonpath.mapping(template, "metadata", "labels")),
    ]


def controllerrevision(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    owners = [
        row for row in jsonpath.mappings(document, "metadata", "ownerReferences") if row.get("controller") is True
    ]
    return [
        _owner(owners[0]) if owners else _NONE,
        jsonpath.number(document, "revision"),
        _age(document, now),
    ]


def _owner(reference: dict[str, Any]) -> str:
    """`statefulset.apps/name`."""
    group = jsonpath.text(reference, "apiVersion").rpartition("/")[0]
    kind = jsonpath.text(reference, "kind").lower()
    return (
        f"{kind}.{group}/{jsonpath.text(reference, 'name')}" if group else f"{kind}/{jsonpath.text(reference, 'name')}"
    )
