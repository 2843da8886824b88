# SPDX-License-Identifier: Apache-2.0
"""Many Machines whose requests lie at the edges of the join window, alone and among junk of the bootstrap identity.

Proves that every machine that asks in time is approved, and nobody else is: not who asked one second too early or too late,
and not what has no Machine or is no kubelet's request. A flood parks junk and holds up nobody.

`HANDFAST_EDGES=200` in front of pytest has two hundred honest machines, and ten thousand junk requests; CI has fewer of both.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import pathlib
import ssl
from collections.abc import Awaitable, Iterable
from typing import Any

import pytest

from handfast.api import objects
from handfast.pki import keys, names
from handfast.rules.machines import join_window, settings
from tests.scenarios import certified as c
from tests.scenarios import fleet_story as f
from tests.scenarios.controlled import EVENTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HONEST = int(os.environ.get("HANDFAST_EDGES", "16"))
JUNK = 50 * HONEST
AT_ONCE = 50
LATEST = int(join_window.DEFAULT.total_seconds())
# Seconds from a Machine to the request in its name, and whether that is in time: both ends are outside.
EDGES = {"early": -10, "just-in": -9, "last": LATEST - 1, "late": LATEST}
IN_TIME = ("just-in", "last")


class Edges(f.Story):
    """Machines of four kinds, by the edge that their requests are at."""

    def named(self, edge: str) -> list[str]:
        return [f"{edge}-{number}" for number in range(HONEST // len(IN_TIME))]

    async def all_at_once(self, work: Iterable[Awaitable[Any]]) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(each: Awaitable[Any]) -> None:
            async with gate:
                await each

        await asyncio.gather(*map(one, work))

    async def know(self, edge: str) -> None:
        await self.all_at_once(self.machine(name) for name in self.named(edge))

    async def file(self, edge: str, context: ssl.SSLContext) -> None:
        await self.all_at_once(self.ask(c.request(name, name=name), context) for name in self.named(edge))

    async def flood(self, part: str, context: ssl.SSLContext) -> None:
        """Requests without a Machine; each tenth is none that a kubelet files."""
        key = keys.generate()

        def junk(number: int) -> dict[str, Any]:
            sans = names.Sans(dns=(f"junk-{part}.example",)) if number % 10 == 0 else names.Sans()
            return c.request(f"junk-{part}-{number}", name=f"junk-{part}-{number}", key=key, sans=sans)

        await self.all_at_once(self.ask(junk(number), context) for number in range(JUNK // 2))

    async def wait_until(self, instant: datetime.datetime) -> None:
        seconds = (instant - self.clock.now()).total_seconds()
        assert seconds >= 0
        await self.clock.advance(seconds)

    async def approved(self) -> dict[str, bool]:
        """Every request, and whether it is approved."""
        rows = await self.client.list(c.CSRS)
        return {
            row["metadata"]["name"]: any(each["type"] == "Approved" for each in row["status"].get("conditions") or ())
            for row in rows
        }

    async def about(self, reason: str) -> set[str]:
        """Whom Events of this reason are about."""
        return {row["involvedObject"]["name"] for row in await self.client.list(EVENTS) if row["reason"] == reason}

    async def seconds_between(self) -> dict[str, set[int]]:
        """Of each edge, the seconds from Machines to their requests, as the server has stamped both."""
        machines = {row["metadata"]["name"]: _created(row) for row in await self.client.list(f.MACHINES)}
        requests = {row["metadata"]["name"]: _created(row) for row in await self.client.list(c.CSRS)}
        return {
            edge: {int((requests[name] - machines[name]).total_seconds()) for name in self.named(edge)}
            for edge in EDGES
        }


def _created(document: dict[str, Any]) -> datetime.datetime:
    return objects.parse_timestamp(document["metadata"]["creationTimestamp"])


@pytest.mark.parametrize("flooded", [False, True], ids=["alone", "among junk"])
async def test_every_machine_that_asks_in_time_is_approved_and_nobody_else(
    tmp_path: pathlib.Path, flooded: bool
) -> None:
    async with f.telling(Edges, tmp_path) as story, f.running(story):
        context, second = story.bootstrapper(), datetime.timedelta(seconds=1)
        await story.quiet()
        begun = story.clock.now()
        await story.know("last")
        await story.know("late")
        await story.wait_until(begun + (LATEST - 12) * second)
        if flooded:
            await story.flood("before", context)
        # Before their Machines are known.
        await story.file("just-in", context)
        await story.file("early", context)
        await story.wait_until(begun + (LATEST - 3) * second)
        await story.know("just-in")
        await story.wait_until(begun + (LATEST - 2) * second)
        await story.know("early")
        await story.wait_until(begun + (LATEST - 1) * second)
        if flooded:
            await story.flood("after", context)
        await story.file("last", context)
        await story.wait_until(begun + LATEST * second)
        await story.file("late", context)
        assert await story.seconds_between() == {edge: {seconds} for edge, seconds in EDGES.items()}

        honest = {name for edge in IN_TIME for name in story.named(edge)}

        async def all_approved() -> bool:
            approved = await story.approved()
            return all(approved[name] for name in honest)

        await story.eventually(all_approved, "every honest machine approved")
        await story.quiet()
        approved = await story.approved()
        assert {name for name, is_approved in approved.items() if is_approved} == honest
        assert len(approved) == 2 * HONEST + (JUNK if flooded else 0)
        for name in (story.named("last")[0], story.named("just-in")[-1]):
            assert (await story.issued(name)).subject.common_name == f"system:node:{name}"
        # Above a hundred alike there is one Event for all.
        told = await story.about("OutsideJoinWindow")
        assert told
        assert told <= {*story.named("early"), *story.named("late"), settings.NAME}
        assert await story.about("TooManyPending") == ({settings.NAME} if flooded else set())
