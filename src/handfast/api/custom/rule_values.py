# SPDX-License-Identifier: Apache-2.0
"""Evaluate the rules of a structural schema on an object: everything that is not as they say, in Kubernetes' words.

The object was checked by the rest of its schema before (`structural_values`). Rules were judged when they were defined (`rules`).

1. A schema without rules costs one lookup. The first object of a schema is another matter: all of its rules are compiled then
   (`is_ready`). What was made of schemas is kept up to `MAX_KEPT`, those that were used last.
2. A rule that names `oldSelf` is asked where there is an old value that is the same thing: an element of a list is found by
   its keys, a field by its name. With `optionalOldSelf` it is always asked.
3. What was there before and is unchanged is not asked again, unless the rule names `oldSelf`: a new rule stops nobody from
   changing something else.
4. All evaluations of one object take at most `MAX_STEPS`: 20 each, one for each round that its loops can have there, and one for
   20 elements that are copied. One evaluation ends after 10,000 rounds (`cel.engine`), and gathers no more than `cel.gathering` allows.
5. A rule that has no value, is too costly or does not compile any more is a refusal: nothing passes unchecked.
6. Without the evaluator nothing is evaluated. The definition was accepted with a warning then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from handfast.api import field_errors as fields
from handfast.api import status
from handfast.api.cel import engine, estimate, gathering
from handfast.api.cel.shapes import Shape
from handfast.api.custom import rule_shapes, rules, structural
from handfast.api.custom.structural import Schema
from handfast.api.field_path import Key, Path

MAX_STEPS: Final = 400_000
# An evaluation takes as long as so many rounds of a loop: 8 µs.
_EVALUATION: Final = 20
_LOOP_ROUNDS: Final = estimate.MAX_ROUNDS
# So many copies of an element take as long as a round.
_COPIES: Final = 20
_MAX_WORDS: Final = 5 << 10
# Characters of rules, and values in schemas: either takes 160 bytes, or twice as much.
MAX_KEPT: Final = 2 << 20
_ABSENT: Final = object()
_canonical = msgspec.json.Encoder(order="deterministic").encode


class _Place(msgspec.Struct):
    """A schema with rules, or with rules somewhere below."""

    schema: Schema
    is_root: bool
    listed: tuple[Mapping[str, Any], ...]
    fields: Mapping[str, _Place]
    rest: _Place | None
    items: _Place | None
    compiled: list[rules.Compiled | str] | None = None
    # The fields that its rules look at: the others are not handed over. None: all are.
    seen: frozenset[str] | None = None
    convert: rule_shapes.Convert | None = msgspec.field(default=None)


# By identity, because schemas have no hash; each entry holds its schema, so that no other gets its place.
_plans: Final = engine.Kept[tuple[Schema, _Place | None, int]](MAX_KEPT)


def is_ready(schema: Schema) -> bool:
    """Whether an object of this schema can be checked at once; else it is a walk over the schema, and compiling."""
    return id(schema) in _plans


def make_ready(schema: Schema) -> None:
    """Compile all rules of a schema, unless that was done and is kept."""
    _plan(schema)


def _plan(schema: Schema) -> _Place | None:
    # 1. one lookup
    return _plans.get(id(schema), lambda: _planned(schema), lambda entry: entry[2])[1]


def _planned(schema: Schema) -> tuple[Schema, _Place | None, int]:
    place = _place(schema, is_root=True)
    size = _count(schema, MAX_KEPT)
    waiting = [] if place is None or not engine.is_available() else [place]
    while waiting:
        each = waiting.pop()
        _compiled(each)
        size += sum(len(str(row.get("rule"))) + len(str(row.get("messageExpression"))) for row in each.listed)
        waiting += [below for below in (*each.fields.values(), each.rest, each.items) if below is not None]
    return schema, place, size


def _place(schema: Schema, *, is_root: bool = False) -> _Place | None:
    below = {}
    for name, child in structural.properties(schema).items():
        place = _place(child) if isinstance(child, Mapping) else None
        if place is not None:
            below[name] = place
    rest, items = schema.get("additionalProperties"), structural.items(schema)
    others = _place(rest) if isinstance(rest, Mapping) else None
    elements = None if items is None else _place(items)
    listed = tuple(rules.rows(schema))
    if not listed and not below and others is None and elements is None:
        return None
    return _Place(schema, is_root, listed, below, others, elements)


def check(schema: Schema, document: Any, old: Any = None) -> list[status.Cause]:
    """What the rules have against an object, at most as much as anybody reads."""
    place = _plan(schema)
    # 6. without the evaluator nothing is evaluated
    if place is None or not engine.is_available():
        return []
    checker = _Checker()
    try:
        checker.value(place, document, _ABSENT if old is None else old, None)
    except _Spent:
        checker.report(
            None, "validation failed due to running out of cost budget, no further validation rules will be run"
        )
    return checker.causes


class _Spent(Exception):
    """The steps of this object are used up, or enough is wrong."""


class _Checker:
    """Walks an object beside its places."""

    def __init__(self) -> None:
        self.causes: list[status.Cause] = []
        self._left = MAX_STEPS

    def value(self, place: _Place, value: Any, old: Any, path: Path | None) -> None:
        if value is None or len(self.causes) >= status.MAX_CAUSES:
            return
        if place.listed:
            self._rules(place, value, old, path)
        if isinstance(value, dict):
            self._fields(place, value, old, path)
        elif isinstance(value, list) and place.items is not None:
            # 2. an element is found by its keys
            before = _by_keys(place.schema, old)
            keys = place.schema.get("x-kubernetes-list-map-keys") or ()
            for index, element in enumerate(value):
                self.value(place.items, element, before.get(_key(keys, element), _ABSENT), Path(index, path))

    def _fields(self, place: _Place, value: dict[str, Any], old: Any, path: Path | None) -> None:
        known = isinstance(old, dict) and place.schema.get("x-kubernetes-map-type") != "atomic"
        places = place.fields if place.rest is None else dict.fromkeys(value, place.rest)
        for key, below in places.items():
            if key in value:
                step = key if place.rest is None else Key(key)
                self.value(below, value[key], old.get(key, _ABSENT) if known else _ABSENT, Path(step, path))

    def _rules(self, place: _Place, value: Any, old: Any, path: Path | None) -> None:
        # 3. unchanged, and not asked again
        unchanged = old is not _ABSENT and _canonical(value) == _canonical(old)
        wanted = [
            rule
            for rule in _compiled(place)
            if isinstance(rule, str)
            or _applies(rule, unchanged=unchanged, has_old=old is not _ABSENT and old is not None)
        ]
        if not wanted:
            return
        seen = _Seen(place, value, old)
        for rule in wanted:
            if isinstance(rule, str):
                self.report(path, f"rule compile error: {rule}")
            else:
                self._spend(rule, value, old)
                self._rule(rule, seen, value, path)

    def _spend(self, rule: rules.Compiled, value: Any, old: Any) -> None:
        # 4. so much each, and its loops
        self._left -= _EVALUATION
        if rule.loops:
            several = _rounds(rule, value) + (_rounds(rule, old) if rule.uses_old else 0)
            self._left -= min(_LOOP_ROUNDS, several**rule.loops)
        if self._left < 0:
            raise _Spent

    def _gather(self, program: engine.Program, seen: _Seen) -> None:
        """Raises `TooCostly` where it would gather too much, before it does."""
        if program.gathers is None:
            return
        extent = seen.extent()
        if not program.gathers.is_affordable(extent):
            raise engine.TooCostly(f"call cost exceeds limit for {extent.words}")
        # 4. what is copied
        self._left -= program.gathers.copies(extent) // _COPIES
        if self._left < 0:
            raise _Spent

    def _rule(self, rule: rules.Compiled, seen: _Seen, value: Any, path: Path | None) -> None:
        words = rule.message or rule.text
        try:
            self._gather(rule.program, seen)
            if rule.program.is_true(seen.values(optional=rule.is_optional)):
                return
        except engine.TooCostly as error:
            # 5. a refusal
            limit = "no further validation rules will be run due to call cost exceeds limit for rule"
            self.report(path, f"'{error.message}': {limit}: {words}")
            return
        except engine.NotEvaluated as error:
            self.report(path, _unevaluated(error.message, words))
            return
        for step in rule.steps:
            path = Path(step, path)
        self._failed(rule, self._detail(rule, seen), value, path)

    def _detail(self, rule: rules.Compiled, seen: _Seen) -> str:
        """What is said of a rule that does not hold: its own words where they can be used, else its message, else itself."""
        if rule.words is not None:
            try:
                self._gather(rule.words, seen)
                words = rule.words.words(seen.values()).strip()
            except engine.NotEvaluated:
                words = ""
            if words and "\n" not in words and len(words.encode()) <= _MAX_WORDS:
                return words
        return rule.message or f"failed rule: {rule.text}"

    def _failed(self, rule: rules.Compiled, detail: str, value: Any, path: Path | None) -> None:
        place = "" if path is None else str(path)
        if rule.reason == "FieldValueForbidden":
            cause = fields.forbidden(place, detail)
        elif rule.reason == "FieldValueRequired":
            cause = fields.required(place, detail)
        elif rule.reason == "FieldValueDuplicate":
            shown = fields.duplicate(place, _brief(value))
            cause = replace(shown, message=f"{shown.message}: {detail}")
        elif isinstance(value, dict | list):
            cause = status.Cause("FieldValueInvalid", f"Invalid value: {detail}", place)
        else:
            cause = fields.invalid(place, _brief(value), detail)
        self.causes.append(cause)

    def report(self, path: Path | None, detail: str) -> None:
        self.causes.append(
            status.Cause("FieldValueInvalid", f"Invalid value: {detail}", "" if path is None else str(path))
        )


class _Seen:
    """A value and the one before it as rules see them; handed to the evaluator once for all rules of the place."""

    __slots__ = ("_data", "_extent", "_made", "_pair")

    def __init__(self, place: _Place, value: Any, old: Any) -> None:
        self._pair = value, old
        self._extent: gathering.Extent | None = None
        self._data = {"self": _handed(place, value)}
        if old is not _ABSENT and old is not None:
            self._data["oldSelf"] = _handed(place, old)
        self._made: dict[bool, Any] = {}

    def extent(self) -> gathering.Extent:
        if self._extent is None:
            self._extent = gathering.extent(*self._pair)
        return self._extent

    def values(self, *, optional: bool = False) -> Any:
        values = self._made.get(optional)
        if values is None:
            data = self._data
            if optional:
                data = {"self": data["self"], "__oldSelf": [data["oldSelf"]] if "oldSelf" in data else []}
            names = rules.OPTIONAL if optional else rules.SELF
            values = self._made[optional] = engine.environment(*names).values(data)
        return values


def _handed(place: _Place, value: Any) -> Any:
    """What of a value the evaluator gets: a field that no rule names is most of what handing it over costs."""
    if place.seen is not None and isinstance(value, dict):
        value = {key: value[key] for key in place.seen if key in value}
    return value if place.convert is None else place.convert(value)


def _named_fields(place: _Place, compiled: list[rules.Compiled | str]) -> frozenset[str] | None:
    """The fields, as the document has them, that the rules of a place look at; None if one looks at all."""
    words: set[str] = set()
    for rule in compiled:
        if isinstance(rule, str):
            continue
        looked = rule.fields if rule.words is None or rule.fields is None else rules.fields_of(rule.words)
        if rule.fields is None or looked is None:
            return None
        words |= rule.fields | looked
    declared = structural.properties(place.schema)
    if not declared:
        return None
    implicit = structural.IMPLICIT if place.is_root or place.schema.get(structural.EMBEDDED) is True else ()
    return frozenset(name for name in (*declared, *implicit) if rule_shapes.escaped(name) in words)


def _compiled(place: _Place) -> list[rules.Compiled | str]:
    """The rules of a place; the error in place of one that does not compile."""
    if place.compiled is None:
        shape = rule_shapes.shape(place.schema, root=place.is_root)
        place.convert = rule_shapes.converter(place.schema, root=place.is_root)
        compiled = [_one(shape, row) for row in place.listed]
        place.seen = _named_fields(place, compiled)
        place.compiled = compiled
    return place.compiled


def _one(shape: Shape, row: Mapping[str, Any]) -> rules.Compiled | str:
    try:
        rule = rules.compiled(shape, row)
        worded = rules.message(shape, row)
    except estimate.InvalidExpression as error:
        return error.message
    return rule if worded is None else replace(rule, words=worded[0])


def _applies(rule: rules.Compiled, *, unchanged: bool, has_old: bool) -> bool:
    if rule.uses_old:
        return has_old or rule.is_optional
    return not unchanged


def _unevaluated(error: str, words: str) -> str:
    if error.startswith("no such overload"):
        return f"'{error}': call arguments did not match a supported operator, function or macro signature for rule: {words}"
    return f"{error} evaluating rule: {words}"


def _brief(value: Any) -> Any:
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else value


def _key(keys: Any, element: Any) -> bytes:
    return _canonical([element.get(key) for key in keys]) if isinstance(element, dict) and keys else b""


def _by_keys(schema: Schema, old: Any) -> dict[bytes, Any]:
    """The elements of the list before, where they can be told apart."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list) or not keys:
        return {}
    return {_key(keys, element): element for element in old if isinstance(element, dict)}


def _rounds(rule: rules.Compiled, value: Any) -> int:
    """How many values there are that the loops of a rule can go over: in the fields that it looks at."""
    if rule.fields is None or not isinstance(value, dict):
        return _count(value, _LOOP_ROUNDS)
    # A field may be written otherwise in a rule: then it is not found here, and all count.
    parts = [value[name] for name in rule.fields if name in value]
    return _count(value if len(parts) < len(rule.fields) else parts, _LOOP_ROUNDS)


def _count(value: Any, limit: int) -> int:
    """How many values there are in a value, up to a limit."""
    count, waiting = 0, [value]
    while waiting and count < limit:
        each = waiting.pop()
        count += 1
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return count
