# SPDX-License-Identifier: Apache-2.0
"""The rules for names, the two forms of timestamps, and reading fields by path."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from handfast.api import objects

Rule = Callable[[str], str | None]
_63, _64, _253, _254 = "a" * 63, "a" * 64, "a" * 253, "a" * 254

GOOD: list[tuple[Rule, list[str]]] = [
    (objects.dns_label, ["a", "0", "a-b", "1a", _63]),
    (objects.dns_subdomain, ["a", "a.b", "1.2", "a-b.c", _253]),
    (objects.dns_1035_label, ["a", "a1", "a-b", _63]),
    (objects.path_segment, ["a", "system:node", "A b", "...", "a.b", "ü", _253, "a:b@c"]),
    (objects.qualified_name, ["a", "A_b.c-d", "example.com/a", f"{_253}/a", _63, "a/" + _63]),
    (objects.label_value, ["", "a", "A_b.c-d", _63]),
]
BAD: list[tuple[Rule, list[str]]] = [
    (objects.dns_label, ["", "A", "a_b", "-a", "a-", "a.b", "a\n", "\n", "ä", "a b", _64, "a/b", "a\0", "٣"]),
    (objects.dns_subdomain, ["", "A", ".", "a.", ".a", "a..b", "a_b", "-a.b", "a.b-", "a\n", _254, "a/b", "ß"]),
    (objects.dns_1035_label, ["", "1a", "A", "-a", "a-", "a.b", "a\n", _64]),
    (objects.path_segment, [".", "..", "a/b", "/", "%", "a%2fb", "a\0b", "a\nb", "\x7f", "\u2028", _254]),
    (
        objects.qualified_name,
        ["", "/", "a/", "/a", "a/b/c", "A/a", "-a", "a-", "ä", "a b", _64, "a/" + _64, f"{_254}/a", "a\n", "a_b/c"],
    ),
    (objects.label_value, ["-a", "a-", "a b", "a/b", "ä", _64, "a\n", "."]),
]


def _rows(table: list[tuple[Rule, list[str]]]) -> list[object]:
    return [pytest.param(rule, name, id=f"{rule.__name__}-{name[:20]!a}") for rule, names in table for name in names]


@pytest.mark.parametrize(("rule", "name"), _rows(GOOD))
def test_good_names(rule: Rule, name: str) -> None:
    assert rule(name) is None


@pytest.mark.parametrize(("rule", "name"), _rows(BAD))
def test_bad_names(rule: Rule, name: str) -> None:
    assert rule(name)


@pytest.mark.parametrize(
    ("rule", "name", "why"),
    [
        (objects.dns_label, _64, "must be no more than 63 bytes"),
        (objects.dns_subdomain, _254, "must be no more than 253 bytes"),
        (objects.dns_1035_label, _64, "must be no more than 63 bytes"),
        (objects.path_segment, "..", "may not be '..'"),
        (objects.path_segment, "a/b", "may not contain '/'"),
        (objects.path_segment, "a%b", "may not contain '%'"),
        (objects.path_segment, "a\0", "may not contain characters that cannot be printed"),
        (objects.qualified_name, "a/", "name part must be non-empty"),
        (objects.qualified_name, _64, "name part must be no more than 63 bytes"),
        (objects.label_value, _64, "must be no more than 63 bytes"),
    ],
)
def test_what_is_wrong(rule: Rule, name: str, why: str) -> None:
    assert rule(name) == why


class TestTimestamps:
    AT = datetime.datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=datetime.UTC)

    def test_a_timestamp_has_whole_seconds(self) -> None:
        assert objects.timestamp(self.AT) == "2026-02-03T04:05:06Z"

    def test_a_micro_timestamp_has_six_digits(self) -> None:
        assert objects.micro_timestamp(self.AT) == "2026-02-03T04:05:06.000789Z"

    def test_round_trip(self) -> None:
        assert objects.parse_timestamp(objects.micro_timestamp(self.AT)) == self.AT
        assert objects.parse_timestamp("2026-02-03T05:05:06+01:00") == self.AT.replace(microsecond=0)

    @pytest.mark.parametrize(
        "text",
        [
            *("", "now", "2026-02-03T04:05:06", "2026-13-03T04:05:06Z"),
            # In UTC, the first is in the year 0, and the second in the year 10000.
            *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-00:01"),
        ],
    )
    def test_a_text_that_is_no_timestamp_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError):
            objects.parse_timestamp(text)


class TestFields:
    DOCUMENT: ClassVar[dict[str, Any]] = {
        "metadata": {"name": "a"},
        "spec": {"on": True, "off": False, "count": 3, "list": [1]},
    }

    def test_metadata_is_an_object_whatever_the_document_has(self) -> None:
        assert objects.metadata(self.DOCUMENT) == {"name": "a"}
        assert objects.metadata({}) == {}
        assert objects.metadata({"metadata": "x"}) == {}

    @pytest.mark.parametrize(
        ("path", "value"),
        [("spec.count", 3), ("spec", DOCUMENT["spec"]), ("spec.none", None), ("spec.count.x", None), ("a.b", None)],
    )
    def test_a_lookup_gives_the_value_at_a_dotted_path_or_none(self, path: str, value: object) -> None:
        assert objects.lookup(self.DOCUMENT, path) == value

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("metadata.name", "a"),
            ("spec.on", "true"),
            ("spec.off", "false"),
            ("spec.count", "3"),
            ("spec.none", ""),
            ("spec.none?0", "0"),
            ("spec.count?0", "3"),
            ("spec.nothing|spec.count", "3"),
            ("spec.nothing|spec.neither?x", "x"),
        ],
    )
    def test_field_text(self, path: str, text: str) -> None:
        assert objects.field_text(self.DOCUMENT, path) == text


@pytest.mark.parametrize(("path", "found"), [("a/b", ("a", "b")), ("b", ("", "b")), ("a/b/c", ("a", "b/c"))])
def test_a_path_is_a_namespace_and_a_name_or_a_bare_name(path: str, found: tuple[str, str]) -> None:
    assert objects.space_and_name(path) == found


def test_a_wildcard_stands_for_the_names_below_one():
    assert objects.wildcard_subdomain("*.example.com") is None
    for wrong in ("*", "*.", "a.*.com", "example.com"):
        assert objects.wildcard_subdomain(wrong) == objects.WILDCARD_TEXT
    assert objects.wildcard_subdomain("*." + "a" * 253) == "must be no more than 253 bytes"
