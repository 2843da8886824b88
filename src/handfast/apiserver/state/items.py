# SPDX-License-Identifier: Apache-2.0
"""One stored object as the server holds it, and one change of it: encoded bytes, decoded anew for each caller.

No two callers share a mutable object. It keeps no collections; see `collection`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.apiserver.state import envelope

_decode = msgspec.json.Decoder().decode


class _Meta(msgspec.Struct):
    labels: dict[str, str | None] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Meta


_labels_of = msgspec.json.Decoder(_Labelled).decode


class Item:
    """One object as stored: its served JSON, and what selectors ask of it, found when first asked."""

    __slots__ = ("_fields", "_labels", "at", "body", "complete_by", "name", "namespace", "version")

    def __init__(self, namespace: str, name: str, version: int, payload: bytes) -> None:
        self.namespace = namespace
        self.name = name
        self.version = version
        self.at = envelope.metadata_at(payload)
        # Version 0 is that of an object that is not in the store: it has none.
        self.body = envelope.with_resource_version(payload, self.at, version) if version else payload
        # The schema of which it has every default; see `verbs.encode`.
        self.complete_by: object = None
        self._labels: dict[str, str] | None = None
        self._fields: tuple[Sequence[tuple[str, str]], dict[str, str]] | None = None

    @property
    def listed(self) -> bytes:
        """As an item of a typed list: without apiVersion and kind."""
        return b"{" + self.body[self.at :]

    def document(self) -> objects.Document:
        """A fresh copy that the caller owns."""
        document: objects.Document = _decode(self.body)
        return document

    def at_version(self, version: int) -> Item:
        """The same state under a later resource version: what a DELETED event carries."""
        payload = envelope.without_resource_version(self.body, self.at)
        copy = Item(self.namespace, self.name, version, payload)
        copy._labels = self._labels
        return copy

    def labels(self) -> dict[str, str]:
        if self._labels is None:
            # Null values are refused today; what was stored before must not stop us.
            found = _labels_of(self.body).metadata.labels or {}
            self._labels = {key: value or "" for key, value in found.items()}
        return self._labels

    def fields(self, paths: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The values of selectable fields, selector name -> text; `paths` are all of the kind's, or none."""
        if not paths:
            return {"metadata.name": self.name, "metadata.namespace": self.namespace}
        # Two kinds may show the same stored object with fields of different names (core and newer Events).
        if self._fields is None or self._fields[0] != paths:
            document = _decode(self.body)
            found = {label: objects.field_text(document, path) for label, path in paths}
            found["metadata.name"] = self.name
            found["metadata.namespace"] = self.namespace
            self._fields = (paths, found)
        return self._fields[1]


class Change:
    """One applied write: before and after; `frames` caches what was encoded of it for watchers."""

    __slots__ = ("_gone", "after", "before", "frames", "version")

    def __init__(self, version: int, before: Item | None, after: Item | None) -> None:
        self.version = version
        self.before = before
        self.after = after
        self.frames: dict[Any, bytes] = {}
        self._gone: Item | None = None

    def gone(self) -> Item:
        """The last state under the version of this change: what whoever no longer sees the object is told."""
        if self._gone is None:
            if self.before is None:
                raise errors.Misuse("an object that was not there cannot go")
            self._gone = self.before.at_version(self.version)
        return self._gone
