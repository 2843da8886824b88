# SPDX-License-Identifier: Apache-2.0
"""Token buckets per source, on a clock that is an argument; and the written table of limits."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from handfast.apiserver import limits


class TestBuckets:
    def test_a_burst_then_the_rate(self) -> None:
        buckets = limits.Buckets(rate=2.0, burst=3)
        assert [buckets.wait("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
        assert buckets.wait("a", 0.5) == 0.0
        assert buckets.wait("a", 0.5) == pytest.approx(0.5)

    def test_a_refusal_costs_nothing(self) -> None:
        buckets = limits.Buckets(rate=1.0, burst=1)
        buckets.wait("a", 0.0)
        for _ in range(1000):
            assert buckets.wait("a", 0.5) == pytest.approx(0.5)
        assert buckets.wait("a", 1.0) == 0.0

    def test_rest_never_saves_more_than_the_burst(self) -> None:
        buckets = limits.Buckets(rate=100.0, burst=2)
        buckets.wait("a", 0.0)
        assert [buckets.wait("a", 1e9) == 0.0 for _ in range(3)] == [True, True, False]

    def test_sources_do_not_share(self) -> None:
        buckets = limits.Buckets(rate=1.0, burst=1)
        assert buckets.wait("a", 0.0) == 0.0
        assert buckets.wait("b", 0.0) == 0.0
        assert buckets.wait("a", 0.0) > 0.0

    def test_memory_is_bounded_and_the_busy_are_remembered(self) -> None:
        buckets = limits.Buckets(rate=1.0, burst=1, sources=10)
        for number in range(10_000):
            buckets.wait("flood", 0.0)
            buckets.wait(f"10.0.{number}", 0.0)
        assert len(buckets._state) == 10
        assert buckets.wait("flood", 0.0) > 0.0


REFERENCE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "limits.md"


def _shown(name: str, value: float) -> str:
    if not name.endswith("_bytes"):
        return f"{value:g}"
    return f"{value / (1 << 20):g} MiB" if value >= 1 << 20 else f"{value / (1 << 10):g} KiB"


@pytest.mark.parametrize("field", [field for field in dataclasses.fields(limits.Limits) if field.name != "lifted"])
def test_every_default_is_written_down(field: dataclasses.Field[float]) -> None:
    row = next(line for line in REFERENCE.read_text().splitlines() if f"`{field.name}`" in line)
    assert isinstance(field.default, int | float)
    assert f"| {_shown(field.name, field.default)} |" in row
