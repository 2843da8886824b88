# SPDX-License-Identifier: Apache-2.0
"""Injection: the JSON patch that gives a Pod or a pod template its proxy, with a record of what there was. It sends it to nobody.

1. What is ours is ours alone. A manifest with one of our volumes, with a mount of one, with a variable of the proxy in a container of its own, or
   with the proxy's user, is refused, with its place.
2. The variables of earlier versions, which say otherwise than those of today, are taken out.
3. In this order: annotations and labels, what is taken out, volumes, containers. What is missing above them is made first.
4. Annotations always say whether there is an identity, and which trust anchors it was made with.
5. A record says what was there: by it, everything is taken back exactly.
6. Annotations about ports that come from the namespace, or from nobody, are written down: the destination service reads them.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_injection.py |
|---|---|---|---|---|
| an application's container | a mount of `linkerd-identity-store` | read the key of the proxy | 1 | test_what_is_ours_is_refused_with_its_place |
| … | the proxy's user | connections that are not redirected, or the proxy's memory | 1 | test_what_is_ours_is_refused_with_its_place |
| … | a volume of that name, on the node's disk | have the key written there | 1 | test_what_is_ours_is_refused_with_its_place |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.api.merging import patch
from handfast.rules.mesh import injectable, settings, sidecar, workloads

RECORD: Final = "mesh.handfast.dev/injection"
CREATED_BY: Final = "linkerd.io/created-by"
ANCHORS: Final = "linkerd.io/trust-root-sha256"
CONTROL_PLANE: Final = "linkerd.io/control-plane-ns"
WORKLOAD_NAMESPACE: Final = "linkerd.io/workload-ns"
_EARLIER: Final = f"{sidecar.PREFIX}POD_NAMESPACE"
_EARLIER_TLS: Final = f"{sidecar.PREFIX}TLS_"
# What is made where it is missing, with what it is made as.
PARENTS: Final[dict[str, Any]] = {
    "metadata": {},
    "metadata/annotations": {},
    "metadata/labels": {},
    "spec/volumes": [],
    "spec/initContainers": [],
}

Operation = dict[str, Any]


class Occupied(errors.Refused):
    """A manifest has what is ours (1)."""

    reason = "MeshNameTaken"


def operations(plan: sidecar.Plan, target: sidecar.Target) -> list[Operation]:
    """The JSON patch for the whole document."""
    workload = target.workload
    # 1. what is ours is ours alone
    require_free(workload)
    if target.identity:
        sidecar.require_name(plan, target)
    annotations, labels = _annotations(plan, target), _labels(plan, target)
    earlier = list(_earlier(workload))
    record = {
        **_missing(workload),
        "annotations": _before(workload, "annotations", annotations),
        "labels": _before(workload, "labels", labels),
        "removed": earlier,
    }
    # 5. what was there
    annotations[RECORD] = msgspec.json.encode(record).decode()
    return [
        # 3. in order
        *_made(workload, "metadata", "metadata/annotations"),
        *_added(workload, "metadata/annotations", annotations),
        *_made(workload, "metadata/labels"),
        *_added(workload, "metadata/labels", labels),
        *_taken(workload, earlier),
        *_made(workload, "spec/volumes", "spec/initContainers"),
        *(_operation(workload, "spec/volumes/-", row) for row in sidecar.volumes(plan, target)),
        _operation(workload, "spec/initContainers/0", sidecar.init(plan, target)),
        _operation(workload, "spec/initContainers/1", sidecar.proxy(plan, target)),
    ]


def inject(plan: sidecar.Plan, target: sidecar.Target) -> objects.Document:
    """The document with its proxy."""
    return patch.apply_json_patch(target.workload.document, operations(plan, target))


def require_free(workload: workloads.Workload) -> None:
    """Return if nothing in a workload has a name of ours, else refuse (1)."""
    for index, volume in enumerate(jsonpath.mappings(workload.spec, "volumes")):
        if volume["name"] in sidecar.VOLUMES:
            raise _occupied(workload, volume["name"], "spec", "volumes", index, "name")
    _require_another_user(workload, workload.spec, "spec")
    for key, rows in workload.containers.items():
        for index, row in enumerate(rows):
            _require_free_container(workload, row, "spec", key, index)


def _require_another_user(workload: workloads.Workload, row: dict[str, Any], *place: str | int) -> None:
    if jsonpath.number(row, "securityContext", "runAsUser") == sidecar.USER:
        raise _occupied(workload, str(sidecar.USER), *place, "securityContext", "runAsUser")


def _require_free_container(workload: workloads.Workload, row: dict[str, Any], *place: str | int) -> None:
    _require_another_user(workload, row, *place)
    for index, mount in enumerate(jsonpath.mappings(row, "volumeMounts")):
        if mount.get("name") in sidecar.VOLUMES:
            raise _occupied(workload, mount["name"], *place, "volumeMounts", index, "name")
    for index, variable in enumerate(row.get("env") or ()):
        name = variable["name"]
        if name.startswith(sidecar.PREFIX) and not _is_earlier(name):
            raise _occupied(workload, name, *place, "env", index, "name")


def _occupied(workload: workloads.Workload, name: str, *place: str | int) -> Occupied:
    return Occupied(
        f"{workloads.title(workload.document)}: {workload.path(*place)} is {name[:80]!r}, which belongs to the mesh's proxy",
        hint="choose another: the proxy's volumes, variables and user are for it alone",
    )


def _is_earlier(name: str) -> bool:
    return name == _EARLIER or name.startswith(_EARLIER_TLS)


def _annotations(plan: sidecar.Plan, target: sidecar.Target) -> dict[str, str]:
    # 4. whether, and with what
    values = {
        CREATED_BY: plan.created_by,
        injectable.IDENTITY: settings.ENABLED if target.identity else settings.DISABLED,
    }
    if target.identity:
        values[ANCHORS] = plan.anchors_digest
    # 6. what counts of the ports
    values |= {key: value for key, value in target.ports.items() if key not in target.workload.annotations}
    return dict(sorted(values.items()))


def _labels(plan: sidecar.Plan, target: sidecar.Target) -> dict[str, str]:
    values = {CONTROL_PLANE: plan.namespace}
    if target.namespace:
        values[WORKLOAD_NAMESPACE] = target.namespace
    workload = target.workload
    kind, name = (workload.kind, workload.name) if workload.place else target.owner or ("", "")
    if name and objects.label_value(name) is None and objects.dns_label(kind.lower()) is None:
        values[f"linkerd.io/proxy-{kind.lower()}"] = name
    return values


def _earlier(workload: workloads.Workload) -> Iterator[list[Any]]:
    """The variables of earlier versions: list, container, position, and the variable itself (2)."""
    for key, rows in workload.containers.items():
        for row in rows:
            for index, variable in enumerate(row.get("env") or ()):
                if _is_earlier(variable["name"]):
                    yield [key, row["name"], index, variable]


def _taken(workload: workloads.Workload, earlier: Sequence[list[Any]]) -> Iterator[Operation]:
    # Names are unique in their lists. Looked up one by one, thousands of containers would hold everybody else.
    positions = {
        (key, row["name"]): index for key, rows in workload.containers.items() for index, row in enumerate(rows)
    }
    # 2. from the last one, so that positions stay true
    for key, name, index, _ in reversed(earlier):
        yield {"op": "remove", "path": pointer(workload, f"spec/{key}/{positions[key, name]}/env/{index}")}


def _missing(workload: workloads.Workload) -> dict[str, list[str]]:
    """Which parents are not there, and which are there as null."""
    states: dict[str, list[str]] = {"absent": [], "null": []}
    for place in PARENTS:
        above, _, key = place.rpartition("/")
        holder = jsonpath.mapping(workload.template, *(above.split("/") if above else ()))
        if holder.get(key) is None:
            states["null" if key in holder else "absent"].append(place)
    return states


def _before(workload: workloads.Workload, key: str, values: dict[str, str]) -> dict[str, str | None]:
    there = jsonpath.mapping(workload.template, "metadata", key)
    return {name: there.get(name) for name in values}


def _made(workload: workloads.Workload, *places: str) -> Iterator[Operation]:
    for place in places:
        if jsonpath.at(workload.template, *place.split("/")) is None:
            yield _operation(workload, place, PARENTS[place])


def _added(workload: workloads.Workload, place: str, values: dict[str, str]) -> Iterator[Operation]:
    for name, value in values.items():
        yield _operation(workload, f"{place}/{escaped(name)}", value)


def _operation(workload: workloads.Workload, place: str, value: Any) -> Operation:
    return {"op": "add", "path": pointer(workload, place), "value": value}


def pointer(workload: workloads.Workload, place: str) -> str:
    """The JSON pointer of something in the template."""
    return "/".join(("", *workload.place, place))


def escaped(key: str) -> str:
    """A key as JSON pointers write it."""
    return key.replace("~", "~0").replace("/", "~1")
