# SPDX-License-Identifier: Apache-2.0
"""Pruning and defaulting of custom objects, place by place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api.custom import structural

PRESERVE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
STRING = {"type": "string"}


def in_spec(spec: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": spec}}


def pruned(spec: dict[str, Any], value: Any) -> tuple[Any, list[str]]:
    document = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": copy.deepcopy(value)}
    unknown = structural.prune(in_spec(spec), document)
    assert document.keys() >= {"apiVersion", "kind", "metadata"}
    return document.get("spec"), unknown


@pytest.mark.parametrize(
    ("spec", "value", "left", "unknown"),
    [
        ({"type": "object", "properties": {"a": STRING}}, {"a": "1", "b": 2}, {"a": "1"}, ["spec.b"]),
        ({"type": "object"}, {"a": 1}, {}, ["spec.a"]),
        (PRESERVE, {"a": {"b": 1}}, {"a": {"b": 1}}, []),
        (
            {**PRESERVE, "properties": {"a": {"type": "object"}}},
            {"a": {"b": 1}, "c": 1},
            {"a": {}, "c": 1},
            ["spec.a.b"],
        ),
        ({"type": "object", "additionalProperties": STRING}, {"a": "1"}, {"a": "1"}, []),
        ({"type": "object", "additionalProperties": True}, {"a": {"b": 1}}, {"a": {"b": 1}}, []),
        (
            {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": STRING}}},
            {"k": {"x": "1", "y": 1}},
            {"k": {"x": "1"}},
            ["spec.k.y"],
        ),
        (
            {"type": "array", "items": {"type": "object", "properties": {"x": STRING}}},
            [{"x": "1"}, {"y": 1}],
            [{"x": "1"}, {}],
            ["spec[1].y"],
        ),
        ({"type": "array"}, [{"y": 1}], [{"y": 1}], []),
        ({"type": "array", "items": STRING}, ["a", "b", {"y": 1}], ["a", "b", {}], ["spec[2].y"]),
        ({"type": "object", "properties": "none"}, {"a": 1}, {}, ["spec.a"]),
        (STRING, "text", "text", []),
    ],
)
def test_a_field_that_the_schema_does_not_know_is_dropped_and_reported(
    spec: dict[str, Any], value: Any, left: Any, unknown: list[str]
) -> None:
    assert pruned(spec, value) == (left, unknown)


def test_the_root_drops_what_it_does_not_know_and_odd_metadata() -> None:
    document = {"kind": "K", "metadata": {"name": "n", "odd": 1}, "other": 1}
    assert sorted(structural.prune({"type": "object"}, document)) == ["metadata.odd", "other"]
    assert document == {"kind": "K", "metadata": {"name": "n"}}


def test_metadata_that_is_no_object_is_left_to_others() -> None:
    document = {"metadata": "text"}
    assert structural.prune({"type": "object"}, document) == []
    assert document == {"metadata": "text"}


def test_an_embedded_object_has_the_fields_of_every_object() -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    value = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "odd": 1}, "spec": {}, "more": 1}
    left, unknown = pruned(embedded, value)
    assert left == {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": {}}
    assert unknown == ["spec.metadata.odd", "spec.more"]


def test_only_so_many_unknown_fields_are_reported_but_all_are_dropped() -> None:
    left, unknown = pruned({"type": "object"}, {str(number): 1 for number in range(500)})
    assert (left, len(unknown)) == ({}, structural.MAX_UNKNOWN)


def filled(spec: dict[str, Any], value: Any) -> Any:
    document = {"metadata": {"name": "n"}, "spec": copy.deepcopy(value)}
    structural.fill(in_spec(spec), document)
    again = copy.deepcopy(document)
    structural.fill(in_spec(spec), again)
    assert again == document
    return document.get("spec")


DEFAULTED = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}


@pytest.mark.parametrize(
    ("spec", "value", "expected"),
    [
        (DEFAULTED, {}, {"a": 1}),
        (DEFAULTED, {"a": 2}, {"a": 2}),
        (DEFAULTED, {"a": None}, {"a": 1}),
        ({"type": "object", "properties": {"a": {"type": "boolean", "default": False}}}, {}, {"a": False}),
        (
            {"type": "object", "properties": {"a": {"type": "string", "nullable": True, "default": "x"}}},
            {"a": None},
            {"a": None},
        ),
        ({"type": "object", "properties": {"a": STRING}}, {"a": None}, {}),
        ({"type": "object", "properties": {"b": DEFAULTED}}, {}, {}),
        ({"type": "object", "properties": {"b": {**DEFAULTED, "default": {}}}}, {}, {"b": {"a": 1}}),
        ({"type": "array", "items": DEFAULTED}, [{}, {"a": 5}, 3], [{"a": 1}, {"a": 5}, 3]),
        ({"type": "array"}, [{}], [{}]),
        ({"type": "object", "additionalProperties": DEFAULTED}, {"k": {}, "n": None}, {"k": {"a": 1}}),
        (PRESERVE, {"n": None}, {"n": None}),
        ({"type": "object", "properties": {"odd": 1}}, {"odd": {}}, {"odd": {}}),
        (STRING, "text", "text"),
    ],
)
def test_what_is_absent_gets_the_default_of_its_schema(spec: dict[str, Any], value: Any, expected: Any) -> None:
    assert filled(spec, value) == expected


def test_defaults_are_copies() -> None:
    schema = in_spec({"type": "object", "default": {"list": []}, **PRESERVE})
    one: dict[str, Any] = {}
    other: dict[str, Any] = {}
    structural.fill(schema, one)
    structural.fill(schema, other)
    one["spec"]["list"].append(1)
    assert other == {"spec": {"list": []}}


def test_the_metadata_of_the_root_is_nobodys_default() -> None:
    document: dict[str, Any] = {"metadata": None}
    structural.fill(
        {"type": "object", "properties": {"metadata": {"type": "object", "default": {"name": "x"}}}}, document
    )
    assert document == {"metadata": None}


def test_defaults_do_not_grow_without_end() -> None:
    long = {"type": "string", "default": "x" * 1000}
    schema = in_spec({"type": "array", "items": {"type": "object", "properties": {"a": long, "b": long}}})
    document: dict[str, Any] = {"spec": [{} for _ in range(100_000)]}
    structural.fill(schema, document)
    count = sum(len(element) for element in document["spec"])
    assert structural.MAX_FILLED // 1100 < count < structural.MAX_FILLED // 1000 + 2


@pytest.mark.parametrize(
    ("schema", "has"),
    [
        ({}, False),
        ({"default": {}}, False),
        ({"properties": {"a": {"type": "string"}}}, False),
        ({"properties": {"a": {"default": 1}}}, True),
        ({"properties": {"a": {"items": {"properties": {"b": {"default": 1}}}}}}, True),
        ({"additionalProperties": {"properties": {"b": {"default": 1}}}}, True),
        ({"additionalProperties": True}, False),
    ],
)
def test_whether_anything_could_be_filled_in(schema: dict[str, Any], has: bool) -> None:
    assert structural.has_defaults(schema) is has


@pytest.mark.parametrize(
    ("kind", "new", "old", "known"),
    [
        ("atomic", ["a", "b"], ["a"], []),
        ("set", ["a", "b"], ["a"], []),
        ("atomic", ["a"], ["a"], ["a"]),
        ("map", [{"k": 1}, {"k": 2}], [{"k": 1}], [{"k": 1}]),
        ("atomic", "no list", ["a"], ["a"]),
    ],
)
def test_items_of_a_list_that_has_changed_are_new_ones(kind: str, new: Any, old: Any, known: Any) -> None:
    schema = {"properties": {"spec": {"properties": {"l": {"type": "array", "x-kubernetes-list-type": kind}}}}}
    before = {"spec": {"l": old, "gone": 1}, "x": 1}
    assert structural.correlated(schema, {"spec": {"l": new}, "x": 2}, before) == {
        "spec": {"l": known, "gone": 1},
        "x": 1,
    }
