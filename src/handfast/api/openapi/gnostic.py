# SPDX-License-Identifier: Apache-2.0
"""OpenAPI 2 in protobuf, as kubectl and client-go ask for it: they read it in no other form.

The messages are those of gnostic's `openapi.v2.Document`: a table for each, from the key in JSON to the number and the form on the
wire. What gnostic has no field for is left out; keys that begin with `x-` become extensions, whose values are YAML, of which JSON
is a part. It writes and does not read, and knows no more of OpenAPI than the tables say.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

# Number of the field -> the field as it is on the wire; from the number and the value in JSON.
_Form = Callable[[int, Any], bytes]
_Table = Mapping[str, tuple[int, _Form]]
_json = msgspec.json.Encoder().encode


# --- the wire ---------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _texts(number: int, values: Iterable[str]) -> bytes:
    return b"".join(_text(number, value) for value in values)


def _boolean(number: int, value: bool) -> bytes:
    return _varint(number << 3) + _varint(int(value))


def _integer(number: int, value: float) -> bytes:
    # Negative numbers take ten bytes, as protobuf has it.
    return _varint(number << 3) + _varint(int(value) % (1 << 64))


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _any(number: int, value: Any) -> bytes:
    """An `Any`: the value as YAML."""
    return _bytes(number, _bytes(2, _json(value)))


def _anys(number: int, values: Iterable[Any]) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _named(number: int, name: str, value: bytes) -> bytes:
    """One entry of a map, whose value is a message."""
    return _bytes(number, _text(1, name) + _bytes(2, value))


def _message(table: _Table, extensions: int, value: Mapping[str, Any]) -> bytes:
    parts = []
    for key, child in value.items():
        if key in table:
            number, form = table[key]
            parts.append(form(number, child))
        elif key.startswith("x-"):
            parts.append(_bytes(extensions, _text(1, key) + _any(2, child)))
    return b"".join(parts)


# --- schemas ----------------------------------------------------------------------------------------------------------


def schema(value: Mapping[str, Any]) -> bytes:
    """A `Schema`."""
    return _message(_SCHEMA, 31, value)


def _schema(number: int, value: Mapping[str, Any]) -> bytes:
    return _bytes(number, schema(value))


def _properties(number: int, values: Mapping[str, Any]) -> bytes:
    return _bytes(number, b"".join(_named(1, name, schema(value)) for name, value in values.items()))


def _additional(number: int, value: Any) -> bytes:
    """An `AdditionalPropertiesItem`: a schema, or whether there may be any."""
    return _bytes(number, _boolean(2, value) if isinstance(value, bool) else _schema(1, value))


def _type(number: int, value: str) -> bytes:
    return _bytes(number, _text(1, value))


def _items(number: int, value: Mapping[str, Any]) -> bytes:
    return _bytes(number, _schema(1, value))


def _docs(number: int, value: Mapping[str, Any]) -> bytes:
    return _bytes(number, _message({"description": (1, _text), "url": (2, _text)}, 3, value))


_SCHEMA: Final[_Table] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _boolean),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _boolean),
    "maxLength": (11, _integer),
    "minLength": (12, _integer),
    "pattern": (13, _text),
    "maxItems": (14, _integer),
    "minItems": (15, _integer),
    "uniqueItems": (16, _boolean),
    "maxProperties": (17, _integer),
    "minProperties": (18, _integer),
    "required": (19, _texts),
    "enum": (20, _anys),
    "additionalProperties": (21, _additional),
    "type": (22, _type),
    "items": (23, _items),
    "properties": (25, _properties),
    "externalDocs": (29, _docs),
    "example": (30, _any),
}


# --- paths ------------------------------------------------------------------------------------------------------------


def path_item(value: Mapping[str, Any]) -> bytes:
    """A `PathItem`."""
    return _message(_PATH_ITEM, 10, value)


def _operation(number: int, value: Mapping[str, Any]) -> bytes:
    return _bytes(number, _message(_OPERATION, 13, value))


def _parameters(number: int, values: Iterable[Mapping[str, Any]]) -> bytes:
    """A `ParametersItem` for each, with a `Parameter` in it: that of a body, or one of those that are not."""
    return b"".join(_bytes(number, _bytes(1, _parameter(value))) for value in values)


def _parameter(value: Mapping[str, Any]) -> bytes:
    if value["in"] == "body":
        return _bytes(1, _message(_BODY, 6, value))
    if value["in"] == "path":
        return _bytes(2, _bytes(4, _message(_IN_PATH, 22, value)))
    return _bytes(2, _bytes(3, _message(_IN_QUERY, 23, value)))


def _responses(number: int, values: Mapping[str, Mapping[str, Any]]) -> bytes:
    """`Responses`, with a `ResponseValue` that is a `Response` for each code."""
    codes = (_named(1, code, _bytes(1, _message(_RESPONSE, 5, value))) for code, value in values.items())
    return _bytes(number, b"".join(codes))


_RESPONSE: Final[_Table] = {"description": (1, _text), "schema": (2, _items)}
_BODY: Final[_Table] = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _boolean),
    "schema": (5, _schema),
}
_IN_PATH: Final[_Table] = {
    "required": (1, _boolean),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "uniqueItems": (19, _boolean),
}
_IN_QUERY: Final[_Table] = {
    "required": (1, _boolean),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (6, _text),
    "uniqueItems": (20, _boolean),
}
_OPERATION: Final[_Table] = {
    "description": (3, _text),
    "operationId": (5, _text),
    "produces": (6, _texts),
    "consumes": (7, _texts),
    "parameters": (8, _parameters),
    "responses": (9, _responses),
    "schemes": (10, _texts),
}
_PATH_ITEM: Final[_Table] = {
    "get": (2, _operation),
    "put": (3, _operation),
    "post": (4, _operation),
    "delete": (5, _operation),
    "patch": (8, _operation),
    "parameters": (9, _parameters),
}


# --- the document -----------------------------------------------------------------------------------------------------


def document(
    swagger: str, info: Mapping[str, str], paths: Mapping[str, bytes], definitions: Mapping[str, bytes]
) -> bytes:
    """A `Document`, from encoded path items and schemas."""
    return b"".join(
        (
            _text(1, swagger),
            _bytes(2, _message({"title": (1, _text), "version": (2, _text)}, 7, info)),
            _bytes(8, b"".join(_named(2, name, value) for name, value in paths.items())),
            _bytes(9, b"".join(_named(1, name, value) for name, value in definitions.items())),
        )
    )
