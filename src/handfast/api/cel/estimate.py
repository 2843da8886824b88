# SPDX-License-Identifier: Apache-2.0
"""Judge an expression before it ever runs: does it ask for fields that are not there, and what can it cost at most.

The evaluator checks syntax, names and the types that it knows. It knows nothing of schemas: to it, an object is a map. Here the
tree is walked once more, with the shapes of the variables.

1. A field of an object with declared fields is declared.
2. An operator has operands that it takes, where both types are known.
3. The cost stays countable: each node costs as in Kubernetes (one for a step, a tenth for each byte that is looked at), a loop
   as often as its range can have elements, a pattern in proportion to its program, a search for a text in a text as often as both
   are long, and one for a set in a set likewise.
4. No value grows beyond `MAX_WEIGHT`, however it is put together: what is doubled thirty times is a gigabyte.
5. Loops are nested at most `MAX_LOOPS` deep.
6. Judging takes at most `MAX_VISITS` steps itself: what stands in six loops is looked at 64 times.

Whether the cost is too high is the caller's to say. A range of unknown type has a number of bytes. Its elements share them: so
many small ones, and one as large as all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import re2

from handfast import errors
from handfast.api.cel import shapes, tree
from handfast.api.cel.shapes import Shape

MAX_WEIGHT: Final = 64 << 20
MAX_LOOPS: Final = 6
MAX_VISITS: Final = 50_000
# The evaluator ends an evaluation after so many rounds of all its loops.
MAX_ROUNDS: Final = 10_000
# A pattern that only the object knows may be any: this is what it is taken for.
_UNKNOWN_PROGRAM: Final = 10_000
# RE2 runs larger programs without its automaton, 100 times slower: 8 ns for each byte and instruction.
_SMALL_PROGRAM: Final = 200
# A function that is written in Python costs so much, beside looking at what it is given.
_PYTHON_CALL: Final = 50.0
_BYTE: Final = 0.1
# The evaluator compares a text at each place of another: 30 bytes in a nanosecond, and no other thread runs meanwhile. Of a definition
# it is what Kubernetes counts; elsewhere, where every part counts as large as all, what it takes.
_SEARCHES: Final = frozenset({"contains", "indexOf", "lastIndexOf", "replace", "split"})
_SEARCHED: Final = _BYTE * _BYTE
_SEARCHED_BOUNDED: Final = _SEARCHED / 10
# A match of `findAll` takes 8 µs, and there may be one for each byte.
_MATCH: Final = 80.0
# A piece of a text that is cut takes 80 ns, and there may be one for each byte; of a definition, as many as the longest request allows.
_PIECE_BOUNDED: Final = 8.0
_PIECE: Final = 3.0
# Sets are compared pair by pair, and not at all if there are more (`lists`).
_PAIR: Final = 2.0
_MOST_PAIRS: Final = 1_000_000
_LIST, _MAP = 10.0, 30.0
_ORDERED: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_EQUAL: Final = frozenset({"_==_", "_!=_"})
_ADD, _INDEX, _OR_ELSE = "_+_", "_[_]", "_?_:_"
_LOGICAL: Final = frozenset({"_&&_", "_||_", "!_", "@not_strictly_false"})
_ARITHMETIC: Final = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_"})
_SUMS: Final = frozenset(
    {
        ("timestamp", "duration", "_+_"),
        ("duration", "timestamp", "_+_"),
        ("timestamp", "duration", "_-_"),
        ("duration", "duration", "_+_"),
        ("duration", "duration", "_-_"),
        ("timestamp", "timestamp", "_-_"),
    }
)
_ESCAPE: Final = "jsonpatch.escapeKey"
_TEXTS: Final = frozenset(
    {"charAt", "format", "join", "lowerAscii", "replace", "substring", "trim", "upperAscii", "find", _ESCAPE}
)
_NUMBERS: Final = frozenset(
    {"size", "indexOf", "lastIndexOf", "int", "compareTo", "getHours", "getSeconds", "getMinutes"}
)
_QUESTIONS: Final = frozenset({"@in", "contains", "endsWith", "hasValue", "isSorted", "matches", "startsWith"})
_MADE: Final = {"duration": "duration", "timestamp": "timestamp", "double": "double", "bytes": "bytes"}


class InvalidExpression(errors.Refused):
    """An expression cannot be compiled; the message says where, as Kubernetes does."""

    reason = "InvalidExpression"


class Estimate(msgspec.Struct, frozen=True):
    """What a node is, and what it costs to get there."""

    shape: Shape
    cost: float


class Judgement(msgspec.Struct, frozen=True):
    """What an expression is and costs; `times` are the places that hold a timestamp or a duration as a text."""

    shape: Shape
    cost: float
    times: Mapping[tuple[int, str], str]


Scope = Mapping[str, Shape]


def judge(
    text: str, root: tree.Node, scope: Scope, python: frozenset[str] = frozenset(), *, is_bounded: bool = False
) -> Judgement:
    """The shape and the highest cost of an expression; `python` are the functions that are written in Python.

    With `is_bounded`, loops are counted as the evaluator runs them: `MAX_ROUNDS` in all, and no more.
    """
    judge = _Judge(text, python, is_bounded=is_bounded)
    estimate = judge.node(root, scope, 0)
    return Judgement(estimate.shape, estimate.cost + MAX_ROUNDS * judge.round, judge.times)


def chain(node: tree.Node) -> tuple[int, str] | None:
    """Where a name such as `self.spec.size` begins, and what it is; None for anything else."""
    names: list[str] = []
    while node.kind == tree.SELECT and not node.is_test:
        names.append(node.name)
        node = node.parts[0]
    if node.kind != tree.IDENT:
        return None
    return node.offset, ".".join((node.name, *reversed(names)))


def problem(text: str, offset: int, message: str) -> InvalidExpression:
    """In the words of the evaluator: the place, the line, and an arrow."""
    before = text[:offset]
    line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1)
    shown = text.split("\n")[line - 1]
    return InvalidExpression(f"ERROR: <input>:{line}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^")


class _Judge:
    """Walks one tree."""

    def __init__(self, text: str, python: frozenset[str], *, is_bounded: bool) -> None:
        self._text = text
        self._python = python
        self._is_bounded = is_bounded
        # What the costliest round of an inner loop costs.
        self.round = 0.0
        self._visits = 0
        self.times: dict[tuple[int, str], str] = {}
        self._forms: Mapping[str, Callable[[tree.Node, Scope, int], Estimate]] = {
            tree.CONST: self._const,
            tree.IDENT: self._ident,
            tree.SELECT: self._select,
            tree.CALL: self._call,
            tree.LIST: self._list,
            tree.MAP: self._map,
            tree.LOOP: self._loop,
        }

    def node(self, node: tree.Node, scope: Scope, loops: int) -> Estimate:
        self._visits += 1
        if self._visits > MAX_VISITS:  # 6. so many steps and no more
            raise problem(self._text, node.offset, "too much stands in loops in loops")
        estimate = self._forms[node.kind](node, scope, loops)
        if estimate.shape.is_text:
            self._note_time(node, estimate.shape)
        if estimate.shape.weight > MAX_WEIGHT:  # 4. no value grows beyond this
            raise problem(self._text, node.offset, f"a value could take more than {MAX_WEIGHT >> 20} MiB")
        return estimate

    def _note_time(self, node: tree.Node, shape: Shape) -> None:
        """A time in a document is a text, and becomes a time where it is named."""
        place = chain(node)
        if place is None or not self._text.startswith(place[1], place[0]):
            raise problem(
                self._text, node.offset, f"a {shape.kind} of the object is used by its name, such as self.when"
            )
        self.times[place] = shape.kind

    def _const(self, node: tree.Node, _scope: Scope, _loops: int) -> Estimate:
        if node.name == "string":
            return Estimate(shapes.text(len(node.value)), 0)
        return Estimate(Shape(node.name, 1, 8), 0)

    def _ident(self, node: tree.Node, scope: Scope, _loops: int) -> Estimate:
        return Estimate(scope.get(node.name, shapes.TYPE), 1)

    def _select(self, node: tree.Node, scope: Scope, loops: int) -> Estimate:
        below = self.node(node.parts[0], scope, loops)
        shape = self._field(node, below.shape)
        return Estimate(shapes.BOOL if node.is_test else shape, below.cost + 1)

    def _field(self, node: tree.Node, shape: Shape) -> Shape:
        if shape.kind == "object":  # 1. a declared field
            if node.name not in shape.fields:
                raise problem(self._text, node.offset, f"undefined field '{node.name}'")
            return shape.fields[node.name]
        if shape.kind == "map" and shape.element is not None:
            return shape.element
        if shape.kind in shapes.SCALARS or shape.kind == "list":
            message = f"type '{_named(shape)}' does not support field selection"
            raise problem(self._text, node.offset, message)
        return _part(shape)

    def _list(self, node: tree.Node, scope: Scope, loops: int) -> Estimate:
        parts = [self.node(part, scope, loops) for part in node.parts]
        shape = shapes.array(_all(parts), len(parts))
        weight = 2 + sum(part.shape.weight for part in parts)
        return Estimate(Shape("list", shape.size, weight, shape.element), _LIST + sum(part.cost for part in parts))

    def _map(self, node: tree.Node, scope: Scope, loops: int) -> Estimate:
        if node.name:
            raise problem(self._text, node.offset, f"there are no messages here, such as '{node.name}'")
        parts = [self.node(part, scope, loops) for part in node.parts]
        weight = 2 + sum(part.shape.weight for part in parts)
        return Estimate(Shape("map", len(parts), weight), _MAP + sum(part.cost for part in parts))

    # --- calls

    def _call(self, node: tree.Node, scope: Scope, loops: int) -> Estimate:
        parts = [self.node(part, scope, loops) for part in node.parts]
        cost = 1 + sum(part.cost for part in parts) + self._work(node, parts)
        return Estimate(self._result(node, parts), cost)

    def _work(self, node: tree.Node, parts: list[Estimate]) -> float:
        """What a call costs beside its operands."""
        # 3. as in Kubernetes: a tenth for each byte that is looked at
        looked = _BYTE * sum(part.shape.weight for part in parts)
        if node.name == "size" and self._is_bounded and parts[0].shape.kind not in {"list", "map"}:
            return looked  # the letters of a text are counted, one by one
        if node.name in _LOGICAL or node.name in {_INDEX, _OR_ELSE, "size", "dyn", "type", "_[?_]", "_?._", "hasValue"}:
            return 0
        if node.name in _EQUAL | _ORDERED:
            return _BYTE * min(part.shape.weight for part in parts)
        if node.name in {"matches", "find", "findAll"}:
            matches = _MATCH * parts[0].shape.weight if node.name == "findAll" else 0
            is_python = self._is_bounded or node.name in self._python
            return self._pattern(node, parts) + matches + (_PYTHON_CALL if is_python else 0)
        if node.name in self._python:
            looked = _PYTHON_CALL + 10 * looked
        if node.name == "split":
            looked += (_PIECE_BOUNDED if self._is_bounded else _PIECE) * parts[0].shape.weight
        return looked + self._search(node, parts)

    def _search(self, node: tree.Node, parts: list[Estimate]) -> float:
        """What it costs to look for the second operand everywhere in the first, for those calls that do."""
        if node.name.startswith("sets."):
            return _PAIR * min(parts[0].shape.size * parts[1].shape.size, _MOST_PAIRS)
        if node.name not in _SEARCHES or parts[0].shape.kind == "list":
            return 0
        factor = _SEARCHED_BOUNDED if self._is_bounded else _SEARCHED
        return factor * parts[0].shape.weight * parts[1].shape.weight

    def _pattern(self, node: tree.Node, parts: list[Estimate]) -> float:
        expression = node.parts[1] if len(node.parts) > 1 else node.parts[0]
        program = _UNKNOWN_PROGRAM
        if expression.kind == tree.CONST and expression.name == "string":
            program = self._program(expression)
        share = program / 40 if program <= _SMALL_PROGRAM else program
        return parts[0].shape.weight * share

    def _program(self, node: tree.Node) -> int:
        options = re2.Options()
        options.log_errors = False
        try:
            return int(re2.compile(node.value, options).programsize)
        except (re2.error, UnicodeEncodeError):
            raise problem(self._text, node.offset, "invalid matches argument: RE2 does not take this pattern") from None

    def _result(self, node: tree.Node, parts: list[Estimate]) -> Shape:
        name, first = node.name, parts[0].shape if parts else shapes.NULL
        if name in _LOGICAL or name in _QUESTIONS:
            self._require_logical(node, parts)
            return shapes.BOOL
        if name in _EQUAL | _ORDERED:
            self._require_same(node, parts)
            return shapes.BOOL
        if name in _ARITHMETIC and len(parts) == 2:
            return self._sum(node, parts)
        if name == _OR_ELSE:
            return shapes.joined(parts[1].shape, parts[2].shape)
        if name == _INDEX:
            return first.element if first.element is not None else _part(first)
        if name in _NUMBERS:
            return shapes.INT
        if name in _MADE:
            return Shape(_MADE[name], 1, first.weight)
        if name in _TEXTS:
            return shapes.text(_grown(name, parts))
        if name in {"split", "findAll"}:
            return Shape("list", first.weight, 2 * first.weight + 2, shapes.text(first.weight))
        if name == "string":
            return shapes.text(max(first.weight, 64))
        return shapes.anything(64 + sum(part.shape.weight for part in parts))

    def _require_logical(self, node: tree.Node, parts: list[Estimate]) -> None:
        if node.name in _LOGICAL and any(part.shape.kind in shapes.SCALARS - {"bool"} for part in parts):
            raise self._no_overload(node, parts)

    def _require_same(self, node: tree.Node, parts: list[Estimate]) -> None:
        # 2. operands that it takes, where both types are known
        left, right = (part.shape.kind for part in parts)
        if "dyn" in {left, right} or "type" in {left, right}:
            return
        numbers = {"int", "uint", "double"}
        if node.name in _EQUAL:
            same = left == right or "null" in {left, right} or {left, right} <= {"map", "object"}
        else:
            same = (left == right and left in shapes.SCALARS) or {left, right} <= numbers
        if not same:
            raise self._no_overload(node, parts)

    def _sum(self, node: tree.Node, parts: list[Estimate]) -> Shape:
        left, right = (part.shape for part in parts)
        if "dyn" in {left.kind, right.kind}:
            return shapes.anything(left.weight + right.weight)
        if node.name == _ADD and left.kind == right.kind and left.kind in {"string", "bytes"}:
            return Shape(left.kind, left.size + right.size, left.weight + right.weight)
        if node.name == _ADD and left.kind == right.kind == "list":
            element = shapes.joined(left.element or shapes.ANY, right.element or shapes.ANY)
            return Shape("list", left.size + right.size, left.weight + right.weight, element)
        if (left.kind, right.kind, node.name) in _SUMS:
            kinds = {left.kind, right.kind}
            return Shape("timestamp" if kinds == {"timestamp", "duration"} else "duration", 1, 16)
        if (
            left.kind != right.kind
            or left.kind not in {"int", "uint", "double"}
            or (node.name, left.kind) == ("_%_", "double")
        ):
            raise self._no_overload(node, parts)
        return left

    def _no_overload(self, node: tree.Node, parts: list[Estimate]) -> InvalidExpression:
        names = ", ".join(_named(part.shape) for part in parts)
        return problem(self._text, node.offset, f"found no matching overload for '{node.name}' applied to '({names})'")

    # --- loops

    def _loop(self, node: tree.Node, scope: Scope, loops: int) -> Estimate:
        over, start, _, _, result = node.parts
        ranged, begun = self.node(over, scope, loops), self.node(start, scope, loops)
        if over.kind == tree.LIST and not over.parts:
            # `cel.bind`: a name for a value, and a loop over nothing.
            after = self.node(result, {**scope, node.accumulator: begun.shape}, loops)
            return Estimate(after.shape, ranged.cost + begun.cost + after.cost)
        if loops == MAX_LOOPS:  # 5. nested so deep and no deeper
            raise problem(self._text, node.offset, f"loops may be nested at most {MAX_LOOPS} deep")
        if ranged.shape.kind in shapes.SCALARS:
            message = f"expression of type '{_named(ranged.shape)}' cannot be range of a comprehension"
            raise problem(self._text, over.offset, message)
        cost, gathered = self._rounds(node, ranged.shape, begun.shape, scope, loops)
        after = self.node(result, {**scope, node.accumulator: gathered}, loops)
        return Estimate(after.shape, ranged.cost + begun.cost + cost + after.cost)

    def _rounds(self, node: tree.Node, over: Shape, begun: Shape, scope: Scope, loops: int) -> tuple[float, Shape]:
        """What all rounds of a loop cost, and what it has gathered then."""
        element = shapes.text(64) if over.kind in {"map", "object"} else over.element
        if element is not None:
            each, shape = self._round(node, element, begun, scope, loops)
            return over.size * each, self._gathered(node, over, element, begun, shape, scope, loops)
        # The elements share the bytes: one as large as all, and as many small ones as there can be.
        many = min(max(1, over.weight // 2), MAX_ROUNDS if self._is_bounded else shapes.ENDLESS)
        element = shapes.anything(over.weight)
        small, _ = self._round(node, shapes.anything(2), begun, scope, loops)
        large, shape = self._round(node, element, begun, scope, loops)
        gathered = self._gathered(node, Shape("list", many, over.weight), element, begun, shape, scope, loops)
        if self._is_bounded and loops:
            self.round = max(self.round, small)
            return large - small, gathered
        return many * small + (large - small), gathered

    def _gathered(
        self, node: tree.Node, over: Shape, element: Shape, begun: Shape, step: Shape, scope: Scope, loops: int
    ) -> Shape:
        """What a loop has gathered: a list grows with each round, a verdict and a count do not."""
        if begun.kind != "list":
            return begun
        # Its elements again, perhaps each several times; and in each round what stands outside of the loop.
        times = 1 + step.weight // max(1, element.weight)
        outside = self._outside(node.parts[3], {**scope, node.name: element, node.accumulator: begun}, node, loops)
        weight = over.weight * times + min(over.size, MAX_ROUNDS) * (64 + outside)
        return Shape("list", over.size, min(weight, shapes.ENDLESS), step.element)

    def _outside(self, node: tree.Node, scope: Scope, loop: tree.Node, loops: int) -> int:
        """The bytes of everything that is named in a round and is not the element."""
        place = chain(node)
        if place is not None:
            name = place[1].partition(".")[0]
            if name in {loop.name, loop.accumulator} or name not in scope:
                return 0
            return self.node(node, scope, loops).shape.weight
        own = len(node.value) if node.value is not None else 0
        return own + sum(self._outside(part, scope, loop, loops) for part in node.parts)

    def _round(self, node: tree.Node, element: Shape, begun: Shape, scope: Scope, loops: int) -> tuple[float, Shape]:
        inside = {**scope, node.name: element, node.accumulator: begun}
        condition = self.node(node.parts[2], inside, loops + 1)
        step = self.node(node.parts[3], inside, loops + 1)
        return condition.cost + step.cost, step.shape


def _named(shape: Shape) -> str:
    if shape.kind == "list":
        return f"list({_named(shape.element) if shape.element is not None else 'dyn'})"
    if shape.kind == "map":
        return f"map(string, {_named(shape.element) if shape.element is not None else 'dyn'})"
    return shape.kind


def _part(shape: Shape) -> Shape:
    """Something inside a value of unknown type: no larger than all of it."""
    return shapes.anything(shape.weight)


def _all(parts: list[Estimate]) -> Shape:
    """What holds of each of several values; where there is none, anything does."""
    if not parts:
        return shapes.anything(0)
    shape = parts[0].shape
    for part in parts[1:]:
        shape = shapes.joined(shape, part.shape)
    return shape


def _grown(name: str, parts: list[Estimate]) -> int:
    weights = [part.shape.weight for part in parts]
    if name == "replace" and len(weights) > 2:
        # Before each letter, and at the end.
        return weights[0] + (weights[0] + 1) * weights[2]
    if name == _ESCAPE:
        return 2 * weights[0]
    if name == "join":
        return weights[0] * (1 + (weights[1] if len(weights) > 1 else 0))
    return sum(weights) + (64 if name == "format" else 0)
