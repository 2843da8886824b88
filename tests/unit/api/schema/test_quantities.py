# SPDX-License-Identifier: Apache-2.0
"""Quantities as numbers."""

from __future__ import annotations

from decimal import Decimal

import pytest

from handfast.api.schema import quantities


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("100m", "0.1"),
        ("1", "1"),
        ("1Gi", str(2**30)),
        ("2e3", "2000"),
        ("2E-1", "0.2"),
        ("1E", str(10**18)),
        ("1.5k", "1500"),
        (".5", "0.5"),
        ("-3", "-3"),
        (4, "4"),
        (0.25, "0.25"),
    ],
)
def test_what_is_a_quantity(value, number):
    assert quantities.parse(value) == Decimal(number)


@pytest.mark.parametrize("value", ["", "x", "1Ki ", "1 Gi", "1ki", True, None, [], "1e", "9" * 200])
def test_what_is_none(value):
    assert quantities.parse(value) is None


@pytest.mark.parametrize(
    ("value", "binary", "text"),
    [
        ("1500m", False, "1500m"),
        ("0.5", False, "500m"),
        ("0.0001", False, "1m"),
        ("2000", False, "2k"),
        ("1Gi", True, "1Gi"),
        ("1536Mi", True, "1536Mi"),
        ("1Gi", False, "1073741824"),
        ("500M", True, "500M"),
        ("100", True, "100"),
        ("0", True, "0"),
        ("-2k", False, "-2k"),
        ("2000E", False, "2000E"),
    ],
)
def test_a_sum_is_written_with_the_largest_suffix(value, binary, text):
    amount = quantities.parse(value)
    assert amount is not None
    assert quantities.text(amount, binary=binary) == text
