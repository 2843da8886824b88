# SPDX-License-Identifier: Apache-2.0
"""Takes back exactly what `injection` has added, by its record. It touches nothing that others injected.

1. Without a record nothing is taken away: a proxy of Linkerd's own, or of somebody else, is theirs.
2. A record that cannot be read is refused. Nothing is guessed.
3. Our containers, volumes, annotations and labels go. What they stood in place of comes back, and so do the variables that were taken out.
4. What was made to hold them goes, if nothing else is in it by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.api.merging import patch
from handfast.rules.mesh import injectable, injection, sidecar, workloads

_OURS: Final = {
    "initContainers": (injectable.INIT, injectable.PROXY),
    "volumes": sidecar.VOLUMES,
}


class UnreadableRecord(errors.Refused):
    """The record of an injection was changed (2)."""

    reason = "MeshRecordUnreadable"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What there was before the injection."""

    absent: list[str]
    null: list[str]
    annotations: dict[str, str | None]
    labels: dict[str, str | None]
    removed: list[tuple[str, str, int, dict[str, Any]]]


def record(workload: workloads.Workload) -> Record | None:
    """The record of a workload; None: we have injected nothing (1)."""
    if (text := workload.annotations.get(injection.RECORD)) is None:
        return None
    # 2. nothing is guessed
    try:
        read = msgspec.json.decode(text, type=Record)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        read = None
    if read is None or not _is_sound(read):
        raise UnreadableRecord(
            f"{workloads.title(workload.document)}: the annotation {injection.RECORD} is not as it was written",
            hint="take the manifest as it was before the injection",
        )
    return read


def _is_sound(read: Record) -> bool:
    places = set(injection.PARENTS)
    return places >= {*read.absent, *read.null} and all(
        key in workloads.CONTAINERS and index >= 0 for key, _, index, _ in read.removed
    )


def uninject(workload: workloads.Workload) -> objects.Document:
    """The document without what was injected; the same one where nothing was."""
    before = record(workload)
    if before is None:
        return workload.document
    # 3. what is ours goes, and what was there comes back
    bare = patch.apply_json_patch(workload.document, list(_taken(workload, before)))
    # 4. and what was made to hold it, inner ones first
    for place in reversed(injection.PARENTS):
        bare = _unmade(workloads.Workload(bare, workload.kind, workload.place), place, before)
    return bare


def _taken(workload: workloads.Workload, before: Record) -> Iterator[injection.Operation]:
    for key, ours in _OURS.items():
        rows = jsonpath.mappings(workload.spec, key)
        for index in reversed([index for index, row in enumerate(rows) if row["name"] in ours]):
            yield _remove(workload, f"spec/{key}/{index}")
    yield from _restored(workload, before)
    for key, values in (("labels", before.labels), ("annotations", {**before.annotations, injection.RECORD: None})):
        there = jsonpath.mapping(workload.template, "metadata", key)
        # What somebody has taken away since does not come back.
        for name in there.keys() & values.keys():
            place, value = f"metadata/{key}/{injection.escaped(name)}", values[name]
            if value is None:
                yield _remove(workload, place)
            else:
                yield {"op": "replace", "path": injection.pointer(workload, place), "value": value}


def _restored(workload: workloads.Workload, before: Record) -> Iterator[injection.Operation]:
    """The variables that were taken out, in their places, as far as the containers are still there."""
    lengths: dict[tuple[str, str], int] = {}
    for key, name, index, variable in before.removed:
        rows = [row for row in jsonpath.mappings(workload.spec, key) if row["name"] not in _OURS.get(key, ())]
        position = next((at for at, row in enumerate(rows) if row["name"] == name), None)
        if position is None or rows[position].get("env") is None:
            continue
        length = lengths.setdefault((key, name), len(rows[position]["env"]))
        place = f"spec/{key}/{position}/env/{min(index, length)}"
        yield {"op": "add", "path": injection.pointer(workload, place), "value": variable}
        lengths[key, name] = length + 1


def _unmade(workload: workloads.Workload, place: str, before: Record) -> objects.Document:
    if place not in (*before.absent, *before.null) or jsonpath.at(workload.template, *place.split("/")) not in ({}, []):
        return workload.document
    if place in before.absent:
        return patch.apply_json_patch(workload.document, [_remove(workload, place)])
    operation = {"op": "replace", "path": injection.pointer(workload, place), "value": None}
    return patch.apply_json_patch(workload.document, [operation])


def _remove(workload: workloads.Workload, place: str) -> injection.Operation:
    return {"op": "remove", "path": injection.pointer(workload, place)}
