# SPDX-License-Identifier: Apache-2.0
"""Free memory goes back to the operating system."""

from __future__ import annotations

import pathlib

import pytest

from handfast.runtime import memory


def resident() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(memory._trim is None, reason="this C library cannot be asked")
def test_what_is_free_goes_back() -> None:
    # A block between two that stay: the heap cannot shrink by itself.
    held = [bytes(100_000) + b"x" for _ in range(2000)]
    del held[:-1]
    before = resident()
    memory.give_back()
    assert resident() < before - (100 << 20)


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_trim", None)
    memory.give_back()
