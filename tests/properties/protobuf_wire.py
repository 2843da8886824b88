# SPDX-License-Identifier: Apache-2.0
"""Writes documents as protobuf, so that the decoder can be asked for them back; made for tests only.

Two ways: sparse (only what the document has) and as Go does (zero values of fields that are no pointers, too).
"""

from __future__ import annotations

import base64
import struct
from datetime import datetime
from typing import Any

import msgspec

from handfast.api.schema import schema


def varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def enveloped(api_version: str, kind: str, raw: bytes) -> bytes:
    meta = delimited(1, api_version.encode()) + delimited(2, kind.encode())
    return b"k8s\x00" + delimited(1, meta) + delimited(2, raw) + delimited(3, b"") + delimited(4, b"")


def encode(message: schema.Message, document: dict[str, Any], *, zeros: bool) -> bytes:
    out = b""
    for number, field in sorted(message.wire.items()):
        if field.inline:
            inner = schema.message(field.type)
            own = {key: value for key, value in document.items() if key in inner.fields}
            out += delimited(number, encode(inner, own, zeros=zeros)) if own or zeros else b""
        elif field.name not in document:
            out += zero(field) if zeros else b""
        elif field.is_map:
            for key, value in sorted(document[field.name].items()):
                out += delimited(number, delimited(1, key.encode()) + one(2, field.type, value, zeros=zeros))
        elif field.repeated:
            out += b"".join(one(number, field.type, value, zeros=zeros) for value in document[field.name])
        else:
            out += one(number, field.type, document[field.name], zeros=zeros)
    return out


def zero(field: schema.Field) -> bytes:
    """What Go writes for a field that has its zero value; a required one would come back, so it is left out."""
    if field.pointer or field.repeated or field.is_map or field.required or field.type == "bytes":
        return b""
    if field.type == "double":
        return varint(field.number << 3 | 1) + bytes(8)
    if field.type in {"bool", "int32", "int64"}:
        return integer(field.number, 0)
    # Go writes "0", or a schema that is none, only where JSON has it
    skipped = {"string", "object|array", "bool|object"}
    if not schema.is_scalar(field.type) and schema.message(field.type).json_form in skipped:
        return b""
    return delimited(field.number, b"")


def one(number: int, type_name: str, value: Any, *, zeros: bool) -> bytes:
    if type_name in {"bool", "int32", "int64"}:
        return integer(number, int(value))
    if type_name == "double":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if type_name == "string":
        return delimited(number, value.encode())
    if type_name == "bytes":
        return delimited(number, base64.b64decode(value))
    message = schema.message(type_name)
    if message.json_form:
        return delimited(number, form(message, value, zeros=zeros))
    return delimited(number, encode(message, value, zeros=zeros))


def form(message: schema.Message, value: Any, *, zeros: bool) -> bytes:
    if message.json_form.startswith("rfc3339"):
        instant = datetime.fromisoformat(value)
        seconds = int(instant.replace(microsecond=0).timestamp())
        return integer(1, seconds) + integer(2, instant.microsecond * 1000)
    if message.json_form == "raw":
        return delimited(1, msgspec.json.encode(value))
    if message.json_form == "int|string":
        if isinstance(value, int):
            return integer(1, 0) + integer(2, value) + delimited(3, b"")
        return integer(1, 1) + integer(2, 0) + delimited(3, value.encode())
    if message.json_form == "string":
        return delimited(1, value.encode())
    if message.json_form == "array":
        return b"".join(delimited(1, item.encode()) for item in value)
    schema_number = next(number for number, field in message.wire.items() if field.name == "schema")
    if isinstance(value, dict):
        content = encode(schema.message("apiextensions.v1.JSONSchemaProps"), value, zeros=zeros)
        return delimited(schema_number, content)
    if isinstance(value, bool):
        return integer(1, int(value))
    return b"".join(one(2, message.wire[2].type, item, zeros=zeros) for item in value)
