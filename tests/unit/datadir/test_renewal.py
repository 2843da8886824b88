# SPDX-License-Identifier: Apache-2.0
"""When the directory's certificates are looked after: every hour, sooner if something is due, again after a failure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest

from handfast import errors
from handfast.datadir import renewal
from tests.world.clock import MovableClock


class Over(Exception):
    """No more answers."""


class Recorded(MovableClock):
    """Sleep passes at once, and is noted."""

    def __init__(self) -> None:
        super().__init__(datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC))
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_the_pace():
    clock = Recorded()
    failed = errors.Refused("no", reason="No")
    answers: Iterator[float | Exception] = iter((0.0, 100.0, 1e6, failed, Over()))

    def renew() -> float:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    # What is no error of ours is a bug, and ends the server.
    with pytest.raises(Over):
        await renewal.keep_renewed(renew, clock)
    assert clock.slept == [5.0, 5.0, 101.0, 3600.0, 61.0]
