# SPDX-License-Identifier: Apache-2.0
"""Message classes of protobuf made at run time from names and field numbers: rows in, classes out. No compiler runs.

It holds no message of its own: see `mesh_messages`. What a class does with octets is the library's.

A file is a package and its messages; a message is a tuple of fields. The type of a field is a scalar's word (`string`,
`uint32`, …), or the full name of a message. A name with a dot, as `TlsIdentity.DnsLikeIdentity`, is nested in the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "fixed32": _FIELD.TYPE_FIXED32,
    "fixed64": _FIELD.TYPE_FIXED64,
    "float": _FIELD.TYPE_FLOAT,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
}
TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
_KNOWN: Final = (timestamp_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR)


class Field(msgspec.Struct, frozen=True):
    """One field; of those with the same `oneof` a message has one at most. `values` is what a map leads to, from text."""

    name: str
    number: int
    type: str
    repeated: bool = False
    oneof: str = ""
    values: str = ""


def one(name: str, number: int, kind: str, *, oneof: str = "") -> Field:
    return Field(name, number, kind, oneof=oneof)


def many(name: str, number: int, kind: str) -> Field:
    return Field(name, number, kind, repeated=True)


def texts(name: str, number: int) -> Field:
    """A map from text to text."""
    return Field(name, number, "", repeated=True, values="string")


def octets(name: str, number: int) -> Field:
    """A map from text to octets."""
    return Field(name, number, "", repeated=True, values="bytes")


Messages = Mapping[str, tuple[Field, ...]]


class Pool:
    """Message classes by full name; a pool of our own, so that no other user of the library can differ with it."""

    def __init__(self) -> None:
        self._pool: Any = descriptor_pool.DescriptorPool()
        for known in _KNOWN:
            self._pool.AddSerializedFile(known.serialized_pb)

    def add(self, package: str, messages: Messages, imports: Iterable[str] = ()) -> None:
        """The messages of one package, or of none; `imports` are the packages that its fields name."""
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        prefix = f"{package}." if package else ""
        file.dependency.extend([known.name for known in _KNOWN] + [f"{name}.proto" for name in imports])
        places: dict[str, Any] = {}
        for name in sorted(messages, key=lambda name: name.count(".")):
            parent, _, last = name.rpartition(".")
            message = places[parent].nested_type.add() if parent else file.message_type.add()
            message.name = last
            places[name] = message
            _fill(message, f"{prefix}{name}", messages[name])
        self._pool.Add(file)

    def message(self, full_name: str) -> Any:
        """The class of a message."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(full_name))


def _fill(message: Any, full_name: str, fields: tuple[Field, ...]) -> None:
    groups = list(dict.fromkeys(field.oneof for field in fields if field.oneof))
    for group in groups:
        message.oneof_decl.add().name = group
    for field in fields:
        row = message.field.add(name=field.name, number=field.number)
        row.label = _FIELD.LABEL_REPEATED if field.repeated else _FIELD.LABEL_OPTIONAL
        kind = field.type
        if field.values:
            kind = f"{full_name}.{_add_entry(message, field)}"
        if kind in _SCALARS:
            row.type = _SCALARS[kind]
        else:
            row.type, row.type_name = _FIELD.TYPE_MESSAGE, f".{kind}"
        if field.oneof:
            row.oneof_index = groups.index(field.oneof)


def _add_entry(message: Any, field: Field) -> str:
    """A map is a repeated message of key and value, whose name protobuf prescribes."""
    entry = message.nested_type.add(name="".join(word.capitalize() for word in field.name.split("_")) + "Entry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate({"key": "string", "value": field.values}.items(), 1):
        entry.field.add(name=name, number=number, type=_SCALARS[kind], label=_FIELD.LABEL_OPTIONAL)
    return str(entry.name)
