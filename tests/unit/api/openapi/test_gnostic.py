# SPDX-License-Identifier: Apache-2.0
"""OpenAPI 2 on the wire: numbers and forms are those of gnostic's messages, read here by a reader of its own."""

from __future__ import annotations

import json
import struct
from typing import Any

from handfast.api.openapi import gnostic

Fields = dict[int, list[Any]]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> Fields:
    """Number -> the values of that number, as they are on the wire."""
    read: Fields = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: Any
        if key & 7 == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif key & 7 == 1:
            value, at = struct.unpack("<d", data[at : at + 8])[0], at + 8
        else:
            value, at = _varint(data, at)
        read.setdefault(key >> 3, []).append(value)
    return read


def only(data: bytes, *numbers: int) -> Any:
    """The one value at the end of a path of numbers."""
    value: Any = data
    for number in numbers:
        [value] = fields(value)[number]
    return value


def test_a_schema_of_scalars():
    encoded = gnostic.schema(
        {
            "$ref": "#/definitions/a",
            "format": "int32",
            "description": "ünïcode",
            "maximum": 5,
            "exclusiveMaximum": True,
            "minLength": 0,
            "maxLength": 300,
            "minimum": -1.5,
            "required": ["a", "b"],
            "enum": ["x", 1, None],
            "default": {"k": [1]},
            "type": "integer",
        }
    )
    read = fields(encoded)
    assert read[1] == [b"#/definitions/a"]
    assert read[2] == [b"int32"]
    assert read[4] == ["ünïcode".encode()]
    assert (read[7], read[8], read[9]) == ([5.0], [1], [-1.5])
    assert (read[12], read[11]) == ([0], [300])
    assert read[19] == [b"a", b"b"]
    assert [json.loads(only(each, 2)) for each in read[20]] == ["x", 1, None]
    assert json.loads(only(encoded, 5, 2)) == {"k": [1]}
    assert only(encoded, 22, 1) == b"integer"


def test_a_negative_length_is_written_as_protobuf_has_it():
    assert only(gnostic.schema({"minLength": -1}), 12) == (1 << 64) - 1


def test_schemas_in_schemas():
    text = {"type": "string"}
    encoded = gnostic.schema({"properties": {"a": text}, "items": text, "additionalProperties": text})
    entry = only(encoded, 25, 1)
    assert only(entry, 1) == b"a"
    assert only(entry, 2, 22, 1) == b"string"
    assert only(encoded, 23, 1, 22, 1) == b"string"
    assert only(encoded, 21, 1, 22, 1) == b"string"
    assert only(gnostic.schema({"additionalProperties": True}), 21, 2) == 1


def test_extensions_are_yaml_and_what_gnostic_does_not_know_is_left_out():
    kind = [{"group": "a", "kind": "B", "version": "v1"}]
    encoded = gnostic.schema({"x-kubernetes-group-version-kind": kind, "nullable": True, "oneOf": []})
    assert list(fields(encoded)) == [31]
    assert only(encoded, 31, 1) == b"x-kubernetes-group-version-kind"
    assert json.loads(only(encoded, 31, 2, 2)) == kind


def test_external_docs():
    encoded = gnostic.schema({"externalDocs": {"url": "https://example.com", "description": "d"}})
    assert only(encoded, 29, 2) == b"https://example.com"


def test_operations_and_their_parameters():
    operation = {
        "operationId": "patchPod",
        "consumes": ["application/json-patch+json"],
        "produces": ["application/json"],
        "parameters": [
            {"in": "body", "name": "body", "required": True, "schema": {"type": "object"}},
            {"in": "query", "name": "fieldValidation", "type": "string", "uniqueItems": True},
        ],
        "responses": {"200": {"description": "OK", "schema": {"type": "object"}}},
        "x-kubernetes-action": "patch",
    }
    in_path = {"in": "path", "name": "name", "required": True, "type": "string", "uniqueItems": True}
    encoded = gnostic.path_item({"patch": operation, "parameters": [in_path]})
    patch = only(encoded, 8)
    assert only(patch, 5) == b"patchPod"
    assert (fields(patch)[6], fields(patch)[7]) == ([b"application/json"], [b"application/json-patch+json"])
    body, query = (only(each, 1) for each in fields(patch)[8])
    assert only(body, 1, 2) == b"body"
    assert only(body, 1, 5, 22, 1) == b"object"
    # Where kubectl looks for `fieldValidation`.
    assert only(query, 2, 3, 4) == b"fieldValidation"
    assert only(query, 2, 3, 6) == b"string"
    assert only(encoded, 9, 1, 2, 4, 4) == b"name"
    assert only(patch, 9, 1, 1) == b"200"
    assert only(patch, 9, 1, 2, 1, 2, 1, 22, 1) == b"object"
    assert json.loads(only(patch, 13, 2, 2)) == "patch"


def test_the_document_has_every_path_and_definition_by_name():
    encoded = gnostic.document(
        "2.0", {"title": "t", "version": "v"}, {"/a": b"", "/b": b""}, {"A": gnostic.schema({"type": "object"})}
    )
    assert only(encoded, 1) == b"2.0"
    assert (only(encoded, 2, 1), only(encoded, 2, 2)) == (b"t", b"v")
    assert [only(each, 1) for each in fields(only(encoded, 8))[2]] == [b"/a", b"/b"]
    assert only(encoded, 9, 1, 1) == b"A"
    assert only(encoded, 9, 1, 2, 22, 1) == b"object"
