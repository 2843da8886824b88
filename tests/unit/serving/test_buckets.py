# SPDX-License-Identifier: Apache-2.0
"""Token buckets per source, on a clock that is an argument."""

from __future__ import annotations

import pytest

from handfast.serving import buckets as buckets_module


class TestBuckets:
    def test_a_burst_then_the_rate(self) -> None:
        buckets = buckets_module.Buckets(rate=2.0, burst=3)
        assert [buckets.wait("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
        assert buckets.wait("a", 0.5) == 0.0
        assert buckets.wait("a", 0.5) == pytest.approx(0.5)

    def test_a_refusal_costs_nothing(self) -> None:
        buckets = buckets_module.Buckets(rate=1.0, burst=1)
        buckets.wait("a", 0.0)
        for _ in range(1000):
            assert buckets.wait("a", 0.5) == pytest.approx(0.5)
        assert buckets.wait("a", 1.0) == 0.0

    def test_rest_never_saves_more_than_the_burst(self) -> None:
        buckets = buckets_module.Buckets(rate=100.0, burst=2)
        buckets.wait("a", 0.0)
        assert [buckets.wait("a", 1e9) == 0.0 for _ in range(3)] == [True, True, False]

    def test_sources_do_not_share(self) -> None:
        buckets = buckets_module.Buckets(rate=1.0, burst=1)
        assert buckets.wait("a", 0.0) == 0.0
        assert buckets.wait("b", 0.0) == 0.0
        assert buckets.wait("a", 0.0) > 0.0

    def test_memory_is_bounded_and_the_busy_are_remembered(self) -> None:
        buckets = buckets_module.Buckets(rate=1.0, burst=1, sources=10)
        for number in range(10_000):
            buckets.wait("flood", 0.0)
            buckets.wait(f"10.0.{number}", 0.0)
        assert len(buckets._state) == 10
        assert buckets.wait("flood", 0.0) > 0.0

    def test_the_one_not_seen_for_longest_is_forgotten(self) -> None:
        buckets = buckets_module.Buckets(rate=1.0, burst=1, sources=3)
        for source in "abca":
            buckets.wait(source, 0.0)
        for newcomer, remembered in (("d", "cad"), ("e", "ade"), ("d", "aed"), ("f", "edf")):
            buckets.wait(newcomer, 0.0)
            # Who is remembered has to wait; who is forgotten may begin anew.
            assert {source for source in "abcdef" if buckets.look(source, 0.0) > 0.0} == set(remembered)

    def test_a_bucket_counts_amounts(self) -> None:
        buckets = buckets_module.Buckets(rate=10.0, burst=100)
        assert [buckets.wait("a", 0.0, 70), buckets.wait("a", 0.0, 70)] == [0.0, 4.0]
        assert buckets.wait("a", 4.0, 70) == 0.0

    def test_what_is_given_back_is_never_more_than_the_burst(self) -> None:
        buckets = buckets_module.Buckets(rate=1.0, burst=10, sources=1)
        buckets.wait("a", 0.0, 5)
        buckets.give_back("a", 50)
        assert buckets.wait("a", 0.0, 11) > 0.0
        buckets.wait("b", 0.0)
        buckets.give_back("a", 5)
        assert list(buckets._state) == ["b"]

    def test_given_back(self) -> None:
        buckets = buckets_module.Buckets(rate=1.0, burst=1)
        for _ in range(3):
            assert buckets.wait("a", 0.0) == 0.0
            buckets.give_back("a")

    def test_servers_share_rate_and_burst(self) -> None:
        servers = [buckets_module.Buckets(rate=6.0, burst=12) for _ in range(3)]
        for each in servers:
            each.share(3)
        assert sum(each.wait("a", 0.0) == 0.0 for each in servers for _ in range(12)) == 12
        # Nothing came back yet; in a second the rate, over all of them.
        assert sum(each.wait("a", 1.0) == 0.0 for each in servers for _ in range(12)) == 6

    def test_what_a_share_never_holds_passes_once_and_is_paid_for(self) -> None:
        buckets = buckets_module.Buckets(rate=9.0, burst=90)
        buckets.share(3)
        assert buckets.wait("a", 0.0, 60) == 0.0
        # 30 below nothing: 10 seconds to nothing, and 10 more until it is full.
        assert buckets.wait("a", 0.0, 60) == pytest.approx(20.0)
        assert buckets.wait("a", 19.0, 60) > 0.0
        assert buckets.wait("a", 20.0, 60) == 0.0

    def test_more_than_the_whole_burst_never_passes(self) -> None:
        buckets = buckets_module.Buckets(rate=9.0, burst=90)
        buckets.share(3)
        assert buckets.wait("a", 0.0, 91) > 0.0
        assert buckets.wait("a", 1e9, 91) > 0.0

    def test_a_burst_of_nothing_stays_nothing(self) -> None:
        buckets = buckets_module.Buckets(rate=1.0, burst=0)
        buckets.share(2)
        assert buckets.wait("a", 0.0) > 0.0
        assert buckets.wait("a", 9.0) > 0.0

    def test_a_share_that_grew_smaller_counts_at_once(self) -> None:
        buckets = buckets_module.Buckets(rate=1.0, burst=10)
        assert buckets.wait("a", 0.0) == 0.0
        buckets.share(10)
        assert [buckets.wait("a", 0.0) == 0.0 for _ in range(2)] == [True, False]
        assert buckets.look("a", 0.0) == pytest.approx(10.0)
