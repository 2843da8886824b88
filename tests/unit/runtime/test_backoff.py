# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from typing import Any

import pytest

from handfast import errors
from handfast.runtime import backoff

SCHEDULE = backoff.Schedule(initial=1.0, cap=10.0, jitter=0.5)


def test_doubles_up_to_the_cap_and_starts_over_after_reset():
    delays = backoff.Backoff(SCHEDULE, random=lambda: 0.0)
    assert list(itertools.islice(delays, 6)) == [1, 2, 4, 8, 10, 10]
    delays.reset()
    assert next(delays) == 1


def test_jitter_only_lengthens():
    delays = backoff.Backoff(SCHEDULE, random=lambda: 0.999)
    for plain, delay in zip([1, 2, 4, 8, 10], delays, strict=False):
        assert plain < delay < plain * 1.5


def test_very_many_attempts_do_not_overflow():
    assert SCHEDULE.delay(10**9) == 10


@pytest.mark.parametrize(
    "wrong", [{"initial": 0.0}, {"initial": -1.0}, {"cap": 0.5}, {"factor": 0.9}, {"jitter": -0.1}]
)
def test_senseless_schedules_are_refused(wrong: dict[str, Any]):
    with pytest.raises(errors.Misuse, match="schedule"):
        backoff.Schedule(**{"initial": 1.0, "cap": 10.0, **wrong})
