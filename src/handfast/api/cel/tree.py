# SPDX-License-Identifier: Apache-2.0
"""Read the syntax tree of an expression from the bytes that the evaluator gives of it (`cel.expr.CheckedExpr`).

Only what judging needs: nodes, their names, and where each stands in the text. Types are not read. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from handfast.api.codec import protobuf

CONST, IDENT, SELECT, CALL, LIST, MAP, LOOP = "const", "ident", "select", "call", "list", "map", "loop"
_CHECKED: Final = {"expression": 4, "source": 5}
_TEXT, _DOUBLE, _BYTES, _INT = 6, 5, 7, 3


@dataclass(slots=True)
class Node:
    """One node. `name` is that of an identifier, a field, a function or the variable of a loop; `parts` stand below.

    A call has its target first, if `is_member`. A loop has the range, the start, the condition, the step and the
    result; `accumulator` is the name of what it gathers. `value` is that of a constant that is a text.
    """

    kind: str
    offset: int = 0
    name: str = ""
    parts: tuple[Node, ...] = ()
    value: Any = None
    is_member: bool = False
    is_test: bool = False
    accumulator: str = ""

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.parts


def read(data: bytes) -> Node:
    """The tree in a serialized, checked expression."""
    checked = _messages(_first(data, 2))
    offsets: dict[int, int] = {}
    for entry in _messages(checked[_CHECKED["source"]][0]).get(4, ()):
        pair = _messages(entry)
        offsets[_number(pair, 1)] = _number(pair, 2)
    return _node(checked[_CHECKED["expression"]][0], offsets)


def _node(data: Any, offsets: dict[int, int]) -> Node:
    fields = _messages(data)
    offset = offsets.get(_number(fields, 2), 0)
    node = next(form(fields[number][0], offsets) for number, form in _FORMS if number in fields)
    node.offset = offset
    return node


def _const(data: Any, _offsets: dict[int, int]) -> Node:
    fields = _messages(data)
    if _TEXT in fields:
        return Node(CONST, name="string", value=bytes(fields[_TEXT][0]).decode("utf-8", "replace"))
    names = {1: "null", 2: "bool", _INT: "int", 4: "uint", _DOUBLE: "double", _BYTES: "bytes"}
    number = next(iter(fields), _INT)
    return Node(CONST, name=names.get(number, "dyn"))


def _ident(data: Any, _offsets: dict[int, int]) -> Node:
    return Node(IDENT, name=_text(_messages(data), 1))


def _select(data: Any, offsets: dict[int, int]) -> Node:
    fields = _messages(data)
    operand = _node(fields[1][0], offsets)
    return Node(SELECT, name=_text(fields, 2), parts=(operand,), is_test=bool(_number(fields, 3)))


def _call(data: Any, offsets: dict[int, int]) -> Node:
    fields = _messages(data)
    parts = [_node(part, offsets) for part in (*fields.get(1, ()), *fields.get(3, ()))]
    return Node(CALL, name=_text(fields, 2), parts=tuple(parts), is_member=1 in fields)


def _list(data: Any, offsets: dict[int, int]) -> Node:
    return Node(LIST, parts=tuple(_node(part, offsets) for part in _messages(data).get(1, ())))


def _map(data: Any, offsets: dict[int, int]) -> Node:
    fields = _messages(data)
    entries = [_messages(entry) for entry in fields.get(2, ())]
    parts = [_node(entry[number][0], offsets) for entry in entries for number in (3, 4) if number in entry]
    return Node(MAP, name=_text(fields, 1), parts=tuple(parts))


def _loop(data: Any, offsets: dict[int, int]) -> Node:
    fields = _messages(data)
    parts = tuple(_node(fields[number][0], offsets) for number in (2, 4, 5, 6, 7))
    return Node(LOOP, name=_text(fields, 1), parts=parts, accumulator=_text(fields, 3))


_FORMS: Final = ((3, _const), (4, _ident), (5, _select), (6, _call), (7, _list), (8, _map), (9, _loop))


def _messages(data: Any) -> dict[int, list[Any]]:
    fields: dict[int, list[Any]] = {}
    for number, value in protobuf.wire_fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def _first(data: bytes, number: int) -> Any:
    return _messages(data)[number][0]


def _number(fields: dict[int, list[Any]], number: int) -> int:
    return int(fields.get(number, (0,))[0])


def _text(fields: dict[int, list[Any]], number: int) -> str:
    return bytes(fields.get(number, (b"",))[0]).decode("utf-8", "replace")
