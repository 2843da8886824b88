# SPDX-License-Identifier: Apache-2.0
"""Durations of the command line."""

from __future__ import annotations

import datetime

import pytest

from handfast.cli import durations, output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("90m", 5400), ("1h30m", 5400), ("7d", 604_800), ("0h1s", 1), ("36500d", 3_153_600_000)],
)
def test_durations_are_the_sum_of_their_parts(text: str, seconds: int) -> None:
    assert durations.parse(text, "--for", "36500d") == datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "0s", "1", "s", "1.5h", "-1h", "1h ", " 1h", "1w", "١h", "169h", "1h30", "9999999h", "168h1s"]
)
def test_what_is_no_duration_or_too_long_is_refused(text: str) -> None:
    with pytest.raises(output.Usage) as caught:
        durations.parse(text, "--timeout", "168h")
    assert caught.value.message == f'--timeout: "{text}" is no duration'
    assert caught.value.hint == "give numbers with d, h, m or s, as in 7d or 1h30m, of at most 168h"
