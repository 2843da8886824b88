# SPDX-License-Identifier: Apache-2.0
"""Appending to the ledger: batches, lost races, full and old segments, and what is told when a write fails."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.api.merging import patch as patches
from handfast.client import ledger as ledger_module
from handfast.rules.ledger import entries, verification
from handfast.rules.ledger import segments as ledger
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.unit.rules import ledger_cases
from tests.world.clock import MovableClock, settle

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


class LedgerClient(FakeClient):
    """JSON patches, too; every write takes a turn of the loop, and waits for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, resource: Any, document: Any, **more: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        await self.gate.wait()
        return await super().create(resource, document, **more)

    async def patch(self, resource: Any, name: str, patch: Any, **_: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        await self.gate.wait()
        found = self._find("patch", resource, name, "")
        wanted = patches.apply_json_patch(found, patch)
        if wanted["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise status.conflict(resource.plural, resource.group, name)
        self.objects[resource.plural, "", name] = wanted
        return self._wrote("patch", resource, name, wanted)

    def segments(self) -> list[ledger.Segment]:
        return [ledger.read(document) for document in self.objects.values()]

    def requests(self) -> list[str]:
        stored = [line for segment in self.segments() for line in segment.entries]
        return [entries.decode_stored(line).request for line in stored]


class World:
    def __init__(self) -> None:
        self.client, self.clock = LedgerClient(), MovableClock(START)
        self.ledger = self.another()

    def another(self) -> ledger_module.Ledger:
        return ledger_module.Ledger(self.client, self.clock)

    def entry(self, request: object) -> entries.Entry:
        now = self.clock.now()
        return ledger_cases.entry(issued_at=now, not_after=now, request=str(request))

    async def append(self, *requests: object, to: ledger_module.Ledger | None = None) -> list[Any]:
        waiting = [(to or self.ledger).append(self.entry(request)) for request in requests]
        return await asyncio.gather(*waiting, return_exceptions=True)


async def test_one_after_the_other():
    world = World()
    for request in "abc":
        await world.append(request)
    assert world.client.requests() == ["a", "b", "c"]
    assert [verb for verb, *_ in world.client.calls] == ["create", "patch", "patch"]
    assert verification.verify(world.client.segments()) == ()


async def test_what_comes_during_a_write_leaves_in_one():
    world = World()
    await world.append("first")
    await world.append(*range(32))
    # One for whoever came first, one for all who came meanwhile.
    assert len(world.client.calls) <= 3
    assert sorted(world.client.requests()) == sorted(["first", *map(str, range(32))])


async def test_a_full_segment_is_followed_by_the_next():
    world = World()
    await world.append(*range(ledger.MAX_ENTRIES * 2 + 3))
    first, second, third = world.client.segments()
    assert (first.sealed, second.sealed, third.sealed) == (True, True, False)
    assert len(third.entries) == 3
    assert verification.verify(world.client.segments()) == ()
    # A new process goes on where this one ended, also right after a seal.
    await world.append("more", to=world.another())
    assert world.client.requests()[-1] == "more"


async def test_after_an_hour_a_new_segment_begins():
    world = World()
    await world.append("a")
    await world.clock.advance(3600)
    await world.append("b")
    first, second = world.client.segments()
    assert first.sealed
    assert len(second.entries) == 1
    assert verification.verify(world.client.segments()) == ()


async def test_two_copies_write_at_once():
    world = World()
    other = world.another()
    await asyncio.gather(
        *(world.append(f"a{number}") for number in range(90)),
        *(world.append(f"b{number}", to=other) for number in range(90)),
    )
    assert sorted(world.client.requests()) == sorted(f"{copy}{number}" for copy in "ab" for number in range(90))
    assert verification.verify(world.client.segments()) == ()


async def test_a_segment_that_was_removed_meanwhile():
    world = World()
    await world.append("a")
    world.client.objects.clear()
    await world.append("b")
    assert world.client.requests() == ["b"]


async def test_a_race_that_is_always_lost_ends():
    world = World()
    world.client.before = failing(status.already_exists("issuancelogs", "handfast.dev", "x"), verb="create")
    (problem,) = await world.append("a")
    assert isinstance(problem, status.StatusError)
    assert problem.reason == "AlreadyExists"


async def test_everybody_learns_that_a_write_failed():
    world = World()
    await world.append("a")
    world.client.before = failing(errors.Unavailable("gone", reason="Unreachable"), verb="patch")
    problems = await world.append("b", "c")
    assert [problem.reason for problem in problems] == ["Unreachable", "Unreachable"]
    world.client.before = lambda *_: None
    await world.append("d")
    assert world.client.requests() == ["a", "d"]


async def test_who_is_refused_is_told_at_once():
    world = World()
    asked: list[str] = []

    def refuse(verb: str, *_: str) -> None:
        asked.append(verb)
        raise status.forbidden("issuancelogs", "handfast.dev", "x", "no")

    world.client.before = refuse
    (problem,) = await world.append("a")
    assert problem.reason == "Forbidden"
    assert len(asked) == 1


async def test_a_cancelled_write_leaves_nobody_waiting():
    world = World()
    world.client.gate.clear()
    # As long as the first waits at the gate, the others wait for their turn.
    tasks = [asyncio.ensure_future(world.ledger.append(world.entry(request))) for request in "abc"]
    await settle()
    tasks[0].cancel()
    tasks[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    world.client.gate.set()
    problem = (await asyncio.gather(tasks[1], tasks[2], return_exceptions=True))[0]
    # It was in the write that was given up, or it was written afterwards: it is told which.
    assert (problem is None) == (world.client.requests() == ["b"])
    await world.append("d")
    assert world.client.requests()[-1] == "d"
    assert verification.verify(world.client.segments()) == ()


async def test_an_api_without_a_ledger():
    world = World()

    def missing(verb: str, plural: str, name: str) -> None:
        if verb == "list":
            raise status.not_found(plural, "handfast.dev", name)

    world.client.before = missing
    (problem,) = await world.append("a")
    assert (problem.reason, problem.hint is not None) == ("NoLedger", True)


async def test_who_may_not_list_is_told():
    world = World()
    world.client.before = failing(status.forbidden("issuancelogs", "handfast.dev", "", "no"), verb="list")
    (problem,) = await world.append("a")
    assert problem.reason == "Forbidden"


async def test_the_chain_of_the_mesh_has_numbers_of_its_own():
    world = World()
    await world.append("a")
    beside = ledger_module.Ledger(world.client, world.clock, ledger.MESH)
    await world.append("b", "c", to=beside)
    await world.append("d", to=world.ledger)
    assert sorted((segment.name, len(segment.entries)) for segment in world.client.segments()) == [
        ("mesh-0000000001", 2),
        ("segment-0000000001", 2),
    ]
    # Whoever starts anew finds the end of its own chain.
    await world.append("e", to=ledger_module.Ledger(world.client, world.clock, ledger.MESH))
    assert {segment.name: len(segment.entries) for segment in world.client.segments()}["mesh-0000000001"] == 3
    assert verification.verify_all(world.client.segments()) == ()


async def test_in_a_rush_a_write_waits_for_more_and_one_alone_does_not():
    world = World()
    gathering = ledger_module.Ledger(world.client, world.clock, gather_seconds=0.02)
    for request in "ab":
        await world.append(request, to=gathering)
    assert len(world.client.calls) == 2
    # Several at once: the next write after them waits.
    await world.append(*range(3), to=gathering)
    calls = len(world.client.calls)
    early = [asyncio.ensure_future(gathering.append(world.entry("early")))]
    await settle()
    late = [asyncio.ensure_future(gathering.append(world.entry(f"late {number}"))) for number in range(4)]
    await settle()
    assert len(world.client.calls) == calls
    await world.clock.advance(0.02)
    await asyncio.gather(*early, *late)
    assert len(world.client.calls) == calls + 1
