# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.controllers.cluster import pod_garbage
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
SOON = "2030-01-01T00:00:30Z"


def _world(*, deleted: str | None = SOON, node: str = "n1", **more: Any) -> tuple[FakeClient, MovableClock]:
    client = FakeClient()
    metadata = {} if deleted is None else {"deletionTimestamp": deleted}
    client.put("pods", "p", "ns", metadata=metadata, spec={"nodeName": node} if node else {}, **more)
    return client, MovableClock(START)


async def test_a_pod_keeps_its_grace_period_and_goes_then():
    client, clock = _world()
    handler = pod_garbage.PodGarbage(client, clock)
    assert clock.left(await handler.reconcile(("ns", "p"))) == 30
    assert client.calls == []
    await clock.advance(30)
    assert await handler.reconcile(("ns", "p")) is None
    assert client.calls == [("delete", "pods", "p")]
    # Another copy was faster.
    assert await handler.reconcile(("ns", "p")) is None


async def test_a_pod_whose_node_is_there_stays():
    client, clock = _world()
    client.put("nodes", "n1")
    await clock.advance(31)
    assert await pod_garbage.PodGarbage(client, clock).reconcile(("ns", "p")) is None
    assert client.calls == []


@pytest.mark.parametrize("state", [{"deleted": None}, {"node": ""}])
async def test_a_pod_that_nobody_deletes_or_that_no_node_runs_is_left(state: dict[str, Any]):
    client, clock = _world(**state)
    await clock.advance(31)
    assert await pod_garbage.PodGarbage(client, clock).reconcile(("ns", "p")) is None
    assert client.calls == []


async def test_a_time_that_says_nothing_is_over():
    client, clock = _world(deleted="yesterday")
    await pod_garbage.PodGarbage(client, clock).reconcile(("ns", "p"))
    assert client.calls == [("delete", "pods", "p")]
