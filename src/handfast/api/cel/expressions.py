# SPDX-License-Identifier: Apache-2.0
"""The expressions of an admission policy, and of a webhook's conditions: compiled, with its variables, and affordable or not.

1. They may name `object`, `oldObject`, `request` and `namespaceObject`; `params` where the policy has a kind of them; and the
   `variables` that stand before them. There is no `authorizer`: who names it is refused when the policy is written.
2. A variable becomes part of the expressions that name it (`cel.bind`), and is evaluated where it is used, if at all.
3. What an evaluation costs depends on the size of the object, and is counted for it, as for rules of custom resources.
   An expression that could cost more than `MAX_COST` there, or gather too much, is not evaluated. That is an error, and the failure
   policy decides.

What follows from values is for `rules.policies`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast.api.cel import engine, estimate, gathering, library, mutations, shapes, tree

NAMES: Final = ("object", "oldObject", "request", "namespaceObject")
PARAMS: Final = "params"
_VARIABLES: Final = "variables"
MAX_COST: Final = 10_000_000
# So many characters have all expressions of one object together, each with its variables: compiling them takes a second.
MAX_TOTAL: Final = 64 << 10
# Sizes for which costs are counted: an object counts as the next larger one.
SIZES: Final = (1 << 12, 1 << 13, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
Variables = Sequence[tuple[str, str]]
# A copy of an element takes as long as so much of what is counted as cost: 20 ns.
_COPY: Final = 2
_encode = msgspec.json.Encoder().encode


class Sizes:
    """How large the values are that expressions see; measured when somebody asks."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    @functools.cached_property
    def size(self) -> int:
        """All of them, in bytes."""
        return len(_encode(self._data))

    @functools.cached_property
    def extent(self) -> gathering.Extent:
        return gathering.extent(self._data)


@dataclass(frozen=True)
class Expression:
    """One expression with its variables in it; `text` is how it was written."""

    text: str
    program: engine.Program
    names: tuple[str, ...]

    @functools.cached_property
    def costs(self) -> Mapping[int, float]:
        """What it costs for each size of all values together that it is evaluated for."""
        costs: dict[int, float] = {}
        for size in SIZES:  # 3. counted for its size
            try:
                cost = self._cost(size)
            except estimate.InvalidExpression:
                break
            if cost > MAX_COST:
                break
            costs[size] = cost
        return costs

    @property
    def largest(self) -> int:
        """The largest size that it is evaluated for; 0: none."""
        return max(self.costs, default=0)

    def price(self, sizes: Sizes) -> float:
        """What it costs on values of such sizes; raises `TooCostly` if that is too much."""
        size = next((each for each in self.costs if each >= sizes.size), None)
        if size is None:
            raise engine.TooCostly(f"call cost exceeds limit for values of {sizes.size} bytes")
        gathers = self.program.gathers
        if gathers is None:
            return self.costs[size]
        if not gathers.is_affordable(sizes.extent):  # 3. gathers too much
            raise engine.TooCostly(f"call cost exceeds limit for {sizes.extent.words}")
        return self.costs[size] + _COPY * gathers.copies(sizes.extent)

    def _cost(self, size: int) -> float:
        scope = dict.fromkeys(self.names, shapes.anything(size))
        program = self.program
        return estimate.judge(program.text, program.root, scope, library.NAMES, is_bounded=True).cost


def names(*, has_params: bool) -> tuple[str, ...]:
    """What may be named."""
    return (*NAMES, PARAMS) if has_params else NAMES


def compiled(text: str, variables: Variables = (), *, has_params: bool = False, kind: str = "bool") -> Expression:
    """An expression of a type; raises `estimate.InvalidExpression`, in whose text the places are those of `text`."""
    known = names(has_params=has_params)
    program = engine.program(text, *known, _VARIABLES)
    # Of a map or a list, whatever is in it.
    if program.result.lower().partition("<")[0] not in {kind, "dyn"}:
        raise estimate.InvalidExpression(f"must evaluate to {kind}")
    whole = composed(text, variables, known)
    expression = Expression(text, engine.program(whole, *known), known)
    if not expression.largest:
        detail = f"estimated cost exceeds budget, for an object of {SIZES[0]} bytes already"
        raise estimate.InvalidExpression(detail)
    return expression


def variable(text: str, before: Variables = (), *, has_params: bool = False) -> Expression:
    """The expression of a variable, of whatever type."""
    return compiled(f"dyn({text})", before, has_params=has_params, kind="dyn")


def configuration(text: str, variables: Variables = (), *, has_params: bool = False) -> Expression:
    """An expression that makes an apply configuration, with variables that may make parts of it."""
    return _making(text, variables, "map", has_params=has_params)


def patch(text: str, variables: Variables = (), *, has_params: bool = False) -> Expression:
    """An expression that makes a JSON patch."""
    return _making(text, variables, "list", has_params=has_params)


def _making(text: str, variables: Variables, kind: str, *, has_params: bool) -> Expression:
    made = [(name, mutations.plain(inner)) for name, inner in variables]
    return compiled(mutations.plain(text), made, has_params=has_params, kind=kind)


def making_variable(text: str, before: Variables = (), *, has_params: bool = False) -> Expression:
    """The expression of a variable of a mutating policy."""
    made = [(name, mutations.plain(inner)) for name, inner in before]
    return variable(mutations.plain(text), made, has_params=has_params)


def annotation(text: str, variables: Variables = (), *, has_params: bool = False) -> Expression:
    """An expression for an audit annotation: a text, or null for none."""
    known = names(has_params=has_params)
    program = engine.program(text, *known, _VARIABLES)
    if program.result.lower() not in {"string", "null", "dyn"}:
        raise estimate.InvalidExpression("must evaluate to string or null")
    return variable(text, variables, has_params=has_params)


def composed(text: str, variables: Variables, known: Sequence[str]) -> str:
    """An expression in which each variable that it names is bound to its own expression (2)."""
    before = dict(variables)
    body, wanted = _bound(text, before, known)
    for index in range(len(variables) - 1, -1, -1):
        name, inner = variables[index]
        if name in wanted:
            inside, more = _bound(inner, dict(variables[:index]), known)
            wanted |= more
            body = f"cel.bind(variables_{name}, {inside}, {body})"
    return body


def _bound(text: str, before: dict[str, str], known: Sequence[str]) -> tuple[str, set[str]]:
    """An expression with plain names in place of `variables.name`, and which these are."""
    program = engine.program(text, *known, _VARIABLES)
    wanted, body = set(), text
    for offset, name in sorted(_used(program.root, text), reverse=True):
        if name not in before:
            raise estimate.problem(text, offset, f"undefined field '{name}'")
        end = offset + len(_VARIABLES)
        body = f"{body[:end]}_{body[end + 1 :]}"
        wanted.add(name)
    return body, wanted


def _used(root: tree.Node, text: str) -> Iterator[tuple[int, str]]:
    """Where variables are named, and which."""
    named = {part.offset for node in root.walk() if node.kind == tree.SELECT for part in node.parts if _is_set(part)}
    for node in root.walk():
        if _is_set(node) and node.offset not in named:
            raise estimate.problem(text, node.offset, "a variable is used by its name, such as variables.name")
        if node.kind == tree.SELECT and _is_set(node.parts[0]):
            offset = node.parts[0].offset
            if not text.startswith(f"{_VARIABLES}.{node.name}", offset) or node.is_test:
                raise estimate.problem(text, offset, "a variable is used by its name, such as variables.name")
            yield offset, node.name


def _is_set(node: tree.Node) -> bool:
    return node.kind == tree.IDENT and node.name == _VARIABLES


def failure(text: str, error: Any) -> str:
    """What is said of an expression that has no value."""
    return f"expression '{text.strip()}' resulted in error: {error}"
