# SPDX-License-Identifier: Apache-2.0
"""What rules see of an object."""

from __future__ import annotations

import pytest

from handfast.api.cel import shapes
from handfast.api.custom import rule_shapes

S = {"type": "string"}


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("a", "a"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("1a", None),
        ("a b", None),
        ("", None),
    ],
)
def test_names_are_escaped(name, word):
    assert rule_shapes.escaped(name) == word


@pytest.mark.parametrize(
    ("schema", "kind", "size"),
    [
        (S, "string", shapes.REQUEST_BYTES),
        ({**S, "maxLength": 5}, "string", 20),
        ({**S, "enum": ["a", "bcd"]}, "string", 3),
        ({**S, "format": "date-time"}, "timestamp", 1),
        ({**S, "format": "byte", "maxLength": 4}, "bytes", 16),
        ({"type": "integer"}, "int", 1),
        ({"type": "number"}, "double", 1),
        ({"type": "boolean"}, "bool", 1),
        ({"x-kubernetes-int-or-string": True}, "dyn", shapes.REQUEST_BYTES),
        ({"x-kubernetes-preserve-unknown-fields": True}, "dyn", shapes.REQUEST_BYTES),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "dyn", shapes.REQUEST_BYTES),
        ({"type": "array", "items": S, "maxItems": 3}, "list", 3),
        ({"type": "array", "items": S}, "list", shapes.REQUEST_BYTES // 3),
        ({"type": "object", "additionalProperties": S, "maxProperties": 4}, "map", 4),
        ({"type": "object", "properties": {"a": S, "b c": S}}, "object", 1),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, "object", 3),
    ],
)
def test_schemas_have_shapes(schema, kind, size):
    shape = rule_shapes.shape(schema)
    assert (shape.kind, shape.size) == (kind, size)
    assert shape.weight <= shapes.REQUEST_BYTES


def test_required_fields_make_elements_larger():
    element = {"type": "object", "required": ["abc", "x"], "properties": {"abc": S}}
    assert rule_shapes.least_bytes(element) == 2 + 3 + 3 + 2


def test_the_root_shows_its_name_and_no_more_of_its_metadata():
    shape = rule_shapes.shape({"type": "object", "properties": {"spec": S}}, root=True)
    assert sorted(shape.fields) == ["apiVersion", "kind", "metadata", "spec"]
    assert sorted(shape.fields["metadata"].fields) == ["generateName", "name"]


def test_times_are_read_where_they_are_named():
    text = "self.a < self.b && self.c < self.a"
    times = {(0, "self.a"): "timestamp", (9, "self.b"): "date", (19, "self.c"): "duration"}
    changed = "timestamp(self.a) < timestamp(self.b + 'T00:00:00Z') && duration(self.c) < self.a"
    assert rule_shapes.timed(text, times) == changed


def convert(schema, value, *, root=False):
    change = rule_shapes.converter(schema, root=root)
    return value if change is None else change(value)


@pytest.mark.parametrize(
    ("schema", "value", "seen"),
    [
        ({"type": "number"}, 1, 1.0),
        ({"type": "number"}, True, True),
        ({**S, "format": "byte"}, "YQ==", b"a"),
        ({**S, "format": "byte"}, "?", "?"),
        ({**S, "format": "byte"}, 3, 3),
        (S, "a", "a"),
        ({"x-kubernetes-int-or-string": True}, 3, 3),
        ({"type": "array", "items": {"type": "number"}}, [1, 2.5], [1.0, 2.5]),
        ({"type": "array", "items": {"type": "number"}}, "x", "x"),
        ({"type": "array", "items": S}, ["a"], ["a"]),
        ({"type": "object", "additionalProperties": {"type": "number"}}, {"a": 1}, {"a": 1.0}),
        ({"type": "object", "additionalProperties": {"type": "number"}}, None, None),
        ({"type": "object", "additionalProperties": S}, {"a": "b"}, {"a": "b"}),
        (
            {"type": "object", "properties": {"a-b": S, "b c": S}},
            {"a-b": "1", "b c": 2, "d": 3},
            {"a__dash__b": "1", "d": 3},
        ),
        ({"type": "object", "properties": {"n": {"type": "number"}}}, {"n": 1}, {"n": 1.0}),
        ({"type": "object", "properties": {"n": {"type": "number"}}}, 5, 5),
        ({"type": "object", "properties": {"n": True}}, {"n": 1}, {"n": 1}),
    ],
)
def test_values_are_as_rules_expect_them(schema, value, seen):
    assert convert(schema, value) == seen
    assert repr(convert(schema, value)) == repr(seen)


def test_of_metadata_only_names_are_seen():
    document = {"kind": "A", "metadata": {"name": "a", "labels": {"x": "y"}}}
    assert convert({"type": "object"}, document, root=True) == {"kind": "A", "metadata": {"name": "a"}}
    assert convert({"type": "object"}, {"metadata": 1}, root=True) == {"metadata": 1}
