# SPDX-License-Identifier: Apache-2.0
"""Warn the author of a policy of what its expressions could never do with the objects that they match: a field that is not there, a
number compared with a text. These are warnings (`status.typeChecking`), and refuse nothing.

1. Rules name the kinds, without wildcards; at most `MAX_KINDS` of them are looked at.
2. A built-in kind has the fields of its schema, a custom one those of its definition. `oldObject` is the same.
3. Params and everything else may be anything.
4. Expressions are looked at up to `expressions.MAX_TOTAL` characters: a policy with more is refused elsewhere.

Whether an expression compiles at all was decided when the policy was written (`api.validation.policies`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from handfast.api import kinds
from handfast.api.cel import engine, estimate, expressions, library, shapes
from handfast.api.cel.shapes import Shape
from handfast.api.custom import rule_shapes
from handfast.api.schema import schema
from handfast.rules.policies import configurations

MAX_KINDS: Final = 10
_DEEPEST: Final = 8
_SIZE: Final = 1 << 12
_SCALARS: Final = {
    "string": shapes.text(64),
    "bool": shapes.BOOL,
    "bytes": shapes.text(64),
    "double": shapes.DOUBLE,
    "float": shapes.DOUBLE,
}


def warnings(policy: configurations.Policy, table: Iterable[kinds.Kind]) -> list[dict[str, Any]]:
    """The expressions that do not fit a kind, each with what is wrong, as `status.typeChecking` has them."""
    rows = list(_kinds(policy, table))
    if not rows or not engine.is_available():
        return []
    listed: list[dict[str, Any]] = []
    left = expressions.MAX_TOTAL
    for index, validation in enumerate(policy.validations):
        for field, text in (("expression", validation.text), ("messageExpression", validation.words)):
            whole = _composed(policy, text)
            left -= max(len(whole), len(text))
            if left < 0:  # 4. so many characters and no more
                return listed
            wrong = [problem for row in rows if whole and (problem := _wrong(policy, whole, row))]
            if wrong:
                listed.append({"fieldRef": f"spec.validations[{index}].{field}", "warning": "\n".join(wrong)})
    return listed


def _kinds(policy: configurations.Policy, table: Iterable[kinds.Kind]) -> Iterator[kinds.Kind]:
    # 1. without wildcards, and at most so many
    rows = list(table)
    count = 0
    for named in policy.match.rules:
        for row in rows:
            plain = {plural for plural, subresource in named.rule.resources if not subresource}
            if (
                row.group in named.rule.groups
                and row.version in named.rule.versions
                and row.plural in plain
                and count < MAX_KINDS
            ):
                count += 1
                yield row


def _composed(policy: configurations.Policy, text: str) -> str:
    """An expression with its variables in it; nothing for one that does not compile, which is refused elsewhere."""
    try:
        known = expressions.names(has_params=policy.param_kind is not None)
        return expressions.composed(text, policy.variables, known) if text.strip() else ""
    except estimate.InvalidExpression:
        return ""


def _wrong(policy: configurations.Policy, whole: str, row: kinds.Kind) -> str:
    known = expressions.names(has_params=policy.param_kind is not None)
    # 3. everything else may be anything
    scope = dict.fromkeys(known, shapes.anything(_SIZE)) | dict.fromkeys(("object", "oldObject"), shape(row))
    try:
        estimate.judge(whole, engine.program(whole, *known).root, scope, library.NAMES)
    except estimate.InvalidExpression as error:
        return f"{row.api_version}, Kind={row.kind}: {error.message}\n"
    return ""


def shape(row: kinds.Kind) -> Shape:
    """What expressions may expect of an object of a kind."""
    # 2. the fields of its schema, or of its definition
    if row.message:
        return _with_type(_message(row.message, 0))
    fields = rule_shapes.shape(row.schema or {"type": "object"}).fields
    return _with_type(shapes.record({**fields, "metadata": _message("meta.v1.ObjectMeta", 0)}))


def _with_type(value: Shape) -> Shape:
    return shapes.record({**value.fields, "apiVersion": shapes.text(64), "kind": shapes.text(64)})


@functools.lru_cache(maxsize=512)
def _message(name: str, depth: int) -> Shape:
    message = schema.message(name)
    if depth > _DEEPEST or message.json_form:
        return shapes.anything(64)
    return shapes.record({field.name: _field(field, depth) for field in message.fields.values()})


def _field(field: schema.Field, depth: int) -> Shape:
    # Sizes say nothing here: nobody pays for a warning.
    if field.is_map:
        return shapes.Shape("map", 1, 64)
    value = _SCALARS.get(field.type)
    if value is None:
        value = shapes.INT if schema.is_scalar(field.type) else _message(field.type, depth + 1)
    return shapes.Shape("list", 1, 64, value) if field.repeated else value
