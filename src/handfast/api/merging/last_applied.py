# SPDX-License-Identifier: Apache-2.0
"""The annotation in which kubectl keeps what it applied last, in its own way: the one from before server-side apply.

Only the manager `kubectl` is concerned, as in Kubernetes: who applies under another name takes no part in it. The annotation
is somebody's text: what cannot be read says nothing.

1. What kubectl has applied by itself, and is still as it said, it may change by server-side apply without a conflict.
2. After a server-side apply the annotation says what was applied, so that the next client-side apply starts from there.
   An object without the annotation gets none, and one for which it would be too long loses it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast.api import objects
from handfast.api.codec import nesting
from handfast.api.merging import differences, fieldsets, shapes

Document = dict[str, Any]

MANAGER: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
# What all annotations of an object may have: more would be refused.
_MOST_BYTES: Final = 256 << 10
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
# As Go writes JSON: safe inside a page, and within a line.
_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def still_there(live: Mapping[str, Any], shape: shapes.Shape, api_version: str) -> fieldsets.FieldSet:
    """The fields that the annotation says, and that are in the object with the same values (1)."""
    said = _said(live)
    if said.get("apiVersion") != api_version:
        return fieldsets.FieldSet()
    changed, removed = differences.compare(said, live, shape)
    return fieldsets.FieldSet.of(said, shape).difference(changed).difference(removed)


def _said(live: Mapping[str, Any]) -> Document:
    text = _annotations(live).get(ANNOTATION)
    try:
        said = msgspec.json.decode(text) if isinstance(text, str) else None
    # The nesting of hostile JSON ends in a RecursionError.
    except (msgspec.DecodeError, RecursionError):
        return {}
    return said if isinstance(said, dict) and not nesting.is_too_deep(said) else {}


def in_step(document: Document, applied: Document) -> Document:
    """The document with the annotation that says `applied`, where it has one (2)."""
    annotations = _annotations(document)
    if not annotations.get(ANNOTATION):
        return document
    metadata = objects.metadata(applied)
    others = {key: value for key, value in _annotations(applied).items() if key != ANNOTATION}
    said = {**applied, "metadata": {**metadata, "annotations": others} if others else _without(metadata, "annotations")}
    written = {**annotations, ANNOTATION: _encode(said).translate(_ESCAPES) + "\n"}
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in written.items()) > _MOST_BYTES:
        del written[ANNOTATION]
    return {**document, "metadata": {**document["metadata"], "annotations": written}}


def _annotations(document: Mapping[str, Any]) -> dict[str, Any]:
    annotations = objects.metadata(document).get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def _without(metadata: Document, key: str) -> Document:
    return {name: value for name, value in metadata.items() if name != key}
