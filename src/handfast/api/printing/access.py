# SPDX-License-Identifier: Apache-2.0
"""The cells of certificates, RBAC, leases, webhooks and the storage kinds.

Each function gives the cells between name and the end of the row; `printers` puts the name in front. A certificate
request's condition is read from the conditions alone; no certificate is opened.
"""

from __future__ import annotations

import datetime
from typing import Any

from handfast.api import jsonpath
from handfast.api.printing import ages
from handfast.api.printing.core import age

_NONE = "<none>"
_UNSET = "<unset>"
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def certificatesigningrequest(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    seconds = jsonpath.number(spec, "expirationSeconds")
    # What does not fit the field's int32 is no lifetime anyone asked for.
    known = 0 < seconds < 2**31
    return [
        age(document, now),
        jsonpath.text(spec, "signerName") or _NONE,
        jsonpath.text(spec, "username"),
        ages.human_duration(datetime.timedelta(seconds=seconds)) if known else _NONE,
        _request_condition(document),
    ]


def _request_condition(document: dict[str, Any]) -> str:
    types = {jsonpath.text(row, "type") for row in jsonpath.mappings(document, "status", "conditions")}
    words = ["Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"]
    if "Failed" in types:
        words.append("Failed")
    if jsonpath.text(document, "status", "certificate"):
        words.append("Issued")
    return ",".join(words)


def created_at(document: dict[str, Any], now: datetime.datetime) -> list[Any]:  # noqa: ARG001 (one signature for all)
    """Roles and definitions show when they were made, not how long ago."""
    return [jsonpath.text(document, "metadata", "creationTimestamp") or ages.UNKNOWN]


def binding(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    subjects = jsonpath.mappings(document, "subjects")
    accounts = [
        f"{jsonpath.text(row, 'namespace')}/{jsonpath.text(row, 'name')}"
        for row in subjects
        if jsonpath.text(row, "kind") == "ServiceAccount"
    ]
    return [
        f"{jsonpath.text(document, 'roleRef', 'kind')}/{jsonpath.text(document, 'roleRef', 'name')}",
        age(document, now),
        *(
            ", ".join(jsonpath.text(row, "name") for row in subjects if jsonpath.text(row, "kind") == kind)
            for kind in ("User", "Group")
        ),
        ", ".join(accounts),
    ]


def lease(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [jsonpath.text(document, "spec", "holderIdentity"), age(document, now)]


def webhooks(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [len(jsonpath.sequence(document, "webhooks")), age(document, now)]


def admission_policy(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return _policy(document, "validations", now)


def mutating_policy(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return _policy(document, "mutations", now)


def _policy(document: dict[str, Any], counted: str, now: datetime.datetime) -> list[Any]:
    kind = jsonpath.mapping(document, "spec", "paramKind")
    shown = f"{jsonpath.text(kind, 'apiVersion')}/{jsonpath.text(kind, 'kind')}" if kind else _UNSET
    return [len(jsonpath.sequence(document, "spec", counted)), shown, age(document, now)]


def policy_binding(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    reference = jsonpath.mapping(spec, "paramRef")
    place = jsonpath.text(reference, "namespace") or "*"
    shown = f"{place}/{jsonpath.text(reference, 'name') or '<selector>'}" if reference else "<unset>"
    return [jsonpath.text(spec, "policyName"), shown, age(document, now)]


def csinode(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [len(jsonpath.sequence(document, "spec", "drivers")), age(document, now)]


def volumeattachment(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    return [
        jsonpath.text(spec, "attacher"),
        jsonpath.text(spec, "source", "persistentVolumeName"),
        jsonpath.text(spec, "nodeName"),
        jsonpath.at(document, "status", "attached") is True,
        age(document, now),
    ]


def csidriver(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    spec = jsonpath.mapping(document, "spec")
    return [
        spec.get("attachRequired") is not False,
        spec.get("podInfoOnMount") is True,
        spec.get("storageCapacity") is True,
        ",".join(jsonpath.text(row, "audience") for row in jsonpath.mappings(spec, "tokenRequests")) or _UNSET,
        spec.get("requiresRepublish") is True,
        ",".join(jsonpath.texts(spec, "volumeLifecycleModes")) or _UNSET,
        age(document, now),
    ]


def storageclass_name(document: dict[str, Any]) -> str:
    """The name, with a mark at the default class."""
    annotations = jsonpath.mapping(document, "metadata", "annotations")
    default = any(jsonpath.text(annotations, key) == "true" for key in _DEFAULT_CLASS)
    return jsonpath.text(document, "metadata", "name") + (" (default)" if default else "")


def storageclass(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [
        jsonpath.text(document, "provisioner"),
        jsonpath.text(document, "reclaimPolicy") or "Delete",
        jsonpath.text(document, "volumeBindingMode") or "Immediate",
        jsonpath.at(document, "allowVolumeExpansion") is True,
        age(document, now),
    ]


def runtimeclass(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [jsonpath.text(document, "handler"), age(document, now)]


def volumeattributesclass(document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    return [jsonpath.text(document, "driverName"), age(document, now)]


def csistoragecapacity(document: dict[str, Any], _now: datetime.datetime) -> list[Any]:
    capacity = document.get("capacity")
    return [jsonpath.text(document, "storageClassName"), "<unset>" if capacity is None else str(capacity)]
