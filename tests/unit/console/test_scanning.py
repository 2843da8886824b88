# SPDX-License-Identifier: Apache-2.0
"""The picture of a code has exactly the dark squares of the code."""

from __future__ import annotations

import re

import pytest
import segno

from handfast.console import scanning

COMMAND = (
    "handfast join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:" + "0" * 64
)


@pytest.mark.parametrize("text", ["x", COMMAND, COMMAND * 4])
def test_the_path_draws_the_dark_modules_and_no_others(text: str) -> None:
    made = scanning.code(text)
    drawn = set()
    for x, y, width, back in re.findall(r"M(\d+) (\d+)h(\d+)v1h-(\d+)z", made.path):
        assert width == back
        drawn |= {(int(x) + step, int(y)) for step in range(int(width))}
    matrix = segno.make(text, error="m", micro=False, boost_error=False).matrix
    dark = {(x + 4, y + 4) for y, row in enumerate(matrix) for x, module in enumerate(row) if module}
    assert drawn == dark
    assert made.size == len(matrix) + 8
    # The three corners by which a camera finds it.
    assert all(corner in drawn for corner in ((4, 4), (made.size - 5, 4), (4, made.size - 5)))


def test_a_code_does_not_print_its_text() -> None:
    assert repr(scanning.code(COMMAND)).startswith("Code(size=")
    assert "path" not in repr(scanning.code(COMMAND))
