# SPDX-License-Identifier: Apache-2.0
"""Reading parts of JSON documents whose shape is not assured: typed reads by key, and the JSONPath of printer columns.

Nothing here raises on an odd document; only `parse` refuses, and what it refuses is an expression outside the subset
`.a.b`, `.a\\.b`, `['x']`, `[0]`, `[*]`, `.*` and `[?(@.type=="Ready")]`. It writes nothing.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from handfast import errors


def at(value: Any, *path: str) -> Any:
    """The value behind the keys, or None where a step is missing or no object."""
    for key in path:
        # Nearly always a dict: asking for a dict is ten times faster than asking for a Mapping.
        if not isinstance(value, dict) and not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def mapping(value: Any, *path: str) -> dict[str, Any]:
    """The object behind the keys, or an empty one that belongs to nothing."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def sequence(value: Any, *path: str) -> list[Any]:
    found = at(value, *path)
    return found if isinstance(found, list) else []


def mappings(value: Any, *path: str) -> list[dict[str, Any]]:
    """The elements of a list that are objects."""
    return [element for element in sequence(value, *path) if isinstance(element, dict)]


def text(value: Any, *path: str) -> str:
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def texts(value: Any, *path: str) -> list[str]:
    """The elements of a list that are strings."""
    return [element for element in sequence(value, *path) if isinstance(element, str)]


def number(value: Any, *path: str) -> int:
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


class Step(msgspec.Struct, frozen=True):
    """One step of a path: a key, an index, everything, or the elements a comparison holds for."""

    key: str | None = None
    index: int | None = None
    where: Filter | None = None


class Filter(msgspec.Struct, frozen=True):
    """`?(@.path OP literal)`; without an operator, the path has to be there."""

    path: tuple[Step, ...]
    compare: str = ""
    literal: Any = None


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_TOKEN = re.compile(
    r"""\.(?P<star>\*)
      | \.(?P<key>(?:\\.|[^.\[\]\\*'"(){}\s])+)
      | \['(?P<quoted>[^']*)'\] | \["(?P<double>[^"]*)"\]
      | \[(?P<index>-?[0-9]{1,18})\]
      | (?P<all>\[\*\])
      | \[\?\(\s*@(?P<path>(?:\\.|[^=!<>)\s\\])*)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<literal>"[^"]*"|'[^']*'|[^)\s]+)\s*)?\)\]
    """,
    re.VERBOSE,
)


@functools.lru_cache(maxsize=1024)
def parse(expression: str) -> tuple[Step, ...]:
    """The steps of an expression; braces and a leading `$` may be there, as kubectl has them."""
    inner = expression.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    inner = inner.removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(inner):
        match = _TOKEN.match(inner, position)
        if match is None:
            raise errors.Refused(
                f'jsonPath "{expression}" is not understood from "{inner[position:]}" on: allowed are '
                "fields (.a, ['a']), indexes ([0]), wildcards ([*]) and filters ([?(@.a==\"b\")])",
                reason="BadJSONPath",
            )
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    parts = match.groupdict()
    if parts["star"] or parts["all"]:
        return Step()
    if parts["index"] is not None:
        return Step(index=int(parts["index"]))
    if parts["key"] is not None:
        return Step(key=_unescaped(parts["key"]))
    if parts["path"] is not None:
        path = parse(parts["path"])
        if parts["op"] is None:
            return Step(where=Filter(path))
        return Step(where=Filter(path, parts["op"], _literal(parts["literal"])))
    quoted = parts["quoted"]
    # kubectl takes a backslash between quotes as it does outside them, and real definitions have it in both places.
    return Step(key=_unescaped(parts["double"] if quoted is None else quoted))


def _unescaped(key: str) -> str:
    return re.sub(r"\\(.)", r"\1", key)


def _literal(source: str) -> Any:
    if source[0] in "\"'":
        return source[1:-1]
    try:
        return json.loads(source)
    # The nesting of hostile JSON ends in a RecursionError.
    except (ValueError, RecursionError):
        return source


def find(value: Any, expression: str) -> list[Any]:
    """Every value the expression leads to, in document order; `Refused` if it is no expression."""
    return list(_walk(value, parse(expression)))


def _walk(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    for child in _children(value, steps[0]):
        yield from _walk(child, steps[1:])


def _children(value: Any, step: Step) -> Iterator[Any]:
    if step.key is not None:
        if isinstance(value, Mapping) and step.key in value:
            yield value[step.key]
    elif step.index is not None:
        if isinstance(value, list) and -len(value) <= step.index < len(value):
            yield value[step.index]
    else:
        elements = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        yield from (element for element in elements if step.where is None or _holds(element, step.where))


def _holds(element: Any, where: Filter) -> bool:
    values = list(_walk(element, where.path))
    if not where.compare:
        return bool(values)
    try:
        return bool(values) and _OPERATORS[where.compare](values[0], where.literal)
    except TypeError:
        # Unlike types, such as a number and a word, have no order: the element is not selected.
        return False
