# SPDX-License-Identifier: Apache-2.0
"""Every promise of `store.protocol`, held against every engine; sections are numbered as the promises are.

It does not look inside an engine: what is special to one is in its own unit tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from handfast.store import protocol
from tests.contract.engines import Opener

BIG = (bytes(range(256)) * 6144)[: protocol.VALUE_BYTES]


async def collect(watch: protocol.Watch, upto: int) -> list[protocol.Event]:
    """Every event until the watch says that it has reached a revision; revisions reported must rise."""
    events: list[protocol.Event] = []
    reached = -1
    while reached < upto:
        batch, revision = await watch.next()
        assert revision > reached
        assert all(reached < event.revision <= revision for event in batch)
        events.extend(batch)
        reached = revision
    return events


async def keys(store: protocol.Store, prefix: str = "", revision: int = 0) -> list[str]:
    return [entry.key for entry in (await store.list_at(prefix, revision=revision)).entries]


# 1. One total order


async def test_every_write_gets_a_greater_revision(store: protocol.Store) -> None:
    start = await store.current_revision()
    first = await store.create("a", b"1")
    second = await store.update("a", b"2", expected=first)
    third = await store.create("b", b"1")
    fourth = await store.delete("a", expected=second)
    assert start < first < second < third < fourth <= await store.current_revision()


async def test_concurrent_writes_all_get_revisions_of_their_own(store: protocol.Store) -> None:
    start = await store.current_revision()
    revisions = await asyncio.gather(*(store.create(f"k{n}", b"v") for n in range(300)))
    assert len(set(revisions)) == 300
    assert min(revisions) > start


async def test_revisions_and_values_survive_reopening(opener: Opener) -> None:
    store = await opener()
    kept = await store.create("kept", b"v")
    gone = await store.create("gone", b"v")
    last = await store.delete("gone", expected=gone)
    await store.compact(last)
    await store.close()
    store = await opener()
    assert await store.current_revision() >= last
    assert await store.get("kept") == protocol.Entry("kept", b"v", kept, kept)
    assert await store.get("gone") is None
    assert await store.create("gone", b"w") > last
    await store.close()


async def test_close_twice_is_harmless_and_later_calls_are_unavailable(opener: Opener) -> None:
    store = await opener()
    await store.close()
    await store.close()
    with pytest.raises(protocol.StoreUnavailable):
        await store.create("a", b"")
    with pytest.raises(protocol.StoreUnavailable):
        await store.get("a")
    with pytest.raises(protocol.StoreUnavailable):
        await store.list_at("")
    with pytest.raises(protocol.StoreUnavailable):
        await store.watch("", after=0).next()


async def test_writes_submitted_before_close_are_answered(opener: Opener) -> None:
    store = await opener()
    writes = [asyncio.ensure_future(store.create(f"k{n}", b"")) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    revisions = await asyncio.gather(*writes)
    store = await opener()
    assert await store.current_revision() >= max(revisions)
    assert len(await keys(store)) == 20
    await store.close()


# 2. Compare-and-swap only


async def test_create_of_a_present_key_says_what_is_there(store: protocol.Store) -> None:
    revision = await store.create("a", b"there")
    with pytest.raises(protocol.Mismatch) as refusal:
        await store.create("a", b"other")
    assert refusal.value.actual == protocol.Entry("a", b"there", revision, revision)
    assert await store.get("a") == protocol.Entry("a", b"there", revision, revision)


async def test_update_at_an_old_revision_changes_nothing(store: protocol.Store) -> None:
    first = await store.create("a", b"1")
    second = await store.update("a", b"2", expected=first)
    for never in (first, 1 << 63, 10**30):
        for attempt in (store.update("a", b"3", expected=never), store.delete("a", expected=never)):
            with pytest.raises(protocol.Mismatch) as refusal:
                await attempt
            assert refusal.value.actual == protocol.Entry("a", b"2", second, first)
    assert await store.get("a") == protocol.Entry("a", b"2", second, first)


async def test_an_update_on_the_way_to_a_delete_is_an_update(store: protocol.Store) -> None:
    first = await store.create("a", b"1")
    second = await store.update("a", b"2", expected=first, removing=True)
    assert await store.get("a") == protocol.Entry("a", b"2", second, first)
    with pytest.raises(protocol.Mismatch):
        await store.update("a", b"3", expected=first, removing=True)


async def test_with_space_nothing_is_refused_for_it(store: protocol.Store) -> None:
    await store.create("a", b"1")
    room = store.room()
    assert (room.free_bytes is None or room.free_bytes > 0, room.full, room.refused) == (True, False, 0)


@pytest.mark.parametrize("expected", [-1, 0, 99, 2**63 - 1])
async def test_a_revision_that_was_never_given_is_a_mismatch(store: protocol.Store, expected: int) -> None:
    first = await store.create("a", b"1")
    for attempt in (store.update("a", b"2", expected=expected), store.delete("a", expected=expected)):
        with pytest.raises(protocol.Mismatch):
            await attempt
    assert await store.get("a") == protocol.Entry("a", b"1", first, first)


@pytest.mark.parametrize("expected", [0, 1, 99])
async def test_update_and_delete_of_an_absent_key_find_nothing(store: protocol.Store, expected: int) -> None:
    for attempt in (store.update("a", b"1", expected=expected), store.delete("a", expected=expected)):
        with pytest.raises(protocol.Mismatch) as refusal:
            await attempt
        assert refusal.value.actual is None
    assert await store.get("a") is None


async def test_one_of_many_racing_updates_wins(store: protocol.Store) -> None:
    first = await store.create("a", b"0")
    racing = (store.update("a", b"%d" % n, expected=first) for n in range(20))
    results = await asyncio.gather(*racing, return_exceptions=True)
    won = [result for result in results if isinstance(result, int)]
    lost = [result for result in results if isinstance(result, protocol.Mismatch)]
    assert len(won) == 1
    assert len(lost) == 19
    assert {refusal.actual.revision for refusal in lost if refusal.actual} == set(won)


async def test_a_failed_precondition_does_not_touch_its_neighbours(store: protocol.Store) -> None:
    there = await store.create("there", b"")
    results = await asyncio.gather(
        store.create("x", b""),
        store.create("there", b""),
        store.update("absent", b"", expected=1),
        store.update("there", b"new", expected=there),
        store.create("y", b""),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, protocol.Mismatch, protocol.Mismatch, int, int]
    listed = (await store.list_at("")).entries
    assert [(entry.key, entry.value) for entry in listed] == [("there", b"new"), ("x", b""), ("y", b"")]


async def test_a_recreated_key_is_a_new_one(store: protocol.Store) -> None:
    first = await store.create("a", b"1")
    updated = await store.update("a", b"2", expected=first)
    deleted = await store.delete("a", expected=updated)
    again = await store.create("a", b"3")
    last = await store.update("a", b"4", expected=again)
    assert await store.get("a") == protocol.Entry("a", b"4", last, again)
    assert (await store.list_at("a", revision=updated)).entries == [protocol.Entry("a", b"2", updated, first)]
    assert (await store.list_at("a", revision=deleted)).entries == []
    assert (await store.list_at("a", revision=again)).entries == [protocol.Entry("a", b"3", again, again)]


@pytest.mark.parametrize("value", [b"", b"\0", "ключ".encode(), BIG], ids=["empty", "nul", "utf-8", "big"])
async def test_values_come_back_as_they_went_in(store: protocol.Store, value: bytes) -> None:
    start = await store.current_revision()
    watch = store.watch("", after=start)
    revision = await store.create("a", value)
    entry = protocol.Entry("a", value, revision, revision)
    assert await store.get("a") == entry
    assert (await store.list_at("")).entries == [entry]
    event = protocol.Event(revision, "a", value)
    assert await collect(watch, revision) == [event]
    assert await collect(store.watch("", after=start), revision) == [event]


# 3. Reads at a revision

ORDERED = [
    "A",
    "a",
    "a/",
    "a/\U0010ffff",
    "a/\U0010ffffz",
    "a/b",
    "a/b/c",
    "a/é",
    "a/日",
    "a/😀",
    "a0",
    "b",
    "\ud7ff",
    "\ue000",
    "😀",
]


async def test_keys_sort_by_code_point(store: protocol.Store) -> None:
    await asyncio.gather(*(store.create(key, b"") for key in ORDERED))
    assert await keys(store) == sorted(ORDERED)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/\U0010ffff", "a/b", "a0", "zz", "\ud7ff", "\U0010ffff"])
async def test_a_prefix_is_a_prefix_of_text(store: protocol.Store, prefix: str) -> None:
    start = await store.current_revision()
    await asyncio.gather(*(store.create(key, b"") for key in ORDERED))
    assert await keys(store, prefix) == sorted(key for key in ORDERED if key.startswith(prefix))
    last = await store.current_revision()
    seen = [event.key for event in await collect(store.watch(prefix, after=start), last)]
    assert sorted(seen) == sorted(key for key in ORDERED if key.startswith(prefix))


async def test_an_empty_store_lists_nothing_now(store: protocol.Store) -> None:
    page = await store.list_at("")
    assert (list(page.entries), page.more) == ([], False)
    assert page.revision <= await store.current_revision()


async def test_every_past_state_can_be_listed(store: protocol.Store) -> None:
    states: dict[int, dict[str, bytes]] = {}
    content: dict[str, bytes] = {}
    current: dict[str, int] = {}
    for step in range(60):
        key = f"k{step * 7 % 5}"
        if key not in current:
            current[key] = revision = await store.create(key, b"%d" % step)
            content[key] = b"%d" % step
        elif step % 3:
            current[key] = revision = await store.update(key, b"%d" % step, expected=current[key])
            content[key] = b"%d" % step
        else:
            revision = await store.delete(key, expected=current.pop(key))
            del content[key]
        states[revision] = dict(content)
    for revision, state in states.items():
        page = await store.list_at("", revision=revision)
        assert {entry.key: entry.value for entry in page.entries} == state
        assert [entry.key for entry in page.entries] == sorted(state)
        assert page.revision == revision


async def test_pages_at_a_revision_hold_still_while_writes_go_on(store: protocol.Store) -> None:
    revisions = await asyncio.gather(*(store.create(f"k/{n:02}", b"old") for n in range(25)))
    page = await store.list_at("k/", limit=10)
    listed, pinned, round_trips = list(page.entries), page.revision, 1
    while page.more:
        n = round_trips
        await store.delete(f"k/{10 + n:02}", expected=revisions[10 + n])
        await store.update(f"k/{20 + n:02}", b"new", expected=revisions[20 + n])
        await store.create(f"k/{15 + n:02}x", b"new")
        page = await store.list_at("k/", revision=pinned, after=listed[-1].key, limit=10)
        assert page.revision == pinned
        listed += page.entries
        round_trips += 1
    assert [(entry.key, entry.value, entry.revision) for entry in listed] == [
        (f"k/{n:02}", b"old", revision) for n, revision in enumerate(revisions)
    ]
    assert round_trips == 3


@pytest.mark.parametrize("limit, more", [(1, True), (4, True), (5, False), (6, False), (0, False)])
async def test_more_tells_whether_entries_follow(store: protocol.Store, limit: int, more: bool) -> None:
    for n in range(5):
        await store.create(f"k/{n}", b"")
    await store.create("l", b"")
    page = await store.list_at("k/", limit=limit)
    assert page.more is more
    assert len(page.entries) == min(limit or 5, 5)


async def test_after_excludes_the_key_itself_and_nothing_else(store: protocol.Store) -> None:
    for key in ("k/a", "k/a\0", "k/a/b", "k/b", "l"):
        await store.create(key, b"")
    page = await store.list_at("k/", after="k/a")
    assert [entry.key for entry in page.entries] == ["k/a\0", "k/a/b", "k/b"]
    assert next(entry.key for entry in (await store.list_at("k/", after="a")).entries) == "k/a"
    assert (await store.list_at("k/", after="k0")).entries == []


async def test_a_revision_not_yet_written_cannot_be_listed(store: protocol.Store) -> None:
    last = await store.create("a", b"")
    # The last one has no place in 64 bits: whoever asks may name any number.
    for ahead in (await store.current_revision() + 1000, (1 << 63) - 1, 1 << 63, 10**30):
        with pytest.raises(protocol.FutureRevision) as refusal:
            await store.list_at("", revision=ahead)
        assert refusal.value.revision == ahead
        assert last <= refusal.value.current < ahead


# 4. Gap-free watches


async def test_a_watch_gives_creates_updates_and_deletes_in_order(store: protocol.Store) -> None:
    start = await store.current_revision()
    watch = store.watch("a", after=start)
    first = await store.create("a", b"1")
    second = await store.update("a", b"2", expected=first)
    third = await store.delete("a", expected=second)
    fourth = await store.create("a", b"3")
    expected = [
        protocol.Event(first, "a", b"1"),
        protocol.Event(second, "a", b"2"),
        protocol.Event(third, "a", None),
        protocol.Event(fourth, "a", b"3"),
    ]
    assert await collect(watch, fourth) == expected
    assert await collect(store.watch("a", after=start), fourth) == expected
    assert await collect(store.watch("a", after=second), fourth) == expected[2:]


async def test_a_write_elsewhere_moves_a_watch_on_without_events(store: protocol.Store) -> None:
    watch = store.watch("a/", after=await store.current_revision())
    revision = await store.create("a0", b"")
    assert await collect(watch, revision) == []


async def test_a_watch_waits_for_the_next_write(store: protocol.Store) -> None:
    watch = store.watch("", after=await store.current_revision())
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    revision = await store.create("a", b"v")
    events, reached = await waiting
    assert list(events) == [protocol.Event(revision, "a", b"v")]
    assert reached == revision


async def test_history_then_live_has_no_gap_and_no_repetition(store: protocol.Store) -> None:
    old = sorted(await asyncio.gather(*(store.create(f"old/{n}", b"") for n in range(100))))
    starts = [old[0] - 1, *old[9::10]]
    watches = [store.watch("", after=start) for start in starts]
    new = await asyncio.gather(*(store.create(f"new/{n}", b"") for n in range(400)))
    revisions = sorted([*old, *new])
    followed = await asyncio.gather(*(collect(watch, revisions[-1]) for watch in watches))
    for start, events in zip(starts, followed, strict=True):
        assert [event.revision for event in events] == [revision for revision in revisions if revision > start]


async def test_watches_keep_to_their_own_prefix(store: protocol.Store) -> None:
    start = await store.current_revision()
    one, other = store.watch("a/", after=start), store.watch("b/", after=start)
    revisions = await asyncio.gather(*(store.create(f"{'ab'[n % 2]}/{n}", b"") for n in range(10)))
    last = max(revisions)
    assert {event.key for event in await collect(one, last)} == {f"a/{n}" for n in range(0, 10, 2)}
    assert {event.key for event in await collect(other, last)} == {f"b/{n}" for n in range(1, 10, 2)}


async def test_a_cancelled_next_loses_nothing(store: protocol.Store) -> None:
    start = await store.current_revision()
    live = store.watch("", after=start)
    waiting = asyncio.ensure_future(live.next())
    await asyncio.sleep(0)
    waiting.cancel()
    for n in range(5):
        last = await store.create(f"k{n}", b"")
    assert waiting.cancelled()
    assert len(await collect(live, last)) == 5
    history = store.watch("", after=start)
    waiting = asyncio.ensure_future(history.next())
    await asyncio.sleep(0)
    waiting.cancel()
    last = await store.create("k5", b"")
    assert waiting.cancelled()
    assert len(await collect(history, last)) == 6


async def test_a_consumer_far_behind_gets_every_event(store: protocol.Store) -> None:
    start = await store.current_revision()
    watch = store.watch("k", after=start)
    revisions: list[int] = []
    for _ in range(25):
        count = len(revisions)
        revisions += await asyncio.gather(*(store.create(f"k{count + n}", b"x" * 20) for n in range(200)))
    assert [event.revision for event in await collect(watch, max(revisions))] == sorted(revisions)
    revision = await store.create("k", b"live again")
    assert [event.key for event in await collect(watch, revision)] == ["k"]


async def test_a_watch_from_the_future_is_refused(store: protocol.Store) -> None:
    last = await store.create("a", b"")
    for ahead in (last + 1000, 1 << 63, 10**30):
        with pytest.raises(protocol.FutureRevision):
            await store.watch("", after=ahead).next()


@pytest.mark.parametrize("closed", ["watch", "store"])
async def test_closing_ends_a_waiting_next(store: protocol.Store, closed: str) -> None:
    watch = store.watch("", after=await store.current_revision())
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    if closed == "watch":
        watch.close()
    else:
        await store.close()
    with pytest.raises(protocol.StoreUnavailable):
        await waiting
    with pytest.raises(protocol.StoreUnavailable):
        await watch.next()


# 5. current_revision, and reading one's own writes


async def test_an_acknowledged_write_is_in_every_later_answer(store: protocol.Store) -> None:
    async def write_then_read(n: int) -> None:
        revision = await store.create(f"k{n}", b"v")
        assert await store.current_revision() >= revision
        assert await store.get(f"k{n}") == protocol.Entry(f"k{n}", b"v", revision, revision)
        page = await store.list_at(f"k{n}", limit=1)
        assert page.revision >= revision
        assert page.entries[0].revision == revision

    await asyncio.gather(*(write_then_read(n) for n in range(100)))


async def test_no_answer_is_ahead_of_the_current_revision(store: protocol.Store) -> None:
    async def read(number: int) -> int:
        page = await store.list_at("", limit=1)
        assert page.revision <= await store.current_revision()
        watch = store.watch("", after=page.revision)
        last = await store.create(f"after/{number}", b"")
        assert all(event.revision > page.revision for event in await collect(watch, last))
        return page.revision

    await asyncio.gather(*(store.create(f"k{n}", b"") for n in range(50)), *(read(number) for number in range(30)))


# Compaction: floor F means that lists at F and watches after F work, and earlier ones do not


async def written(store: protocol.Store) -> Sequence[int]:
    """a created, a updated, b created, b deleted, a updated, c created: six revisions."""
    first = await store.create("a", b"1")
    second = await store.update("a", b"2", expected=first)
    third = await store.create("b", b"1")
    fourth = await store.delete("b", expected=third)
    fifth = await store.update("a", b"3", expected=second)
    return [first, second, third, fourth, fifth, await store.create("c", b"1")]


@pytest.mark.parametrize("at", range(6))
async def test_the_floor_is_the_oldest_revision_that_can_be_read(store: protocol.Store, at: int) -> None:
    revisions = await written(store)
    before = {revision: (await store.list_at("", revision=revision)).entries for revision in revisions}
    events = await collect(store.watch("", after=revisions[0] - 1), revisions[-1])
    floor = revisions[at]
    assert await store.compact(floor) == floor
    for revision in revisions:
        if revision >= floor:
            assert (await store.list_at("", revision=revision)).entries == before[revision]
            following = [event for event in events if event.revision > revision]
            watch = store.watch("", after=revision)
            assert (await collect(watch, revisions[-1]) if following else []) == following
        else:
            with pytest.raises(protocol.Compacted) as refusal:
                await store.list_at("", revision=revision)
            assert (refusal.value.revision, refusal.value.floor) == (revision, floor)
            with pytest.raises(protocol.Compacted):
                await store.watch("", after=revision).next()


async def test_compaction_keeps_what_is_current_and_never_goes_back(store: protocol.Store) -> None:
    revisions = await written(store)
    assert await store.compact(revisions[4]) == revisions[4]
    assert await store.compact(revisions[1]) == revisions[4]
    assert await store.compact(revisions[5]) == revisions[5]
    assert await store.current_revision() >= revisions[5]
    assert [(entry.key, entry.value) for entry in (await store.list_at("")).entries] == [("a", b"3"), ("c", b"1")]
    updated = await store.update("a", b"4", expected=revisions[4])
    assert updated > revisions[5]
    assert await store.get("a") == protocol.Entry("a", b"4", updated, revisions[0])


async def test_the_floor_survives_reopening(opener: Opener) -> None:
    store = await opener()
    revisions = await written(store)
    await store.compact(revisions[3])
    await store.close()
    store = await opener()
    with pytest.raises(protocol.Compacted):
        await store.list_at("", revision=revisions[2])
    assert await keys(store, revision=revisions[3]) == ["a"]
    await store.close()


async def test_revisions_before_the_first_are_compacted(store: protocol.Store) -> None:
    with pytest.raises(protocol.Compacted):
        await store.list_at("", revision=-1)
    with pytest.raises(protocol.Compacted):
        await store.watch("", after=-1).next()


async def test_the_future_cannot_be_compacted(store: protocol.Store) -> None:
    last = await store.create("a", b"")
    with pytest.raises(protocol.FutureRevision):
        await store.compact(last + 1000)
    assert await keys(store, revision=last) == ["a"]


async def test_a_live_watch_does_not_notice_compaction(store: protocol.Store) -> None:
    watch = store.watch("", after=await store.current_revision())
    revisions = await written(store)
    await store.compact(revisions[-1])
    assert [event.revision for event in await collect(watch, revisions[-1])] == revisions


async def test_compaction_goes_on_beside_writes(store: protocol.Store) -> None:
    first = revision = await store.create("counter", b"0")
    for n in range(300):
        revision = await store.update("counter", b"%d" % n, expected=revision)
    compacting = asyncio.ensure_future(store.compact(revision))
    later = await store.update("counter", b"last", expected=revision)
    assert await compacting == revision
    page = await store.list_at("", revision=revision)
    assert [(entry.value, entry.revision) for entry in page.entries] == [(b"299", revision)]
    assert await store.get("counter") == protocol.Entry("counter", b"last", later, first)


async def test_the_store_tells_its_floor(store: protocol.Store) -> None:
    revisions = await written(store)
    assert await store.floor() < revisions[0]
    await store.compact(revisions[2])
    assert await store.floor() == revisions[2]


# 8. Identity, epochs and notes


async def test_an_identity_stays_and_is_its_own(opener: Opener) -> None:
    store = await opener()
    identity = store.identity
    assert identity
    await store.close()
    store = await opener()
    assert store.identity == identity
    await store.close()


async def test_an_empty_store_can_become_the_copy_of_another(opener: Opener) -> None:
    store = await opener()
    await store.take_identity("that-one")
    assert store.identity == "that-one"
    await store.create("a", b"")
    with pytest.raises(protocol.NotEmpty):
        await store.take_identity("another")
    await store.close()
    store = await opener()
    assert store.identity == "that-one"
    await store.close()


async def test_a_raised_epoch_stays_and_ends_what_was_before(opener: Opener) -> None:
    store = await opener()
    first = await store.create("a", b"")
    last = await store.create("b", b"")
    before = store.epoch_offset
    assert await store.raise_epoch(above=before + 7) == store.epoch_offset == before + 7 + protocol.EPOCH
    await store.close()
    store = await opener()
    assert store.epoch_offset == before + 7 + protocol.EPOCH
    assert await store.raise_epoch(5, above=3) == before + 12 + protocol.EPOCH
    for older in (first, last - protocol.EPOCH):
        with pytest.raises(protocol.Compacted):
            await store.watch("", after=older).next()
        with pytest.raises(protocol.Compacted):
            await store.list_at("", revision=older)
    watch = store.watch("", after=await store.current_revision())
    last = await store.create("c", b"")
    assert [event.key for event in await collect(watch, last)] == ["c"]
    await store.close()


async def test_notes_are_kept_and_are_no_entries(opener: Opener) -> None:
    store = await opener()
    watch = store.watch("", after=await store.current_revision())
    assert await store.note("a/b") is None
    await store.set_note("a/b", "first")
    await store.set_note("a/b", "ключ")
    await store.set_note("gone", "x")
    await store.set_note("gone", None)
    await store.set_note("never", None)
    last = await store.create("key", b"")
    assert [event.key for event in await collect(watch, last)] == ["key"]
    assert await keys(store) == ["key"]
    await store.close()
    store = await opener()
    assert [await store.note(name) for name in ("a/b", "gone", "never")] == ["ключ", None, None]
    await store.close()


async def test_of_many_who_write_the_same_note_one_does(opener: Opener) -> None:
    store = await opener()
    told = await asyncio.gather(*(store.swap_note("claim", None, f"by {number}") for number in range(20)))
    assert len(set(told)) == 1
    assert await store.note("claim") == told[0]
    assert await store.swap_note("claim", None, "late") == told[0]
    assert await store.swap_note("claim", "something else", None) == told[0]
    # In place of the same text, again one.
    second = await asyncio.gather(*(store.swap_note("claim", told[0], f"then {number}") for number in range(20)))
    assert len(set(second)) == 1
    assert second[0] != told[0]
    assert await store.swap_note("claim", second[0], None) is None
    assert await store.swap_note("never", "x", None) is None
    await store.close()
    store = await opener()
    assert await store.note("claim") is None
    await store.close()


# 9. Sizes


async def test_the_longest_key_with_the_largest_value_fits(store: protocol.Store) -> None:
    key = "k" * protocol.KEY_BYTES
    first = await store.create(key, BIG)
    with pytest.raises(protocol.Mismatch) as refusal:
        await store.create(key, b"")
    assert refusal.value.actual == protocol.Entry(key, BIG, first, first)
    second = await store.update(key, BIG[::-1], expected=first)
    assert await store.get(key) == protocol.Entry(key, BIG[::-1], second, first)
    await store.delete(key, expected=second)


async def test_a_store_says_how_it_is(store: protocol.Store) -> None:
    revisions = [await store.create(f"k{number}", b"x" * 1000) for number in range(20)]
    await store.compact(revisions[10])
    stats = await store.stats()
    assert stats.floor == await store.floor() == revisions[10]
    assert (stats.size_bytes or 0) > 20_000
    assert type(store).__name__.lower().startswith(stats.engine)
