# SPDX-License-Identifier: Apache-2.0
"""The ledger's chain of the mesh, followed: each entry once, what is in force, and what cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

from handfast.client import cache, partial
from handfast.mesh.agents import issuance
from handfast.rules.ledger import entries, segments
from handfast.rules.mesh import issued
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.rules.mesh.issued_cases import HOUR, NOW, entry, sha
from tests.world.clock import MovableClock, settle


class World:
    """The chain, a segment at a time."""

    def __init__(self) -> None:
        self.clock = MovableClock(NOW)
        self.came: list[issued.Certificate] = []
        informers = cache.Informers(FakeClient(), self.clock)
        self.issuance = issuance.Issuance(informers, self.clock, self.came.append)

    def put(self, segment: segments.Segment) -> None:
        self.lines(segment.name, segment.entries, chain=segment.chain)

    def lines(self, name: str, lines: Any, *, chain: str = segments.MESH) -> None:
        meta = partial.Meta(name=name)
        self.issuance.put(issuance.Segment(meta, issuance._Spec(lines, chain)))


def segment(*rows: entries.Entry, before: segments.Segment | None = None) -> segments.Segment:
    begun = before or segments.following(None, segments.MESH)
    return segments.extended(begun, [entries.encode(row) for row in rows])


async def test_only_new_lines_of_a_segment_are_read():
    world = World()
    first = segment(entry())
    world.put(first)
    world.put(segment(entry(number=2), before=first))
    assert [row.serial for row in world.came] == ["01", "02"]
    assert len(world.issuance.index) == 2


async def test_other_chains_and_what_has_expired_are_not_kept():
    world = World()
    world.lines("segment-0000000001", segment(entry()).entries, chain="")
    world.put(segment(entry(lives=-HOUR)))
    assert (len(world.issuance.index), world.came) == (0, [])


async def test_what_cannot_be_read_is_skipped():
    world = World()
    good = segment(entry()).entries[0]
    world.lines("mesh-0000000001", ("no entry", 'x 1 {"not_after":"2030-01-01T00:00:00Z"}', good))
    assert [row.serial for row in world.came] == ["01"]
    world.lines("mesh-0000000002", None)


async def test_what_ends_is_forgotten_as_others_come():
    world = World()
    first = segment(entry())
    world.put(first)
    await world.clock.advance(HOUR.total_seconds())
    world.put(segment(entry(number=2, lives=2 * HOUR), before=first))
    assert len(world.issuance.index) == 1


async def test_a_segment_that_is_gone_and_comes_again_is_read_anew():
    world = World()
    first = segment(entry())
    item = issuance.Segment(partial.Meta(name=first.name), issuance._Spec(first.entries, segments.MESH))
    world.issuance.put(item)
    world.issuance.remove(item)
    assert world.issuance._read == {}
    world.issuance.put(item)
    # A list that has it no longer.
    world.issuance.begin()
    world.issuance.end()
    assert world.issuance._read == {}
    world.issuance.begin()
    world.issuance.put(item)
    world.issuance.end()
    assert world.issuance._read == {first.name: 1}


async def test_it_says_why_nothing_is_known():
    world = World()
    assert world.issuance.why_not == "the ledger was not listed"
    world.issuance.end()
    assert world.issuance.why_not == ""
    world.issuance._refused("forbidden")
    assert world.issuance.why_not == "forbidden"


async def test_a_certificate_is_waited_for_and_not_for_ever():
    world = World()
    waiting = asyncio.ensure_future(world.issuance.find(sha("web 1"), 5))
    never = asyncio.ensure_future(world.issuance.find(sha("web 9"), 5))
    await settle()
    world.put(segment(entry()))
    certificate = await waiting
    assert certificate is not None
    assert await world.issuance.find(sha("web 1"), 5) is certificate
    await world.clock.advance(6)
    assert await never is None
    assert world.issuance._awaited == {}
