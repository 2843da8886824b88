# SPDX-License-Identifier: Apache-2.0
"""A timer for each object that has an instant."""

from __future__ import annotations

import datetime

import msgspec

from handfast.client import partial
from handfast.controllers import timed
from tests.world.clock import START


class Thing(msgspec.Struct, frozen=True):
    metadata: partial.Meta = partial.Meta()
    due: datetime.datetime | None = None


async def test_a_timer_is_set_for_each_object_that_has_an_instant():
    timers: dict[str, datetime.datetime] = {}
    sink: timed.Timed[Thing, str] = timed.Timed(
        lambda item: item.metadata.name, lambda item: item.due, timers.__setitem__
    )
    sink.begin()
    sink.put(Thing(partial.Meta(name="later"), START))
    sink.put(Thing(partial.Meta(name="never")))
    sink.remove(Thing(partial.Meta(name="later")))
    sink.end()
    await sink.wait_synced()
    assert timers == {"later": START}
