# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' words, and the checks every kind uses."""

from __future__ import annotations

import pytest

from handfast.api import field_errors as fields
from handfast.api import status


@pytest.mark.parametrize(
    ("cause", "reason", "message"),
    [
        (fields.required("a"), "FieldValueRequired", "Required value"),
        (fields.required("a", "why"), "FieldValueRequired", "Required value: why"),
        (fields.invalid("a", 'x"y', "why"), "FieldValueInvalid", 'Invalid value: "x\\"y": why'),
        (fields.invalid("a", 5, "why"), "FieldValueInvalid", "Invalid value: 5: why"),
        (fields.invalid("a", None, "why"), "FieldValueInvalid", "Invalid value: null: why"),
        (
            fields.not_supported("a", "x", ["b", "c"]),
            "FieldValueNotSupported",
            'Unsupported value: "x": supported values: "b", "c"',
        ),
        (fields.forbidden("a", "why"), "FieldValueForbidden", "Forbidden: why"),
        (fields.duplicate("a", "x"), "FieldValueDuplicate", 'Duplicate value: "x"'),
        (fields.not_found("a", "x"), "FieldValueNotFound", 'Not found: "x"'),
        (fields.too_long("a", 63), "FieldValueTooLong", "Too long: must have at most 63 bytes"),
        (fields.too_many("a", 5, 3), "FieldValueTooMany", "Too many: 5: must have at most 3 items"),
    ],
)
def test_a_cause_has_kubernetes_reason_and_words(cause, reason, message):
    assert cause == status.Cause(reason, message, "a")


@pytest.mark.parametrize("name", ["http", "a", "a-b", "8080a", "x" * 15])
def test_port_names(name):
    assert list(fields.port_name("a", name)) == []


_CHARACTERS = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
_LETTER = "must contain at least one letter (a-z)"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("", [_CHARACTERS, _LETTER]),
        ("8080", [_LETTER]),
        ("x" * 16, ["must be no more than 15 characters"]),
        ("-a", ["must not begin or end with a hyphen"]),
        ("a-", ["must not begin or end with a hyphen"]),
        ("a--b", ["must not contain consecutive hyphens"]),
        ("A", [_CHARACTERS, _LETTER]),
        ("a_b", [_CHARACTERS]),
        ("a\n", [_CHARACTERS]),
    ],
)
def test_what_is_no_port_name(name, wrong):
    causes = list(fields.port_name("a", name))
    assert [cause.message.partition('": ')[2] for cause in causes] == wrong
    assert {cause.reason for cause in causes} == {"FieldValueInvalid"}


@pytest.mark.parametrize("value", [True, "80", 0, 65536, -1, 1.5])
def test_what_is_no_port(value):
    assert len(list(fields.port_number("a", value))) == 1


def test_absent_and_empty_mean_the_same():
    assert fields.meaning({"a": None, "b": {}, "c": [{"d": None}], "e": {"f": []}, "g": 0}) == {"c": [{}], "g": 0}
    assert list(fields.immutable("a", {"x": None}, {})) == []
    assert len(list(fields.immutable("a", {"x": 0}, {}))) == 1


def test_what_differs_says_something_else():
    assert not fields.differ({"a": [1]}, {"a": [1]})
    assert not fields.differ({"a": None, "b": 1}, {"b": 1, "c": []})
    assert fields.differ({"a": 1}, {"a": 2})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 512, '"' + "x" * 512 + '"'),
        ("x" * 3_000_000, '"' + "x" * 512 + "…"),
        (["a"] * 100, "[" + ",".join(['"a"'] * 100) + "]"),
        ({"k": ["a"] * 100_000}, ('{"k":[' + '"a",' * 200)[:512] + "…"),
        ([["x" * 3_000_000]], '[["' + "x" * 509 + "…"),
    ],
)
def test_a_long_value_is_quoted_in_part(value: object, shown: str) -> None:
    assert fields.duplicate("a", value).message == f"Duplicate value: {shown}"
