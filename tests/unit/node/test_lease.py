# SPDX-License-Identifier: Apache-2.0
"""The heartbeat: what the Lease says, how often, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from handfast import errors
from handfast.api import objects, status
from handfast.node import lease
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock, settle


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def client():
    return FakeClient()


def stored(client):
    return client.objects["leases", lease.NAMESPACE, "n"]


async def test_it_is_made_and_belongs_to_the_node(client, clock):
    await lease.NodeLease(client, "n", clock, "the-uid").renew()
    found = stored(client)
    assert found["spec"] == {
        "holderIdentity": "n",
        "leaseDurationSeconds": 40,
        "renewTime": objects.micro_timestamp(clock.now()),
    }
    assert found["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "the-uid"}]


async def test_without_a_node_it_belongs_to_nobody(client, clock):
    await lease.NodeLease(client, "n", clock).renew()
    assert "ownerReferences" not in stored(client)["metadata"]


async def test_renewals_do_not_read_first(client, clock):
    reads = []
    client.before = lambda verb, *_: reads.append(verb)
    held = lease.NodeLease(client, "n", clock)
    for _ in range(3):
        await clock.advance(10)
        await held.renew()
    assert reads == ["get", "create", "update", "update"]
    assert stored(client)["spec"]["renewTime"] == objects.micro_timestamp(clock.now())


async def test_what_others_wrote_stays(client, clock):
    client.put("leases", "n", lease.NAMESPACE, metadata={"labels": {"a": "b"}}, spec={"leaseTransitions": 3})
    await lease.NodeLease(client, "n", clock).renew()
    assert stored(client)["metadata"]["labels"] == {"a": "b"}
    assert stored(client)["spec"]["leaseTransitions"] == 3


async def test_changed_or_gone_meanwhile(client, clock):
    held = lease.NodeLease(client, "n", clock)
    await held.renew()
    client.put("leases", "n", lease.NAMESPACE, spec={"holderIdentity": "somebody"})
    await held.renew()
    assert stored(client)["spec"]["holderIdentity"] == "n"
    client.objects.clear()
    await held.renew()
    assert stored(client)["spec"]["holderIdentity"] == "n"


async def test_a_refusal_is_raised_and_the_next_time_it_is_read_again(client, clock):
    held = lease.NodeLease(client, "n", clock)
    await held.renew()
    client.before = failing(status.forbidden("leases", "coordination.k8s.io", "n", "no"))
    with pytest.raises(status.StatusError):
        await held.renew()
    reads = []
    client.before = lambda verb, *_: reads.append(verb)
    await held.renew()
    assert reads == ["get", "update"]


async def test_every_ten_seconds(client, clock):
    held = lease.NodeLease(client, "n", clock)
    assert held.problem() == "the Lease was not renewed yet"
    task = asyncio.ensure_future(held.run())
    await settle()
    for number in range(1, 4):
        assert len(client.calls) == number
        assert held.problem() is None
        await clock.advance(9.9)
        assert len(client.calls) == number
        await clock.advance(0.1)
    task.cancel()


async def test_an_outage_is_told_once_and_health_says_why(client, clock):
    held = lease.NodeLease(client, "n", clock)

    def fail(*_):
        raise errors.Unavailable("https://x cannot be reached", reason="Unreachable")

    client.before = fail
    with structlog.testing.capture_logs() as lines:
        task = asyncio.ensure_future(held.run())
        await settle()
        assert held.problem() == "the Lease was not renewed yet: https://x cannot be reached"
        client.before = lambda *_: None
        await clock.advance(15)
        assert held.problem() is None
        client.before = fail
        await clock.advance(35)
        assert held.problem() is None
        await clock.advance(30)
        assert "s ago: https://x cannot be reached" in str(held.problem())
        client.before = lambda *_: None
        await clock.advance(15)
        assert held.problem() is None
    task.cancel()
    told = [line["event"] for line in lines]
    assert told == ["the node's Lease was not renewed", "the node's Lease is renewed again"] * 2


async def test_health_without_a_reason(client, clock):
    held = lease.NodeLease(client, "n", clock)
    await held.renew()
    await clock.advance(41)
    assert held.problem() == "the Lease was last renewed 41 s ago"
