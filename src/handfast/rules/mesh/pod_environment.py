# SPDX-License-Identifier: Apache-2.0
"""The environment of one container of a Pod, as a kubelet makes it. It reads no cluster: what only a lookup could tell is refused.

1. Variables are made in their order. A later one of the same name counts.
2. A literal value may name those before it: `$(NAME)`. One that is not there stays as it is written; `$$` is a dollar sign, so that
   `$$(NAME)` is the text `$(NAME)`.
3. A field of the Pod is its text, and is not looked at for `$(NAME)`. A label or an annotation that is not there is empty.
4. Whatever else a value could come from (a Secret, a ConfigMap, a file, a resource), and `envFrom`, is refused, by the variable and the source
   [PodVariableUnresolved]: a workload is not started with half of its environment.
5. A name has no `=` and neither it nor the value has a NUL: no process could have it [PodVariableUnresolved].
6. All of them together are no more than a process can have [PodVariableUnresolved]. That is seen before a value is made: variables that name each other
   several times grow without end.

No refusal quotes a value.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_pod_environment.py |
|---|---|---|---|---|
| who may make a Pod for a node | a few variables that name each other | use up the memory of the machine that runs it | 6 | test_variables_that_grow_without_end_are_refused |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath

# `metadata.labels['app']`
_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['([^']{1,317})'\]", re.ASCII)
_REFERENCE: Final = re.compile(r"\$(\$|\(([^)]*)\))")
_NUL: Final = "\0"
# 6. of names and values; Linux has 2 MiB for them, and 128 KiB for one
_MOST: Final = 1 << 20


class Unresolved(errors.Refused):
    """A variable whose value cannot be made here (4, 5)."""

    reason = "PodVariableUnresolved"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Pod runs, before its status says so."""

    pod_ips: tuple[str, ...]
    host_ip: str = ""


def resolve(pod: Mapping[str, Any], container: Mapping[str, Any], place: Place) -> dict[str, str]:
    """The variables of this container of this Pod."""
    if container.get("envFrom"):
        # 4. none that only a lookup could tell
        raise _unresolved(_title(container), "envFrom takes them from other objects")
    values: dict[str, str] = {}
    left = _MOST
    for row in jsonpath.mappings(container, "env"):
        # 1. in their order
        name = jsonpath.text(row, "name")
        values[name] = _value(pod, row, place, values)
        # 5. what a process can have
        if not name or "=" in name or _NUL in name or _NUL in values[name]:
            raise _unresolved(f"variable {name[:80]!r}", "no process can have it")
        left -= len(name) + len(values[name])
        _require_room(row, left)
    return values


def _require_room(row: Mapping[str, Any], left: int) -> None:
    # 6. no more than a process can have
    if left < 0:
        raise _unresolved(
            f"variable {jsonpath.text(row, 'name')[:80]!r}", f"there is more than {_MOST >> 10} KiB of variables"
        )


def find(pod: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The container of this name, also one that starts before the others; None where there is none."""
    rows = (*jsonpath.mappings(pod, "spec", "initContainers"), *jsonpath.mappings(pod, "spec", "containers"))
    return next((row for row in rows if row.get("name") == name), None)


def expand(text: str, values: Mapping[str, str]) -> str:
    """A literal with what it names put in (2)."""
    return _REFERENCE.sub(lambda hit: "$" if hit[1] == "$" else values.get(hit[2], hit[0]), text)


def _value(pod: Mapping[str, Any], row: Mapping[str, Any], place: Place, values: Mapping[str, str]) -> str:
    source = jsonpath.mapping(row, "valueFrom")
    if not source:
        literal = jsonpath.text(row, "value")
        # 6. before it is made
        named = sum(len(values.get(hit[2], "")) for hit in _REFERENCE.finditer(literal))
        _require_room(row, _MOST - len(literal) - named)
        # 2. a literal
        return expand(literal, values)
    path = jsonpath.text(source, "fieldRef", "fieldPath")
    if (text := _field(pod, path, place)) is not None:
        # 3. a field
        return text
    # 4. nothing else
    what = f"the field {path[:80]!r}" if path else " and ".join(sorted(map(str, source)))[:80]
    raise _unresolved(f"variable {jsonpath.text(row, 'name')[:80]!r}", f"it comes from {what}")


def _field(pod: Mapping[str, Any], path: str, place: Place) -> str | None:
    """The text of a field; None where it is none that is known."""
    if (hit := _SUBSCRIPT.fullmatch(path)) is not None:
        return jsonpath.text(pod, "metadata", hit[1], hit[2])
    if (read := _PLACED.get(path)) is not None:
        return read(place)
    if path == "spec.serviceAccountName":
        return account(pod)
    return jsonpath.text(pod, *path.split(".")) if path in _FIELDS else None


def account(pod: Mapping[str, Any]) -> str:
    """The service account that the Pod runs as."""
    return jsonpath.text(pod, "spec", "serviceAccountName") or "default"


_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName"})
_PLACED: Final[Mapping[str, Callable[[Place], str]]] = {
    "status.podIP": lambda place: _first(place.pod_ips),
    "status.podIPs": lambda place: ",".join(place.pod_ips),
    "status.hostIP": lambda place: place.host_ip,
    "status.hostIPs": lambda place: place.host_ip,
}


def _first(texts: Sequence[str]) -> str:
    return texts[0] if texts else ""


def _title(container: Mapping[str, Any]) -> str:
    return f"the variables of container {jsonpath.text(container, 'name')[:80]!r}"


def _unresolved(what: str, why: str) -> Unresolved:
    return Unresolved(
        f"{what} cannot be resolved: {why}",
        hint="give it a value, or a field of the Pod; what else it could be is read by a kubelet only",
    )
