# SPDX-License-Identifier: Apache-2.0
"""How long a token lives, as people write it."""

from __future__ import annotations

import datetime

import pytest

from handfast import errors
from handfast.bootstrap import token_lifetimes


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("24h", 86400), ("1h30m", 5400), ("1.5h", 5400), ("1500ms", 1.5)]
)
def test_a_lifetime_is_the_sum_of_its_parts(text: str, seconds: float) -> None:
    assert token_lifetimes.parse(text, "ttl") == datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["0", "0h", "0ms"])
def test_nothing_is_for_ever(text: str) -> None:
    assert token_lifetimes.parse(text, "ttl") is None


@pytest.mark.parametrize("text", ["", "soon", "-1h", "1", "1y", "100ms", "36501d", "1h" * 200, "\u202e1h"])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(errors.Refused) as caught:
        token_lifetimes.parse(text, "ttl")
    assert caught.value.message.startswith("ttl: ")
    assert len(caught.value.message) < 200
    assert "\u202e" not in caught.value.message
    assert "at most 36500d" in (caught.value.hint or "")
