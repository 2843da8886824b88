# SPDX-License-Identifier: Apache-2.0
"""Instants in words, relative to now."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules.console import moments

NOW = datetime.datetime(2026, 11, 18, 9, 0, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (42, "42 s"),
        (61, "1 min"),
        (3599, "59 min"),
        (3 * 3600 + 12 * 60, "3 h 12 min"),
        (3 * 3600, "3 h"),
        (20 * 3600 + 600, "20 h"),
        (86400 * 2, "2 d"),
        (86400 * 2 + 7200, "2 d 2 h"),
        (86400 * 30 + 7200, "30 d"),
        (86400 * 729, "729 d"),
        (86400 * 730, "2 y"),
        (86400 * 3649, "9 y 364 d"),
    ],
)
def test_a_length_has_two_units_while_the_first_is_small(seconds: int, text: str):
    assert moments.length(datetime.timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "now"), (-9, "now"), (9, "now"), (600, "in 10 min"), (-600, "10 min ago")]
)
def test_an_instant_is_told_relative_to_now(seconds: int, text: str):
    assert moments.relative(NOW + datetime.timedelta(seconds=seconds), NOW) == text


def test_the_exact_instant_is_in_utc():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert moments.exact(NOW.astimezone(zone)) == "2026-11-18 09:00:00 UTC"
