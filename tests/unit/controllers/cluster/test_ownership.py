# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import Any

from handfast.client import partial
from handfast.controllers import served
from handfast.controllers.cluster import ownership

THINGS = served.Served("", "v1", "things", True, "Thing")
OTHERS = served.Served("", "v1", "others", True, "Other")


class World:
    """A graph, its two feeds, and what it wants looked at."""

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.graph = ownership.Graph(self.changed.append)
        self.things = ownership.ResourceSink(self.graph, THINGS)
        self.others = ownership.ResourceSink(self.graph, OTHERS)

    def news(self) -> set[str]:
        found = set(self.changed)
        self.changed.clear()
        return found


def item(name: str, *owners: str, blocking: bool = False, deleting: bool = False, **more: Any) -> partial.OwnedPartial:
    references = tuple(partial.OwnerReference(uid=uid, block_owner_deletion=blocking) for uid in owners)
    return partial.OwnedPartial(
        metadata=partial.OwnedMeta(
            name=name,
            namespace="ns",
            uid=name,
            owner_references=references or None,
            deletion_timestamp="2030-01-01T00:00:00Z" if deleting else None,
            **more,
        )
    )


def test_ordinary_objects_leave_no_trace():
    world = World()
    for number in range(100):
        world.things.put(item(f"t{number}"))
        world.things.put(item(f"t{number}", finalizers=("x",)))
        world.things.remove(item(f"t{number}"))
    assert (world.news(), world.graph.nodes, world.graph.present) == (set(), {}, {})


def test_a_dependent_is_looked_at_when_new_changed_or_bereft():
    world = World()
    world.things.put(item("child", "owner"))
    assert world.news() == {"child"}
    world.things.put(item("child", "owner"))
    assert world.news() == set()
    world.others.put(item("owner"))
    assert world.news() == set()
    assert world.graph.present["owner"] == ownership.Place(OTHERS, "ns", "owner", "owner")
    world.things.put(item("child", "owner", "second"))
    assert world.news() == {"child"}
    losses = world.graph.losses
    world.others.remove(item("owner"))
    assert world.news() == {"child"}
    assert world.graph.losses == losses + 1
    assert "owner" not in world.graph.present


def test_an_adopted_child_is_forgotten_when_it_has_no_owner_any_more():
    world = World()
    world.others.put(item("owner"))
    world.things.put(item("child", "owner"))
    world.others.put(item("owner", finalizers=("x",)))
    world.things.put(item("child"))
    world.news()
    world.others.remove(item("owner"))
    assert world.news() == set()
    assert (world.graph.nodes, world.graph.present) == ({}, {})


def test_foreground_deletion_stirs_dependents_and_their_end_stirs_the_owner():
    world = World()
    world.things.put(item("a", "owner", blocking=True))
    world.things.put(item("b", "owner"))
    world.news()
    world.others.put(item("owner", deleting=True, finalizers=("foregroundDeletion",)))
    assert world.news() == {"owner", "a", "b"}
    assert sorted(node.place.name for node in world.graph.dependents("owner")) == ["a", "b"]
    assert [node.place.name for node in world.graph.dependents("owner") if node.blocks("owner")] == ["a"]
    world.things.put(item("a", "owner", blocking=False))
    assert world.news() == {"owner", "a"}
    world.things.remove(item("b", "owner"))
    assert "owner" in world.news()


def test_a_new_list_finds_out_who_is_gone():
    world = World()
    for sink in (world.things, world.others):
        sink.begin()
        sink.end()
    world.others.put(item("owner"))
    world.things.put(item("stays", "owner"))
    world.things.put(item("leaves", "owner"))
    world.others.put(item("owner"))
    world.news()
    world.things.begin()
    world.things.put(item("stays", "owner"))
    world.things.end()
    assert set(world.graph.nodes) == {"stays"}
    assert world.news() == set()
    world.others.begin()
    world.others.end()
    assert world.news() == {"stays"}
    world.others.begin()
    world.others.put(item("owner"))
    world.others.end()
    assert world.news() == set()


def test_a_definition_that_goes_takes_its_objects_along():
    world = World()
    world.things.put(item("child", "owner"))
    world.others.put(item("owner"))
    world.news()
    world.graph.forget_resource(OTHERS)
    assert world.news() == {"child"}


async def test_synced_after_the_first_list():
    world = World()
    waiting = asyncio.ensure_future(world.things.wait_synced())
    world.things.begin()
    await asyncio.sleep(0)
    assert not waiting.done()
    world.things.end()
    await waiting
