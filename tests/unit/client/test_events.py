# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime

from structlog.testing import capture_logs

from handfast import errors
from handfast.client import events
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock

NODE = events.Regarding(api_version="v1", kind="Node", name="n" * 250, uid="u")


async def test_the_same_said_again_is_counted():
    client, clock = FakeClient(), MovableClock(datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC))
    recorder = events.Recorder(client, clock, "test")
    for _ in range(3):
        await recorder.record(NODE, "Reason", "message", severity=events.WARNING)
        await clock.advance(60)
    await recorder.record(NODE, "Reason", "x" * 2000)
    first, second = client.objects.values()
    assert (first["count"], first["firstTimestamp"], first["lastTimestamp"]) == (
        3,
        "2030-01-01T00:00:00Z",
        "2030-01-01T00:02:00Z",
    )
    assert first["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": NODE.name, "uid": "u"}
    assert (first["type"], first["reason"], first["source"]) == ("Warning", "Reason", {"component": "test"})
    assert first["metadata"]["namespace"] == "default"
    assert len(first["metadata"]["name"]) <= 253
    assert (second["type"], second["count"], len(second["message"])) == ("Normal", 1, 1024)


async def test_it_never_fails_its_caller():
    client = FakeClient()
    client.before = failing(errors.Unavailable("no server"))
    with capture_logs() as lines:
        await events.Recorder(client, MovableClock(), "test").record(NODE, "Reason", "message")
    assert lines[0]["error"] == "no server"


async def test_what_differs_each_time_is_one_event_by_its_topic():
    client = FakeClient()
    recorder = events.Recorder(client, MovableClock(), "test")
    await recorder.record(NODE, "Reason", "the first", topic="a", times=3)
    await recorder.record(NODE, "Reason", "the second", topic="a", times=4)
    await recorder.record(NODE, "Reason", "another", topic="b")
    said = [(event["message"], event["count"]) for event in client.objects.values()]
    assert said == [("the second", 7), ("another", 1)]
