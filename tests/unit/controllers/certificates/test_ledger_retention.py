# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import dataclasses
import datetime

from handfast.api import status
from handfast.client import cache
from handfast.controllers import loop
from handfast.controllers.certificates import ledger_retention
from handfast.rules.ledger import segments as ledger
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.rules.ledger_cases import NOW, chain, mesh
from tests.world.clock import MovableClock

DAY = datetime.timedelta(days=1)
KEEP = 7


def stored(*segments: ledger.Segment) -> FakeClient:
    client = FakeClient()
    for segment in segments:
        client.put("issuancelogs", segment.name, spec=ledger.spec_of(segment))
    return client


async def left(client: FakeClient, days: int) -> list[str]:
    clock = MovableClock(NOW + days * DAY)
    again = await ledger_retention.Retention(client, clock, KEEP).reconcile(ledger_retention.KEY)
    assert again is not None
    return [name[-1] for _, _, name in client.objects]


async def test_oldest_first_so_long_after_their_certificates():
    # Certificates last a day.
    client = stored(*chain())
    assert await left(client, 7) == ["1", "2", "3"]
    assert await left(client, 8) == ["1", "2", "3"]
    assert await left(client, 9) == ["3"]
    # The newest stays, whatever its age, and says where the chain begins.
    assert await left(client, 900) == ["3"]
    (kept,) = client.objects.values()
    assert ledger.read(kept).previous == chain()[1].hash


async def test_it_looks_again_when_the_next_segment_is_due():
    client, clock = stored(*chain()), MovableClock(NOW + 8 * DAY)
    retention = ledger_retention.Retention(client, clock, KEEP)
    due = await retention.reconcile(ledger_retention.KEY)
    assert isinstance(due, datetime.datetime)
    assert clock.now() < due
    await clock.advance((due - clock.now()).total_seconds())
    # What is left is the newest, of which it is not known when it will be sealed.
    while isinstance(again := await retention.reconcile(ledger_retention.KEY), datetime.datetime):
        await clock.advance((again - clock.now()).total_seconds())
    assert (again, len(client.objects)) == (3600.0, 1)


async def test_kept_for_ever():
    client = stored(*chain())
    retention = ledger_retention.Retention(client, MovableClock(NOW + 9000 * DAY), 0)
    assert await retention.reconcile(ledger_retention.KEY) is None
    assert len(client.objects) == 3


async def test_a_segment_that_cannot_be_read_stops_it():
    first, second, third = chain()
    client = stored(dataclasses.replace(first, entries=("x 1 {}",)), second, third)
    assert await left(client, 900) == ["1", "2", "3"]


async def test_another_copy_was_faster():
    client = stored(*chain())

    def vanish(verb: str, _plural: str, name: str) -> None:
        if verb == "get" and name.endswith("1"):
            client.objects.pop(("issuancelogs", "", name), None)

    client.before = vanish
    assert await left(client, 900) == ["3"]


async def test_an_api_without_a_ledger():
    client = FakeClient()

    def missing(_verb: str, plural: str, name: str) -> None:
        raise status.not_found(plural, "handfast.dev", name)

    client.before = missing
    assert await left(client, 9) == []


async def test_it_runs_by_itself():
    client, clock = stored(*chain()), MovableClock(NOW + 900 * DAY)
    context = loop.Context(client=client, informers=cache.Informers(client, clock), clock=clock)
    controller = ledger_retention.build(context, days=KEEP)
    running = asyncio.ensure_future(controller.run())
    await clock.advance(1)
    assert len(client.objects) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_chain_of_the_mesh_is_kept_for_seven_days():
    closed = ledger.sealed(mesh(1))
    client = stored(*chain(), closed, mesh(2, before=closed))
    clock = MovableClock(NOW + 9 * DAY)
    due = await ledger_retention.Retention(client, clock, 90).reconcile(ledger_retention.KEY)
    assert isinstance(due, datetime.datetime)
    assert sorted(name for _, _, name in client.objects) == ["mesh-0000000002", *(each.name for each in chain())]
