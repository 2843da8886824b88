# SPDX-License-Identifier: Apache-2.0
"""The record of who owns which fields of an object, `metadata.managedFields`: read it, write it, keep it bounded.

Without a bound an object would grow with everyone who ever wrote it. Of the `Update` entries the newest stay and the
others become one, `ancient-changes`, as in Kubernetes. `Apply` entries cannot be merged without taking fields from
somebody: one more applier than `MAX_APPLIERS` is refused. Who owns what, and what follows from it, is decided in `updates`
and `apply`.
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
# What a client may send. The server itself writes no more of them.
MAX_ROWS = MAX_APPLIERS + MAX_UPDATERS
# How long the name of a field manager may be.
MANAGER_BYTES = 128
_FIELDS_TYPE = "FieldsV1"
_WORDS = ("manager", "operation", "apiVersion", "subresource", "time")


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
            "fieldsType": _FIELDS_TYPE,
            "fieldsV1": self.fields.fields_v1(),
            "subresource": self.subresource,
        }
        return {key: value for key, value in document.items() if value != ""}


def row(manager: str, api_version: str, now_text: str, fields_v1: Document) -> Document:
    """The row of an ordinary write to an object itself: `Entry.document`, without a set of fields."""
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": api_version,
        "time": now_text,
        "fieldsType": _FIELDS_TYPE,
        "fieldsV1": fields_v1,
    }


def read_entries(document: Mapping[str, Any] | None) -> list[Entry]:
    """The record of an object."""
    metadata = (document or {}).get("metadata")
    return read_rows(metadata.get("managedFields")) if isinstance(metadata, dict) else []


def read_rows(rows: Any) -> list[Entry]:
    """What the rows of a record say. One that is malformed makes the record count as none, as in Kubernetes."""
    entries = [read_row(row) for row in rows] if isinstance(rows, list) else []
    readable = [entry for entry in entries if entry is not None]
    return readable if len(readable) == len(entries) else []


def read_sent(rows: Any) -> list[Entry]:
    """What the rows say that a client sent. So many that nobody can have got them from here are refused, unread."""
    if isinstance(rows, list) and len(rows) > MAX_ROWS:
        raise status.bad_request(
            f"metadata.managedFields: too many entries ({len(rows)}, allowed: {MAX_ROWS}): leave it out, or clear the record "
            "by an update that sets it to [{}]"
        )
    return read_rows(rows)


def read_row(row: Any) -> Entry | None:
    """What one row says; None if it is malformed."""
    if not isinstance(row, dict):
        return None
    words = {key: row.get(key, "") for key in _WORDS}
    if not all(isinstance(word, str) for word in words.values()) or words["operation"] not in {"Apply", "Update"}:
        return None
    if not words["apiVersion"] or row.get("fieldsType") != _FIELDS_TYPE or not _is_name(words["manager"]):
        return None
    try:
        fields = fieldsets.FieldSet.parse(row.get("fieldsV1", {}))
    except errors.Refused:
        return None
    return Entry(
        manager=words["manager"],
        operation=words["operation"],
        api_version=words["apiVersion"],
        subresource=words["subresource"],
        time=words["time"],
        fields=fields,
    )


def _is_name(manager: str) -> bool:
    return len(manager.encode(errors="replace")) <= MANAGER_BYTES and manager.isprintable()


def identity(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Whose row it is: `Entry.identity`, without reading the fields."""
    operation, manager, version, subresource = (
        row.get(key, "") for key in ("operation", "manager", "apiVersion", "subresource")
    )
    return (operation, manager, "" if operation == "Apply" else version, subresource)


def ordered(rows: Sequence[Document]) -> list[Document]:
    """Rows in Kubernetes' order, kept within bounds."""
    if sum(row.get("operation") == "Update" for row in rows) > MAX_UPDATERS:
        return write_entries([entry for entry in map(read_row, rows) if entry is not None])
    return sorted(rows, key=lambda row: (row.get("operation", ""), row.get("time", ""), *identity(row)[1:]))


def write_entries(entries: Sequence[Entry]) -> list[Document]:
    """The record in Kubernetes' order."""
    in_order = sorted(_folded(entries), key=lambda each: (each.operation, each.time, *each.identity[1:]))
    return [entry.document() for entry in in_order]


def _folded(entries: Sequence[Entry]) -> list[Entry]:
    """At most `MAX_UPDATERS` Update entries. Of more, the oldest become one, with the version and time of their newest."""
    updates = [entry for entry in entries if entry.operation == "Update"]
    if len(updates) <= MAX_UPDATERS:
        return list(entries)
    # The writer of this very change comes first in the list, and is the newest of those of the same second.
    newest_of_all = entries[0]
    updates.sort(key=lambda each: (each.manager != ANCIENT_CHANGES, each.time, each is newest_of_all, each.manager))
    old, kept = updates[: 1 - MAX_UPDATERS], updates[1 - MAX_UPDATERS :]
    fields = fieldsets.FieldSet.union_of(entry.fields for entry in old)
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
