# SPDX-License-Identifier: Apache-2.0
"""How definitions are published: as they are, apart from what every object has and what OpenAPI 2 cannot say."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import kinds
from handfast.api.custom import structural
from handfast.api.openapi import custom_schemas, names

IMPLIED = {"apiVersion", "kind", "metadata"}
OBJECT_META = names.of_message("meta.v1.ObjectMeta")


def row(schema: dict[str, Any] | None) -> kinds.Kind:
    return kinds.Kind(
        group="example.com", version="v1", kind="Foo", plural="foos", singular="foo", namespaced=True, schema=schema
    )


def without_implied(component: dict[str, Any]) -> dict[str, Any]:
    """What the stock suite compares: it drops the fields that every object has."""
    assert component["properties"].keys() >= IMPLIED
    left = {name: value for name, value in component["properties"].items() if name not in IMPLIED}
    return {**component, "properties": left}


FOO = {
    "type": "object",
    "description": "A Foo.",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["bars"],
            "properties": {
                "bars": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"age": {"type": "string", "enum": ["1", "2"]}}},
                },
                "named": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 5}},
            },
        }
    },
}


def test_a_plain_schema_is_published_as_it_is_in_both_versions_and_is_not_touched():
    schema = copy.deepcopy(FOO)
    assert without_implied(custom_schemas.kind(row(schema))) == FOO
    assert without_implied(custom_schemas.kind_v2(row(schema))) == FOO
    assert schema == FOO


def test_the_metadata_refers_to_that_of_every_object():
    assert custom_schemas.kind(row(FOO))["properties"]["metadata"]["allOf"] == names.reference(OBJECT_META)["allOf"]
    metadata = custom_schemas.kind_v2(row(FOO))["properties"]["metadata"]
    assert metadata["$ref"] == f"#/definitions/{OBJECT_META}"
    assert metadata["description"].startswith("Standard object's metadata")


def test_what_keeps_unknown_fields_at_its_root_is_an_object_and_no_more_in_version_2():
    for schema in (None, {"type": "object", structural.PRESERVE: True, "properties": {"spec": {"type": "object"}}}):
        assert custom_schemas.kind_v2(row(schema)) == {"type": "object"}


def test_without_a_schema_anything_goes():
    assert custom_schemas.kind(row(None)) == {"type": "object", structural.PRESERVE: True}


@pytest.mark.parametrize(
    ("schema", "published"),
    [
        pytest.param(
            {"type": "string", "oneOf": [{"format": "ipv4"}], "anyOf": [{}], "allOf": [{}], "not": {}},
            {"type": "string"},
            id="junctors are dropped",
        ),
        pytest.param(
            {"type": "object", "nullable": True, "properties": {"a": {"type": "string"}}, "description": "d"},
            {"description": "d"},
            id="what may be null has no type",
        ),
        pytest.param(
            {"type": "object", structural.PRESERVE: True, "properties": {"a": {"type": "string"}}},
            {structural.PRESERVE: True},
            id="what keeps unknown fields has no known ones",
        ),
        pytest.param(
            {"type": "array", structural.PRESERVE: True, "items": {"type": "string"}},
            {structural.PRESERVE: True},
            id="a list of nothing known has no type",
        ),
        pytest.param(
            {
                "type": "object",
                "required": ["a", "b"],
                "properties": {"a": {"type": "string", "nullable": True}, "b": {"type": "string"}},
            },
            {"type": "object", "required": ["b"], "properties": {"a": {}, "b": {"type": "string"}}},
            id="what may be null is not required",
        ),
        pytest.param(
            {"type": "object", "required": ["a"], "additionalProperties": {"type": "string", "nullable": True}},
            {"type": "object", "additionalProperties": {}},
            id="nor is anything beside fields that may be null",
        ),
        pytest.param(
            {structural.INT_OR_STRING: True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            {structural.INT_OR_STRING: True},
            id="a number or a text",
        ),
    ],
)
def test_what_version_2_cannot_say_is_left_out(schema, published):
    outer = {"type": "object", "properties": {"spec": schema}}
    assert custom_schemas.kind_v2(row(outer))["properties"]["spec"] == published


def test_a_number_or_a_text_says_so_in_version_3_once():
    either = [{"type": "integer"}, {"type": "string"}]
    for schema in ({structural.INT_OR_STRING: True}, {structural.INT_OR_STRING: True, "anyOf": either}):
        outer = {"type": "object", "properties": {"port": schema}}
        assert custom_schemas.kind(row(outer))["properties"]["port"] == {
            structural.INT_OR_STRING: True,
            "anyOf": either,
        }


def test_an_embedded_resource_has_what_every_object_has_unless_version_2_would_forbid_the_rest():
    embedded = {
        "type": "object",
        structural.EMBEDDED: True,
        "required": ["kind"],
        "properties": {"a": {"type": "string"}},
    }
    outer = {"type": "object", "properties": {"list": {"type": "array", "items": embedded}}}
    for publish in (custom_schemas.kind, custom_schemas.kind_v2):
        inner = publish(row(outer))["properties"]["list"]["items"]
        assert inner["properties"].keys() == IMPLIED | {"a"}
        assert inner["required"] == ["kind", "apiVersion"]
    keeping = {"type": "object", structural.EMBEDDED: True, structural.PRESERVE: True}
    outer = {"type": "object", "properties": {"template": keeping}}
    assert custom_schemas.kind_v2(row(outer))["properties"]["template"] == {
        structural.EMBEDDED: True,
        structural.PRESERVE: True,
    }


def test_a_list_has_its_items():
    listed = custom_schemas.listed(row(FOO))
    assert listed["required"] == ["items"]
    assert listed["properties"]["items"]["items"] == names.reference("com.example.v1.Foo")


def test_a_keyword_that_is_null_says_nothing():
    bare: dict[str, Any] = {"type": "object"}
    embedded = {**bare, structural.EMBEDDED: True, "properties": None, "required": None, "nullable": None}
    nothing = {**bare, "properties": None, "required": None, "allOf": None, "additionalProperties": None}
    for publish in (custom_schemas.kind, custom_schemas.kind_v2):
        assert publish(row(nothing)) == publish(row(bare))
        published = publish(row({**bare, "properties": {"it": embedded}}))
        assert published["properties"]["it"]["properties"].keys() == IMPLIED
