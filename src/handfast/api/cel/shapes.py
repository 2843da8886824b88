# SPDX-License-Identifier: Apache-2.0
"""What an expression may expect of a value: its type, its fields, and how large it can be at most.

Shapes are what expressions are judged by before they run (`estimate`). They say nothing of whether a value is valid. How a
structural schema becomes a shape is `custom.rule_shapes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# No request is larger, in Kubernetes; where nothing else bounds a value, this does.
REQUEST_BYTES: Final = 3 << 20
# Sizes are counted up to here; what is larger is as good as endless.
ENDLESS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Shape:
    """`size` counts elements, entries or characters; `weight` is what looking at all of the value costs, in bytes.

    `is_text` marks a timestamp or a duration that the document holds as a text: see `custom.rule_shapes`.
    """

    kind: str
    size: int = 1
    weight: int = 1
    element: Shape | None = None
    fields: Mapping[str, Shape] = field(default_factory=dict)
    is_text: bool = False


BOOL: Final = Shape("bool")
INT: Final = Shape("int", 1, 8)
DOUBLE: Final = Shape("double", 1, 8)
NULL: Final = Shape("null")
TYPE: Final = Shape("type")
ANY: Final = Shape("dyn", REQUEST_BYTES, REQUEST_BYTES)
SCALARS: Final = frozenset({"bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"})


def text(size: int) -> Shape:
    return Shape("string", size, min(size, ENDLESS))


def anything(size: int) -> Shape:
    """A value of any type that takes so many bytes in all."""
    return Shape("dyn", size, min(size, ENDLESS))


def array(element: Shape, size: int) -> Shape:
    return Shape("list", size, min(2 + size * (element.weight + 1), ENDLESS), element)


def mapping(element: Shape, size: int, key: int = 64) -> Shape:
    return Shape("map", size, min(2 + size * (element.weight + key), ENDLESS), element)


def record(fields: Mapping[str, Shape]) -> Shape:
    """An object with declared fields; others are an error."""
    weight = sum(shape.weight + len(name) for name, shape in fields.items())
    return Shape("object", len(fields), min(2 + weight, ENDLESS), None, fields)


def joined(left: Shape, right: Shape) -> Shape:
    """What holds of a value that is one or the other."""
    size, weight = max(left.size, right.size), max(left.weight, right.weight)
    if left.kind != right.kind or left.kind == "object":
        return Shape("dyn", size, weight)
    element = right.element if left.element is None else left.element
    if left.element is not None and right.element is not None:
        element = joined(left.element, right.element)
    return Shape(left.kind, size, weight, element)
