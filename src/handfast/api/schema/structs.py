# SPDX-License-Identifier: Apache-2.0
"""Decide whether a document has the fields and types its message wants: what is unknown, and the first wrong type.

It does not decide whether values make sense (names, ranges, required fields): that is validation. A document that is
right, which nearly all are, costs one conversion in C: a msgspec type made from the schema, strict about fields. The
type accepts nothing that the walk below would refuse; what it refuses, the walk looks at again and has the last word.

An unknown field is named, up to `MAX_UNKNOWN` of them, and can be dropped (`drop_unknown`). What it holds is never
looked at, so that it costs the same whatever that is.

A null in place of a field says nothing and stays. A null inside a list or a map would be met by everybody who reads
the object later. It becomes the zero value of its type, as Go's decoder makes it: `settle_nulls`.

Types are built on first use of a kind, and messages share those of the messages below them: a Pod brings 135 small
types (with the schema about 2 MiB and 50 ms), and the other kinds little more. Messages that contain themselves (the
schemas of a CustomResourceDefinition) get no type and are always walked; they are written rarely.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Annotated, Any, Final, cast

import msgspec

from handfast.api.field_path import Path
from handfast.api.schema import scalars, schema

_INT32: Final = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_LIMITS: Final = {"int32": 2**31, "int64": 2**63}
_SCALAR_TYPES: Final[dict[str, Any]] = {
    "string": str,
    "bool": bool,
    "int32": _INT32,
    "int64": _INT64,
    "double": float,
    "bytes": bytes,
}
_FORM_TYPES: Final[dict[str, Any]] = {
    "raw": Any,
    "int|string": _INT32 | str,
    "string": Annotated[str, msgspec.Meta(pattern=scalars.QUANTITY)] | int | float,
    "array": list[str],
    "rfc3339-seconds|null": Annotated[str, msgspec.Meta(pattern=scalars.PLAIN_SECONDS)],
    "rfc3339-micros|null": Annotated[str, msgspec.Meta(pattern=scalars.PLAIN_MICROS)],
}
# What a null inside a list or a map becomes; messages that are objects become empty ones.
_ZEROS: Final[dict[str, Any]] = {"string": "", "bytes": "", "bool": False, "int32": 0, "int64": 0, "double": 0}
_FORM_ZEROS: Final[dict[str, Any]] = {"int|string": 0, "string": "0"}
# Of these forms a null is a value, or their zero value is one.
_NULL_FORMS: Final = frozenset({"raw", "rfc3339-seconds|null", "rfc3339-micros|null"})
# A refusal should not outgrow the request.
MAX_UNKNOWN: Final = 100
_TYPE_META: Final = ("apiVersion", "kind")
# Grown by `_struct` only. A message under construction stands here as None, so that one which meets itself, or is
# met by another thread meanwhile, is walked instead: slower, never wrong.
_TYPES: Final[dict[str, Any]] = {}


class Findings(msgspec.Struct, frozen=True):
    """What is wrong with a document: unknown fields as paths, and the first type error in Go's words.

    `nulls` are its lists and maps that hold nulls, each with the type of its elements; `extra` its objects that hold
    unknown fields, each with their keys: all of them, not only those that `unknown` names.
    """

    unknown: tuple[str, ...] = ()
    type_error: str | None = None
    nulls: tuple[tuple[dict[str, Any] | list[Any], str], ...] = ()
    extra: tuple[tuple[dict[str, Any], list[str]], ...] = ()


_CLEAN: Final = Findings()


def check(message_name: str, document: Any) -> Findings:
    """Judge a decoded document by its message, e.g. `core.v1.Pod`."""
    struct = _struct(message_name)
    if struct is not None:
        try:
            msgspec.convert(document, struct)
        except msgspec.ValidationError:
            pass
        else:
            return _CLEAN
    return walk(message_name, document)


def ready(message_name: str) -> None:
    """Make the type of a message now. Whoever hands documents to another thread does so first: then both threads use it."""
    _struct(message_name)


def walk(message_name: str, document: Any) -> Findings:
    """The same judgement by hand, with everything there is to say."""
    message = schema.message(message_name)
    if not isinstance(document, dict):
        return Findings(
            (), f"json: cannot unmarshal {_kind_of(document)} into Go value of type {_go_type(message_name)}"
        )
    walker = _Walker()
    walker.fields(document, message, "", None)
    return Findings(tuple(walker.unknown), walker.type_error or None, tuple(walker.nulls), tuple(walker.extra))


def settle_nulls(findings: Findings) -> None:
    """Replace, in the document that was checked, the nulls found inside lists and maps by zero values."""
    for container, type_name in findings.nulls:
        children = list(container.items()) if isinstance(container, dict) else enumerate(container)
        for step, child in children:
            if child is None:
                cast("dict[str | int, Any]", container)[step] = _zero(type_name)


def drop_unknown(findings: Findings) -> None:
    """Remove, from the document that was checked, every field that its message does not have."""
    for container, keys in findings.extra:
        for key in keys:
            del container[key]


def _zero(type_name: str) -> Any:
    if schema.is_scalar(type_name):
        return _ZEROS[type_name]
    form = schema.message(type_name).json_form
    # Made anew each time, since the document owns it.
    return _FORM_ZEROS.get(form, [] if form == "array" else {})


# --- the fast way: a type per message ---------------------------------------------------------------------------------


def _struct(name: str) -> Any:
    """The msgspec type of a message, or None if it or one below it contains itself."""
    if name in _TYPES:
        return _TYPES[name]
    _TYPES[name] = None
    members: list[tuple[str, Any, Any]] = []
    # JSON keys such as `$ref` are no Python names: attributes are numbered and renamed.
    rename: dict[str, str] = {}
    if schema.has_type_meta(name):
        members = [(key, str | None, None) for key in _TYPE_META]
    for index, field in enumerate(schema.message(name).fields.values()):
        member = _field_type(field)
        if member is None:
            return None
        members.append((f"f{index}", member | None, None))
        rename[f"f{index}"] = field.name
    # gc=False: the objects live for one check and are trees.
    struct = msgspec.defstruct(name.replace(".", "_"), members, rename=rename, forbid_unknown_fields=True, gc=False)
    _TYPES[name] = struct
    return struct


def _field_type(field: schema.Field) -> Any:
    one = _value_type(field.type)
    if one is None:
        return None
    # Without None: a null in a list or a map is for the walk to find.
    if field.is_map:
        return types.GenericAlias(dict, (str, one))
    return types.GenericAlias(list, (one,)) if field.repeated else one


def _value_type(type_name: str) -> Any:
    if type_name in _SCALAR_TYPES:
        return _SCALAR_TYPES[type_name]
    form = schema.message(type_name).json_form
    return _FORM_TYPES.get(form) if form else _struct(type_name)


# --- the thorough way: a walk -----------------------------------------------------------------------------------------


def _kind_of(value: Any) -> str:
    """Go's name for a JSON value."""
    return {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")


def _go_type(type_name: str) -> str:
    """`core.v1.PodSpec` is v1.PodSpec to Go."""
    scalar = {"double": "float64", "bytes": "[]uint8"}.get(type_name, type_name)
    return ".".join(scalar.split(".")[-2:])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Walker:
    """Collects; `where` is the dotted path without indices that Go's texts have, `path` the one with them."""

    __slots__ = ("extra", "nulls", "type_error", "unknown")

    def __init__(self) -> None:
        self.extra: list[tuple[dict[str, Any], list[str]]] = []
        self.nulls: list[tuple[dict[str, Any] | list[Any], str]] = []
        self.unknown: dict[str, None] = {}
        self.type_error = ""

    def fail(self, text: str) -> None:
        # The first one counts, as in Go.
        self.type_error = self.type_error or text

    def mismatch(self, value: Any, go_type: str, where: str, *, show: bool = False) -> None:
        """`where` is "Container.spec.containers.image": the innermost struct, then the keys from the top."""
        number = f" {str(value)[:32]}" if show else ""
        self.fail(f"json: cannot unmarshal {_kind_of(value)}{number} into Go struct field {where} of type {go_type}")

    def fields(self, value: dict[str, Any], message: schema.Message, where: str, path: Path | None) -> None:
        """An object with the fields of a message."""
        struct = message.name.rpartition(".")[2]
        extra: list[str] = []
        for key, child in value.items():
            field = message.fields.get(key)
            below = f"{where}.{key}"
            if field is not None:
                if child is not None:
                    self.field(child, field, struct, below, Path(key, path))
            elif key in _TYPE_META and schema.has_type_meta(message.name):
                if not isinstance(child, str | None):
                    self.mismatch(child, "string", struct + below)
            else:
                extra.append(key)
                if len(self.unknown) < MAX_UNKNOWN:
                    self.unknown[str(Path(key, path))] = None
        if extra:
            self.extra.append((value, extra))

    def field(self, value: Any, field: schema.Field, struct: str, where: str, path: Path) -> None:
        """The value of a field: one, a list or a map."""
        children: Iterable[tuple[str | int, Any]]
        if field.is_map:
            if not isinstance(value, dict):
                return self.mismatch(value, f"map[string]{_go_type(field.type)}", struct + where)
            children = value.items()
        elif field.repeated:
            if not isinstance(value, list):
                return self.mismatch(value, f"[]{_go_type(field.type)}", struct + where)
            children = enumerate(value)
        else:
            return self.value(value, field.type, struct, where, path)
        nulls = False
        for step, child in children:
            if self.type_error:
                # The document is refused for it. The rest of a long list need not be looked at.
                break
            if child is None:
                nulls = True
            else:
                self.value(child, field.type, struct, where, Path(step, path))
        if nulls and (schema.is_scalar(field.type) or schema.message(field.type).json_form not in _NULL_FORMS):
            self.nulls.append((value, field.type))
        return None

    def value(self, value: Any, type_name: str, struct: str, where: str, path: Path) -> None:
        """One value that is not null."""
        if schema.is_scalar(type_name):
            return self.scalar(value, type_name, struct + where)
        message = schema.message(type_name)
        if message.json_form:
            return self.form(value, message, struct, where, path)
        if not isinstance(value, dict):
            return self.mismatch(value, _go_type(type_name), struct + where)
        return self.fields(value, message, where, path)

    def scalar(self, value: Any, type_name: str, where: str) -> None:
        if type_name in _LIMITS:
            limit = _LIMITS[type_name]
            if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
                self.mismatch(value, type_name, where, show=_is_number(value))
        elif type_name == "double":
            if not _is_number(value) or abs(value) > sys.float_info.max:
                self.mismatch(value, "float64", where, show=_is_number(value))
        elif type_name == "bool":
            if not isinstance(value, bool):
                self.mismatch(value, "bool", where)
        elif not isinstance(value, str):
            self.mismatch(value, _go_type(type_name), where)
        elif type_name == "bytes":
            self.fail(scalars.base64_error(value))

    def form(self, value: Any, message: schema.Message, struct: str, where: str, path: Path) -> None:
        """A message whose JSON is not an object of its fields."""
        form = message.json_form
        if form in {"rfc3339-seconds|null", "rfc3339-micros|null"}:
            if isinstance(value, str):
                self.fail(scalars.time_error(value, micros=form == "rfc3339-micros|null"))
            else:
                self.fail(f"json: cannot unmarshal {_kind_of(value)} into Go value of type string")
        elif form == "string":
            self.fail("" if _is_number(value) else scalars.quantity_error(value if isinstance(value, str) else ""))
        elif form == "int|string":
            if not isinstance(value, str):
                self.scalar(value, "int32", struct + where)
        elif form == "array":
            self.field(value, message.fields["items"], struct, where, path)
        elif form != "raw":
            self.schema_or_other(value, message, struct, where, path)

    def schema_or_other(self, value: Any, message: schema.Message, struct: str, where: str, path: Path) -> None:
        """The three of apiextensions that are a schema or, instead, a boolean, a list of schemas or one of strings."""
        fields = message.fields
        if isinstance(value, dict):
            self.value(value, fields["schema"].type, struct, where, path)
        elif "allows" in fields:
            if not isinstance(value, bool):
                self.fail("boolean or JSON schema expected")
        else:
            self.field(value, fields.get("jSONSchemas") or fields["property"], struct, where, path)
