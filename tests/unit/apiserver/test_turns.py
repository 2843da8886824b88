# SPDX-License-Identifier: Apache-2.0
"""Turns come by how much was looked at."""

from __future__ import annotations

import pytest

from handfast.apiserver import turns


@pytest.mark.parametrize(
    ("size", "terms", "objects"),
    [(0, 0, 512), (512, 0, 256), (1 << 20, 0, 1), ((256 << 10) - 512, 0, 1), (0, 1008, 8)],
)
def test_turns_come_by_size_and_terms(size: int, terms: int, objects: int) -> None:
    turn = turns.Turns(terms)
    for _ in range(3):
        assert [turn.spent(size) for _ in range(objects)] == [False] * (objects - 1) + [True]
