# SPDX-License-Identifier: Apache-2.0
"""When a certificate is due, and how long to wait after a failure. What is done then is in test_keeping."""

from __future__ import annotations

import datetime

import pytest

from handfast.client import issuance, timetable
from handfast.pki import certificates
from tests.unit.node import pairing
from tests.world.clock import START, MovableClock

HOUR = datetime.timedelta(hours=1)
LEAF = pairing.pair(begins=START, lasts=10 * HOUR).leaf


def half_way(leaf: certificates.Certificate) -> datetime.datetime:
    return leaf.not_before + (leaf.not_after - leaf.not_before) / 2


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


def table(clock: MovableClock, deadline: timetable.Deadline = half_way) -> timetable.Timetable:
    made = timetable.Timetable(deadline, clock, lambda: 0.0, 60.0)
    made.adopt(LEAF)
    return made


async def test_a_deadline_counts_by_the_wall_clock_and_by_the_time_that_went_by(clock: MovableClock):
    times = table(clock)
    assert (times.next_renewal, times.due()) == (START + 5 * HOUR, None)
    clock.set_wall(5 * 3600)
    assert times.due() == "the time of renewal has come"
    clock.set_wall(-24 * 3600)
    assert times.due() is None
    await clock.advance(5 * 3600)
    assert times.due() == "the time of renewal has come, and the wall clock was set back"


async def test_without_a_deadline_nothing_is_ever_due(clock: MovableClock):
    times = table(clock, timetable.never)
    await clock.advance(1e9)
    assert (times.next_renewal, times.due(), times.left()) == (None, None, 60.0)


async def test_the_next_look_comes_with_the_deadline_or_after_a_minute(clock: MovableClock):
    times = table(clock)
    assert times.left() == 60.0
    await clock.advance(5 * 3600 - 10)
    assert times.left() == 10.0
    await clock.advance(20)
    assert times.left() == 0.001


async def test_two_renewals_lie_half_a_minute_apart_unless_somebody_hurries(clock: MovableClock):
    times = table(clock)
    assert not times.resting()
    await clock.advance(5 * 3600)
    times.succeeded()
    assert (times.resting(), times.left()) == (True, 30.0)
    times.hurry()
    assert not times.resting()
    times.succeeded()
    await clock.advance(30)
    assert not times.resting()


@pytest.mark.parametrize(
    ("outlook", "delays"),
    [
        (issuance.Outlook(), [2, 4, 8, 16, 32, 32]),
        (issuance.Outlook(request_is_over=True), [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]),
        (issuance.Outlook(retry_after=10.0), [10, 10, 10, 16, 32]),
    ],
    ids=["a fault", "a refusal", "a server that wants to be left alone"],
)
def test_delays_grow_until_a_success(clock: MovableClock, outlook: issuance.Outlook, delays: list[float]):
    times = table(clock)
    for _ in range(2):
        assert [times.delay(outlook) for _ in delays] == delays
        times.succeeded()
