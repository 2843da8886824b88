# SPDX-License-Identifier: Apache-2.0
"""What the rules of a structural schema see of an object: names they can write, types they can count on, sizes at most.

1. A field is seen under its name, or under an escaped one where that is no name of CEL: `a-b` is `a__dash__b`. One that cannot be
   escaped is not seen.
2. Of a resource's metadata, name and generateName are seen, and no more.
3. Numbers are doubles and bytes are bytes, whatever JSON made of them. Times stay texts: the expression is changed instead (`timed`).
4. Sizes follow from maxItems, maxProperties, maxLength and enum; without them, from how much a request can hold.
5. A place that keeps what it does not know may hold anything.

It judges neither schemas nor values.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from handfast.api.cel import shapes
from handfast.api.cel.shapes import Shape
from handfast.api.custom import structural
from handfast.api.custom.structural import Schema

_RESERVED: Final = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_ODD: Final = re.compile(r"__|[-./]")
_WORDS: Final = {"__": "__underscores__", "-": "__dash__", ".": "__dot__", "/": "__slash__"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_TIMES: Final = {"date": "date", "date-time": "timestamp", "datetime": "timestamp", "duration": "duration"}
_TIME_LENGTH: Final = 32
_SEEN: Final = ("name", "generateName")
# The fewest bytes that a value of a type takes.
_LEAST: Final = {"string": 2, "boolean": 4, "integer": 1, "number": 1, "array": 2, "object": 2}
_META: Final = shapes.record({name: shapes.text(253) for name in _SEEN})

Convert = Callable[[Any], Any]


def escaped(name: str) -> str | None:
    """A field's name as rules write it; None if they cannot."""
    if name in _RESERVED:
        return f"__{name}__"
    text = _ODD.sub(lambda match: _WORDS[match[0]], name)
    return text if _NAME.match(text) else None


def least_bytes(schema: Schema) -> int:
    """The fewest bytes that a value takes in a request."""
    least = _LEAST.get(schema.get("type") or "", 1)
    for name in schema.get("required") or ():
        below = structural.properties(schema).get(name)
        if isinstance(below, Mapping):
            least += len(name) + 3 + _LEAST.get(below.get("type") or "", 1)
    return least


def most_elements(schema: Schema) -> int:
    """How many elements a list, or entries a map, can have."""
    key, below = ("maxItems", structural.items(schema))
    if schema.get("type") == "object":
        key, below = "maxProperties", structural.field({**schema, "properties": {}}, "")
    bound = schema.get(key)
    # 4. sizes follow from the schema, or from how much a request can hold
    return bound if isinstance(bound, int) else shapes.REQUEST_BYTES // (least_bytes(below or {}) + 1)


def shape(schema: Schema, *, root: bool = False) -> Shape:
    """What rules at a schema, or above it, may expect."""
    kind = schema.get("type")
    if schema.get(structural.INT_OR_STRING) is True:
        return shapes.anything(_most_text(schema))
    if kind == "string":
        return _text(schema)
    if kind in {"integer", "number", "boolean"}:
        return {"integer": shapes.INT, "number": shapes.DOUBLE, "boolean": shapes.BOOL}[kind]
    if kind == "array":
        return _held(shapes.array(shape(structural.items(schema) or {}), most_elements(schema)))
    if kind == "object":
        return _object(schema, root=root)
    return shapes.ANY  # 5. it may hold anything


def _object(schema: Schema, *, root: bool) -> Shape:
    rest = schema.get("additionalProperties")
    if isinstance(rest, Mapping):
        return _held(shapes.mapping(shape(rest), most_elements(schema)))
    fields = {}
    for name, below in structural.properties(schema).items():
        word = escaped(name)
        if word is not None and isinstance(below, Mapping):
            fields[word] = shape(below)
    if root or schema.get(structural.EMBEDDED) is True:
        # 2. name and generateName, and no more
        fields |= {"apiVersion": shapes.text(253), "kind": shapes.text(253), "metadata": _META}
    if not fields and schema.get(structural.PRESERVE) is True:
        return shapes.ANY
    return _held(shapes.record(fields))


def _held(value: Shape) -> Shape:
    """No value is heavier than a request, whatever its parts could be."""
    return value if value.weight <= shapes.REQUEST_BYTES else replace(value, weight=shapes.REQUEST_BYTES)


def _text(schema: Schema) -> Shape:
    wanted = schema.get("format") or ""
    if wanted in _TIMES:
        return Shape(_TIMES[wanted], 1, _TIME_LENGTH, is_text=True)
    if wanted == "byte":
        return Shape("bytes", _most_text(schema), _most_text(schema))
    return shapes.text(_most_text(schema))


def _most_text(schema: Schema) -> int:
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return max(len(str(value)) for value in values)
    bound = schema.get("maxLength")
    # A character takes up to four bytes.
    return 4 * bound if isinstance(bound, int) else shapes.REQUEST_BYTES


_FUNCTIONS: Final = {"timestamp": "timestamp({})", "duration": "duration({})", "date": "timestamp({} + 'T00:00:00Z')"}


def timed(text: str, times: Mapping[tuple[int, str], str]) -> str:
    """An expression in which the times of a document, which are texts, are read as times."""
    # 3. from the end on, so that what comes before stays where it is
    for (offset, name), kind in sorted(times.items(), reverse=True):
        end = offset + len(name)
        text = text[:offset] + _FUNCTIONS[kind].format(name) + text[end:]
    return text


# --- values


def converter(schema: Schema, *, root: bool = False) -> Convert | None:
    """What makes of a value the one that rules see; None where it is the value itself."""
    kind = schema.get("type")
    if schema.get(structural.INT_OR_STRING) is True:
        return None
    if kind == "number":
        return _double
    if kind == "string":
        return _octets if schema.get("format") == "byte" else None
    if kind == "array":
        below = converter(structural.items(schema) or {})
        return None if below is None else _each(below)
    if kind == "object":
        return _fields(schema, root=root)
    return None


def _double(value: Any) -> Any:
    # 3. numbers are doubles
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _octets(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except (binascii.Error, ValueError):
        return value


def _each(below: Convert) -> Convert:
    return lambda value: [below(each) for each in value] if isinstance(value, list) else value


def _entries(below: Convert) -> Convert:
    return lambda value: {key: below(each) for key, each in value.items()} if isinstance(value, dict) else value


def _fields(schema: Schema, *, root: bool) -> Convert | None:
    rest = schema.get("additionalProperties")
    if isinstance(rest, Mapping):
        below = converter(rest)
        return None if below is None else _entries(below)
    table: dict[str, tuple[str | None, Convert | None]] = {}
    for name, child in structural.properties(schema).items():
        word, change = escaped(name), converter(child) if isinstance(child, Mapping) else None
        if word != name or change is not None:
            table[name] = word, change
    if root or schema.get(structural.EMBEDDED) is True:
        table["metadata"] = "metadata", _named
    return _renamed(table) if table else None


def _named(metadata: Any) -> Any:
    return {key: metadata[key] for key in _SEEN if key in metadata} if isinstance(metadata, dict) else metadata


def _renamed(table: Mapping[str, tuple[str | None, Convert | None]]) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        seen = {}
        for key, child in value.items():
            # 1. under its name, or under an escaped one
            word, change = table.get(key, (key, None))
            if word is not None:
                seen[word] = child if change is None else change(child)
        return seen

    return convert
