# SPDX-License-Identifier: Apache-2.0
"""The JSONPath subset of printer columns, and reads that do not trust the shape."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.api import jsonpath

DOCUMENT = {
    "metadata": {"annotations": {"example.com/x": "note"}, "name": "web"},
    "spec": {"list": [{"n": 1}, {"n": 2}, {"n": "x"}, 7]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (".metadata.name", ["web"]),
        ("{.metadata.name}", ["web"]),
        ("$.metadata['name']", ["web"]),
        ('.metadata["name"]', ["web"]),
        (r".metadata.annotations.example\.com/x", ["note"]),
        (".metadata.annotations['example.com/x']", ["note"]),
        (r".metadata.annotations['example\.com/x']", ["note"]),
        (".metadata.nothing.more", []),
        (".metadata.name.more", []),
        (".spec.list[0].n", [1]),
        (".spec.list[-1]", [7]),
        (".spec.list[9]", []),
        (".metadata[0]", []),
        (".spec.list[*].n", [1, 2, "x"]),
        (".metadata.annotations.*", ["note"]),
        (".metadata.name[*]", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Other')].status", ["False"]),
        (".status.conditions[?(@.type!=Ready)].status", ["False"]),
        (".spec.list[?(@.n>1)].n", [2]),
        (".spec.list[?(@.n<=1)].n", [1]),
        (".spec.list[?(@.n>=2)].n", [2]),
        (".spec.list[?(@.n<2)].n", [1]),
        (".spec.list[?(@.n)].n", [1, 2, "x"]),
        ("", [DOCUMENT]),
    ],
)
def test_an_expression_leads_to_its_values_in_document_order(expression, found):
    assert jsonpath.find(DOCUMENT, expression) == found


@pytest.mark.parametrize(
    ("expression", "place"),
    [
        ("metadata", "metadata"),
        ("..name", "..name"),
        (".a[1:2]", "[1:2]"),
        (".a[", "["),
        (".a[?(@.b==)]", "[?(@.b==)]"),
        ("{.a", "{.a"),
    ],
)
def test_what_is_outside_the_subset_is_refused_with_the_place(expression, place):
    with pytest.raises(errors.Refused) as refusal:
        jsonpath.parse(expression)
    assert refusal.value.message.startswith(f'jsonPath "{expression}" is not understood from "{place}" on: ')


def test_reads_of_odd_values_are_empty():
    odd = {"a": 1, "b": {"c": [1, {}, "x"]}, "yes": True}
    assert jsonpath.at(odd, "a", "b") is None
    assert jsonpath.mapping(odd, "a") == {}
    assert jsonpath.mapping(odd, "b") is odd["b"]
    assert jsonpath.sequence(odd, "b") == []
    assert jsonpath.mappings(odd, "b", "c") == [{}]
    assert jsonpath.texts(odd, "b", "c") == ["x"]
    assert jsonpath.text(odd, "a") == ""
    assert jsonpath.number(odd, "a") == 1
    assert jsonpath.number(odd, "yes") == 0


def test_a_literal_of_hostile_nesting_is_a_text():
    hostile = "[" * 100_000
    assert jsonpath.find([{"a": hostile}, {"a": []}], f"[?(@.a=={hostile})].a") == [hostile]


def test_a_hostile_expression_is_refused_at_once():
    with pytest.raises(errors.Refused, match="is not understood from"):
        jsonpath.parse(".a[?(@." + "\\" * 4000)


def test_an_index_that_is_no_number_of_this_machine_is_refused():
    assert jsonpath.find([1], f"[{'0' * 18}]") == [1]
    with pytest.raises(errors.Refused, match="is not understood from"):
        jsonpath.parse(f".a[{'1' * 5000}]")
