# SPDX-License-Identifier: Apache-2.0
"""Verdicts are values with reasons, and never booleans."""

from __future__ import annotations

import dataclasses

import pytest

from handfast.rules import decision


@pytest.mark.parametrize("kind", [decision.Approve, decision.Deny, decision.NotMine])
class TestVerdict:
    def test_no_truth_value(self, kind: type[decision.Decision]) -> None:
        with pytest.raises(TypeError, match=f"a {kind.__name__} has no truth value"):
            bool(kind("Reason", "a sentence", "rule"))

    def test_says_why(self, kind: type[decision.Decision]) -> None:
        made = kind("Reason", "a sentence", "rule")
        assert (made.reason, made.sentence, made.rule) == ("Reason", "a sentence", "rule")

    def test_cannot_be_changed(self, kind: type[decision.Decision]) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind("Reason", "a sentence", "rule").reason = "Other"  # type: ignore[misc]


def test_verdicts_of_different_kinds_differ() -> None:
    assert decision.Approve("A", "b", "c") == decision.Approve("A", "b", "c")
    one: object = decision.Approve("A", "b", "c")
    assert one != decision.Deny("A", "b", "c")
