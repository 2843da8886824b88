# SPDX-License-Identifier: Apache-2.0
"""Read a body of `application/vnd.kubernetes.protobuf` as the JSON document that Go's encoder would make of it.

Requests only: answers stay JSON, which every client accepts. The schema gives the fields; this file knows the
envelope, the proto2 wire format and the few messages whose JSON is not an object. It does not check values.

What is refused, always as a 400 and never with any other error:

1. a body without the prefix `6b 38 73 00`, or whose envelope names a kind that is not in the schema;
2. truncated or overlong varints, lengths past the end, groups and unknown wire types;
3. a known field in a wire type that is not its own; text that is not UTF-8; raw JSON that is not JSON;
4. more than `nesting.MAX_DEPTH` levels of messages or `MAX_FIELDS` fields: two bytes of wire become a 64-byte dict.

Field numbers the schema does not know are skipped, as proto2 wants.
"""

from __future__ import annotations

import base64
import functools
import math
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from handfast.api import status
from handfast.api.codec import nesting
from handfast.api.schema import schema

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
PREFIX: Final = b"k8s\x00"
# Well above what objects are expected to have. Reading so many took 0.14 s when measured.
MAX_FIELDS: Final = 50_000

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NULL: Final = object()


def _refuse(why: str) -> status.StatusError:
    return status.bad_request(f"couldn't get version/kind; proto parse error: {why}")


def decode(body: bytes) -> dict[str, Any]:
    """The document of an enveloped object, apiVersion and kind first."""
    # 1. the envelope
    if not body.startswith(PREFIX):
        raise _refuse("the body does not begin with the prefix 6b 38 73 00")
    reader = _Reader()
    envelope: dict[int, bytes] = {}
    for number, _, value in reader.fields(memoryview(body)[len(PREFIX) :]):
        if number in {1, 2, 3} and isinstance(value, memoryview):
            envelope[number] = bytes(value)
    if envelope.get(3):
        raise _refuse("the envelope has a content encoding, none is accepted")
    type_meta = reader.message(memoryview(envelope.get(1, b"")), schema.message("runtime.TypeMeta"), 0)
    api_version, kind = type_meta.get("apiVersion", ""), type_meta.get("kind", "")
    name = _message_names().get((api_version, kind))
    if kind == "DeleteOptions":
        name = "meta.v1.DeleteOptions"
    if name is None:
        raise _refuse(f'no kind "{kind[:64]}" is registered for version "{api_version[:64]}"')
    # 2. the object
    fields = reader.message(memoryview(envelope.get(2, b"")), schema.message(name), 0)
    return {"apiVersion": api_version, "kind": kind, **fields}


def wire_fields(data: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field of one message, whatever it is called: for messages that the schema does not have."""
    for number, _, value in _Reader().fields(memoryview(data)):
        yield number, value


@functools.cache
def _message_names() -> dict[tuple[str, str], str]:
    """(apiVersion, kind) -> message, of the kinds that have one."""
    return {
        (f"{row['group']}/{row['version']}" if row["group"] else row["version"], row["kind"]): row["message"]
        for row in schema.kind_rows()
    }


class _Reader:
    """One body being read; it carries the count that bounds the work."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_FIELDS

    def spend(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise _refuse(f"the object has more than {MAX_FIELDS} fields")

    def fields(self, data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
        """(number, wire type, value) of each field; the value is a view unless the wire type is varint."""
        at, end = 0, len(data)
        while at < end:
            self.spend()
            tag, at = _varint(data, at)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise _refuse(f"{number} is not a field number")
            if wire == _VARINT:
                value, at = _varint(data, at)
                yield number, wire, value
                continue
            if wire == _BYTES:
                size, at = _varint(data, at)
            elif wire in _FIXED_SIZES:
                size = _FIXED_SIZES[wire]
            else:
                raise _refuse(f"field {number} has wire type {wire}, which is not accepted")
            if size > end - at:
                raise _refuse("unexpected EOF")
            yield number, wire, data[at : at + size]
            at += size

    def message(self, data: memoryview, message: schema.Message, depth: int) -> dict[str, Any]:
        """The fields of a message under their JSON names."""
        if depth > nesting.MAX_DEPTH:
            raise status.bad_request(nesting.TOO_DEEP)
        fields: dict[str, Any] = {}
        for number, wire, value in self.fields(data):
            field = message.wire.get(number)
            if field is None:
                continue
            if field.is_map:
                key, entry = self.entry(_bytes(wire, value, field), field, depth)
                fields.setdefault(field.name, {})[key] = entry
            elif field.repeated:
                fields.setdefault(field.name, []).extend(self.elements(wire, value, field, depth))
            elif field.inline:
                fields.update(self.message(_bytes(wire, value, field), schema.message(field.type), depth + 1))
            else:
                decoded = self.value(wire, value, field, depth)
                if decoded is _NULL or (not message.json_form and _is_omitted(field, decoded)):
                    # Of several occurrences the last one counts, even if it is the zero value.
                    fields.pop(field.name, None)
                else:
                    fields[field.name] = decoded
        return fields

    def entry(self, data: memoryview, field: schema.Field, depth: int) -> tuple[str, Any]:
        """Key and value of one entry of a map; either may be missing and is then its zero value."""
        key = ""
        entry = self.value(_BYTES, memoryview(b""), field, depth)
        for number, wire, value in self.fields(data):
            if number == 1:
                key = _text(_bytes(wire, value, field), field)
            elif number == 2:
                entry = self.value(wire, value, field, depth)
        return key, _or_none(entry)

    def elements(self, wire: int, value: int | memoryview, field: schema.Field, depth: int) -> Iterator[Any]:
        """What one occurrence of a repeated field adds: one element, or many if numbers are packed."""
        if field.type not in _INTEGERS or isinstance(value, int):
            yield _or_none(self.value(wire, value, field, depth))
            return
        data, at = _bytes(wire, value, field), 0
        while at < len(data):
            self.spend()
            number, at = _varint(data, at)
            yield _INTEGERS[field.type](number)

    def value(self, wire: int, value: int | memoryview, field: schema.Field, depth: int) -> Any:
        """One value of a field's type; `_NULL` for what JSON writes as null."""
        if field.type in _INTEGERS:
            if not isinstance(value, int):
                raise _wrong_wire_type(field, wire)
            return _INTEGERS[field.type](value)
        if field.type == "double":
            return _double(wire, value, field)
        data = _bytes(wire, value, field)
        if field.type == "string":
            return _text(data, field)
        if field.type == "bytes":
            return base64.b64encode(data).decode("ascii")
        message = schema.message(field.type)
        if message.json_form == "raw":
            return self.raw(data, field)
        if message.json_form in _TIMES and not data:
            return _NULL
        fields = self.message(data, message, depth + 1)
        return _FORMS[message.json_form](fields) if message.json_form else fields

    def raw(self, data: memoryview, field: schema.Field) -> Any:
        """JSON that travels as it is, in field 1."""
        content = memoryview(b"")
        for number, wire, value in self.fields(data):
            if number == 1:
                content = _bytes(wire, value, field)
        if not content:
            return _NULL
        text = bytes(content)
        # Whatever may be a value counts like a field: all of them are read in one step, however many there are.
        self.spend(text.count(b",") + text.count(b"{") + text.count(b"["))
        try:
            decoded = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            raise _refuse(f"field {field.proto_name} does not hold JSON") from None
        return _NULL if decoded is None else decoded


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    # Most are one byte long: tags, short lengths, booleans.
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    result = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _refuse("unexpected EOF")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, at
    raise _refuse("a number has more than 64 bits")


def _wrong_wire_type(field: schema.Field, wire: int) -> status.StatusError:
    return _refuse(f"wrong wireType = {wire} for field {field.proto_name}")


def _bytes(wire: int, value: int | memoryview, field: schema.Field) -> memoryview:
    if wire != _BYTES or isinstance(value, int):
        raise _wrong_wire_type(field, wire)
    return value


def _text(data: memoryview, field: schema.Field) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise _refuse(f"field {field.proto_name} is not valid UTF-8") from None


def _double(wire: int, value: int | memoryview, field: schema.Field) -> float:
    if wire != _FIXED64 or isinstance(value, int):
        raise _wrong_wire_type(field, wire)
    number: float = struct.unpack("<d", value)[0]
    if not math.isfinite(number):
        raise _refuse(f"field {field.proto_name} is not a finite number")
    return number


def _signed(bits: int) -> Callable[[int], int]:
    """Two's complement of the low bits, as Go truncates."""
    half = 1 << (bits - 1)
    return lambda number: ((number + half) & ((1 << bits) - 1)) - half


def _is_omitted(field: schema.Field, decoded: Any) -> bool:
    """Whether Go's JSON leaves the value out: the encoder writes zero values on the wire, `omitempty` drops them.

    A required field has no `omitempty`. Zero values of raw JSON are values: only null is nothing.
    """
    if decoded or field.pointer or field.required:
        return False
    return schema.is_scalar(field.type) or schema.message(field.type).json_form != "raw"


def _or_none(decoded: Any) -> Any:
    return None if decoded is _NULL else decoded


def _time(fields: dict[str, Any], timespec: str) -> str:
    try:
        instant = _EPOCH + timedelta(seconds=fields.get("seconds", 0), microseconds=fields.get("nanos", 0) // 1000)
    except OverflowError:
        raise _refuse("a time is outside the years 1 to 9999") from None
    return instant.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def _int_or_string(fields: dict[str, Any]) -> int | str:
    if fields.get("type", 0) not in {0, 1}:
        raise _refuse("impossible IntOrString.Type")
    value: int | str = fields.get("strVal", "") if fields.get("type") else fields.get("intVal", 0)
    return value


_INTEGERS: Final[dict[str, Callable[[int], Any]]] = {"int32": _signed(32), "int64": _signed(64), "bool": bool}
_TIMES: Final = frozenset({"rfc3339-seconds|null", "rfc3339-micros|null"})
# Messages whose JSON is not an object of their fields: what it is instead.
_FORMS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "rfc3339-seconds|null": lambda fields: _time(fields, "seconds"),
    "rfc3339-micros|null": lambda fields: _time(fields, "microseconds"),
    "int|string": _int_or_string,
    "string": lambda fields: fields.get("string") or "0",
    "array": lambda fields: fields.get("items", []),
    "bool|object": lambda fields: fields.get("schema", fields.get("allows", False)),
    "object|array": lambda fields: fields.get("jSONSchemas") or fields.get("property") or fields.get("schema", _NULL),
}
