# SPDX-License-Identifier: Apache-2.0
"""Structural schemas with any object: nothing raises, and pruning and filling are done after the first time.

Schemas and values are made together, so that many values fit and many nearly do.
"""

from __future__ import annotations

import copy
from typing import Any

import hypothesis
import msgspec
from hypothesis import strategies as st

from handfast.api.custom import structural, structural_schema, structural_values

KEYS = st.sampled_from(["a", "b", "c", "metadata", "kind"])
SCALARS = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(["", "a", "aa", "10.0.0.1"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)
LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "pattern": st.sampled_from(["^a+$", "(a+)+$"]),
            "format": st.sampled_from(["ipv4", "date", "odd"]),
            "default": st.sampled_from(["a", ""]),
            "nullable": st.booleans(),
            "enum": st.just(["a", "b"]),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": st.integers(-2, 2),
            "maximum": st.floats(-2, 2),
            "exclusiveMinimum": st.booleans(),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "default": st.integers(-2, 2),
        },
    ),
    st.just({"type": "boolean", "default": True}),
    st.just({structural.INT_OR_STRING: True}),
    st.just({structural.PRESERVE: True}),
)


def _compound(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    required = st.lists(KEYS, max_size=2, unique=True)
    alternatives = st.lists(st.fixed_dictionaries({"required": required}), min_size=1, max_size=2)
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(KEYS, inner, max_size=3)},
            optional={
                "required": required,
                "default": st.just({}),
                structural.PRESERVE: st.booleans(),
                structural.EMBEDDED: st.booleans(),
                "anyOf": alternatives,
                "oneOf": alternatives,
                "not": st.fixed_dictionaries({"required": required}),
            },
        ),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner | st.just(True)}),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={
                "maxItems": st.integers(0, 3),
                "x-kubernetes-list-type": st.sampled_from(["set", "atomic"]),
            },
        ),
    )


SCHEMAS = st.recursive(LEAVES, _compound, max_leaves=8)
ROOTS = st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(KEYS, SCHEMAS, max_size=3)})
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


@hypothesis.given(ROOTS, DOCUMENTS)
def test_the_second_time_changes_nothing(schema: dict[str, Any], document: dict[str, Any]) -> None:
    structural.prune(schema, document)
    structural.fill(schema, document)
    again = copy.deepcopy(document)
    assert structural.prune(schema, again) == [
        path for path in structural.prune(schema, document) if "metadata." in path
    ]
    structural.fill(schema, again)
    assert again == document


@hypothesis.given(ROOTS, DOCUMENTS)
def test_pruning_reports_exactly_when_it_drops(schema: dict[str, Any], document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    unknown = structural.prune(schema, document)
    assert bool(unknown) == (before != document)


@hypothesis.given(ROOTS, DOCUMENTS)
def test_checking_never_raises_nor_changes_anything(schema: dict[str, Any], document: dict[str, Any]) -> None:
    before = copy.deepcopy((schema, document))
    found = structural_values.check(schema, document)
    assert (schema, document) == before
    # Causes are sent as JSON.
    msgspec.json.encode([cause.document() for cause in found])


@hypothesis.given(ROOTS)
def test_a_schema_without_problems_accepts_its_own_defaults(schema: dict[str, Any]) -> None:
    if structural_schema.problems(schema, "root"):
        return
    for part in structural_schema.walk(schema):
        default = part.get("default")
        if default is None:
            continue
        holder = {"x": copy.deepcopy(default)}
        structural.fill({"properties": {"x": part}}, holder)
        assert structural_values.check(part, holder["x"]) == []


@hypothesis.given(ROOTS, DOCUMENTS, DOCUMENTS)
def test_more_alternatives_never_make_a_document_worse(
    schema: dict[str, Any], document: dict[str, Any], other: dict[str, Any]
) -> None:
    strict = {"anyOf": [schema]}
    loose = {"anyOf": [schema, {"required": list(other)}]}
    assert structural_values.check(strict, document) or not structural_values.check(loose, document)
