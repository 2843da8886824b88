# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from handfast.client import memory


def test_the_oldest_is_forgotten_first():
    met = memory.Memory(2)
    for word in ("a", "b", "a", "c"):
        met.add(word)
    assert ["a" in met, "b" in met, "c" in met] == [False, True, True]
