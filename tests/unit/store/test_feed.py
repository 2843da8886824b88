# SPDX-License-Identifier: Apache-2.0
"""The meeting of history and live events, with a reader of history that answers when the test says so."""

from __future__ import annotations

import asyncio

import pytest

from handfast import errors
from handfast.store import feed as feeds
from handfast.store import protocol
from handfast.store.sqlite import engine


def event(revision: int, key: str = "k", value: bytes = b"v") -> protocol.Event:
    return protocol.Event(revision, key, value)


class Script:
    """A log whose reads are answered by the test."""

    def __init__(self, revision: int) -> None:
        self.asked: list[int] = []
        self.answer: asyncio.Future[feeds.History] = asyncio.get_running_loop().create_future()
        self.feed = feeds.Feed(revision, self.read)

    async def read(self, prefix: str, after: int) -> feeds.History:
        self.asked.append(after)
        answer = await self.answer
        self.answer = asyncio.get_running_loop().create_future()
        return answer

    def say(self, *revisions: int, upto: int, complete: bool = True) -> None:
        self.answer.set_result(feeds.History([event(revision) for revision in revisions], upto, complete))


async def started(watch: feeds.LogWatch) -> asyncio.Future[tuple[list[int], int]]:
    async def revisions() -> tuple[list[int], int]:
        events, upto = await watch.next()
        return [event.revision for event in events], upto

    waiting = asyncio.ensure_future(revisions())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return waiting


async def test_what_is_committed_during_the_read_follows_once() -> None:
    script = Script(3)
    watch = script.feed.watch("", 0)
    waiting = await started(watch)
    for revision in (4, 5, 6):
        script.feed.publish(revision, [event(revision)])
    script.say(1, 2, 3, 4, 5, upto=5)
    assert await waiting == ([1, 2, 3, 4, 5], 5)
    assert await (await started(watch)) == ([6], 6)
    assert script.asked == [0]


async def test_a_long_history_is_read_on_before_going_live() -> None:
    script = Script(9)
    watch = script.feed.watch("", 0)
    waiting = await started(watch)
    script.say(1, 2, upto=2, complete=False)
    assert await waiting == ([1, 2], 2)
    script.feed.publish(10, [event(10)])
    waiting = await started(watch)
    script.say(5, 10, upto=10)
    assert await waiting == ([5, 10], 10)
    assert script.asked == [0, 2]


async def test_a_failed_read_is_repeated_from_the_same_place() -> None:
    script = Script(3)
    watch = script.feed.watch("", 1)
    waiting = await started(watch)
    script.answer.set_exception(protocol.StoreUnavailable("the disk failed"))
    with pytest.raises(protocol.StoreUnavailable):
        await waiting
    script.answer = asyncio.get_running_loop().create_future()
    script.feed.publish(4, [event(4)])
    waiting = await started(watch)
    script.say(2, 3, 4, upto=4)
    assert await waiting == ([2, 3, 4], 4)
    assert script.asked == [1, 1]


@pytest.mark.parametrize("limit", ["PENDING_EVENTS", "PENDING_BYTES"])
async def test_undelivered_events_are_bounded_and_read_again(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, limit, 3)
    script = Script(0)
    watch = script.feed.watch("", 0)
    for revision in range(1, 10):
        script.feed.publish(revision, [event(revision)])
        assert watch._pending is None or len(watch._pending) <= 3
    waiting = await started(watch)
    script.say(*range(1, 10), upto=9)
    assert await waiting == (list(range(1, 10)), 9)
    script.feed.publish(10, [event(10)])
    assert await (await started(watch)) == ([10], 10)
    assert script.asked == [0]


async def test_more_than_the_bound_during_a_read_means_another_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PENDING_EVENTS", 2)
    script = Script(1)
    watch = script.feed.watch("", 0)
    waiting = await started(watch)
    for revision in (2, 3, 4, 5):
        script.feed.publish(revision, [event(revision)])
    script.say(1, upto=1)
    assert await waiting == ([1], 1)
    waiting = await started(watch)
    script.say(2, 3, 4, 5, upto=5)
    assert await waiting == ([2, 3, 4, 5], 5)
    assert script.asked == [0, 1]


async def test_a_waiting_consumer_is_woken_by_a_commit_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PENDING_EVENTS", 1)
    script = Script(0)
    waiting = await started(script.feed.watch("", 0))
    script.feed.publish(2, [event(1), event(2)])
    script.say(1, 2, upto=2)
    assert await waiting == ([1, 2], 2)


async def test_a_watch_opened_ahead_of_time_waits_once_time_has_come() -> None:
    script = Script(0)
    watch = script.feed.watch("", 1)
    script.feed.publish(1, [event(1)])
    waiting = await started(watch)
    script.say(upto=1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    script.feed.publish(2, [event(2)])
    assert await waiting == ([2], 2)


async def test_a_bookmark_tells_of_writes_elsewhere() -> None:
    script = Script(0)
    watch = script.feed.watch("a/", 0)
    script.feed.publish(1, [event(1, "b/x")])
    script.feed.publish(2, [event(2, "b/y")])
    assert await (await started(watch)) == ([], 2)


async def test_one_consumer_at_a_time() -> None:
    script = Script(0)
    watch = script.feed.watch("", 0)
    waiting = await started(watch)
    with pytest.raises(errors.Misuse):
        await watch.next()
    script.feed.publish(1, [event(1)])
    assert await waiting == ([1], 1)


async def test_closing_during_a_read_ends_the_watch() -> None:
    script = Script(1)
    watch = script.feed.watch("", 0)
    waiting = await started(watch)
    watch.close()
    script.say(1, upto=1)
    assert await waiting == ([1], 1)
    script.feed.publish(2, [event(2)])
    with pytest.raises(protocol.StoreUnavailable):
        await watch.next()


async def test_a_revision_seen_early_is_told_when_it_is_passed_on() -> None:
    feed = Script(1).feed
    await feed.reached(1)
    early, later, given_up = (asyncio.ensure_future(feed.reached(revision)) for revision in (2, 3, 2))
    await asyncio.sleep(0)
    given_up.cancel()
    feed.publish(2, [event(2)])
    await early
    assert not later.done()
    feed.close()
    with pytest.raises(protocol.StoreUnavailable):
        await later


async def test_a_consumer_overtaken_by_compaction_is_told(
    store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "PENDING_EVENTS", 2)
    watch = store.watch("", after=0)
    for n in range(5):
        await store.create(f"k{n}", b"")
    await store.compact(3)
    with pytest.raises(protocol.Compacted) as refusal:
        await watch.next()
    assert (refusal.value.revision, refusal.value.floor) == (0, 3)


async def test_closed_watches_are_forgotten(store: engine.SqliteStore) -> None:
    for _ in range(3):
        store.watch("", after=0).close()
    assert not store._feed._watches
