# SPDX-License-Identifier: Apache-2.0
"""The record of who owns which field, through ordinary writes: create, update, and every patch but server-side apply.

It decides from documents alone, and changes none of them. What the fields of a write are is `differences`; how the record
is read, written and bounded is `managed_fields`; applying is `apply`.

1. A new object is its creator's, as it was sent and with its defaults. What admission puts in later is nobody's.
2. Of a changed object the writer gets what changed, and the others lose it. What was taken away is nobody's.
3. Somebody who owns nothing any more is not in the record. A time moves only with a change that its owner made.
4. An object without a record gets none by an update: it is from before records were kept, or somebody cleared it.
5. A client may clear the record with `[]` or `[{}]`, and may rewrite it (one that leaves client-side apply does), but
   not through a subresource. A record that cannot be read counts as not sent.

An update costs in proportion to what it changed: rows that it takes nothing from stay as they are, unread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from handfast.api.merging import differences, fieldsets, managed_fields, shapes

Document = dict[str, Any]


def created(
    document: Document,
    sent: Any,
    *,
    manager: str,
    types: differences.Types,
    api_version: str,
    now_text: str,
    ignored: differences.Ignored,
) -> list[Document]:
    """The `managedFields` of a new object; `sent` is the record that came with it."""
    # 1. all of it is the creator's
    shape = shapes.shape_of(types)
    fields = differences.created_fields_v1(document, shape, ignored)
    row = managed_fields.row(manager, api_version, now_text, fields)
    rows = [row] if fields else []
    entries = managed_fields.read_sent(sent) if sent else []
    if not entries:
        return rows
    # 5. a record that came with it: what somebody owned elsewhere, and is not here, stays theirs, as in Kubernetes
    managed_fields.check_appliers((), entries)
    owned = differences.created(document, shape, ignored)
    whose = managed_fields.identity(row)
    for entry in entries:
        rest = entry.fields.difference(owned)
        if rest and entry.identity != whose:
            rows.append(replace(entry, fields=rest).document())
    return managed_fields.ordered(rows)


def updated(
    before: Document,
    after: Document,
    sent: Any,
    *,
    manager: str,
    types: differences.Types,
    api_version: str,
    now_text: str,
    subresource: str = "",
) -> list[Document]:
    """The `managedFields` after an ordinary write; `sent` is the record that came with it, or None."""
    rows = _current(before, None if subresource else sent)
    # 4. not recorded, not begun
    if not rows:
        return []
    # 2. what changed is the writer's
    changed, removed = differences.compare(before, after, shapes.shape_of(types))
    if not changed and not removed:
        return rows
    own = managed_fields.Entry(
        manager=manager,
        operation="Update",
        api_version=api_version,
        subresource=subresource,
        time=now_text,
        fields=changed,
    )
    lost = changed.union(removed)
    kept: list[Document] = []
    for row in rows:
        if not changed or managed_fields.identity(row) != own.identity:
            kept.extend(_less(row, lost))
        elif entry := managed_fields.read_row(row):
            own = replace(own, fields=entry.fields.difference(removed).union(changed))
    # 3. who owns nothing is not in it
    return managed_fields.ordered([own.document(), *kept] if changed else kept)


def _current(before: Mapping[str, Any], sent: Any) -> list[Document]:
    """The record that a write starts from: the one sent if there is a readable one, else that of the object."""
    metadata = before.get("metadata") or {}
    rows: list[Document] = metadata.get("managedFields") or []
    if sent is None or sent == rows:
        return rows
    # 5. cleared, or rewritten
    if sent in ([], [{}]):
        return []
    entries = managed_fields.read_sent(sent)
    if not entries:
        return rows
    managed_fields.check_appliers(managed_fields.read_rows(rows), entries)
    return managed_fields.write_entries(entries)


def _less(row: Document, lost: fieldsets.FieldSet) -> Sequence[Document]:
    """A row without what was lost: itself if that is nothing, none if it was all. What cannot be read goes, too."""
    if not fieldsets.touches(row.get("fieldsV1"), lost):
        return (row,)
    entry = managed_fields.read_row(row)
    rest = entry.fields.difference(lost) if entry is not None else fieldsets.FieldSet()
    return (replace(entry, fields=rest).document(),) if entry is not None and rest else ()
