# SPDX-License-Identifier: Apache-2.0
"""Tables: which columns a kind has and what stands in the cells of one object's row.

Built-in kinds are rows of `printing.columns` and of the table below; custom resources bring their columns as JSONPaths.
A stored document with missing or odd fields still gives a row. The server makes the Table around the rows.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from handfast import errors
from handfast.api import conversion, jsonpath, kinds
from handfast.api.printing import access, ages, core, limits, pods, traffic, workloads
from handfast.api.printing import columns as print_columns

_Cells = Callable[[dict[str, Any], datetime.datetime], list[Any]]
_AGE: Mapping[str, Any] = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}

# Cells after the name; the exceptions (pods, events, storage classes) give the whole row, see `_WHOLE`.
_CELLS: Mapping[tuple[str, str], _Cells] = {
    ("", "namespaces"): core.namespace,
    ("", "secrets"): core.secret,
    ("", "configmaps"): core.configmap,
    ("", "serviceaccounts"): core.serviceaccount,
    ("", "nodes"): core.node,
    ("", "services"): core.service,
    ("", "endpoints"): core.endpoints,
    ("", "persistentvolumes"): core.persistentvolume,
    ("", "persistentvolumeclaims"): core.persistentvolumeclaim,
    ("", "replicationcontrollers"): workloads.replicationcontroller,
    ("apps", "deployments"): workloads.deployment,
    ("apps", "replicasets"): workloads.replicaset,
    ("apps", "daemonsets"): workloads.daemonset,
    ("apps", "statefulsets"): workloads.statefulset,
    ("", "podtemplates"): workloads.podtemplate,
    ("", "resourcequotas"): limits.resourcequota,
    ("", "componentstatuses"): limits.componentstatus,
    ("apiregistration.k8s.io", "apiservices"): limits.apiservice,
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): limits.flowschema,
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): limits.prioritylevel,
    ("apps", "controllerrevisions"): workloads.controllerrevision,
    ("autoscaling", "horizontalpodautoscalers"): limits.horizontalpodautoscaler,
    ("networking.k8s.io", "ingresses"): traffic.ingress,
    ("networking.k8s.io", "networkpolicies"): traffic.networkpolicy,
    ("policy", "poddisruptionbudgets"): limits.poddisruptionbudget,
    ("scheduling.k8s.io", "priorityclasses"): limits.priorityclass,
    ("storage.k8s.io", "csistoragecapacities"): access.csistoragecapacity,
    ("batch", "jobs"): workloads.job,
    ("batch", "cronjobs"): workloads.cronjob,
    ("discovery.k8s.io", "endpointslices"): core.endpointslice,
    ("coordination.k8s.io", "leases"): access.lease,
    ("certificates.k8s.io", "certificatesigningrequests"): access.certificatesigningrequest,
    ("rbac.authorization.k8s.io", "rolebindings"): access.binding,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): access.binding,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): access.webhooks,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): access.webhooks,
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): access.admission_policy,
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): access.policy_binding,
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): access.mutating_policy,
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): access.policy_binding,
    ("networking.k8s.io", "ipaddresses"): traffic.ipaddress,
    ("networking.k8s.io", "servicecidrs"): traffic.servicecidr,
    ("storage.k8s.io", "volumeattributesclasses"): access.volumeattributesclass,
    ("storage.k8s.io", "csinodes"): access.csinode,
    ("storage.k8s.io", "volumeattachments"): access.volumeattachment,
    ("storage.k8s.io", "csidrivers"): access.csidriver,
    ("node.k8s.io", "runtimeclasses"): access.runtimeclass,
}
_WHOLE: Mapping[tuple[str, str], _Cells] = {
    ("", "pods"): pods.cells,
    ("", "events"): core.event,
    ("events.k8s.io", "events"): core.event,
    ("networking.k8s.io", "ingressclasses"): traffic.ingressclass,
    ("storage.k8s.io", "storageclasses"): lambda document, now: [
        access.storageclass_name(document),
        *access.storageclass(document, now),
    ],
}


def columns(kind: kinds.Kind) -> list[dict[str, Any]]:
    """The columnDefinitions of the kind's Table."""
    if kind.message or kind.resource in print_columns.COLUMNS:
        rows = print_columns.COLUMNS.get(kind.resource, print_columns.FALLBACK)
        return [row.document() for row in rows]
    custom = (
        print_columns.Column(
            jsonpath.text(row, "name"),
            jsonpath.text(row, "description"),
            jsonpath.text(row, "type"),
            jsonpath.text(row, "format"),
            jsonpath.number(row, "priority"),
        )
        for row in kind.columns or (_AGE,)
    )
    return [row.document() for row in (print_columns.NAME, *custom)]


def cells(kind: kinds.Kind, document: dict[str, Any], now: datetime.datetime) -> list[Any]:
    """The cells of one object, as many as the kind has columns."""
    whole = _WHOLE.get(kind.resource)
    if whole is not None:
        # Both kinds of Event print alike: from the stored form.
        return whole(conversion.to_stored(kind, document), now)
    name = jsonpath.text(document, "metadata", "name")
    printer = _CELLS.get(kind.resource)
    if printer is not None:
        return [name, *printer(conversion.to_stored(kind, document), now)]
    if kind.message:
        return [name, *access.created_at(document, now)]
    return [name, *(_custom(row, document, now) for row in kind.columns or (_AGE,))]


def _custom(column: Mapping[str, Any], document: dict[str, Any], now: datetime.datetime) -> Any:
    """One cell of a custom resource; null where the path leads nowhere or to a value of another type."""
    try:
        values = jsonpath.find(document, jsonpath.text(column, "jsonPath"))
    except errors.Refused:
        return None
    if not values or values[0] is None:
        return None
    value, kind = values[0], jsonpath.text(column, "type")
    if kind == "date":
        if not isinstance(value, str):
            return None
        start = ages.instant(value)
        return ages.INVALID if start is None else ages.human_duration(now - start)
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if kind == "integer" else value
