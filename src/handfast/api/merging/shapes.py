# SPDX-License-Identifier: Apache-2.0
"""What the schema says of ownership: which objects and lists are owned as a whole, and which part by part.

A shape describes one place of a document: of a built-in kind, by the schema's messages; of a custom resource, by its OpenAPI v3
schema; or of anything else, of which nothing is known. `fieldsets` walks documents by their shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from handfast.api.schema import schema

# The defaults of key fields, which name an element even where the applied configuration leaves them out.
_KEY_DEFAULTS = {"protocol": "TCP"}


class Shape(Protocol):
    """What is known about the values at one place of a document, as far as ownership is concerned."""

    @property
    def atomic(self) -> bool:
        """Whether an object here is owned as a whole."""

    @property
    def list_type(self) -> str:
        """`map` (elements owned by their keys), `set` (by their value), or `atomic`."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key fields of the elements of a `map` list."""

    @property
    def implied(self) -> bool:
        """Whether an object or list here is always there, if only empty, and thus nobody's."""

    def default(self, key: str) -> Any:
        """The value of a key field that an element leaves out."""

    @property
    def table(self) -> Table:
        """The fields that a struct declares, as paths name them, with their shapes. What is not in it, `child` tells."""

    @property
    def entries(self) -> Shape | None:
        """The shape of the entries of a map, where all have the same."""

    def child(self, name: str, /) -> Shape: ...

    def declares(self, name: str, /) -> bool:
        """Whether `name` is a field of a struct here, rather than an entry that somebody added to a map."""

    def element(self) -> Shape: ...


# Field -> its path element, and the shape of its values.
Table = Mapping[str, tuple[str, Shape]]
_NONE_DECLARED: Table = {}


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Nothing is known: objects are maps, lists are atomic."""

    atomic: bool = False
    list_type: str = "atomic"
    keys: tuple[str, ...] = ()
    implied: bool = False
    table: Table = field(default_factory=dict, hash=False)

    @property
    def entries(self) -> Shape:
        return self

    def default(self, key: str) -> Any:
        return _KEY_DEFAULTS.get(key)

    def child(self, _name: str, /) -> Shape:
        return self

    def declares(self, _name: str, /) -> bool:
        return False

    def element(self) -> Shape:
        return self


UNKNOWN = _Unknown()


class _Builtin(msgspec.Struct, frozen=True):
    """A place in a built-in kind: `message` describes the object here or the elements of the list here."""

    message: str
    atomic: bool = False
    list_type: str = "atomic"
    keys: tuple[str, ...] = ()
    implied: bool = False
    is_map: bool = False

    @property
    def table(self) -> Table:
        return _NONE_DECLARED if self.is_map else _fields(self.message)

    @property
    def entries(self) -> Shape | None:
        return _of_type(self.message) if self.is_map else None

    def default(self, key: str) -> Any:
        return _KEY_DEFAULTS.get(key)

    def child(self, name: str) -> Shape:
        if self.is_map:
            return _of_type(self.message)
        # Looked up first: names that clients make up are never kept in the cache.
        return UNKNOWN if schema.field_at(self.message, name) is None else _of_field(self.message, name)

    def declares(self, name: str) -> bool:
        return not self.is_map and schema.field_at(self.message, name) is not None

    def element(self) -> Shape:
        return _of_type(self.message)


@functools.cache
def _fields(message: str) -> Table:
    """Made once a message: naming and looking up each field anew was half the cost of recording a new Pod (90 to 45 µs)."""
    return {name: ("f:" + name, _of_field(message, name)) for name in schema.message(message).fields}


@functools.cache
def _of_type(type_name: str) -> Shape:
    if schema.is_scalar(type_name):
        return UNKNOWN
    message = schema.message(type_name)
    return UNKNOWN if message.json_form else _Builtin(type_name, message.atomic)


@functools.cache
def _of_field(message: str, name: str) -> Shape:
    declared = schema.message(message).fields[name]
    if declared.repeated:
        return _Builtin(
            declared.type, list_type=declared.list_type or "atomic", keys=declared.keys, implied=declared.required
        )
    if declared.is_map:
        return _Builtin(declared.type, atomic=declared.map_type == "atomic", is_map=True)
    shape = _of_type(declared.type)
    if isinstance(shape, _Builtin):
        atomic = declared.map_type == "atomic" or (shape.atomic and declared.map_type != "granular")
        return _Builtin(declared.type, atomic, implied=not declared.pointer)
    return shape


@dataclass(frozen=True, slots=True)
class _Custom:
    """A place in a custom resource: an OpenAPI v3 schema with the `x-kubernetes-` extensions."""

    schema: Mapping[str, Any] = field(hash=False)
    implied: bool = False

    @property
    def table(self) -> Table:
        return _NONE_DECLARED

    @property
    def entries(self) -> Shape | None:
        rest = self.schema.get("additionalProperties")
        return None if self.schema.get("properties") else _custom(rest)

    @property
    def atomic(self) -> bool:
        return self.schema.get("x-kubernetes-map-type") == "atomic"

    @property
    def list_type(self) -> str:
        return str(self.schema.get("x-kubernetes-list-type", "atomic"))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.schema.get("x-kubernetes-list-map-keys", ()))

    def default(self, key: str) -> Any:
        return _part(_part(_part(self.schema, "items"), "properties"), key).get("default")

    def child(self, name: str) -> Shape:
        declared = _part(self.schema, "properties")
        return _custom(declared.get(name, self.schema.get("additionalProperties")))

    def declares(self, name: str) -> bool:
        return name in _part(self.schema, "properties")

    def element(self) -> Shape:
        return _custom(self.schema.get("items"))


def _part(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    # Nearly always a dict: asking for a dict is ten times faster than asking for a Mapping.
    return found if isinstance(found, dict) or isinstance(found, Mapping) else {}  # noqa: SIM101


def _custom(types: Any) -> Shape:
    return _Custom(types) if isinstance(types, dict) or isinstance(types, Mapping) else UNKNOWN  # noqa: SIM101


@dataclass(frozen=True, slots=True)
class _Root:
    """A custom object: its metadata is that of every kind, whatever its schema says or leaves out."""

    rest: Shape
    atomic: bool = False
    list_type: str = "atomic"
    keys: tuple[str, ...] = ()
    implied: bool = True
    table: Table = field(default_factory=dict, hash=False)
    entries: Shape | None = None

    def default(self, key: str) -> Any:
        return self.rest.default(key)

    def child(self, name: str) -> Shape:
        return _Builtin("meta.v1.ObjectMeta", implied=True) if name == "metadata" else self.rest.child(name)

    def declares(self, name: str) -> bool:
        return name == "metadata" or self.rest.declares(name)

    def element(self) -> Shape:
        return self.rest.element()


def shape_of(types: str | Mapping[str, Any] | None) -> Shape:
    """The shape of a whole object: by the schema's message, by a CRD's openAPIV3Schema, or with nothing known."""
    if isinstance(types, str):
        return _Builtin(types, implied=True)
    return _Root(_custom(types))
