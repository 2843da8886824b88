# SPDX-License-Identifier: Apache-2.0
"""Defaulting: the values a document gets where its author left them out, kind by kind.

`apply` changes a document the caller owns and changes nothing when run a second time. It assigns nothing that needs
the world (addresses, node ports, uids) and judges nothing: that is `validation`, which runs afterwards.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Mapping
from typing import Any

from handfast.api import jsonpath, kinds
from handfast.api.defaulting import pods

_RBAC = "rbac.authorization.k8s.io"
# What the server puts on the pods of a Job, under the old names and the new.
_JOB_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
# What a status says from the start: clients take these fields for granted.
_ZEROES: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("", "replicationcontrollers"): {"replicas": 0},
    ("apps", "replicasets"): {"replicas": 0},
    ("apps", "statefulsets"): {"availableReplicas": 0, "replicas": 0},
    ("apps", "daemonsets"): dict.fromkeys(
        ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"), 0
    ),
    ("autoscaling", "horizontalpodautoscalers"): {"currentReplicas": 0, "desiredReplicas": 0},
    ("policy", "poddisruptionbudgets"): dict.fromkeys(
        ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0
    ),
    ("storage.k8s.io", "volumeattachments"): {"attached": False},
}
_put, _put_empty = pods.put, pods.put_empty


def apply(kind: kinds.Kind, document: dict[str, Any]) -> None:
    """Fill in what the kind's defaults say; a kind without a row has none. A status is always there, if only as `{}`."""
    row = _DEFAULTS.get(kind.resource)
    if row is not None:
        row(document)
    complete_status(kind, document)


def complete_status(kind: kinds.Kind, document: dict[str, Any]) -> None:
    """Every object of a built-in kind that can have a status has one. A custom object has one when somebody writes it."""
    if not kind.message or kind.subresource("status") is None:
        return
    _put(document, "status", {})
    status, zeroes = jsonpath.mapping(document, "status"), _ZEROES.get(kind.resource, {})
    if any(status.get(key) is None for key in zeroes):
        # A new one: it may be the stored one's.
        document["status"] = {**status, **{key: zero for key, zero in zeroes.items() if status.get(key) is None}}


def _child(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """The object at `key`, made if it is not there; a value of another type is left alone."""
    _put(parent, key, {})
    return jsonpath.mapping(parent, key)


def _present(parent: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The object at `key` as a list of one, or nothing."""
    found = parent.get(key)
    return [found] if isinstance(found, dict) else []


# --- configuration and namespaces


def _namespace(document: dict[str, Any]) -> None:
    metadata = _child(document, "metadata")
    name = jsonpath.text(metadata, "name")
    if name:
        _child(metadata, "labels")["kubernetes.io/metadata.name"] = name
    # A namespace being deleted has given its finalizer back: it must not get it again.
    if not jsonpath.text(metadata, "deletionTimestamp"):
        spec = _child(document, "spec")
        spec["finalizers"] = spec.get("finalizers") or ["kubernetes"]
    _put_empty(_child(document, "status"), "phase", "Active")


def _secret(document: dict[str, Any]) -> None:
    _put_empty(document, "type", "Opaque")
    plain = document.pop("stringData", None)
    if not isinstance(plain, dict) or not plain:
        return
    data = _child(document, "data")
    for key, value in plain.items():
        if isinstance(value, str):
            data[key] = base64.b64encode(value.encode("utf-8", "replace")).decode("ascii")


def _node(document: dict[str, Any]) -> None:
    spec, status = _child(document, "spec"), _child(document, "status")
    if jsonpath.text(spec, "podCIDR"):
        _put(spec, "podCIDRs", [spec["podCIDR"]])
    if jsonpath.mapping(status, "capacity"):
        _put(status, "allocatable", dict(status["capacity"]))


# --- services and endpoints


def _service(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put_empty(spec, "type", "ClusterIP")
    _put_empty(spec, "sessionAffinity", "None")
    kind = jsonpath.text(spec, "type")
    if spec.get("sessionAffinity") == "ClientIP":
        client = _child(_child(spec, "sessionAffinityConfig"), "clientIP")
        _put(client, "timeoutSeconds", 10800)
    for port in jsonpath.mappings(spec, "ports"):
        _put_empty(port, "protocol", "TCP")
        _put_empty(port, "targetPort", port.get("port"))
    if kind in {"NodePort", "LoadBalancer"} or jsonpath.sequence(spec, "externalIPs"):
        _put_empty(spec, "externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        _put(spec, "allocateLoadBalancerNodePorts", True)
    if kind != "ExternalName":
        _put_empty(spec, "internalTrafficPolicy", "Cluster")
        _put_empty(spec, "ipFamilyPolicy", "SingleStack")
    if jsonpath.text(spec, "clusterIP"):
        _put(spec, "clusterIPs", [spec["clusterIP"]])
    _put(_child(document, "status"), "loadBalancer", {})


def _endpoints(document: dict[str, Any]) -> None:
    for subset in jsonpath.mappings(document, "subsets"):
        for port in jsonpath.mappings(subset, "ports"):
            _put_empty(port, "protocol", "TCP")


def _endpointslice(document: dict[str, Any]) -> None:
    for port in jsonpath.mappings(document, "ports"):
        _put(port, "name", "")
        _put_empty(port, "protocol", "TCP")


# --- volumes


def _persistentvolume(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put_empty(spec, "persistentVolumeReclaimPolicy", "Retain")
    _put_empty(spec, "volumeMode", "Filesystem")
    for path in _present(spec, "hostPath"):
        _put(path, "type", "")
    _put_empty(_child(document, "status"), "phase", "Pending")


def _persistentvolumeclaim(document: dict[str, Any]) -> None:
    _put_empty(_child(document, "spec"), "volumeMode", "Filesystem")
    _put_empty(_child(document, "status"), "phase", "Pending")


def _storageclass(document: dict[str, Any]) -> None:
    _put_empty(document, "reclaimPolicy", "Delete")
    _put_empty(document, "volumeBindingMode", "Immediate")


def _csidriver(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put(spec, "attachRequired", True)
    for key in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        _put(spec, key, False)
    _put_empty(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType")
    if not jsonpath.sequence(spec, "volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


# --- workloads


def _rolling(spec: dict[str, Any], key: str, amounts: Mapping[str, Any]) -> None:
    strategy = _child(spec, key)
    _put_empty(strategy, "type", "RollingUpdate")
    if strategy.get("type") == "RollingUpdate":
        rolling = _child(strategy, "rollingUpdate")
        for name, amount in amounts.items():
            _put(rolling, name, amount)


def _deployment(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put(spec, "replicas", 1)
    _rolling(spec, "strategy", {"maxUnavailable": "25%", "maxSurge": "25%"})
    _put(spec, "revisionHistoryLimit", 10)
    _put(spec, "progressDeadlineSeconds", 600)
    pods.template(spec)


def _daemonset(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _rolling(spec, "updateStrategy", {"maxUnavailable": 1, "maxSurge": 0})
    _put(spec, "revisionHistoryLimit", 10)
    pods.template(spec)


def _statefulset(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put(spec, "replicas", 1)
    _put_empty(spec, "podManagementPolicy", "OrderedReady")
    _rolling(spec, "updateStrategy", {"partition": 0})
    _put(spec, "revisionHistoryLimit", 10)
    retention = _child(spec, "persistentVolumeClaimRetentionPolicy")
    _put_empty(retention, "whenDeleted", "Retain")
    _put_empty(retention, "whenScaled", "Retain")
    for claim in jsonpath.mappings(spec, "volumeClaimTemplates"):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        _persistentvolumeclaim(claim)
    pods.template(spec)


def _replicaset(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put(spec, "replicas", 1)
    pods.template(spec)


def _labels_from_template(document: dict[str, Any], labels: dict[str, Any]) -> None:
    metadata = _child(document, "metadata")
    if labels and not jsonpath.mapping(metadata, "labels"):
        metadata["labels"] = dict(labels)


def _replicationcontroller(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    labels = jsonpath.mapping(spec, "template", "metadata", "labels")
    if labels and not jsonpath.mapping(spec, "selector"):
        spec["selector"] = dict(labels)
    _labels_from_template(document, labels)
    _replicaset(document)


def _job(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _put(spec, "parallelism", 1)
    _put(spec, "backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    _put_empty(spec, "completionMode", "NonIndexed")
    _put(spec, "suspend", False)
    _put(spec, "manualSelector", False)
    failure = spec.get("podFailurePolicy")
    _put_empty(spec, "podReplacementPolicy", "TerminatingOrFailed" if failure is None else "Failed")
    for rule in jsonpath.mappings(failure, "rules"):
        for condition in jsonpath.mappings(rule, "onPodConditions"):
            _put_empty(condition, "status", "True")
    _job_selector(document, spec)
    labels = jsonpath.mapping(spec, "template", "metadata", "labels")
    # Those of its author, if there are any: else what the selector brought, so that `kubectl get jobs -l job-name=…` finds it.
    own = {key: value for key, value in labels.items() if key not in _JOB_LABELS}
    _labels_from_template(document, own or labels)
    pods.template(spec)


def _job_selector(document: dict[str, Any], spec: dict[str, Any]) -> None:
    """A Job selects its pods by its own uid, unless its author wants to choose."""
    uid, name = jsonpath.text(document, "metadata", "uid"), jsonpath.text(document, "metadata", "name")
    template = spec.get("template")
    if not uid or spec.get("manualSelector") is True or spec.get("selector") or not isinstance(template, dict):
        return
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = _child(_child(template, "metadata"), "labels")
    for key in _JOB_LABELS:
        labels[key] = uid if key.endswith("controller-uid") else name


def _cronjob(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put_empty(spec, "concurrencyPolicy", "Allow")
    _put(spec, "suspend", False)
    _put(spec, "successfulJobsHistoryLimit", 3)
    _put(spec, "failedJobsHistoryLimit", 1)
    pods.template(jsonpath.mapping(spec, "jobTemplate", "spec"))


def _podtemplate(document: dict[str, Any]) -> None:
    pods.template(document)


# --- what limits, budgets and scales


def _limitrange(document: dict[str, Any]) -> None:
    for row in jsonpath.mappings(document, "spec", "limits"):
        if row.get("type") != "Container":
            continue
        default, request = _child(row, "default"), _child(row, "defaultRequest")
        for key, value in jsonpath.mapping(row, "max").items():
            default.setdefault(key, value)
        for amounts in (default, jsonpath.mapping(row, "min")):
            for key, value in amounts.items():
                request.setdefault(key, value)


def _priorityclass(document: dict[str, Any]) -> None:
    _put_empty(document, "preemptionPolicy", "PreemptLowerPriority")


# What scales up, and down, where a behaviour does not say; a window of 0 seconds counts as said.
_SCALE_UP: Mapping[str, Any] = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: Mapping[str, Any] = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def _horizontalpodautoscaler(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put(spec, "minReplicas", 1)
    if not jsonpath.sequence(spec, "metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    for behavior in _present(spec, "behavior"):
        for key, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            row = _child(behavior, key)
            for name, value in rules.items():
                _put(row, name, copy.deepcopy(value))


# --- what routes


def _ingress(document: dict[str, Any]) -> None:
    _put(_child(document, "status"), "loadBalancer", {})


def _ingressclass(document: dict[str, Any]) -> None:
    for parameters in _present(jsonpath.mapping(document, "spec"), "parameters"):
        _put(parameters, "scope", "Cluster")


def _networkpolicy(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put(spec, "podSelector", {})
    rules = [*jsonpath.mappings(spec, "ingress"), *jsonpath.mappings(spec, "egress")]
    for rule in rules:
        for port in jsonpath.mappings(rule, "ports"):
            _put(port, "protocol", "TCP")
    if not jsonpath.sequence(spec, "policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if jsonpath.sequence(spec, "egress") else ["Ingress"]


# --- access, admission, definitions


def _binding(document: dict[str, Any]) -> None:
    for reference in _present(document, "roleRef"):
        _put_empty(reference, "apiGroup", _RBAC)
    for subject in jsonpath.mappings(document, "subjects"):
        if jsonpath.text(subject, "kind") in {"User", "Group"}:
            _put_empty(subject, "apiGroup", _RBAC)


def _webhooks(document: dict[str, Any]) -> None:
    for webhook in jsonpath.mappings(document, "webhooks"):
        _put_empty(webhook, "failurePolicy", "Fail")
        _put_empty(webhook, "matchPolicy", "Equivalent")
        _put(webhook, "timeoutSeconds", 10)
        _put(webhook, "namespaceSelector", {})
        _put(webhook, "objectSelector", {})
        for rule in jsonpath.mappings(webhook, "rules"):
            _put_empty(rule, "scope", "*")
        for service in _present(jsonpath.mapping(webhook, "clientConfig"), "service"):
            _put(service, "port", 443)


def _mutating_webhooks(document: dict[str, Any]) -> None:
    _webhooks(document)
    for webhook in jsonpath.mappings(document, "webhooks"):
        _put_empty(webhook, "reinvocationPolicy", "Never")


def _match_resources(match: dict[str, Any]) -> None:
    _put_empty(match, "matchPolicy", "Equivalent")
    _put(match, "namespaceSelector", {})
    _put(match, "objectSelector", {})
    for rule in (*jsonpath.mappings(match, "resourceRules"), *jsonpath.mappings(match, "excludeResourceRules")):
        _put_empty(rule, "scope", "*")


def _admission_policy(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    _put_empty(spec, "failurePolicy", "Fail")
    for match in _present(spec, "matchConstraints"):
        _match_resources(match)


def _policy_binding(document: dict[str, Any]) -> None:
    for match in _present(jsonpath.mapping(document, "spec"), "matchResources"):
        _match_resources(match)


def _definition(document: dict[str, Any]) -> None:
    spec = _child(document, "spec")
    names = _child(spec, "names")
    kind = jsonpath.text(names, "kind")
    if kind:
        _put_empty(names, "singular", kind.lower())
        _put_empty(names, "listKind", kind + "List")
    conversion = _child(spec, "conversion")
    _put_empty(conversion, "strategy", "None")
    for service in _present(jsonpath.mapping(conversion, "webhook", "clientConfig"), "service"):
        _put(service, "port", 443)


def _certificatesigningrequest(document: dict[str, Any]) -> None:
    # As Kubernetes writes it: whoever reads `status.conditions` finds a status to read it from.
    if document.get("status") is None:
        document["status"] = {}


_DEFAULTS: Mapping[tuple[str, str], Callable[[dict[str, Any]], None]] = {
    ("", "namespaces"): _namespace,
    ("", "secrets"): _secret,
    ("", "nodes"): _node,
    ("", "pods"): pods.pod,
    ("", "services"): _service,
    ("", "endpoints"): _endpoints,
    ("", "persistentvolumes"): _persistentvolume,
    ("", "persistentvolumeclaims"): _persistentvolumeclaim,
    ("", "replicationcontrollers"): _replicationcontroller,
    ("discovery.k8s.io", "endpointslices"): _endpointslice,
    ("certificates.k8s.io", "certificatesigningrequests"): _certificatesigningrequest,
    (_RBAC, "rolebindings"): _binding,
    (_RBAC, "clusterrolebindings"): _binding,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _mutating_webhooks,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _webhooks,
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): _admission_policy,
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): _policy_binding,
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): _admission_policy,
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): _policy_binding,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _definition,
    ("apps", "deployments"): _deployment,
    ("apps", "daemonsets"): _daemonset,
    ("apps", "statefulsets"): _statefulset,
    ("apps", "replicasets"): _replicaset,
    ("", "podtemplates"): _podtemplate,
    ("", "limitranges"): _limitrange,
    ("autoscaling", "horizontalpodautoscalers"): _horizontalpodautoscaler,
    ("networking.k8s.io", "ingresses"): _ingress,
    ("networking.k8s.io", "ingressclasses"): _ingressclass,
    ("networking.k8s.io", "networkpolicies"): _networkpolicy,
    ("scheduling.k8s.io", "priorityclasses"): _priorityclass,
    ("batch", "jobs"): _job,
    ("batch", "cronjobs"): _cronjob,
    ("storage.k8s.io", "csidrivers"): _csidriver,
    ("storage.k8s.io", "storageclasses"): _storageclass,
}
