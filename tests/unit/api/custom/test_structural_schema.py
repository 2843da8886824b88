# SPDX-License-Identifier: Apache-2.0
"""Which schemas are structural, and what is said of those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.custom import structural_schema

S = {"type": "string"}


def problems(schema: dict[str, Any]) -> list[tuple[str, str]]:
    found = structural_schema.problems({"type": "object", "properties": {"x": schema}}, "root")
    return [(cause.field.removeprefix("root.properties[x]").removeprefix("."), cause.reason) for cause in found]


LIST_MAP = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {"type": "object", "properties": {"name": S}},
}


@pytest.mark.parametrize(
    "schema",
    [
        S,
        {"type": "object"},
        {"x-kubernetes-preserve-unknown-fields": True},
        {"x-kubernetes-int-or-string": True},
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        {"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
        {"type": "array", "items": S},
        {"type": "object", "additionalProperties": S},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-map-type": "atomic"},
        LIST_MAP,
        {"type": "array", "items": S, "x-kubernetes-list-type": "set"},
        {**S, "pattern": "^a$", "default": "a"},
        {"type": "integer", "multipleOf": 2, "default": 4},
        {"type": "object", "default": {}, "required": ["a"], "properties": {"a": {**S, "default": "x"}}},
        {
            "type": "object",
            "properties": {"a": S},
            "oneOf": [{"required": ["a"], "properties": {"a": {"minLength": 1}}}],
        },
        {**S, "not": {"pattern": "a"}},
        {"type": "array", "items": S, "allOf": [{"items": {"maxLength": 3}}, "odd"]},
        {"type": "object", "properties": {"a": "odd"}, "oneOf": [{"properties": {"a": "odd"}}]},
    ],
)
def test_a_structural_schema_has_no_problems(schema: dict[str, Any]) -> None:
    assert problems(schema) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, ("type", "Required")),
        ({"type": "text"}, ("type", "NotSupported")),
        ({"type": "string", "x-kubernetes-int-or-string": True}, ("type", "Invalid")),
        ({"type": "string", "x-kubernetes-embedded-resource": True}, ("type", "Invalid")),
        ({"type": "array"}, ("items", "Required")),
        ({"type": "array", "items": [S]}, ("items", "Forbidden")),
        ({"type": "array", "items": {}}, ("items.type", "Required")),
        ({"type": "object", "additionalProperties": {}}, ("additionalProperties.type", "Required")),
        ({"type": "object", "additionalProperties": False}, ("additionalProperties", "Forbidden")),
        ({"type": "object", "properties": {"a": S}, "additionalProperties": S}, ("additionalProperties", "Forbidden")),
        ({"type": "array", "items": S, "uniqueItems": True}, ("uniqueItems", "Forbidden")),
        ({"type": "object", "$ref": "#/x"}, ("$ref", "Forbidden")),
        ({"type": "object", "patternProperties": {"a": S}}, ("patternProperties", "Forbidden")),
        ({**S, "pattern": "("}, ("pattern", "Invalid")),
        ({"type": "integer", "multipleOf": 0}, ("multipleOf", "Invalid")),
        ({"type": "array", "items": S, "x-kubernetes-list-type": "bag"}, ("x-kubernetes-list-type", "NotSupported")),
        ({"type": "object", "x-kubernetes-map-type": "bag"}, ("x-kubernetes-map-type", "NotSupported")),
        ({**S, "x-kubernetes-list-type": "set"}, ("type", "Invalid")),
        ({**LIST_MAP, "x-kubernetes-list-type": "set"}, ("x-kubernetes-list-type", "Invalid")),
        ({**LIST_MAP, "x-kubernetes-list-map-keys": []}, ("x-kubernetes-list-map-keys", "Required")),
        ({**LIST_MAP, "x-kubernetes-list-map-keys": ["id"]}, ("x-kubernetes-list-map-keys[0]", "Invalid")),
        ({"type": "integer", "default": "a"}, ("default", "TypeInvalid")),
        ({"type": "object", "default": {"a": 1}}, ("default", "Invalid")),
        ({"type": "object", "default": {"a": 1}, "properties": {"a": S}}, ("default.a", "TypeInvalid")),
        ({**S, "anyOf": [{"type": "string"}]}, ("anyOf[0].type", "Forbidden")),
        (
            {"type": "object", "properties": {"a": S}, "not": {"properties": {"a": {"default": 1}}}},
            ("not.properties[a].default", "Forbidden"),
        ),
        (
            {"type": "array", "items": S, "oneOf": [{"items": {"nullable": True}}]},
            ("oneOf[0].items.nullable", "Forbidden"),
        ),
        ({**S, "allOf": [{"not": {"pattern": "("}}]}, ("allOf[0].not.pattern", "Invalid")),
    ],
)
def test_not_structural(schema: dict[str, Any], expected: tuple[str, str]) -> None:
    field, reason = expected
    assert problems(schema) == [(field, f"FieldValue{reason}")]


def test_the_root_has_no_default() -> None:
    found = structural_schema.problems({"type": "object", "default": {"a": 1}}, "root")
    assert [(cause.field, cause.reason) for cause in found] == [("root.default", "FieldValueForbidden")]


def test_huge_schemas_are_refused() -> None:
    root = {"type": "object", "properties": {str(number): S for number in range(structural_schema.MAX_SCHEMAS)}}
    found = structural_schema.problems(root, "root")
    assert [(cause.field, cause.reason) for cause in found] == [("root", "FieldValueTooMany")]


def test_a_refusal_has_an_end() -> None:
    found = structural_schema.problems({"type": "object", "properties": {str(n): {} for n in range(500)}}, "root")
    assert len(found) == 100


def test_long_keys_are_shown_in_part() -> None:
    found = structural_schema.problems({"type": "object", "properties": {"k" * 5000: {}}}, "root")
    assert found[0].field.startswith(f"root.properties[{'k' * 100}")
    assert found[0].field.endswith("k…].type")
    assert len(found[0].field) < 300


def test_rules_are_found_wherever_they_are() -> None:
    rule = {**S, "x-kubernetes-validations": [{"rule": "true"}]}
    for schema in (rule, {"items": rule}, {"properties": {"a": rule}}, {"anyOf": [{"not": rule}]}):
        assert structural_schema.has_rules(schema)
    assert not structural_schema.has_rules({"type": "object", "properties": {"a": S}})
