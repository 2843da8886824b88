# SPDX-License-Identifier: Apache-2.0
"""How long the join window may be."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules.machines import join_window


@pytest.mark.parametrize(("text", "minutes"), [("1m", 1), ("2h", 120), ("365d", 525_600)])
def test_from_a_minute_to_a_year(text, minutes):
    assert join_window.parse(text) == datetime.timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("text", "why"), [("59s", "is too short"), ("365d1s", "is too long"), ("soon", "is no duration")]
)
def test_what_is_not_allowed_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        join_window.parse(text)
