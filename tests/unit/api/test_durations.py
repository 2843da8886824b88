# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them, read and written."""

from __future__ import annotations

import datetime

import pytest

from handfast.api import durations


@pytest.mark.parametrize(("text", "seconds"), [("2h", 7200), ("1h30m", 5400), ("7d", 604_800), ("1d1h1m1s", 90_061)])
def test_a_duration_is_written_as_it_is_read(text, seconds):
    assert durations.parse(text) == datetime.timedelta(seconds=seconds)
    assert durations.text(datetime.timedelta(seconds=seconds)) == text


def test_nothing_is_written_in_seconds():
    assert durations.text(datetime.timedelta()) == "0s"


@pytest.mark.parametrize("text", ["", "1", "1.5h", "-1h", "1w", "1h "])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="is no duration"):
        durations.parse(text)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (-5, "0s"),
        (0, "0s"),
        (89 * 60, "1h29m"),
        (3 * 86400 + 4 * 3600 + 59, "3d4h"),
        (150, "2m30s"),
        (3649 * 86400, "9y364d"),
        (8 * 3600, "8h"),
    ],
)
def test_in_a_sentence_it_has_its_two_largest_units(seconds: int, written: str) -> None:
    assert durations.short(datetime.timedelta(seconds=seconds)) == written
