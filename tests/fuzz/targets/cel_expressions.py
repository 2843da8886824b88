# SPDX-License-Identifier: Apache-2.0
"""CEL: a rule of a custom resource or an expression of an admission policy, on an object. The first byte picks which.

1. It is refused when it is written, or evaluated; an evaluation may fail, by a refusal.
2. What it gives is what its type says: a truth value, or of an expression that makes objects an apply configuration or a patch.
"""

from __future__ import annotations

import contextlib

from handfast import errors
from handfast.api.cel import engine, expressions, mutations
from handfast.api.custom import rule_values, rules, structural_schema
from tests.fuzz import promises

_VALUE = {
    "n": 3,
    "s": "a.b",
    "list": [1, 2, 3],
    "map": {"a": "x", "b c": "y"},
    "when": "2026-01-02T03:04:05Z",
    "d": 0.5,
}
_PROPERTIES = {
    "n": {"type": "integer"},
    "d": {"type": "number"},
    "s": {"type": "string", "maxLength": 20},
    "when": {"type": "string", "format": "date-time"},
    "list": {"type": "array", "maxItems": 10, "items": {"type": "integer"}},
    "map": {"type": "object", "maxProperties": 10, "additionalProperties": {"type": "string", "maxLength": 10}},
}
_DATA = {
    "object": {"metadata": {"name": "web"}, "spec": _VALUE},
    "oldObject": None,
    "request": {"operation": "CREATE", "userInfo": {"username": "ada", "groups": ["ops"]}},
    "namespaceObject": {"metadata": {"name": "default"}},
}


def _read(data: bytes) -> None:
    text = data[1:].decode("utf-8", "replace")
    if data[:1] == b"p":
        _policy(text)
    elif data[:1] == b"o":
        _mutation(text)
    else:
        _rule(text, has_message=data[:1] == b"m")


def _rule(text: str, *, has_message: bool) -> None:
    row = {"rule": "self.n > 5", "messageExpression": text} if has_message else {"rule": text}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": _PROPERTIES, rules.KEY: [row]}},
    }
    # 1. refused when it is written
    if structural_schema.problems(schema, "schema"):
        return
    rule_values.check(schema, {"spec": _VALUE}, {"spec": {**_VALUE, "n": 2}})
    rule_values.check(schema, {"spec": {}})


def _policy(text: str) -> None:
    expression = expressions.compiled(text, (("size", "object.spec.list.size()"),))
    values = engine.environment(*expression.names).values(_DATA)
    with contextlib.suppress(errors.Refused):
        # 2. a truth value or a refusal
        promises.require(isinstance(expression.program.is_true(values), bool), "no truth value")


def _mutation(text: str) -> None:
    values = engine.environment(*expressions.names(has_params=False)).values(_DATA)
    with contextlib.suppress(errors.Refused):
        made = mutations.configuration(expressions.configuration(text).program.evaluate(values))
        promises.require("\0" not in repr(made), "a mark is left")
    with contextlib.suppress(errors.Refused):
        operations = mutations.operations(expressions.patch(text).program.evaluate(values))
        promises.require(all(isinstance(row, dict) for row in operations), "no operations")


run = promises.refusing(_read)
