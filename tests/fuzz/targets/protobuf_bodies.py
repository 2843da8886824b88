# SPDX-License-Identifier: Apache-2.0
"""Protobuf bodies of every kind. The first byte picks the kind whose envelope is put around the rest; above all kinds, there is none.

1. A body is refused, or becomes a document of the schema: it has no unknown field and no wrong type, as its JSON would not either.
2. The document can be sent as JSON, and is then read as the same.
3. Written as protobuf again, it is read as the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from handfast.api.codec import decode, protobuf
from handfast.api.schema import schema, structs
from tests.fuzz import promises
from tests.properties import protobuf_wire

# A text in protobuf, whose form is looked at after it was decoded: it is refused there.
_QUANTITY = "quantities must match"
ROWS = [row for row in schema.kind_rows() if row["message"] != "autoscaling.v1.Scale"]


def api_version(row: Mapping[str, Any]) -> str:
    return f"{row['group']}/{row['version']}" if row["group"] else str(row["version"])


def _read(data: bytes) -> None:
    first = data[0] if data else 0
    if first >= len(ROWS):
        decode.document(data[1:], decode.PROTOBUF)
        return
    row = ROWS[first]
    body = protobuf_wire.enveloped(api_version(row), row["kind"], data[1:])
    document = decode.document(body, decode.PROTOBUF)
    # 1. of the schema
    findings = structs.check(row["message"], document)
    wrong = findings.type_error or ""
    promises.require(not wrong or _QUANTITY in wrong, f"a type that JSON refuses: {wrong}")
    unknown = [path for path in findings.unknown if path not in {"apiVersion", "kind"}]
    promises.require(not unknown, f"unknown fields: {unknown}")
    # 2. as JSON
    promises.require(decode.document(msgspec.json.encode(document)) == document, "its JSON is another document")
    # 3. as protobuf again
    message = schema.message(row["message"])
    fields = {key: value for key, value in document.items() if key not in {"apiVersion", "kind"}}
    again = protobuf.decode(
        protobuf_wire.enveloped(api_version(row), row["kind"], protobuf_wire.encode(message, fields, zeros=False))
    )
    promises.require(again == document, "its protobuf is another document")


run = promises.refusing(_read)
