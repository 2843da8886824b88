# SPDX-License-Identifier: Apache-2.0
"""What msgspec says of a document that is not of a type, as a sentence: which field, what it has, and what is allowed.

It is only asked once a document is refused. Values are shown where they are numbers or short words, and never below `passwd`.
"""

from __future__ import annotations

import re
import typing
from typing import Any, Final

import msgspec

_PLACE: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_STEP: Final = re.compile(r"\[(\d+)\]|\.([^.\[]+)")
_ACCOUNTS: Final = ".passwd"
_WORD: Final = 40


def sentence(error: msgspec.ValidationError, document: Any, kind: type[msgspec.Struct], where: str) -> str:
    """The error, with the place that it is at."""
    match = _PLACE.fullmatch(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    if unknown := _UNKNOWN.fullmatch(what):
        fields = _fields(kind, path)
        near = next((name for name in fields if name.lower() == unknown["name"].lower()), None)
        meant = f", and {near} was perhaps meant" if near else ""
        return f"{where}{path}.{unknown['name'][:_WORD]} is no field: there are {', '.join(fields)}{meant}"
    if missing := _MISSING.fullmatch(what):
        return f"{where}{path}.{missing['name']} is missing"
    return f"{where}{path} {_shown(document, path)}: {what[:1].lower()}{what[1:].replace('`', '')}"


def _shown(document: Any, path: str) -> str:
    value = document
    for number, name in _STEP.findall(path):
        value = value[int(number)] if number else value[name]
    short = isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _WORD)
    if short and not path.startswith(_ACCOUNTS):
        return f"is {value!r}"
    return "has another type"


def _fields(kind: type[msgspec.Struct], path: str) -> list[str]:
    """The names of the fields of the type at a path."""
    current: Any = kind
    for _, name in _STEP.findall(path):
        if name:
            field = next(field for field in msgspec.structs.fields(current) if field.encode_name == name)
            current = _struct(field.type)
    return [field.encode_name for field in msgspec.structs.fields(current)]


def _struct(annotation: Any) -> Any:
    """The struct in `list[File] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next((found for part in typing.get_args(annotation) if (found := _struct(part)) is not None), None)
