# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from handfast import errors
from handfast.client import api, cache, partial, watch
from handfast.runtime import tasks
from tests.unit.client import scripted
from tests.world.clock import MovableClock

THINGS = api.Resource("", "v1", "things", True)
SOURCE = watch.Source(resource=THINGS, view=partial.Partial)


def thing(name: str, version: int, namespace: str = "ns") -> partial.Partial:
    meta = partial.Meta(name=name, namespace=namespace, uid=f"u-{name}", resource_version=str(version))
    return partial.Partial(metadata=meta)


def told(item: partial.Partial | None) -> str | None:
    return None if item is None else f"{item.metadata.name}@{item.metadata.resource_version}"


def informer() -> tuple[cache.Informer[partial.Partial], list[tuple[str | None, str | None]]]:
    found = cache.Informer(SOURCE, {"initial": lambda item: [item.metadata.name[0], item.metadata.resource_version]})
    changes: list[tuple[str | None, str | None]] = []

    def changed(old: partial.Partial | None, new: partial.Partial | None) -> None:
        changes.append((told(old), told(new)))

    found.subscribe(changed)
    return found, changes


def names(items: object) -> list[str]:
    return sorted(item.metadata.name for item in items)  # type: ignore[attr-defined]


async def test_follows_and_tells():
    copy, changes = informer()
    synced = asyncio.ensure_future(copy.wait_synced())
    await asyncio.sleep(0)
    assert not synced.done()
    copy.begin()
    copy.put(thing("apple", 1))
    copy.put(thing("avocado", 2))
    copy.end()
    await asyncio.wait_for(synced, 1)
    copy.put(thing("apple", 3))
    copy.remove(thing("avocado", 4))
    copy.remove(thing("unknown", 4))
    assert changes == [
        (None, "apple@1"),
        (None, "avocado@2"),
        ("apple@1", "apple@3"),
        ("avocado@2", None),
    ]
    assert names(copy) == ["apple"]
    assert len(copy) == 1
    assert copy.get("ns", "apple") == thing("apple", 3)
    assert copy.get("other", "apple") is None


async def test_a_new_list_tells_only_the_difference():
    copy, changes = informer()
    copy.begin()
    for name in ("same", "changed", "gone"):
        copy.put(thing(name, 1))
    copy.end()
    changes.clear()
    copy.begin()
    copy.put(thing("same", 1))
    copy.put(thing("changed", 2))
    copy.put(thing("new", 3))
    copy.end()
    assert changes == [("changed@1", "changed@2"), (None, "new@3"), ("gone@1", None)]


async def test_a_list_that_broke_off_deletes_nothing():
    copy, changes = informer()
    copy.begin()
    copy.put(thing("a", 1))
    copy.put(thing("b", 1))
    copy.end()
    changes.clear()
    copy.begin()
    copy.put(thing("a", 1))
    # The list starts over after an error.
    copy.begin()
    copy.put(thing("b", 1))
    copy.put(thing("a", 1))
    copy.end()
    assert changes == []


async def test_indexes_follow_every_change():
    copy, _ = informer()
    copy.put(thing("apple", 1))
    copy.put(thing("avocado", 1))
    copy.put(thing("banana", 2))
    assert names(copy.by_index("initial", "a")) == ["apple", "avocado"]
    assert names(copy.by_index("initial", "1")) == ["apple", "avocado"]
    copy.put(thing("apple", 2))
    assert names(copy.by_index("initial", "1")) == ["avocado"]
    assert copy.by_index("initial", "a")[0].metadata.resource_version in {"1", "2"}
    assert names(copy.by_index("initial", "2")) == ["apple", "banana"]
    copy.remove(thing("apple", 3))
    copy.remove(thing("avocado", 3))
    assert copy.by_index("initial", "a") == ()
    assert copy._indexes["initial"].keys() == {"b", "2"}


async def test_a_late_subscriber_hears_of_what_is_there():
    copy, _ = informer()
    copy.put(thing("a", 1))
    heard: list[str] = []
    copy.subscribe(lambda old, new: heard.append(new.metadata.name if new and not old else "?"))
    assert heard == ["a"]


async def test_one_watch_however_many_ask():
    async with (
        scripted.serving(scripted.listing("1", scripted.thing("a", 1)), scripted.stream(then="hold")) as server,
        scripted.client_of(server) as client,
        tasks.Group("test") as group,
    ):
        informers = cache.Informers(client, MovableClock())
        first, second = informers.get(SOURCE), informers.get(SOURCE)
        assert first is second
        informers.start(group)
        await asyncio.wait_for(first.wait_synced(), 5)
        await server.saw(2)
        assert names(first) == ["a"]
        with pytest.raises(errors.Misuse, match="another view"):
            informers.get(watch.Source(resource=THINGS, view=partial.OwnedPartial))
        with pytest.raises(errors.Misuse, match="other indexes"):
            informers.get(SOURCE, {"name": lambda item: [item.metadata.name]})


async def test_following_can_start_late_and_stop_early():
    async with (
        scripted.serving(scripted.listing("1"), scripted.stream(then="hold")) as server,
        scripted.client_of(server) as client,
        tasks.Group("test") as group,
    ):
        informers = cache.Informers(client, MovableClock())
        never = informers.follow(SOURCE, cache.Informer(SOURCE))
        never.stop()
        informers.start(group)
        late: cache.Informer[partial.Partial] = cache.Informer(SOURCE)
        following = informers.follow(SOURCE, late)
        await asyncio.wait_for(late.wait_synced(), 5)
        await server.saw(2)
        following.stop()
        await asyncio.wait_for(group.wait(), 5)
        assert len(server.requests) == 2


async def test_what_is_built_on_informers_is_built_once_for_each_key():
    async with scripted.serving() as server, scripted.client_of(server) as client:
        informers = cache.Informers(client, MovableClock())
        built = informers.shared("key", lambda: ["one"])
        assert informers.shared("key", lambda: ["two"]) is built
        assert informers.shared("other", lambda: ["two"]) == ["two"]


@pytest.mark.parametrize("late", [False, True])
async def test_another_server_is_followed_beside_and_what_it_forbids_is_told_of(late):
    clock = MovableClock()
    async with (
        scripted.serving() as ours,
        scripted.serving(scripted.status(403, "Forbidden")) as theirs,
        scripted.client_of(ours, clock) as client,
        scripted.client_of(theirs, clock) as other,
        tasks.Group("test") as group,
    ):
        informers = cache.Informers(client, clock)
        if late:
            informers.start(group)
        copy = informers.beside(other).get(SOURCE)
        assert informers.beside(other).get(SOURCE) is copy
        if not late:
            informers.start(group)
        await asyncio.wait_for(copy.wait_answered(), 5)
        assert informers.refusals() == ("because Forbidden",)
        assert ours.requests == []
        group.end()
