# SPDX-License-Identifier: Apache-2.0
"""Whatever a stored document looks like, it gives a row, is defaulted once and for all, and is judged, not choked on."""

from __future__ import annotations

import contextlib
import copy
import datetime
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handfast import errors
from handfast.api import conversion, jsonpath, kinds, status
from handfast.api.defaulting import defaults
from handfast.api.printing import printers
from handfast.api.validation import validation
from tests.properties import sample_documents

NOW = datetime.datetime(2026, 1, 2, 4, tzinfo=datetime.UTC)
# Reviews are answered, not stored. The sample of an autoscaler is of v2; what v1 loses and carries is in `test_autoscaler_versions`.
_STORED = [
    row for row in kinds.builtin() if "get" in row.verbs and row.message != "autoscaling.v1.HorizontalPodAutoscaler"
]
_KINDS = {f"{row.group}/{row.plural}": row for row in _STORED}
_ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 7, 2.5, "", "x", "=", "2026-01-02T03:04:05Z", [], [None], [[]], {}, {"a": 1}]
)


def _places(value, path=()):
    """Every place of a document, as the keys that lead there."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _places(child, (*path, key))


# Those that are stored under another name; of all kinds they would be drawn once in a while.
_CONVERTED = [name for name, row in _KINDS.items() if row.storage_api_version != row.api_version]
_NAMES = sorted(_KINDS)


@st.composite
def broken(draw, names=_NAMES):
    """A kind and a sample of it with up to four places removed or replaced by something odd."""
    row = _KINDS[draw(st.sampled_from(names))]
    document = sample_documents.document(row)
    for _ in range(draw(st.integers(0, 4))):
        places = [path for path in _places(document) if path]
        if not places:
            break
        place = draw(st.sampled_from(places))
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        if draw(st.booleans()):
            del holder[place[-1]]
        else:
            holder[place[-1]] = copy.deepcopy(draw(_ODD))
    return row, document


@given(broken())
@settings(max_examples=60, deadline=None)
def test_any_document_gives_a_row_that_is_json(case):
    row, document = case
    before = copy.deepcopy(document)
    cells = printers.cells(row, document, NOW)
    assert len(cells) == len(printers.columns(row))
    assert json.loads(json.dumps(cells)) == cells
    assert document == before


@given(broken())
@settings(max_examples=60, deadline=None)
def test_defaulting_twice_is_defaulting_once(case):
    row, document = case
    defaults.apply(row, document)
    once = copy.deepcopy(document)
    defaults.apply(row, document)
    assert document == once


@given(broken(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_document_is_judged_and_left_alone(case, defaulted):
    row, document = case
    if defaulted:
        defaults.apply(row, document)
    old = sample_documents.document(row)
    before = copy.deepcopy(document)
    for causes in (
        validation.create(row, document),
        validation.update(row, document, old),
        validation.update(row, old, document),
    ):
        assert all(cause.field and cause.message and cause.reason.startswith("FieldValue") for cause in causes)
        assert json.dumps(status.invalid(row.kind, row.group, "web", causes).document()) if causes else True
    assert document == before


@given(broken() | broken(_CONVERTED))
@settings(max_examples=60, deadline=None)
def test_conversion_there_and_back_changes_nothing(case):
    row, document = case
    if document.get("apiVersion") == row.api_version and document.get("kind") == row.kind:
        stored = conversion.to_stored(row, document)
        assert stored["apiVersion"] == row.storage_api_version
        assert conversion.to_served(row, stored) == document


# Of the characters alone hardly any expression would be one.
_STEPS = st.sampled_from(
    [
        ".a",
        ".b",
        "['a']",
        '["b"]',
        "[0]",
        "[-1]",
        "[*]",
        ".*",
        "[?(@.a)]",
        "[?(@.a==1)]",
        "[?(@.b != 'x')]",
        "[?(@>=2)]",
    ]
)
_EXPRESSIONS = (
    st.text(alphabet=".[]'\"*?(@)=!<>0ab\\ $-", max_size=20)
    | st.lists(_STEPS, max_size=4).map("".join)
    | st.lists(_STEPS, max_size=2).map(lambda steps: "{$" + "".join(steps) + "}")
)
_NESTED = st.recursive(_ODD, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner))


@given(_EXPRESSIONS, _NESTED)
@settings(max_examples=150, deadline=None)
def test_any_expression_is_refused_or_finds_a_list(expression, document):
    with contextlib.suppress(errors.Refused):
        assert isinstance(jsonpath.find(document, expression), list)


@pytest.mark.parametrize("row", _STORED, ids=lambda row: f"{row.group}/{row.plural}")
def test_the_samples_are_valid(row):
    document = sample_documents.document(row)
    defaults.apply(row, document)
    assert validation.create(row, document) == []
    assert validation.update(row, document, copy.deepcopy(document)) == []
