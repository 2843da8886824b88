# SPDX-License-Identifier: Apache-2.0
"""Pods and pod templates in Kubernetes objects: which kinds have one, where, and whether it has the form of one.

It decides nothing about the mesh. A document comes from a file or a request, so nothing of its form is taken for granted:

1. Only kinds of Kubernetes' own groups count: a Deployment of another group is another kind.
2. Every part that is read or changed has its type. What has another is refused, with its path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects

_TEMPLATE: Final = ("spec", "template")
# Group and kind -> where the pod template is.
_PLACES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _TEMPLATE,
    **{("apps", kind): _TEMPLATE for kind in ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet")},
    **{("extensions", kind): _TEMPLATE for kind in ("Deployment", "DaemonSet", "ReplicaSet")},
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", *_TEMPLATE),
}
TEMPLATE_HASH: Final = "pod-template-hash"
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_DEFAULT: Final = "default"
_MOST_SHOWN: Final = 320


class Misshapen(errors.Refused):
    """A part of a manifest has not the form that its kind has (2)."""

    reason = "NotAPodTemplate"


@dataclass(frozen=True, slots=True)
class Workload:
    """A document with a Pod or a pod template, whose form is right."""

    document: objects.Document
    kind: str
    place: tuple[str, ...]
    # The Pod or the template, its spec, its annotations, which are not those of what makes it, and its lists of containers by their keys. All are
    # looked up once: of the CPU of a review, it was a fifth.
    template: objects.Document = field(init=False, repr=False, compare=False)
    spec: objects.Document = field(init=False, repr=False, compare=False)
    annotations: dict[str, Any] = field(init=False, repr=False, compare=False)
    containers: Mapping[str, list[dict[str, Any]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        template = jsonpath.mapping(self.document, *self.place)
        object.__setattr__(self, "template", template)
        spec = jsonpath.mapping(template, "spec")
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "annotations", jsonpath.mapping(template, "metadata", "annotations"))
        object.__setattr__(self, "containers", {key: jsonpath.mappings(spec, key) for key in CONTAINERS if key in spec})

    @property
    def name(self) -> str:
        """Of the object."""
        return jsonpath.text(self.document, "metadata", "name")

    @property
    def namespace(self) -> str:
        """Of the object; empty where it does not say."""
        return jsonpath.text(self.document, "metadata", "namespace")

    @property
    def account(self) -> str:
        """The service account that the Pod runs as."""
        return jsonpath.text(self.spec, "serviceAccountName") or jsonpath.text(self.spec, "serviceAccount") or _DEFAULT

    def path(self, *rest: object) -> str:
        """Where something of the template is, as messages name it."""
        text = ""
        for part in (*self.place, *rest):
            text += f"[{part}]" if isinstance(part, int) else f".{part}"
        return text.removeprefix(".")


def maker(kind: str, name: str, template_hash: str) -> tuple[str, str]:
    """Kind and name of what makes a Pod, by its owner: a ReplicaSet that is called as its Deployment is, and the hash, stands for that."""
    if kind == "ReplicaSet" and template_hash and name.endswith(f"-{template_hash}"):
        return "Deployment", name.removesuffix(f"-{template_hash}")
    return kind, name


def title(document: Mapping[str, Any]) -> str:
    """What messages call an object, as in deployment/web."""
    kind = jsonpath.text(document, "kind").lower() or "object"
    name = jsonpath.text(document, "metadata", "name") or jsonpath.text(document, "metadata", "generateName")
    title = f"{kind}/{name}" if name else kind
    # Nobody has looked at the length so far.
    return title if len(title) <= _MOST_SHOWN else f"{title[:_MOST_SHOWN]}…"


def find(document: objects.Document) -> Workload | None:
    """The workload of a document; None: its kind has no pod template. Misshapen where it should have one."""
    group = jsonpath.text(document, "apiVersion").rpartition("/")[0]
    kind = jsonpath.text(document, "kind")
    # 1. Kubernetes' own kinds
    if (place := _PLACES.get((group, kind))) is None:
        return None
    workload = Workload(document, kind, place)
    # 2. everything that is read has its type
    if place and not isinstance(jsonpath.at(document, *place), dict):
        raise _misshapen(workload, "an object")
    _require_metadata(workload)
    _require_spec(workload)
    return workload


def _require_metadata(workload: Workload) -> None:
    _require(workload, "metadata", absent=True)
    for key in ("annotations", "labels"):
        _require(workload, "metadata", key, absent=True)
        for name, value in jsonpath.mapping(workload.template, "metadata", key).items():
            if not isinstance(value, str):
                raise _misshapen(workload, "a text", "metadata", key, name)


def _require_spec(workload: Workload) -> None:
    _require(workload, "spec", absent=False)
    for key in (*CONTAINERS, "volumes"):
        rows = _rows(workload, workload.spec.get(key), "spec", key)
        if len({row["name"] for row in rows}) < len(rows):
            raise _misshapen(workload, "a list without a name twice", "spec", key)
        for index, row in enumerate(rows if key != "volumes" else ()):
            _rows(workload, row.get("env"), "spec", key, index, "env")
            _lists(workload, row, "spec", key, index)
    if not workload.spec.get("containers"):
        raise _misshapen(workload, "a list with a container at least", "spec", "containers")


def _lists(workload: Workload, row: Mapping[str, Any], *path: str | int) -> None:
    """Lists of objects that need no name."""
    for key in ("volumeMounts", "ports"):
        value = row.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
            raise _misshapen(workload, "a list of objects", *path, key)


def _require(workload: Workload, *path: str, absent: bool) -> None:
    value = jsonpath.at(workload.template, *path)
    if not isinstance(value, dict) and not (absent and value is None):
        raise _misshapen(workload, "an object", *path)


def _rows(workload: Workload, value: Any, *path: str | int) -> list[dict[str, Any]]:
    rows = [] if value is None else value
    if not isinstance(rows, list):
        raise _misshapen(workload, "a list", *path)
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            raise _misshapen(workload, "an object with a name", *path, index)
    return rows


def _misshapen(workload: Workload, allowed: str, *path: str | int) -> Misshapen:
    return Misshapen(
        f"{title(workload.document)}: {workload.path(*path)} must be {allowed}", hint="correct the manifest"
    )
