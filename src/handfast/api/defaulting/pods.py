# SPDX-License-Identifier: Apache-2.0
"""What a pod's spec says where its author said nothing: for pods and for the templates of workloads.

Every function changes the document it is given and gives the same result when run again. What admission adds
(service account, tolerations, priority) is not here.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from handfast.api import jsonpath
from handfast.api.schema import quantities, schema

_FILE_MODE = 0o644
_COMPUTE = ("cpu", "memory")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def put(target: dict[str, Any], key: str, value: Any) -> None:
    """Set a key that is absent or null."""
    if target.get(key) is None:
        target[key] = value


def put_empty(target: dict[str, Any], key: str, value: Any) -> None:
    """Set a key that is absent, null, an empty string or zero: fields that cannot tell those apart. Never to null."""
    if value is not None and not isinstance(target.get(key), bool) and target.get(key) in (None, "", 0):
        target[key] = value


def pod(document: dict[str, Any]) -> None:
    """A Pod: its spec, and the status a new one has."""
    spec = document.get("spec")
    if isinstance(spec, dict):
        pod_spec(spec)
        put(spec, "enableServiceLinks", True)
        for container in [*jsonpath.mappings(spec, "containers"), *jsonpath.mappings(spec, "initContainers")]:
            _requests_from_limits(container)
            if spec.get("hostNetwork") is True:
                for port in jsonpath.mappings(container, "ports"):
                    put_empty(port, "hostPort", port.get("containerPort"))
    put(document, "status", {})
    status = jsonpath.mapping(document, "status")
    put_empty(status, "phase", "Pending")
    put_empty(status, "qosClass", qos_class(jsonpath.mapping(document, "spec")))


def template(owner: dict[str, Any]) -> None:
    """The pod template at `template` of a workload's spec."""
    pod_template = owner.get("template")
    if isinstance(pod_template, dict) and isinstance(pod_template.get("spec"), dict):
        pod_spec(pod_template["spec"])


def pod_spec(spec: dict[str, Any]) -> None:
    put_empty(spec, "restartPolicy", "Always")
    put_empty(spec, "dnsPolicy", "ClusterFirst")
    put_empty(spec, "schedulerName", "default-scheduler")
    put(spec, "terminationGracePeriodSeconds", 30)
    put(spec, "securityContext", {})
    _service_account(spec)
    for key in _CONTAINERS:
        for container in jsonpath.mappings(spec, key):
            _container(container)
    for volume in jsonpath.mappings(spec, "volumes"):
        _volume(volume)


def _service_account(spec: dict[str, Any]) -> None:
    """`serviceAccount` is the old name of `serviceAccountName`; both are always served."""
    name = jsonpath.text(spec, "serviceAccountName") or jsonpath.text(spec, "serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def _container(container: dict[str, Any]) -> None:
    put_empty(container, "imagePullPolicy", pull_policy(jsonpath.text(container, "image")))
    put_empty(container, "terminationMessagePath", "/dev/termination-log")
    put_empty(container, "terminationMessagePolicy", "File")
    put(container, "resources", {})
    for port in jsonpath.mappings(container, "ports"):
        put_empty(port, "protocol", "TCP")
    for variable in jsonpath.mappings(container, "env"):
        _field_ref(jsonpath.mapping(variable, "valueFrom"))
    for key in _PROBES:
        _probe(container.get(key))
    for key in _HOOKS:
        _http_get(jsonpath.mapping(container, "lifecycle", key))


def pull_policy(image: str) -> str:
    """`Always` for the tag `latest`, which an image without tag and digest has."""
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    latest = tag == "latest" if colon else not digest
    return "Always" if latest else "IfNotPresent"


def _probe(probe: Any) -> None:
    if not isinstance(probe, dict):
        return
    put_empty(probe, "timeoutSeconds", 1)
    put_empty(probe, "periodSeconds", 10)
    put_empty(probe, "successThreshold", 1)
    put_empty(probe, "failureThreshold", 3)
    _http_get(probe)
    grpc = probe.get("grpc")
    if isinstance(grpc, dict):
        put(grpc, "service", "")


def _http_get(handler: dict[str, Any]) -> None:
    action = handler.get("httpGet")
    if isinstance(action, dict):
        put_empty(action, "path", "/")
        put_empty(action, "scheme", "HTTP")


def _field_ref(holder: dict[str, Any]) -> None:
    reference = holder.get("fieldRef")
    if isinstance(reference, dict):
        put_empty(reference, "apiVersion", "v1")


def _volume(volume: dict[str, Any]) -> None:
    sources = schema.message("core.v1.VolumeSource").fields
    if all(volume.get(key) is None for key in sources):
        volume["emptyDir"] = {}
    for key in ("secret", "configMap", "downwardAPI", "projected"):
        source = volume.get(key)
        if isinstance(source, dict):
            put(source, "defaultMode", _FILE_MODE)
    path = volume.get("hostPath")
    if isinstance(path, dict):
        put(path, "type", "")
    claim = jsonpath.mapping(volume, "ephemeral", "volumeClaimTemplate").get("spec")
    if isinstance(claim, dict):
        put_empty(claim, "volumeMode", "Filesystem")
    projections = jsonpath.mappings(volume, "projected", "sources")
    for item in jsonpath.mappings(volume, "downwardAPI", "items"):
        _field_ref(item)
    for projection in projections:
        for item in jsonpath.mappings(projection, "downwardAPI", "items"):
            _field_ref(item)
        token = projection.get("serviceAccountToken")
        if isinstance(token, dict):
            put(token, "expirationSeconds", 3600)


def _requests_from_limits(container: dict[str, Any]) -> None:
    limits = jsonpath.mapping(container, "resources", "limits")
    if not limits:
        return
    resources = container["resources"]
    put(resources, "requests", {})
    for name, amount in limits.items():
        put(jsonpath.mapping(resources, "requests"), name, amount)


def qos_class(spec: dict[str, Any]) -> str:
    """Guaranteed: limits for cpu and memory everywhere, equal to the requests. BestEffort: neither anywhere.

    What the Pod says as a whole counts in place of what its containers say.
    """
    containers = [*jsonpath.mappings(spec, "containers"), *jsonpath.mappings(spec, "initContainers")]
    if _amounts(spec, "requests") or _amounts(spec, "limits"):
        containers = [spec]
    amounts = [(_amounts(container, "requests"), _amounts(container, "limits")) for container in containers]
    if not any(requests or limits for requests, limits in amounts):
        return "BestEffort"
    guaranteed = all(len(limits) == len(_COMPUTE) and requests == limits for requests, limits in amounts)
    return "Guaranteed" if guaranteed else "Burstable"


def _amounts(container: dict[str, Any], key: str) -> dict[str, Decimal]:
    found = jsonpath.mapping(container, "resources", key)
    parsed = {name: quantities.parse(found.get(name)) for name in _COMPUTE}
    return {name: amount for name, amount in parsed.items() if amount}
