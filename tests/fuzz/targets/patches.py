# SPDX-License-Identifier: Apache-2.0
"""Patches of each form against a Pod, a Deployment and a custom object. The first byte picks form and object; the rest is the patch.

1. A patch is refused, or gives a document that can be stored, and leaves the one before alone.
2. A merge patch says what is to be, so that a second time changes nothing. So does applying.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from handfast.api import kinds
from handfast.api.codec import decode
from handfast.api.merging import apply
from handfast.apiserver import bodies
from handfast.apiserver.verbs import patches
from tests.fuzz import promises
from tests.properties import sample_documents

_WIDGET_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "number"}}},
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "any": {"x-kubernetes-preserve-unknown-fields": True},
            },
        }
    },
}
_WIDGET = sample_documents.widget(schema=_WIDGET_SCHEMA)
_WIDGET_DOCUMENT = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "size": 1,
        "parts": [{"name": "a", "n": 1}, {"name": "b"}],
        "tags": ["x", "y"],
        "any": {"a": [1, {"b": 2}]},
    },
}
_BUILTIN = [kinds.row("pods"), kinds.row("deployments", "apps"), kinds.row("secrets"), kinds.row("services")]
OBJECTS: list[tuple[kinds.Kind, dict[str, Any]]] = [
    *((row, sample_documents.document(row)) for row in _BUILTIN),
    (_WIDGET, _WIDGET_DOCUMENT),
]
FORMS = (patches.JSON_PATCH, patches.MERGE_PATCH, patches.STRATEGIC, decode.APPLY)


def _read(data: bytes) -> None:
    first = data[0] if data else 0
    media = FORMS[first % len(FORMS)]
    kind, document = OBJECTS[first // len(FORMS) % len(OBJECTS)]
    before = copy.deepcopy(document)
    if media == decode.APPLY:
        _apply(data[1:], kind, document, force=bool(first & 0x80))
    else:
        _patch(data[1:], media, kind, document)
    # 1. the one before is left alone
    promises.require(document == before, "the object itself was changed")


def _patch(body: bytes, media: str, kind: kinds.Kind, document: dict[str, Any]) -> None:
    odd = patches.odd_parts(media, body)
    change = patches._change(media, kind, body)
    result = change(document)
    text = msgspec.json.encode(result)
    # 2. a second time changes nothing
    if media == patches.MERGE_PATCH:
        promises.require(change(result) == result, "a merge patch twice is not a merge patch once")
    bodies.check_patched(result, kind, bodies.WARN, odd)
    # 1. it can be stored
    promises.require(len(text) < 1 << 20, "the object has grown beyond all measure")
    decode.document(msgspec.json.encode(result))


def _apply(body: bytes, kind: kinds.Kind, document: dict[str, Any], *, force: bool) -> None:
    applied, _ = bodies.for_apply(body, kind, bodies.WARN)
    once = _applied(document, applied, kind, force=force)
    decode.document(msgspec.json.encode(once))
    # 2. a second time changes nothing
    promises.require(_applied(once, applied, kind, force=force) == once, "applying twice is not applying once")


def _applied(live: dict[str, Any], applied: dict[str, Any], kind: kinds.Kind, *, force: bool) -> dict[str, Any]:
    document, _ = apply.server_side_apply(
        live,
        applied,
        manager="fuzz",
        force=force,
        types=kind.message or kind.schema,
        api_version=kind.api_version,
        now_text="2026-01-02T03:04:05Z",
    )
    return document


run = promises.refusing(_read)
