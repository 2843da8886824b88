# SPDX-License-Identifier: Apache-2.0
"""Globs for names of nodes agree with the standard library's, and any order of uses keeps count and limit."""

from __future__ import annotations

import datetime
import fnmatch

import hypothesis
from hypothesis import strategies as st

from handfast.api import objects
from handfast.bootstrap import token_limits, tokens

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)


@hypothesis.given(st.text("ab.-*?", max_size=12), st.text("ab.-", max_size=12))
def test_a_glob_matches_as_fnmatch_does_and_only_names_of_nodes(pattern: str, name: str) -> None:
    # Two implementations of one meaning; only names that nodes can have match at all.
    expected = fnmatch.fnmatchcase(name, pattern) and objects.dns_subdomain(name) is None
    assert token_limits.matches(pattern, name) == expected


@hypothesis.given(st.text("a*", max_size=253), st.integers(1, 253))
def test_globs_do_not_explode(pattern: str, length: int) -> None:
    assert not token_limits.matches(pattern + "b", "a" * length)


@hypothesis.settings(max_examples=50)
@hypothesis.given(st.lists(st.integers(0, 5), max_size=40), st.booleans())
def test_uses_survive_being_written(numbers: list[int], limited: bool) -> None:
    made = tokens.secret_document(tokens.Token("foobar", "circumnavigation"))
    made["metadata"]["annotations"] = {"handfast.dev/max-uses": "9"} if limited else {}
    uses = [
        token_limits.Use(time=NOW, node=f"n{number}", key=f"sha256:{number:064x}", source="::1") for number in numbers
    ]
    for use in uses:
        made = token_limits.written(made, token_limits.record(made).with_use(use))
    assert token_limits.count(made) == len(uses)
    half = token_limits.KEPT // 2
    all_listed = limited or len(uses) <= token_limits.KEPT
    assert token_limits.uses(made) == (uses if all_listed else uses[:half] + uses[-half:])
