# SPDX-License-Identifier: Apache-2.0
"""The rules in a structural schema (`x-kubernetes-validations`): whether they can be, and in what form they are evaluated.

Rules are written by whoever may write CustomResourceDefinitions, and run at every write of such an object, whoever sends it.

1. A rule says something, in one expression that is true or false; a message is one line of at most 2048 characters; an expression
   for a message is a text; the reason is one of four; the field path leads to a field.
2. The expression compiles: syntax, names, fields, types (`cel.engine`, `cel.estimate`).
3. It costs at most `MAX_COST`, times as often as its place can occur in an object; all of a schema at most `MAX_TOTAL`. The
   numbers are Kubernetes' own, so that a definition that it takes is taken here.
4. `oldSelf` is used where there is one: not below lists whose elements have no identity, unless it is optional.
5. Rules stand where objects are shaped, not inside `allOf` and its like.
6. All expressions of a definition have at most `MAX_CHARACTERS`: compiling them takes a second.

Without the evaluator (the extra `cel`) only 1. and 5. are checked, and whoever writes the definition is warned. How rules are
evaluated is `rule_values`.

| who | holding | tries | stopped by | shown in tests/unit/api/custom/test_rules.py |
|---|---|---|---|---|
| who may write definitions | a rule over long lists | have every write take seconds | 3 | test_a_rule_that_costs_too_much_is_refused |
| … | a rule that doubles a text thirty times | fill the memory | `cel.estimate`: MAX_WEIGHT | test_a_value_that_grows_is_refused |
| … | a pattern with counted repetitions | have one match take a minute | 3: a pattern costs what its program does | test_a_pattern_costs_what_its_program_does |
| … | a rule that nobody could evaluate | have writes pass unchecked | 2: refused when it is defined | test_what_does_not_compile_is_refused |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast.api import field_errors as fields
from handfast.api import jsonpath, status
from handfast.api.cel import engine, estimate, library
from handfast.api.cel.shapes import Shape, anything
from handfast.api.custom import rule_shapes, structural
from handfast.api.custom.structural import Schema

KEY: Final = "x-kubernetes-validations"
MAX_COST: Final = 10_000_000
MAX_TOTAL: Final = 100_000_000
MAX_CHARACTERS: Final = 128 << 10
REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
SELF: Final = ("self", "oldSelf")
# `oldSelf` as an optional: a list with the old value, or an empty one.
OPTIONAL: Final = ("self", "__oldSelf")
_MAX_MESSAGE: Final = 2048
_MAX_RULES: Final = 100
_STEP: Final = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]")
_ADVICE: Final = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A rule that can be evaluated; `cost` is the highest of one evaluation, of the rule and of its message."""

    text: str
    program: engine.Program
    words: engine.Program | None
    message: str
    reason: str
    steps: tuple[str, ...]
    uses_old: bool
    is_optional: bool
    loops: int
    cost: float
    # The fields of the value, and of the one before, that are looked at; None: all of it.
    fields: frozenset[str] | None


def rows(schema: Schema) -> Sequence[Mapping[str, Any]]:
    """The rules at one schema, as they are written."""
    return jsonpath.mappings(schema, KEY)


def compiled(shape: Shape, row: Mapping[str, Any]) -> Compiled:
    """One rule at a schema of that shape; raises `estimate.InvalidExpression`."""
    text, is_optional = jsonpath.text(row, "rule"), row.get("optionalOldSelf") is True
    scope = {"self": shape, "oldSelf": anything(shape.weight) if is_optional else shape}
    # 1. true or false
    program, cost = _program(text, scope, "bool", "cel expression must evaluate to a bool")
    uses_old = program.uses("oldSelf")
    looked = fields_of(program)
    if is_optional:
        program = engine.program(f"cel.bind(oldSelf, __oldSelf[?0], {program.text})", *OPTIONAL)
    return Compiled(
        text=text.strip(),
        program=program,
        words=None,
        message=jsonpath.text(row, "message").strip(),
        reason=jsonpath.text(row, "reason") or "FieldValueInvalid",
        steps=tuple(_steps(jsonpath.text(row, "fieldPath")) or ()),
        uses_old=uses_old,
        is_optional=is_optional,
        loops=_depth(program),
        cost=cost,
        fields=looked,
    )


def fields_of(program: engine.Program) -> frozenset[str] | None:
    """The fields that an expression looks at, of the value and of the one before; None if it looks at all."""
    new, old = (program.fields(name) for name in SELF)
    return None if new is None or old is None else new | old


def message(shape: Shape, row: Mapping[str, Any]) -> tuple[engine.Program, float] | None:
    """The expression for a rule's message, and what it costs; raises `estimate.InvalidExpression`."""
    text = jsonpath.text(row, "messageExpression")
    if not text:
        return None
    return _program(text, dict.fromkeys(SELF, shape), "string", "messageExpression must evaluate to a string")


def _program(text: str, scope: Mapping[str, Shape], kind: str, otherwise: str) -> tuple[engine.Program, float]:
    """An expression of a type, and what it costs at most."""
    program = engine.program(text, *SELF)
    judgement = estimate.judge(text, program.root, scope, library.NAMES)
    if program.result.lower() not in {kind, "dyn"} or judgement.shape.kind not in {kind, "dyn"}:
        raise estimate.InvalidExpression(otherwise)
    if judgement.times:
        program = engine.program(rule_shapes.timed(text, judgement.times), *SELF)
    return program, judgement.cost


def _depth(program: engine.Program) -> int:
    """How deep loops are nested."""
    deepest, waiting = 0, [(program.root, 0)]
    while waiting:
        node, depth = waiting.pop()
        depth += node.kind == "loop"
        deepest = max(deepest, depth)
        waiting += [(part, depth) for part in node.parts]
    return deepest


def _steps(path: str) -> list[str] | None:
    """The names in a field path such as `.spec.a['b.c']`; None if it is none."""
    names, at = [], 0
    while match := _STEP.match(path, at):
        names.append(match[1] if match[1] is not None else re.sub(r"\\(.)", r"\1", match[2]))
        at = match.end()
    return names if at == len(path) else None


# --- checks


class Characters:
    """How many characters the expressions of one definition may still have, in all its versions."""

    def __init__(self) -> None:
        self._left = MAX_CHARACTERS

    def spend(self, row: Mapping[str, Any], path: str) -> fields.Causes:
        """A cause for the first rule that is too much; what comes after it is not looked at."""
        if self._left >= 0:
            self._left -= len(jsonpath.text(row, "rule")) + len(jsonpath.text(row, "messageExpression"))
            if self._left < 0:
                detail = (
                    f"all rules of a definition, with their messageExpressions, may have {MAX_CHARACTERS} characters"
                )
                yield fields.forbidden(f"{path}.rule", detail)

    @property
    def are_spent(self) -> bool:
        return self._left < 0


def problems(root: Schema, path: str, characters: Characters | None = None) -> Iterator[status.Cause]:
    """What is wrong with the rules of a schema that stands at `path` of its definition."""
    judge = _Judge(characters or Characters())
    yield from judge.place(root, path, 1, is_root=True, has_old=True)
    if judge.total > MAX_TOTAL:  # 3. all of a schema
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield fields.forbidden(path, _excess(name, judge.total, MAX_TOTAL))


def _excess(name: str, cost: float, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {shown} {_ADVICE}"


class _Judge:
    """Walks a schema; `total` is what all of its rules cost together."""

    def __init__(self, characters: Characters) -> None:
        self.total = 0.0
        self._characters = characters

    def place(self, schema: Schema, path: str, times: int, *, is_root: bool, has_old: bool) -> fields.Causes:
        """The rules of one place and of those below; `times` is how often it can occur in an object."""
        listed = rows(schema)
        if len(listed) > _MAX_RULES:
            yield fields.too_many(f"{path}.{KEY}", len(listed), _MAX_RULES)
            return
        # Once for all rules of the place: it is a walk over all that is below.
        shape = rule_shapes.shape(schema, root=is_root) if listed else None
        for index, row in enumerate(listed):
            where = f"{path}.{KEY}[{index}]"
            wrong = list(_form(schema, row, where))
            yield from wrong
            if shape is not None and not wrong and engine.is_available():
                yield from self._row(shape, row, where, times, has_old=has_old)
        yield from _alternatives(schema, path)
        kept = has_old and schema.get("x-kubernetes-map-type") != "atomic"
        for name, below in structural.properties(schema).items():
            if isinstance(below, Mapping):
                where = f"{path}.properties[{name[:128]}]"
                yield from self.place(below, where, times, is_root=False, has_old=kept)
        rest, items = schema.get("additionalProperties"), structural.items(schema)
        often = times * max(1, rule_shapes.most_elements(schema)) if isinstance(rest, Mapping) or items else times
        if isinstance(rest, Mapping):
            yield from self.place(rest, f"{path}.additionalProperties", often, is_root=False, has_old=kept)
        if items is not None:
            known = has_old and schema.get("x-kubernetes-list-type") == "map"
            yield from self.place(items, f"{path}.items", often, is_root=False, has_old=known)

    def _row(self, shape: Shape, row: Mapping[str, Any], path: str, times: int, *, has_old: bool) -> fields.Causes:
        yield from self._characters.spend(row, path)
        if self._characters.are_spent:  # 6. so many and no more
            return
        text = jsonpath.text(row, "rule")
        try:
            rule = compiled(shape, row)  # 2. it compiles
        except estimate.InvalidExpression as error:
            yield fields.invalid(f"{path}.rule", text, f"compilation failed: {error.message}")
            return
        yield from self._old(rule, path, has_old=has_old)
        yield from self._afford(f"{path}.rule", "estimated rule cost", rule.cost * times)
        try:
            worded = message(shape, row)
        except estimate.InvalidExpression as error:
            detail = f"messageExpression compilation failed: {error.message}"
            yield fields.invalid(f"{path}.messageExpression", row["messageExpression"], detail)
            return
        if worded is not None:
            name = "estimated messageExpression cost"
            yield from self._afford(f"{path}.messageExpression", name, worded[1] * times)

    def _afford(self, path: str, name: str, cost: float) -> fields.Causes:
        # 3. what it costs, as often as its place can occur
        self.total += cost
        if cost > MAX_COST:
            yield fields.forbidden(path, _excess(name, cost, MAX_COST))

    def _old(self, rule: Compiled, path: str, *, has_old: bool) -> fields.Causes:
        # 4. `oldSelf` where there is one
        if rule.is_optional and not rule.uses_old:
            yield fields.invalid(
                f"{path}.optionalOldSelf", value=True, detail="may not be set if oldSelf is not used in rule"
            )
        elif rule.uses_old and not has_old:
            detail = "oldSelf cannot be used on the uncorrelatable portion of the schema"
            yield fields.invalid(f"{path}.rule", rule.text, detail)


def _form(schema: Schema, row: Mapping[str, Any], path: str) -> fields.Causes:
    # 1. what a rule says, beside what its expressions mean
    if not jsonpath.text(row, "rule").strip():
        yield fields.required(f"{path}.rule", "rule is not specified")
    words = jsonpath.text(row, "message")
    if "message" in row and not words.strip():
        yield fields.invalid(f"{path}.message", words, "message must be non-empty if specified")
    elif len(words) > _MAX_MESSAGE:
        yield fields.invalid(
            f"{path}.message", words[:10] + "...", f"message must have a maximum length of {_MAX_MESSAGE} characters"
        )
    elif "\n" in words.strip() or "\r" in words.strip():
        yield fields.invalid(f"{path}.message", words, "message must not contain line breaks")
    if "messageExpression" in row and not jsonpath.text(row, "messageExpression").strip():
        yield fields.required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    yield from fields.optional_one_of(f"{path}.reason", row.get("reason"), REASONS)
    where = row.get("fieldPath")
    if where is not None and (not isinstance(where, str) or not _leads(schema, where)):
        yield fields.invalid(f"{path}.fieldPath", where, "must be a valid path: does not refer to a valid field")


def _leads(schema: Schema, path: str) -> bool:
    """Whether a field path leads to a field."""
    steps = _steps(path)
    place: Schema | None = schema
    for name in steps or ():
        place = None if place is None else structural.field(place, name)
    return bool(steps) and place is not None


def _alternatives(schema: Schema, path: str) -> fields.Causes:
    # 5. where objects are shaped
    below = [(f"{key}[{index}]", each) for key in _JUNCTORS for index, each in enumerate(schema.get(key) or ())]
    for name, each in (*below, ("not", schema.get("not"))):
        if isinstance(each, Mapping) and each.get(KEY):
            yield fields.forbidden(f"{path}.{name}.{KEY}", "must be empty to be structural")
