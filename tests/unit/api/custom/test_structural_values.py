# SPDX-License-Identifier: Apache-2.0
"""Checking values by a structural schema: every keyword, in Kubernetes' words."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.custom import structural_values


def causes(schema: dict[str, Any], value: Any) -> list[tuple[str, str, str]]:
    root = {"type": "object", "properties": {"x": schema}}
    found = structural_values.check(root, {"x": value})
    return [(cause.field, cause.reason.removeprefix("FieldValue"), cause.message) for cause in found]


S, N, L, O = {"type": "string"}, {"type": "number"}, {"type": "array"}, {"type": "object"}  # noqa: E741


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (S, "a"),
        ({"type": "integer"}, 3),
        ({"type": "integer"}, 3.0),
        (N, 3),
        (N, 3.5),
        ({"type": "boolean"}, True),
        ({**S, "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, 5),
        ({"x-kubernetes-int-or-string": True}, "http"),
        ({"x-kubernetes-preserve-unknown-fields": True}, None),
        ({}, [1]),
        ({**S, "enum": ["a", "b"]}, "a"),
        ({"enum": [1]}, 1),
        ({**S, "minLength": 1, "maxLength": 3}, "äöü"),
        ({**S, "pattern": "b"}, "abc"),
        ({**S, "format": "ipv4"}, "10.0.0.1"),
        ({**N, "minimum": 1, "maximum": 1}, 1),
        ({**N, "multipleOf": 0.1}, 0.3),
        ({**N, "multipleOf": 3}, 9),
        ({**L, "minItems": 1, "maxItems": 2, "items": S}, ["a", "b"]),
        ({**L, "items": {**S, "description": "a name", "maxLength": 1}}, ["a", "b"]),
        ({**L, "x-kubernetes-list-type": "set"}, [1, "1", True]),
        (
            {**L, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"]},
            [{"a": 1}, {"a": 1, "b": 2}, "odd", "odd"],
        ),
        ({**O, "minProperties": 1, "maxProperties": 1, "required": ["a"]}, {"a": None}),
        ({**O, "additionalProperties": S}, {"a": "b"}),
        ({**O, "properties": {"a": 3}}, {"a": 1}),
        ({"allOf": [{"minLength": 1}, {"maxLength": 2}]}, "a"),
        ({"anyOf": [{"minLength": 3}, {"maxLength": 2}], "oneOf": []}, "a"),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}),
        ({"not": {"required": ["a"]}}, {"b": 1}),
        ({**O, "x-kubernetes-embedded-resource": True}, {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}}),
    ],
)
def test_a_value_that_its_schema_allows_has_no_cause(schema: dict[str, Any], value: Any) -> None:
    assert causes(schema, value) == []


def wrong_type(wanted: str, found: str) -> tuple[str, str, str]:
    return ("x", "TypeInvalid", f'Invalid value: "{found}": x in body must be of type {wanted}: "{found}"')


def invalid(shown: str, detail: str) -> tuple[str, str, str]:
    return ("x", "Invalid", f"Invalid value: {shown}: x in body {detail}")


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (S, 1, wrong_type("string", "integer")),
        (S, None, wrong_type("string", "null")),
        ({"type": "integer"}, 1.5, wrong_type("integer", "number")),
        ({"type": "integer"}, True, wrong_type("integer", "boolean")),
        (N, "1", wrong_type("number", "string")),
        (O, [], wrong_type("object", "array")),
        (L, {}, wrong_type("array", "object")),
        ({"x-kubernetes-int-or-string": True}, 1.5, wrong_type("integer,string", "number")),
        ({**S, "enum": ["a", "b"]}, "c", ("x", "NotSupported", 'Unsupported value: "c": supported values: "a", "b"')),
        ({"enum": [1]}, True, ("x", "NotSupported", "Unsupported value: true: supported values: 1")),
        ({"enum": [1]}, {"a": 1}, ("x", "NotSupported", 'Unsupported value: "object": supported values: 1')),
        ({**S, "maxLength": 2}, "abc", ("x", "TooLong", "Too long: may not be more than 2 bytes")),
        ({**S, "minLength": 2}, "a", invalid('"a"', "should be at least 2 chars long")),
        ({**S, "pattern": "^b$"}, "a", invalid('"a"', "should match '^b$'")),
        ({**S, "pattern": "("}, "(", invalid('"("', "should match '('")),
        ({**S, "pattern": "."}, "\ud800", invalid('"\ud800"', "should match '.'")),
        ({**S, "format": "date"}, "a", invalid('"a"', 'must be of type date: "a"')),
        ({"type": "integer", "format": "int32"}, 2**40, invalid(str(2**40), f'must be of type int32: "{2**40}"')),
        ({**N, "minimum": 1}, 0, invalid("0", "should be greater than or equal to 1")),
        ({**N, "minimum": 1.0, "exclusiveMinimum": True}, 1, invalid("1", "should be greater than 1")),
        ({**N, "maximum": 1.5}, 2, invalid("2", "should be less than or equal to 1.5")),
        ({**N, "maximum": 1, "exclusiveMaximum": True}, 1, invalid("1", "should be less than 1")),
        ({**N, "multipleOf": 3}, 4, invalid("4", "should be a multiple of 3")),
        ({**L, "maxItems": 1}, [1, 2], ("x", "TooMany", "Too many: 2: must have at most 1 items")),
        ({**L, "minItems": 1}, [], invalid("0", "should have at least 1 items")),
        (
            {**L, "items": S},
            [1],
            ("x[0]", "TypeInvalid", 'Invalid value: "integer": x[0] in body must be of type string: "integer"'),
        ),
        ({**L, "x-kubernetes-list-type": "set"}, ["a", "a"], ("x[1]", "Duplicate", 'Duplicate value: "a"')),
        (
            {**L, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]},
            [{"n": "a", "v": 1}, {"n": "a", "v": 2}],
            ("x[1]", "Duplicate", 'Duplicate value: {"n":"a"}'),
        ),
        ({**O, "maxProperties": 1}, {"a": 1, "b": 1}, ("x", "TooMany", "Too many: 2: must have at most 1 items")),
        ({**O, "minProperties": 1}, {}, invalid("0", "should have at least 1 properties")),
        ({**O, "required": ["a"]}, {}, ("x.a", "Required", "Required value")),
        ({"not": {"minLength": 1}}, "a", ("x", "Invalid", 'Invalid value: "": "x" must not validate the schema (not)')),
        (
            {"oneOf": [{"minLength": 1}, {"maxLength": 9}]},
            "a",
            (
                "x",
                "Invalid",
                'Invalid value: "": "x" must validate one and only one schema (oneOf). Found 2 valid alternatives',
            ),
        ),
    ],
)
def test_a_value_that_its_schema_forbids_has_one_cause_in_kubernetes_words(
    schema: dict[str, Any], value: Any, expected: tuple[str, str, str]
) -> None:
    assert causes(schema, value) == [expected]


def test_when_one_field_of_several_is_wanted_all_are_named() -> None:
    schema = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    words = 'Invalid value: "": "x" must validate at least one schema (anyOf): one of a, b is required'
    assert causes(schema, {}) == [("x", "Invalid", words)]
    assert causes(schema, {"b": 1}) == []


def test_when_no_alternative_holds_the_nearest_is_explained() -> None:
    near, far = {"required": ["a"]}, {"required": ["b", "c"]}
    assert causes({"anyOf": [far, near]}, {}) == [
        ("x.a", "Required", "Required value"),
        ("x", "Invalid", 'Invalid value: "": "x" must validate at least one schema (anyOf)'),
    ]
    assert causes({"oneOf": [far, near]}, {})[-1][2].endswith("(oneOf). Found none valid")
    assert causes({"allOf": [far, near]}, {}) == [(f"x.{key}", "Required", "Required value") for key in "bca"]


def test_an_embedded_object_names_its_kind() -> None:
    found = causes({**O, "x-kubernetes-embedded-resource": True}, {"kind": "", "metadata": {"labels": 3}})
    assert [(field, reason) for field, reason, _ in found] == [
        ("x.apiVersion", "Required"),
        ("x.kind", "Required"),
        ("x.metadata", "Invalid"),
    ]


def test_the_root_itself_can_be_wrong() -> None:
    assert structural_values.check({"type": "object", "minProperties": 1}, {})[0].field == ""


def test_long_values_are_shown_in_part() -> None:
    ((_, _, message),) = causes({**S, "pattern": "^b$"}, "a" * 5000)
    assert message.startswith(f'Invalid value: "{"a" * 100}')
    assert message.endswith("…\": x in body should match '^b$'")
    assert len(message) < 400


def test_a_refusal_has_an_end() -> None:
    assert len(causes({**L, "items": S}, [1] * 5000)) == structural_values.MAX_CAUSES


def test_hostile_patterns_take_linear_time() -> None:
    # A backtracking matcher would not end before the universe does, nor before the limit of every test.
    assert causes({**S, "pattern": "^(a+)+$"}, "a" * 100_000 + "b")


@pytest.mark.parametrize("expression", ["(", "(a)\\1", "(?=a)", "((a{1000}){1000}){1000}", "\ud800"])
def test_patterns_that_re2_does_not_take(expression: str) -> None:
    assert structural_values.pattern(expression) is None


def test_the_check_has_a_budget() -> None:
    many = {"anyOf": [{"minLength": 5}] * 1000}
    found = structural_values.check({"type": "array", "items": many}, ["a"] * 100)
    assert [(cause.reason, cause.field) for cause in found] == [("FieldValueForbidden", "")]
    assert "too much to check" in found[0].message


def test_the_budget_counts_texts_that_are_looked_at_together() -> None:
    schema = {"type": "array", "items": S}
    assert structural_values.check(schema, ["a"] * 9, structural_values.Budget(10)) == []
    assert "too much to check" in structural_values.check(schema, ["a"] * 10, structural_values.Budget(10))[0].message


def test_a_budget_can_be_shared() -> None:
    budget = structural_values.Budget(3)
    schema = {"type": "object", "properties": {"x": S}}
    assert structural_values.check(schema, {"x": "a"}, budget) == []
    assert "too much to check" in structural_values.check(schema, {"x": "a"}, budget)[0].message


@pytest.mark.parametrize(
    ("value", "factor", "expected"),
    [
        (6, 3, True),
        (7, 3, False),
        (0.3, 0.1, True),
        (0.35, 0.1, False),
        (5, 0, False),
        (10**400, 0.5, False),
        (0, 2, True),
    ],
)
def test_a_multiple_is_exact_for_integers_and_near_for_fractions(value: float, factor: float, expected: bool) -> None:
    assert structural_values.is_multiple(value, factor) is expected
