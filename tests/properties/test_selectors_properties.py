# SPDX-License-Identifier: Apache-2.0
"""Selectors: printing and parsing are inverse, and no text does worse than be refused."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.api import selectors, status

keys = st.sampled_from(["a", "b", "in", "notin", "example.com/a", "A-b_c.D", "0"])
values = st.sampled_from(["", "a", "b", "in", "x-y_z.0", "7"])
expressions = st.one_of(
    st.fixed_dictionaries(
        {"key": keys, "operator": st.sampled_from(["In", "NotIn"]), "values": st.lists(values, min_size=1, max_size=3)}
    ),
    st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
objects = st.fixed_dictionaries(
    {"matchLabels": st.dictionaries(keys, values, max_size=3), "matchExpressions": st.lists(expressions, max_size=3)}
)
hard_text = st.one_of(
    st.text(max_size=20),
    st.lists(
        st.sampled_from(["a", "b", "in", "notin", "=", "==", "!=", "!", "(", ")", ",", "<", ">", " ", "\\", "7" * 20]),
        max_size=10,
    ).map("".join),
)


def _holds(document: dict[str, Any], labels: dict[str, str]) -> bool:
    """What a LabelSelector object means, said once more and slowly."""
    answers = [labels.get(key) == value for key, value in document["matchLabels"].items()]
    for each in document["matchExpressions"]:
        there, listed = each["key"] in labels, labels.get(each["key"]) in each.get("values", [])
        answers.append(
            {"In": listed, "NotIn": not listed, "Exists": there, "DoesNotExist": not there}[each["operator"]]
        )
    return all(answers)


@settings(max_examples=80)
@given(objects, st.dictionaries(keys, values, max_size=3))
def test_printing_and_parsing_labels_are_inverse(document, labels):
    selector = selectors.from_label_selector(document)
    assert selectors.parse_labels(str(selector)) == selector
    # Labels that the selector speaks of are likelier to tell a mistake than random ones.
    for tried in (labels, {**labels, **document["matchLabels"]}):
        assert selector.match(tried) is _holds(document, tried)


@settings(max_examples=80)
@given(hard_text)
def test_any_label_text_is_parsed_or_refused(text):
    with contextlib.suppress(status.StatusError):
        selector = selectors.parse_labels(text)
        assert selectors.parse_labels(str(selector)) == selector
        assert selector.match({"a": "b"}) in {True, False}


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.sampled_from(["metadata.name", "type", "spec.x"]), st.text(max_size=5), st.booleans()), max_size=3
    )
)
def test_printing_and_parsing_fields_are_inverse(rows):
    terms = [selectors.FieldTerm(name, value, equal) for name, value, equal in rows]
    selector = selectors.parse_fields(",".join(map(str, terms)))
    assert set(selector.terms) == set(terms)
    assert selectors.parse_fields(str(selector)) == selector


@settings(max_examples=80)
@given(hard_text)
def test_any_field_text_is_parsed_or_refused(text):
    with contextlib.suppress(status.StatusError):
        selector = selectors.parse_fields(text)
        assert selectors.parse_fields(str(selector)) == selector
