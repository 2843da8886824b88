# SPDX-License-Identifier: Apache-2.0
"""The record of who owns which field, as a client may send it with an object: JSON behind a first byte that picks the object.

1. With a create, an update or before an apply, the record is read or left aside; nothing else is raised but a refusal.
2. What is kept of it is read again as the same.
3. An apply after it that is done twice is done once.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from handfast.api import kinds
from handfast.api.codec import decode
from handfast.api.merging import apply, managed_fields, updates
from handfast.apiserver import bodies
from tests.fuzz import promises
from tests.fuzz.targets import patches

_NOW = "2026-01-02T03:04:05Z"
_CONFIGURATION = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "web", "image": "x"}]}}


def _read(data: bytes) -> None:
    first = data[0] if data else 0
    kind, sample = patches.OBJECTS[first % len(patches.OBJECTS)]
    rows = decode.document(b'{"rows":' + data[1:] + b"}")["rows"]
    body = {**sample, "metadata": {**sample["metadata"], "managedFields": rows}}
    # 1. of the types of the schema, as every body
    document, _ = bodies.for_kind(msgspec.json.encode(body), decode.JSON, kind, bodies.WARN)
    sent = document["metadata"].pop("managedFields", None)
    created = updates.created(document, sent, manager="fuzz", now_text=_NOW, ignored={}, **_of(kind))
    _require_kept(created)
    document["metadata"]["managedFields"] = created
    after = copy.deepcopy(document)
    after["metadata"]["labels"] = {"a": "c"}
    after.pop("spec", None)
    _require_kept(updates.updated(document, after, sent, manager="fuzz", now_text=_NOW, **_of(kind)))
    _apply(kind, {**document, "metadata": {**document["metadata"], "managedFields": sent}}, force=bool(first & 0x80))


def _of(kind: kinds.Kind) -> dict[str, Any]:
    return {"types": kind.message or kind.schema, "api_version": kind.api_version}


def _require_kept(rows: list[dict[str, Any]]) -> None:
    # 2. read again as the same
    text = msgspec.json.encode(rows)
    again = managed_fields.write_entries(managed_fields.read_rows(msgspec.json.decode(text)))
    promises.require(again == rows, "a record is not read again as it was")


def _apply(kind: kinds.Kind, live: dict[str, Any], *, force: bool) -> None:
    def applied(document: dict[str, Any]) -> dict[str, Any]:
        result, _ = apply.server_side_apply(
            document, _CONFIGURATION, manager="other", force=force, now_text=_NOW, **_of(kind)
        )
        return result

    once = applied(live)
    # 3. twice is once
    promises.require(applied(once) == once, "applying twice is not applying once")


run = promises.refusing(_read)
