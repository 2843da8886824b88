# SPDX-License-Identifier: Apache-2.0
"""Times, quantities and base64: what Go accepts is accepted, and the fast patterns accept nothing more."""

from __future__ import annotations

import re

import pytest

from handfast.api.schema import scalars


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2024-01-01T00:00:00Z", False),
        ("2024-02-29T23:59:59Z", False),
        ("0000-02-29T23:59:59Z", False),
        ("2024-01-01T00:00:00.5Z", False),
        ("2024-01-01T00:00:00.123456789+05:30", False),
        ("2024-01-01T00:00:00.000001Z", True),
        ("2024-01-01T00:00:00.000001-23:59", True),
    ],
)
def test_good_times(text, micros):
    assert scalars.time_error(text, micros=micros) == ""


@pytest.mark.parametrize(
    ("text", "micros", "why"),
    [
        ("", False, "not of that form"),
        ("2024-01-01", False, "not of that form"),
        ("2024-01-01 00:00:00Z", False, "not of that form"),
        ("2024-01-01T00:00:00z", False, "not of that form"),
        ("2024-01-01T00:00:00", False, "not of that form"),
        ("2024-01-01T24:00:00Z", False, "not of that form"),
        ("2024-01-01T00:00:00Z\n", False, "not of that form"),
        ("２024-01-01T00:00:00Z", False, "not of that form"),
        ("2023-02-29T00:00:00Z", False, "out of range"),
        ("2024-13-01T00:00:00Z", False, "out of range"),
        ("2024-01-01T00:00:60Z", False, "out of range"),
        ("2024-01-01T00:00:00+24:00", False, "time zone offset out of range"),
        ("2024-01-01T00:00:00+00:60", False, "time zone offset out of range"),
        ("2024-01-01T00:00:00Z", True, "not of that form"),
        ("2024-01-01T00:00:00.12345Z", True, "not of that form"),
        ("2024-01-01T00:00:00.1234567Z", True, "not of that form"),
    ],
)
def test_bad_times(text, micros, why):
    error = scalars.time_error(text, micros=micros)
    assert error.startswith(f'parsing time "{text}" as "2006-01-02T15:04:05')
    assert error.endswith(why)


@pytest.mark.parametrize("text", ["2024-01-31T00:00:00Z", "2024-04-30T10:20:30Z", "2024-02-28T00:00:00Z"])
def test_plain_seconds_take_the_fast_way(text):
    assert re.search(scalars.PLAIN_SECONDS, text)
    assert re.search(scalars.PLAIN_MICROS, text.replace("Z", ".000000Z"))


@pytest.mark.parametrize("month", range(14))
@pytest.mark.parametrize("day", [0, 1, 28, 29, 30, 31, 32])
def test_the_fast_pattern_accepts_no_more_than_the_check(month, day):
    text = f"2023-{month:02}-{day:02}T00:00:00Z"
    assert bool(re.search(scalars.PLAIN_SECONDS, text)) == (scalars.time_error(text, micros=False) == "")


@pytest.mark.parametrize("text", ["0", "250m", "1.5Gi", "1e3", "1E-3", "+5", "-2.", ".5", "1E", "3n", "4Ki"])
def test_good_quantities(text):
    assert scalars.quantity_error(text) == ""


@pytest.mark.parametrize("text", ["", ".", "m", "1K", "1 Gi", "1GiB", "1e", "0x10", "1\n", "١"])
def test_bad_quantities(text):
    assert scalars.quantity_error(text).startswith("quantities must match the regular expression")


@pytest.mark.parametrize("text", ["", "YQ==", "YWI=", "YWJj", "YW\nJj\r\n", "Y\nQ=\n=\n", "YWJjYQ=="])
def test_good_base64(text):
    assert scalars.base64_error(text) == ""


# The bytes follow from how Go's encoding/base64 reads four letters at a time; they were not taken from a run of it.
@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a$", 1),
        ("ä", 0),
        ("aä", 1),
        ("YWJj$", 4),
        ("a", 0),
        ("ab", 0),
        ("abcde", 4),
        ("abcd\ne\n", 5),
        ("=", 0),
        ("a=", 1),
        ("ab=", 3),
        ("ab=c", 3),
        ("ab==c", 4),
        ("abc==", 4),
        ("ab===", 4),
    ],
)
def test_bad_base64(text, at):
    assert scalars.base64_error(text) == f"illegal base64 data at input byte {at}"
