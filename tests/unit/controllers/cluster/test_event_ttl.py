# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from handfast import errors
from handfast.controllers.cluster import event_ttl
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
T0, T10, T20 = "2030-01-01T00:00:00Z", "2030-01-01T00:10:00.5Z", "2030-01-01T00:20:00Z"


@pytest.mark.parametrize(
    ("document", "minutes"),
    [
        ({"metadata": {"creationTimestamp": T0}}, 0),
        ({"metadata": {"creationTimestamp": T0}, "lastTimestamp": T20}, 20),
        ({"metadata": {"creationTimestamp": T20}, "lastTimestamp": T0, "eventTime": None}, 20),
        ({"metadata": {"creationTimestamp": T0}, "series": {"lastObservedTime": T20}, "eventTime": T0}, 20),
        ({"metadata": {"creationTimestamp": T0}, "eventTime": "2030-01-01T00:20:00.000000Z", "series": {}}, 20),
        ({"metadata": {"creationTimestamp": T0}, "lastTimestamp": "yesterday"}, 0),
    ],
)
def test_the_newest_time_counts(document: dict[str, Any], minutes: int):
    event = msgspec.convert(document, event_ttl.Event)
    assert event.due() == START + datetime.timedelta(minutes=60 + minutes)


def test_an_event_without_any_time_is_old():
    assert event_ttl.Event().due() < START


def test_an_event_of_a_year_that_there_is_not_in_utc_is_old():
    assert event_ttl.Event(last_timestamp="0001-01-01T00:00:00+14:00").due() < START
    assert event_ttl.Event(event_time="9999-12-31T23:59:59.999999-14:00").due() < START


def test_an_event_at_the_end_of_time_is_due_then():
    late = msgspec.convert({"lastTimestamp": "9999-12-31T23:59:59Z"}, event_ttl.Event)
    assert late.due().year == 9999


async def test_deleted_when_due_and_not_before():
    client, clock = FakeClient(), MovableClock(START)
    await clock.advance(601)
    client.put("events", "e", "ns", lastTimestamp=T10)
    handler = event_ttl.EventTTL(client, clock)
    assert clock.left(await handler.reconcile(("ns", "e"))) == 3599.5
    await clock.advance(3600)
    assert await handler.reconcile(("ns", "e")) is None
    assert client.calls == [("delete", "events", "e")]
    assert await handler.reconcile(("ns", "e")) is None


async def test_an_event_that_happens_again_just_then_stays():
    client, clock = FakeClient(), MovableClock(START)
    client.put("events", "e", "ns")
    handler = event_ttl.EventTTL(client, clock)

    def happen(verb: str, *_: str) -> None:
        if verb == "delete":
            client.put("events", "e", "ns", lastTimestamp=T20)

    client.before = happen
    with pytest.raises(errors.Refused) as caught:
        await handler.reconcile(("ns", "e"))
    assert caught.value.reason == "Conflict"
    assert ("events", "ns", "e") in client.objects


async def test_an_event_from_the_future_ends_an_hour_after_it_was_found():
    """A clock was ahead when it was written, or its writer would have it stay for ever."""
    client, clock = FakeClient(), MovableClock(START)
    client.put("events", "e", "ns", lastTimestamp="9999-12-31T23:59:59Z")
    handler = event_ttl.EventTTL(client, clock)
    late = msgspec.convert({"lastTimestamp": "9999-12-31T23:59:59Z"}, event_ttl.Event)
    assert clock.left(handler.look_at(late)) == 3600
    assert clock.left(await handler.reconcile(("ns", "e"))) == 3600
    await clock.advance(1800)
    # Whoever sets the clock makes it no older.
    clock.set_wall(86400)
    assert clock.left(await handler.reconcile(("ns", "e"))) == 1800
    client.put("events", "e", "ns", lastTimestamp="9999-12-31T23:59:58Z")
    assert clock.left(await handler.reconcile(("ns", "e"))) == 3600
    await clock.advance(3600)
    assert await handler.reconcile(("ns", "e")) is None
    assert client.calls == [("delete", "events", "e")]


async def test_events_outlive_a_clock_that_is_set_back_by_no_more_than_an_hour():
    client, clock = FakeClient(), MovableClock(START)
    client.put("events", "e", "ns", lastTimestamp=T10)
    handler = event_ttl.EventTTL(client, clock)
    clock.set_wall(-365 * 86400)
    assert clock.left(await handler.reconcile(("ns", "e"))) == 3600
    await clock.advance(3600)
    assert await handler.reconcile(("ns", "e")) is None
    assert ("events", "ns", "e") not in client.objects
