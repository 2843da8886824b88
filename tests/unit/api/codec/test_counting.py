# SPDX-License-Identifier: Apache-2.0
"""Signs in long texts are counted as Python counts them, however many there are and wherever they stand."""

from __future__ import annotations

import pytest

from handfast.api.codec import counting

LONG = counting._LONG
SIGNS = (b",", b"{")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b",a,",
        b"a" * LONG,
        b"," + b"a" * LONG + b",",
        b"a," * counting._FEW + b"a" * LONG,
        b"a," * (counting._FEW + 1) + b"a" * LONG,
        b"," * (2 * LONG),
        b"a" * LONG + b"," * (3 * counting._FEW),
    ],
    ids=["empty", "short", "none", "at both ends", "few", "one more than few", "nothing else", "many at the end"],
)
def test_a_sign_is_counted_as_python_counts_it(data):
    assert counting.count(data, b",") == data.count(b",")


@pytest.mark.parametrize("padding", [b"", b"a" * LONG], ids=["short", "long"])
def test_several_signs_are_counted_together(padding):
    data = padding + b",{" * 5
    assert counting.at_most(data, SIGNS, 10)
    assert not counting.at_most(data, SIGNS, 9)
    assert not counting.at_most(data, SIGNS, 3)
    assert counting.at_most(padding, SIGNS, 0)
