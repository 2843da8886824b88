# SPDX-License-Identifier: Apache-2.0
"""The record of who owns which fields of an object, `metadata.managedFields`: read it, write it, keep it bounded.

Without a bound an object would grow with everyone who ever wrote it. Of the `Update` entries the newest stay and the
others become one, `ancient-changes`, as in Kubernetes. `Apply` entries cannot be merged without taking fields from
somebody: one more applier than `MAX_APPLIERS` is refused. Who owns what, and what follows from it, is decided in `apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handfast import errors
from handfast.api import status
from handfast.api.merging import fieldsets

Document = dict[str, Any]

ANCIENT_CHANGES = "ancient-changes"
MAX_UPDATERS = 10
MAX_APPLIERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of `managedFields`."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: fieldsets.FieldSet

    @property
    def identity(self) -> tuple[str, ...]:
        """Who this is: an applier is the same whatever version it applies."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.operation, self.manager, version, self.subresource)

    def __str__(self) -> str:
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {self.api_version}"

    def document(self) -> Document:
        document = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.fields_v1(),
            "subresource": self.subresource,
        }
        return {key: value for key, value in document.items() if value != ""}


def read_entries(document: Mapping[str, Any] | None) -> list[Entry]:
    """The record of an object; a malformed one counts as none, as in Kubernetes."""
    metadata = (document or {}).get("metadata")
    rows = metadata.get("managedFields") if isinstance(metadata, dict) else None
    try:
        return [_entry(row) for row in rows] if isinstance(rows, list) else []
    except errors.Refused:
        return []


def _entry(row: Any) -> Entry:
    if not isinstance(row, dict):
        raise errors.Refused("an entry of managedFields must be an object")
    words = {key: row.get(key, "") for key in ("manager", "operation", "apiVersion", "subresource", "time")}
    if not all(isinstance(word, str) for word in words.values()) or words["operation"] not in {"Apply", "Update"}:
        raise errors.Refused("an entry of managedFields needs texts, and an operation that is Apply or Update")
    return Entry(
        manager=words["manager"],
        operation=words["operation"],
        api_version=words["apiVersion"],
        subresource=words["subresource"],
        time=words["time"],
        fields=fieldsets.FieldSet.parse(row.get("fieldsV1", {})),
    )


def write_entries(entries: Sequence[Entry]) -> list[Document]:
    """The record in Kubernetes' order."""
    ordered = sorted(_folded(entries), key=lambda each: (each.operation, each.time, each.manager, *each.identity))
    return [entry.document() for entry in ordered]


def _folded(entries: Sequence[Entry]) -> list[Entry]:
    """At most `MAX_UPDATERS` Update entries. Of more, the oldest become one, with the version and time of their newest."""
    # The writer of this very change comes first in the list, and is the newest of those of the same second.
    updates = [entry for entry in reversed(entries) if entry.operation == "Update"]
    if len(updates) <= MAX_UPDATERS:
        return list(entries)
    updates.sort(key=lambda each: (each.manager != ANCIENT_CHANGES, each.time))
    old, kept = updates[: 1 - MAX_UPDATERS], updates[1 - MAX_UPDATERS :]
    fields = fieldsets.FieldSet()
    for entry in old:
        fields = fields.union(entry.fields)
    newest = max(old, key=lambda each: each.time)
    ancient = replace(newest, manager=ANCIENT_CHANGES, subresource="", fields=fields)
    return [*(entry for entry in entries if entry.operation == "Apply"), ancient, *kept]


def check_appliers(before: Sequence[Entry], after: Sequence[Entry]) -> None:
    """A record that has too many already, from whatever time, may be kept but not grow."""
    had, has = (sum(entry.operation == "Apply" for entry in entries) for entries in (before, after))
    if has > max(had, MAX_APPLIERS):
        raise status.bad_request(
            f"metadata.managedFields: too many field managers have applied to this object ({has}, allowed: "
            f"{MAX_APPLIERS}): apply as one of those, or clear the record by an update that sets it to [{{}}]"
        )
