# SPDX-License-Identifier: Apache-2.0
"""What a copy remembers of the time before it was made: the events after the store's floor, and no more than it may."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from handfast import errors
from handfast.apiserver.state import collection, envelope, items, replica
from handfast.pki import seal
from handfast.store import protocol
from handfast.store.sqlite import engine

PREFIX = "core/secrets/"
OLD, NEW = "one", "two"


def sealer(*names: str) -> seal.Sealer:
    return seal.Sealer({name: name.encode().ljust(32, b"-") for name in names}, names[0])


def envelopes(*names: str) -> envelope.Envelopes:
    return envelope.Envelopes(sealer(*names), (PREFIX,)) if names else envelope.Envelopes()


@pytest.fixture
async def store(tmp_path: pathlib.Path) -> AsyncIterator[engine.SqliteStore]:
    opened = await engine.open_store(str(tmp_path / "store.db"))
    yield opened
    await opened.close()


class Writer:
    """Writes Secrets as `storage` does."""

    def __init__(self, store: protocol.Store, *keys: str) -> None:
        self._store = store
        self._envelopes = envelopes(*keys)

    def value(self, name: str, number: int) -> bytes:
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "number": number}
        return self._envelopes.wrap(f"{PREFIX}default/{name}", "v1", envelope.encode_document(document))

    async def create(self, name: str) -> int:
        return await self._store.create(f"{PREFIX}default/{name}", self.value(name, 0))

    async def update(self, name: str, number: int, expected: int) -> int:
        return await self._store.update(f"{PREFIX}default/{name}", self.value(name, number), expected=expected)

    async def delete(self, name: str, expected: int) -> int:
        return await self._store.delete(f"{PREFIX}default/{name}", expected=expected)


async def loaded(store: Any, *keys: str) -> replica.Replica:
    made = replica.Replica(store, envelopes(*keys))
    await made.load()
    return made


def seen(changes: Sequence[items.Change]) -> list[tuple[int, int | None, int | None]]:
    """Of each change its version, and the number before and after."""

    def number(item: items.Item | None) -> int | None:
        return None if item is None else int(item.document()["number"])

    return [(change.version, number(change.before), number(change.after)) for change in changes]


async def test_a_new_copy_knows_what_was_written_before_it(store: engine.SqliteStore) -> None:
    writer = Writer(store)
    first = await writer.create("a")
    second = await writer.update("a", 1, first)
    third = await writer.create("b")
    fourth = await writer.delete("a", second)
    copy = await loaded(store)
    found = copy.collection(PREFIX)
    assert [item.name for item in found.snapshot()] == ["b"]
    assert copy.version == copy.start == fourth
    assert found.window <= first
    assert seen(found.since(first)) == [(second, 0, 1), (third, None, 0), (fourth, 1, None)]


async def test_of_what_was_compacted_nothing_is_remembered(store: engine.SqliteStore) -> None:
    writer = Writer(store)
    revisions = [await writer.create("a")]
    for number in range(1, 5):
        revisions.append(await writer.update("a", number, revisions[-1]))
    await store.compact(revisions[2])
    found = (await loaded(store)).collection(PREFIX)
    assert found.window == revisions[2]
    assert seen(found.since(found.window)) == [(revisions[3], 2, 3), (revisions[4], 3, 4)]


async def test_a_resource_without_events_resumes_from_the_same_version(store: engine.SqliteStore) -> None:
    first = await Writer(store).create("a")
    await store.compact(first)
    last = await Writer(store).create("b")
    copy = await loaded(store)
    assert copy.collection("core/pods/").window == first
    assert copy.version == last


async def test_no_more_is_replayed_than_is_bounded(store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "REPLAYED", 3)
    writer = Writer(store)
    revision = await writer.create("a")
    for number in range(1, 10):
        revision = await writer.update("a", number, revision)
    found = (await loaded(store)).collection(PREFIX)
    assert found.window == revision - 3
    assert len(found.history) == 3


async def test_the_bounds_of_memory_hold_for_the_past_too(
    store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "HISTORY_EVENTS", 4)
    writer = Writer(store)
    revision = await writer.create("a")
    for number in range(1, 10):
        revision = await writer.update("a", number, revision)
    found = (await loaded(store)).collection(PREFIX)
    assert len(found.history) == 4
    assert found.window == found.history[0].version - 1


async def test_several_pages_of_the_past_are_one_state(
    store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "_PAGE", 2)
    writer = Writer(store)
    for name in "abcde":
        await writer.create(name)
    await store.compact(await store.current_revision())
    last = await writer.create("f")
    found = (await loaded(store)).collection(PREFIX)
    assert [item.name for item in found.snapshot()] == list("abcdef")
    assert seen(found.since(last - 1)) == [(last, None, 0)]


async def test_a_past_sealed_with_a_key_that_is_gone_is_left_out(store: engine.SqliteStore) -> None:
    first = await Writer(store, OLD).create("a")
    last = await Writer(store, NEW).update("a", 1, first)
    found = (await loaded(store, NEW)).collection(PREFIX)
    assert [item.document()["number"] for item in found.snapshot()] == [1]
    assert (found.window, list(found.history)) == (last, [])


async def test_a_present_that_cannot_be_read_stops_the_start(store: engine.SqliteStore) -> None:
    await Writer(store, OLD).create("a")
    with pytest.raises(errors.Refused) as caught:
        await loaded(store, NEW)
    assert caught.value.reason == "UnknownSealKey"


class Compacting:
    """A store that another server compacts each time the past is about to be read."""

    def __init__(self, store: engine.SqliteStore, times: int) -> None:
        self._store = store
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list_at(self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0) -> protocol.Page:
        if self._left:
            self._left -= 1
            await self._store.compact(min(revision + 1, await self._store.current_revision()))
        return await self._store.list_at(prefix, revision=revision, after=after, limit=limit)


@pytest.mark.parametrize(("times", "lost"), [(1, 1), (2, 2), (3, 8)])
async def test_a_start_beside_compaction_begins_at_its_floor_and_at_last_now(
    store: engine.SqliteStore, times: int, lost: int
) -> None:
    writer = Writer(store)
    first = revision = await writer.create("a")
    for number in range(1, 9):
        revision = await writer.update("a", number, revision)
    found = (await loaded(Compacting(store, times))).collection(PREFIX)
    assert found.window == first + lost
    assert [item.document()["number"] for item in found.snapshot()] == [8]


async def test_an_empty_store_is_loaded(store: engine.SqliteStore) -> None:
    copy = await loaded(store)
    assert (copy.version, copy.start) == (0, 0)
