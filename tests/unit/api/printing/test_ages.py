# SPDX-License-Identifier: Apache-2.0
"""Durations for people."""

from __future__ import annotations

import datetime

import pytest

from handfast.api.printing import ages

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 86400 * 365


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (-1, "0s"),
        (0, "0s"),
        (5.9, "5s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (10 * MINUTE + 5, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (48 * HOUR, "2d"),
        (5 * DAY + 3 * HOUR, "5d3h"),
        (8 * DAY + 3 * HOUR, "8d"),
        (2 * YEAR - DAY, "729d"),
        (2 * YEAR, "2y"),
        (3 * YEAR + 10 * DAY, "3y10d"),
        (8 * YEAR + 10 * DAY, "8y"),
    ],
)
def test_human_duration(seconds, text):
    assert ages.human_duration(datetime.timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("value", [None, 5, "", "yesterday", "2026-01-01T00:00:00", "0001-01-01T00:00:00+23:00"])
def test_no_timestamp_has_an_unknown_age(value):
    assert ages.since(value, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)) == "<unknown>"


def test_since_counts_from_either_form():
    now = datetime.datetime(2026, 1, 1, 0, 0, 30, tzinfo=datetime.UTC)
    assert ages.since("2026-01-01T00:00:00Z", now) == "30s"
    assert ages.since("2026-01-01T00:00:00.500000Z", now) == "29s"
