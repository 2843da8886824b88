# SPDX-License-Identifier: Apache-2.0
"""What is asked of pods and pod templates, and the little of a pod that may change.

It covers what authors get wrong: containers, images, ports, mounts, volumes, resources, tolerations and the enumerated
fields. What only a kubelet could judge (images that exist, security modules, device names) is not looked at.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.api.schema import quantities, schema

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("FallbackToLogsOnError", "File")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")
_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
# Marks a mirror Pod, which stands for a file on its node. Without the mark the authorizer and admission would read the
# Pod's references as if somebody had been allowed to write them. So it cannot be taken away.
MIRROR = "kubernetes.io/config.mirror"
_ENVIRONMENT = re.compile(r"[\x20-<>-~]+\Z")
_DEADLINE_MAX = 2**31 - 1
_MUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod(document: dict[str, Any]) -> fields.Causes:
    yield from pod_spec("spec", jsonpath.mapping(document, "spec"))


def pod_spec(path: str, spec: dict[str, Any], claims: Iterable[str] = ()) -> fields.Causes:
    """The spec of a pod or of a template at `path`; `claims` are volumes it will get beside its own."""
    volumes = {jsonpath.text(volume, "name") for volume in jsonpath.mappings(spec, "volumes")}.union(claims)
    yield from _volumes(f"{path}.volumes", jsonpath.mappings(spec, "volumes"))
    if not jsonpath.sequence(spec, "containers"):
        yield fields.required(f"{path}.containers")
    names: set[str] = set()
    for key in ("initContainers", "containers"):
        for index, container in enumerate(jsonpath.mappings(spec, key)):
            yield from _container(f"{path}.{key}[{index}]", container, names, volumes)
    yield from _whole(path, spec)
    yield from fields.one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    yield from fields.one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    yield from fields.optional_one_of(f"{path}.preemptionPolicy", spec.get("preemptionPolicy"), _PREEMPTION_POLICIES)
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and not 1 <= deadline <= _DEADLINE_MAX:
        yield fields.invalid(
            f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_DEADLINE_MAX}, inclusive"
        )
    yield from fields.labels(f"{path}.nodeSelector", jsonpath.mapping(spec, "nodeSelector"))
    for key, rule in (
        ("serviceAccountName", objects.dns_subdomain),
        ("nodeName", objects.dns_subdomain),
        ("priorityClassName", objects.dns_subdomain),
        ("hostname", objects.dns_label),
        ("subdomain", objects.dns_label),
    ):
        yield from fields.optional_name(f"{path}.{key}", jsonpath.text(spec, key), rule)
    for index, toleration in enumerate(jsonpath.mappings(spec, "tolerations")):
        yield from _toleration(f"{path}.tolerations[{index}]", toleration)


def _volumes(path: str, volumes: list[dict[str, Any]]) -> fields.Causes:
    sources = schema.message("core.v1.VolumeSource").fields
    names = set()
    for index, volume in enumerate(volumes):
        place, name = f"{path}[{index}]", jsonpath.text(volume, "name")
        yield from fields.named(f"{place}.name", name, objects.dns_label)
        if name in names:
            yield fields.duplicate(f"{place}.name", name)
        names.add(name)
        named = [key for key in sources if volume.get(key) is not None]
        if not named:
            yield fields.required(place, "must specify a volume type")
        for key in named[1:]:
            yield fields.forbidden(f"{place}.{key}", "may not specify more than 1 volume type")


def _container(path: str, container: dict[str, Any], names: set[str], volumes: set[str]) -> fields.Causes:
    name, image = jsonpath.text(container, "name"), jsonpath.text(container, "image")
    yield from fields.named(f"{path}.name", name, objects.dns_label)
    if name and name in names:
        yield fields.duplicate(f"{path}.name", name)
    names.add(name)
    if not image:
        yield fields.required(f"{path}.image")
    elif image != image.strip():
        yield fields.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from fields.one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    yield from fields.one_of(
        f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGE_POLICIES
    )
    yield from _ports(f"{path}.ports", jsonpath.mappings(container, "ports"))
    yield from _environment(f"{path}.env", jsonpath.mappings(container, "env"))
    yield from _mounts(f"{path}.volumeMounts", jsonpath.mappings(container, "volumeMounts"), volumes)
    yield from _resources(f"{path}.resources", jsonpath.mapping(container, "resources"))
    for key in _PROBES:
        probe = container.get(key)
        if isinstance(probe, dict) and all(probe.get(handler) is None for handler in _HANDLERS):
            yield fields.required(f"{path}.{key}", "must specify a handler type")


def _ports(path: str, ports: list[dict[str, Any]]) -> fields.Causes:
    names = set()
    for index, port in enumerate(ports):
        place, name = f"{path}[{index}]", jsonpath.text(port, "name")
        if name:
            yield from fields.port_name(f"{place}.name", name)
            if name in names:
                yield fields.duplicate(f"{place}.name", name)
            names.add(name)
        if not port.get("containerPort"):
            yield fields.required(f"{place}.containerPort")
        else:
            yield from fields.port_number(f"{place}.containerPort", port["containerPort"])
        if port.get("hostPort"):
            yield from fields.port_number(f"{place}.hostPort", port["hostPort"])
        yield from fields.one_of(f"{place}.protocol", port.get("protocol"), fields.PROTOCOLS)


def _environment(path: str, variables: list[dict[str, Any]]) -> fields.Causes:
    for index, variable in enumerate(variables):
        name = jsonpath.text(variable, "name")
        if not name:
            yield fields.required(f"{path}[{index}].name")
        elif _ENVIRONMENT.match(name) is None:
            yield fields.invalid(
                f"{path}[{index}].name",
                name,
                "a valid environment variable name must consist only of printable ASCII characters other than '='",
            )
        if jsonpath.text(variable, "value") and variable.get("valueFrom") is not None:
            # The value itself is not shown: people put passwords there.
            yield fields.forbidden(f"{path}[{index}].valueFrom", "may not be specified when `value` is not empty")


def _mounts(path: str, mounts: list[dict[str, Any]], volumes: set[str]) -> fields.Causes:
    places = set()
    for index, mount in enumerate(mounts):
        name, place = jsonpath.text(mount, "name"), jsonpath.text(mount, "mountPath")
        if not name:
            yield fields.required(f"{path}[{index}].name")
        elif name not in volumes:
            yield fields.not_found(f"{path}[{index}].name", name)
        if not place:
            yield fields.required(f"{path}[{index}].mountPath")
        elif place in places:
            yield fields.invalid(f"{path}[{index}].mountPath", place, "must be unique")
        places.add(place)


def _resources(path: str, resources: dict[str, Any]) -> fields.Causes:
    limits = jsonpath.mapping(resources, "limits")
    for key in ("limits", "requests"):
        amounts = jsonpath.mapping(resources, key)
        yield from _not_negative(f"{path}.{key}", amounts)
        for name, value in amounts.items():
            amount, limit = quantities.parse(value), quantities.parse(limits.get(name))
            if amount is not None and limit is not None and amount > limit:
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                yield fields.invalid(f"{path}.requests", str(value), detail)


def _whole(path: str, spec: dict[str, Any]) -> fields.Causes:
    """The resources of the Pod as a whole, and its overhead: quotas count by them."""
    yield from _resources(f"{path}.resources", jsonpath.mapping(spec, "resources"))
    limits = jsonpath.mapping(spec, "resources", "limits")
    for key in ("initContainers", "containers") if limits else ():
        for index, container in enumerate(jsonpath.mappings(spec, key)):
            for name, value in jsonpath.mapping(container, "resources", "limits").items():
                amount, limit = quantities.parse(value), quantities.parse(limits.get(name))
                if amount is not None and limit is not None and amount > limit:
                    place = f"{path}.{key}[{index}].resources.limits"
                    yield fields.invalid(
                        place, str(value), f"must be less than or equal to pod limits of {limits[name]}"
                    )
    yield from _not_negative(f"{path}.overhead", jsonpath.mapping(spec, "overhead"))


def _not_negative(path: str, amounts: dict[str, Any]) -> fields.Causes:
    for name, value in amounts.items():
        amount = quantities.parse(value)
        if amount is not None and amount < 0:
            yield fields.invalid(f"{path}[{name}]", str(value), fields.NOT_NEGATIVE)


def _toleration(path: str, toleration: dict[str, Any]) -> fields.Causes:
    key, effect = jsonpath.text(toleration, "key"), jsonpath.text(toleration, "effect")
    operator = jsonpath.text(toleration, "operator") or "Equal"
    yield from fields.optional_name(f"{path}.key", key, objects.qualified_name)
    if not key and operator != "Exists":
        yield fields.invalid(
            f"{path}.operator",
            operator,
            'operator must be Exists when `key` is empty, which means "match all values and all keys"',
        )
    if operator == "Exists" and jsonpath.text(toleration, "value"):
        yield fields.invalid(f"{path}.operator", operator, "value must be empty when `operator` is 'Exists'")
    yield from fields.optional_one_of(f"{path}.operator", operator, ("Equal", "Exists", "Gt", "Lt"))
    yield from fields.optional_one_of(f"{path}.effect", effect, _EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield fields.invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")


def pod_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    """Everything but the few fields below has to be as it was."""
    yield from _mirror(
        jsonpath.mapping(document, "metadata", "annotations"), jsonpath.mapping(old, "metadata", "annotations")
    )
    new_spec, old_spec = jsonpath.mapping(document, "spec"), jsonpath.mapping(old, "spec")
    for key in ("containers", "initContainers"):
        if len(jsonpath.sequence(new_spec, key)) != len(jsonpath.sequence(old_spec, key)):
            yield fields.forbidden(f"spec.{key}", "pod updates may not add or remove containers")
            return
    yield from _deadline(new_spec.get("activeDeadlineSeconds"), old_spec.get("activeDeadlineSeconds"))
    yield from _kept_tolerations(new_spec, old_spec)
    if fields.differ(_comparable(new_spec, old_spec), old_spec):
        yield fields.forbidden("spec", _MUTABLE)


def _mirror(new: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    if MIRROR in old:
        if MIRROR not in new or new[MIRROR] != old[MIRROR]:
            yield fields.forbidden(f"metadata.annotations[{MIRROR}]", "may not remove or update mirror pod annotation")
    elif MIRROR in new:
        yield fields.forbidden(f"metadata.annotations[{MIRROR}]", "may not add mirror pod annotation")


def _deadline(new: Any, old: Any) -> fields.Causes:
    if isinstance(old, int):
        if new is None:
            yield fields.invalid(
                "spec.activeDeadlineSeconds", new, "must not update from a positive integer to nil value"
            )
        elif isinstance(new, int) and new > old:
            yield fields.invalid("spec.activeDeadlineSeconds", new, "must be less than or equal to previous value")


def _kept_tolerations(new_spec: dict[str, Any], old_spec: dict[str, Any]) -> fields.Causes:
    """Tolerations can be added, and their seconds changed."""
    kept = [_without_seconds(row) for row in jsonpath.mappings(new_spec, "tolerations")]
    if any(_without_seconds(row) not in kept for row in jsonpath.mappings(old_spec, "tolerations")):
        yield fields.forbidden(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )


def _without_seconds(toleration: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds" and value is not None}


def _comparable(new_spec: dict[str, Any], old_spec: dict[str, Any]) -> dict[str, Any]:
    """The new spec with what may change set back to what it was."""
    result = copy.deepcopy(new_spec)
    for key in ("containers", "initContainers"):
        for new, old in zip(jsonpath.sequence(result, key), jsonpath.sequence(old_spec, key), strict=True):
            if isinstance(new, dict) and isinstance(old, dict):
                new["image"] = old.get("image")
    keys = ["activeDeadlineSeconds", "tolerations"]
    if jsonpath.number(old_spec, "terminationGracePeriodSeconds") < 0:
        keys.append("terminationGracePeriodSeconds")
    # Scheduling gates can only be taken away.
    gates = jsonpath.sequence(old_spec, "schedulingGates")
    if all(gate in gates for gate in jsonpath.sequence(result, "schedulingGates")):
        keys.append("schedulingGates")
    for key in keys:
        result[key] = old_spec.get(key)
    return result
