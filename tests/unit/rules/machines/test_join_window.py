# SPDX-License-Identifier: Apache-2.0
"""The join window as operators write it."""

import datetime

import pytest

from handfast.rules.machines import join_window


def test_a_window_is_written_as_a_duration():
    assert join_window.parse("1h30m") == datetime.timedelta(minutes=90)
    assert join_window.ALLOWED == "a duration of 1m to 365d, as in 2h"


@pytest.mark.parametrize(("text", "why"), [("59s", "too short"), ("366d", "too long"), ("soon", "no duration")])
def test_what_is_no_window_is_told_why(text, why):
    with pytest.raises(ValueError, match=why):
        join_window.parse(text)
