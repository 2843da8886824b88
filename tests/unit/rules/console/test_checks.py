# SPDX-License-Identifier: Apache-2.0
"""What is said of the checks as a whole."""

from __future__ import annotations

import pytest

from handfast.rules import check
from handfast.rules.console import checks


def rows(*verdicts: str) -> list[check.Check]:
    return [check.Check(f"c{number}", check.Verdict(each), "seen") for number, each in enumerate(verdicts)]


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (("ok", "ok"), "All 2 checks are well"),
        (("ok", "failed"), "Of 2 checks 1 fails"),
        (
            ("failed", "failed", "warning", "unknown", "unknown", "ok"),
            "Of 6 checks 2 fail, 1 warns, 2 could not be made",
        ),
    ],
)
def test_the_checks_are_counted_in_a_sentence(verdicts: tuple[str, ...], said: str):
    assert checks.sentence(rows(*verdicts)) == said


def test_the_worst_verdict_is_counted_first():
    assert list(checks.counts(rows("ok", "unknown", "failed", "ok")).items()) == [
        ("failed", 1),
        ("unknown", 1),
        ("ok", 2),
    ]


def test_what_is_not_well_stands_first_and_else_the_order_stands():
    made = [
        check.Check("one", check.Verdict.OK, "fine"),
        check.Check("two", check.Verdict.WARNING, "soon"),
        check.Check("three", check.Verdict.OK, "fine"),
        check.Check("four", check.Verdict.FAILED, "over"),
    ]
    assert [each.name for each in checks.ordered(made)] == ["four", "two", "one", "three"]
