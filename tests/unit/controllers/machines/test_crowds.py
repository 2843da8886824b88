# SPDX-License-Identifier: Apache-2.0
"""One by one, then once for all."""

from __future__ import annotations

from handfast.controllers.machines import crowds
from tests.world.clock import MovableClock


async def test_reasons_are_counted_apart_and_for_an_hour():
    clock = MovableClock()
    counted = crowds.Crowds(clock)
    told = [counted.next("NoMachine") for _ in range(crowds.MOST + 2)]
    assert told == [crowds.Telling.EACH] * crowds.MOST + [crowds.Telling.ALL, crowds.Telling.NONE]
    assert counted.next("NodeExists") is crowds.Telling.EACH
    await clock.advance(3600)
    assert counted.next("NoMachine") is crowds.Telling.EACH
