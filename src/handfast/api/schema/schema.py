# SPDX-License-Identifier: Apache-2.0
"""What the packaged schema says of each message of the Kubernetes API: its fields by JSON key and by wire number.

It reads data/kubernetes-api.json once, on first use, and hands out frozen rows. It judges no document: that is
`structs`, `decode`, `protobuf` and the merges.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from handfast import errors

_SCALARS = frozenset({"string", "bool", "int32", "int64", "double", "bytes"})


class Field(msgspec.Struct, frozen=True):
    """One field of a message; `list_type` "" stands for none declared, which server-side apply takes as atomic."""

    name: str
    number: int
    type: str
    repeated: bool
    is_map: bool
    inline: bool
    required: bool
    pointer: bool
    list_type: str
    keys: tuple[str, ...]
    map_type: str
    patch: str
    patch_key: str
    proto_name: str


class Message(msgspec.Struct, frozen=True):
    """A message: `fields` as in JSON (inline messages flattened in), `wire` as in protobuf (not flattened).

    `apiVersion` and `kind` are in neither: they are the envelope's, not the message's.
    """

    name: str
    fields: Mapping[str, Field]
    wire: Mapping[int, Field]
    atomic: bool
    json_form: str


@functools.cache
def _data() -> dict[str, Any]:
    packaged = importlib.resources.files("handfast").joinpath("data/kubernetes-api.json")
    data: dict[str, Any] = msgspec.json.decode(packaged.read_bytes())
    return data


def _field(name: str, row: list[Any]) -> Field:
    options = row[2] if len(row) > 2 else {}
    return Field(
        name=name,
        number=row[0],
        type=row[1],
        repeated="repeated" in options,
        is_map="map" in options,
        inline="inline" in options,
        required="required" in options,
        pointer="ptr" in options,
        list_type=options.get("listType", ""),
        keys=tuple(options.get("keys", ())),
        map_type=options.get("mapType", ""),
        patch=options.get("patch", ""),
        patch_key=options.get("patchKey", ""),
        proto_name=options.get("proto", name),
    )


@functools.cache
def message(name: str) -> Message:
    """The message of that name, e.g. `core.v1.Pod`; an unknown name is the caller's mistake."""
    data = _data()
    rows = data["messages"].get(name)
    if rows is None:
        raise errors.Misuse(f'the schema has no message "{name}"')
    own = [_field(key, row) for key, row in rows.items()]
    flat: dict[str, Field] = {}
    for field in own:
        if field.inline:
            flat.update(message(field.type).fields)
        else:
            flat[field.name] = field
    return Message(
        name=name,
        fields=MappingProxyType(flat),
        wire=MappingProxyType({field.number: field for field in own}),
        atomic=name in data["atomicMessages"],
        json_form=data["jsonForm"].get(name, ""),
    )


def is_scalar(type_name: str) -> bool:
    """Whether a field's type is a protobuf scalar rather than the name of a message."""
    return type_name in _SCALARS


def kind_rows() -> Sequence[Mapping[str, Any]]:
    """The kinds of the data file as they are: group, version, kind, message and, where it has them, the rest."""
    rows: list[dict[str, Any]] = _data()["kinds"]
    return rows


def message_names() -> Sequence[str]:
    """Every message the schema knows, for tests that hold of all of them."""
    return tuple(_data()["messages"])


def field_at(message_name: str, json_key: str) -> Field | None:
    """The field behind a JSON key of a message, or None if the message has no such key."""
    return message(message_name).fields.get(json_key)


@functools.cache
def has_type_meta(message_name: str) -> bool:
    """Whether the JSON of a message has `apiVersion` and `kind` of the envelope: kinds, their lists and options."""
    kinds = {name for row in kind_rows() for name in (row["message"], row.get("list"))}
    return message_name in kinds | {"meta.v1.DeleteOptions", "meta.v1.PatchOptions", "meta.v1.Status"}
