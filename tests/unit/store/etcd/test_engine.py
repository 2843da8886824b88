# SPDX-License-Identifier: Apache-2.0
"""What only a shared store meets: others' writes, others' compaction, another history, a member that dies. On real etcds."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import pathlib
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import structlog

from handfast import errors
from handfast.store import protocol
from handfast.store.etcd import engine, history, live, marks
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access, etcd_client
from handfast.wire import etcd_messages as messages
from tests.world import etcds, guarded_etcds

OPEN = etcd_access.Access()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.fixture
def place() -> places.Place:
    return etcds.shared().place()


@pytest.fixture
async def store(place: places.Place) -> AsyncIterator[engine.EtcdStore]:
    opened = await engine.open_store(place, OPEN)
    yield opened
    await opened.close()


@pytest.fixture
def etcd(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[etcds.Etcd]:
    """One for this test alone, with the flags that it was given."""
    with etcds.running(tmp_path, getattr(request, "param", ())) as started:
        yield started


async def raw(store: engine.EtcdStore, message: Any) -> Any:
    """A call of somebody else's."""
    return await store._client.call(0, message, 20)


async def foreign_write(store: engine.EtcdStore) -> int:
    answer = await raw(store, messages.PutRequest(key=b"/elsewhere", value=b"x"))
    return int(answer.header.revision)


def watchers() -> int:
    """How many watches the shared etcd serves."""
    shared = etcds.shared()
    with contextlib.closing(http.client.HTTPConnection(shared.address.host, shared.address.port, timeout=60)) as link:
        link.request("GET", "/metrics")
        text = link.getresponse().read().decode()
    return int(float(text.partition("\netcd_debugging_mvcc_watcher_total ")[2].split()[0]))


async def test_any_number_of_watches_of_a_store_is_one_watch_in_etcd(store: engine.EtcdStore) -> None:
    """Narrower ones filter what it sends: each gets its own events, and no other's."""
    # Those of the tests before this one end in a moment.
    await until(lambda: watchers() == 1)
    revision = await store.current_revision()
    watches = {f"{number}/": store.watch(f"{number}/", after=revision) for number in range(10, 40)}
    for prefix in watches:
        revision = await store.create(f"{prefix}a", b"")
    for prefix, watch in watches.items():
        keys, reached = list[str](), 0
        while reached < revision:
            events, reached = await watch.next()
            keys += [event.key for event in events]
        assert keys == [f"{prefix}a"]
    assert watchers() == 1


# Others' writes


@pytest.mark.parametrize("believed", [False, True], ids=["by a fence", "by its word"])
async def test_writes_of_others_bring_watches_forward(
    store: engine.EtcdStore, believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of a version that may be believed, or not. With nothing else going on, an older one may be, too.
    monkeypatch.setattr(live, "is_progress_believed", lambda _text: believed)
    store._live.restart()
    await until(lambda: store._live._is_believed is believed and store._live._watching is not None)
    await store.create("a", b"")
    watch = store.watch("", after=await store.current_revision())
    fences = store._live.fences
    foreign = await foreign_write(store)
    assert await store.current_revision() >= foreign
    events, reached = await watch.next()
    assert (list(events), reached >= foreign) == ([], True)
    assert (store._live.fences > fences) is not believed


async def test_our_own_writes_need_no_fence(store: engine.EtcdStore) -> None:
    for number in range(20):
        await store.create(f"k{number}", b"")
        await store.current_revision()
    assert store._live.fences <= 2  # one or two where the machine is slower than the patience


async def test_events_of_many_writes_are_passed_on_together_and_in_order(
    store: engine.EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that only the count of those under way can end it.
    monkeypatch.setattr(live, "_GATHERING", 600.0)
    batches: list[list[protocol.Event]] = []
    publish = store._feed.publish

    def note(revision: int, events: Any) -> None:
        batches.append(list(events))
        publish(revision, events)

    monkeypatch.setattr(store._feed, "publish", note)
    revisions = await asyncio.gather(*(store.create(f"k{number}", b"") for number in range(64)))
    assert store._feed.revision >= max(revisions)
    assert [event.revision for batch in batches for event in batch] == sorted(revisions)
    assert max(map(len, batches)) > 1


async def test_a_write_that_is_refused_holds_no_event_back(
    store: engine.EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_GATHERING", 600.0)
    await store.create("taken", b"")
    done, refused = await asyncio.gather(store.create("free", b""), store.create("taken", b""), return_exceptions=True)
    assert isinstance(refused, protocol.Mismatch)
    assert isinstance(done, int)
    assert store._feed.revision >= done


async def test_events_come_while_another_write_of_ours_hangs(store: engine.EtcdStore, place: places.Place) -> None:
    other = await engine.open_store(place, OPEN)
    watch = store.watch("", after=await store.current_revision())
    with store._live.writing(), store._live.writing():
        revision = await other.create("a", b"v")
        assert await store.current_revision() >= revision
        assert list((await watch.next())[0]) == [protocol.Event(revision, "a", b"v")]
    await other.close()


async def test_two_stores_on_one_prefix_see_one_another(store: engine.EtcdStore, place: places.Place) -> None:
    other = await engine.open_store(place, OPEN)
    assert other.identity == store.identity
    watch = other.watch("", after=await other.current_revision())
    for number in range(50):
        revision = await store.create(f"k{number}", b"v")
        assert await other.current_revision() >= revision
        assert await other.get(f"k{number}") == protocol.Entry(f"k{number}", b"v", revision, revision)
    seen: list[str] = []
    while len(seen) < 50:
        seen += [event.key for event in (await watch.next())[0]]
    assert seen == [f"k{number}" for number in range(50)]
    await other.close()


async def test_many_keys_in_one_write_of_others_are_all_told(store: engine.EtcdStore, place: places.Place) -> None:
    """As `etcdctl del --prefix` does it: one revision for all of them."""
    for name in "abc":
        await store.create(f"gone/{name}", b"")
    before = await store.current_revision()
    live_watch = store.watch("", after=before)
    ending = messages.DeleteRangeRequest(key=place.key("gone/"), range_end=places.after_all(place.key("gone/")))
    await raw(store, ending)
    expected = [("gone/a", None), ("gone/b", None), ("gone/c", None)]
    for watch in (live_watch, store.watch("", after=before)):
        events, _ = await watch.next()
        assert [(event.key, event.value) for event in events] == expected
    # And what follows is not told twice.
    await store.create("d", b"")
    late = store.watch("", after=before)
    events = [*(await late.next())[0]]
    assert [event.key for event in events] == ["gone/a", "gone/b", "gone/c", "d"]


async def test_one_write_that_comes_in_several_pieces_is_told_whole(
    store: engine.EtcdStore, place: places.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd tears what is over its limit for a request apart, also within a revision."""
    count, per_write = 1100, 100
    names = [f"gone/{number:04}" + "x" * 2000 for number in range(count)]
    for at in range(0, count, per_write):
        puts = [messages.PutRequest(key=place.key(name), value=b"") for name in names[at : at + per_write]]
        await raw(store, messages.TxnRequest(success=[messages.RequestOp(request_put=put) for put in puts]))
    before = await store.current_revision()
    live_watch = store.watch("", after=before)
    ending = messages.DeleteRangeRequest(key=place.key("gone/"), range_end=places.after_all(place.key("gone/")))
    revision = int((await raw(store, ending)).header.revision)
    await store.create("next", b"")
    monkeypatch.setattr(history, "HISTORY_EVENTS", 10)
    for watch in (live_watch, store.watch("", after=before)):
        told: list[protocol.Event] = []
        while len(told) <= count:
            events, reached = await asyncio.wait_for(watch.next(), 20)
            told += events
            # No revision is reached before all of it was told.
            assert reached < revision or len(told) >= count
        assert [event.key for event in told] == [*names, "next"]


async def test_keys_of_others_that_are_no_text_are_left_out_and_told_once(
    store: engine.EtcdStore, place: places.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await store.create("a", b"1")
    watch = store.watch("", after=first)
    with structlog.testing.capture_logs() as logs:
        for number in range(3):
            await raw(store, messages.PutRequest(key=place.objects + b"\xff\xfe%d" % number, value=b"x"))
        last = await store.create("b", b"2")
        seen: list[str] = []
        async with asyncio.timeout(60):
            while "b" not in seen:
                seen += [event.key for event in (await watch.next())[0]]
        assert (seen, await store.current_revision() >= last) == (["b"], True)
        # From history, in a list of any size, and for whoever begins.
        assert [event.key for event in (await store.watch("", after=first).next())[0]] == ["b"]
        monkeypatch.setattr(engine, "PAGE_ENTRIES", 1)
        assert [entry.key for entry in (await store.list_at("")).entries] == ["a", "b"]
        page = await store.list_at("", limit=2)
        assert [entry.key for entry in page.entries] == ["a", "b"]
    assert [entry["key"] for entry in logs if entry["event"].startswith("there are keys below the store")] == [
        repr(place.objects + b"\xff\xfe0")
    ]
    assert store._session.foreign >= 3
    again = await engine.open_store(place, OPEN)
    assert len((await again.list_at("")).entries) == 2
    await again.close()


# Others' compaction


async def test_what_others_compact_is_learned(store: engine.EtcdStore) -> None:
    first = await store.create("a", b"1")
    second = await store.update("a", b"2", expected=first)
    third = await store.delete("a", expected=second)
    await store.current_revision()
    await raw(store, messages.CompactionRequest(revision=third, physical=True))
    # A delete at the floor itself is gone from etcd: who has not had it is told so, and misses nothing in silence.
    with pytest.raises(protocol.Compacted) as refusal:
        await store.watch("", after=second).next()
    assert refusal.value.floor == third
    with pytest.raises(protocol.Compacted):
        await store.list_at("", revision=second)
    assert await store.floor() == third
    assert (await store.list_at("", revision=third)).entries == []


async def test_the_floor_is_learned_after_reopening(place: places.Place) -> None:
    store = await engine.open_store(place, OPEN)
    await store.create("a", b"1")
    now = await store.current_revision()
    await raw(store, messages.CompactionRequest(revision=now, physical=True))
    await store.close()
    store = await engine.open_store(place, OPEN)
    assert await store.floor() == now
    with pytest.raises(protocol.FutureRevision):
        await store.compact(now + 1000)
    await store.close()


# Another history


async def test_an_epoch_that_another_server_raised_ends_the_store(store: engine.EtcdStore, place: places.Place) -> None:
    watch = store.watch("", after=await store.current_revision())
    other = await engine.open_store(place, OPEN)
    assert await other.raise_epoch() == protocol.EPOCH

    async def follow() -> None:
        while True:
            await watch.next()

    with pytest.raises(protocol.StoreUnavailable, match="another server raised the epoch") as refusal:
        await asyncio.wait_for(follow(), 60)
    assert refusal.value.reason == "EpochRaised"
    with pytest.raises(protocol.StoreUnavailable, match="another server raised the epoch"):
        await store.create("a", b"")
    await other.create("a", b"")
    await other.close()


async def test_a_prefix_of_somebody_else_is_left_as_it_is() -> None:
    place = etcds.shared().place()
    client = etcd_client.Client(place.endpoints, OPEN)
    await client.call(0, messages.PutRequest(key=place.root + b"theirs", value=b"x"), 20)
    with pytest.raises(protocol.StoreCorrupt, match="no store of Handfast's; nothing was changed"):
        await engine.open_store(place, OPEN)
    answer = await client.call(0, messages.RangeRequest(key=place.root, range_end=place.root_end), 20)
    assert [kv.key for kv in answer.kvs] == [place.root + b"theirs"]
    await client.close()


@pytest.mark.parametrize(
    "name, value, says",
    [
        ("format", b"2", "its format 2 is newer than this program's 1"),
        ("format", b"0", "its format 0 is none"),
        ("epoch", b"x", "damaged"),
    ],
)
async def test_a_newer_or_damaged_store_is_refused(place: places.Place, name: str, value: bytes, says: str) -> None:
    store = await engine.open_store(place, OPEN)
    await store.close()
    client = etcd_client.Client(place.endpoints, OPEN)
    await client.call(0, messages.PutRequest(key=place.own(name), value=value), 20)
    await client.close()
    with pytest.raises(protocol.StoreCorrupt, match=says):
        await engine.open_store(place, OPEN)


async def test_two_servers_that_begin_a_store_at_once_agree(place: places.Place) -> None:
    stores = await asyncio.gather(*(engine.open_store(place, OPEN) for _ in range(4)))
    assert len({store.identity for store in stores}) == 1
    for store in stores:
        await store.close()


# Lists


async def test_large_entries_come_in_pages_that_fit(store: engine.EtcdStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PAGE_ENTRIES", 64)
    value = bytes(protocol.VALUE_BYTES)
    for number in range(48):
        await store.create(f"k{number:02}", value)
    page = await store.list_at("k")
    assert [entry.key for entry in page.entries] == [f"k{number:02}" for number in range(48)]
    assert all(entry.value == value for entry in page.entries)


async def test_wrong_arguments_are_named(store: engine.EtcdStore) -> None:
    with pytest.raises(errors.Misuse, match="empty"):
        await store.create("", b"")
    with pytest.raises(errors.Misuse, match="limit: -1"):
        await store.list_at("", limit=-1)
    with pytest.raises(errors.Misuse, match="by: 0"):
        await store.raise_epoch(0)
    with pytest.raises(errors.Misuse, match="identity"):
        await store.take_identity("")


@pytest.mark.parametrize("size, says", [(3 << 19, "request is too large"), (2 << 20, "larger than max")])
async def test_a_write_that_etcd_finds_too_large_is_named(store: engine.EtcdStore, size: int, says: str) -> None:
    with pytest.raises(protocol.TooLarge, match=says):
        await store.create("a", bytes(size))
    assert await store.get("a") is None


# A member that dies, is frozen, is full, or has another past


@pytest.mark.slow
async def test_a_member_that_is_killed_and_comes_back_loses_nothing(etcd: etcds.Etcd) -> None:
    store = await engine.open_store(etcd.place(), OPEN)
    watch = store.watch("", after=await store.current_revision())
    first = await store.create("a", b"1")
    writing = [asyncio.ensure_future(store.create(f"k{number}", b"")) for number in range(200)]
    await asyncio.sleep(0.02)
    etcd.kill()
    results = await asyncio.gather(*writing, return_exceptions=True)
    assert {type(result) for result in results} <= {int, protocol.StoreUncertain, protocol.StoreUnavailable}
    with pytest.raises(errors.Unavailable):
        await store.current_revision()
    with pytest.raises(errors.Unavailable):
        await store.create("while it is away", b"")
    etcd.start()
    last = 0

    async def again() -> None:
        nonlocal last
        while not last:
            try:
                last = await store.update("a", b"2", expected=first)
            except errors.Unavailable:
                await asyncio.sleep(0.1)

    async with asyncio.timeout(60):
        await again()
    there = {entry.key for entry in (await store.list_at("k")).entries}
    for number, result in enumerate(results):
        if isinstance(result, int):
            assert f"k{number}" in there
        elif isinstance(result, protocol.StoreUnavailable):
            assert f"k{number}" not in there
    # The watch went on where it was.
    events: list[protocol.Event] = []
    reached = 0
    async with asyncio.timeout(60):
        while reached < last:
            batch, reached = await watch.next()
            events += batch
    assert {event.key for event in events} == there | {"a"}
    assert [event.revision for event in events] == sorted({event.revision for event in events})
    await store.close()


@pytest.mark.slow
async def test_a_frozen_member_is_uncertain_and_never_stale(etcd: etcds.Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await engine.open_store(etcd.place(), OPEN)
    monkeypatch.setattr(sessions, "READ_SECONDS", 0.5)
    monkeypatch.setattr(sessions, "WRITE_SECONDS", 0.5)
    etcd.kill(signal.SIGSTOP)
    with pytest.raises(protocol.StoreUncertain):
        await store.create("a", b"1")
    with pytest.raises(protocol.StoreUnavailable, match="no answer in time"):
        await store.current_revision()
    with pytest.raises(protocol.StoreUnavailable):
        await store.get("a")
    etcd.kill(signal.SIGCONT)
    monkeypatch.undo()
    async with asyncio.timeout(60):
        while True:
            try:
                assert await store.current_revision() > 0
                break
            except protocol.StoreUnavailable:
                await asyncio.sleep(0.1)
    await store.close()


@pytest.mark.slow
async def test_an_etcd_that_went_back_ends_the_store(etcd: etcds.Etcd, tmp_path: pathlib.Path) -> None:
    store = await engine.open_store(etcd.place("hf"), OPEN)
    await store.create("kept", b"")
    etcd.kill()
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    etcd.start()
    await _write_until_taken(store, "lost")
    etcd.kill()
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "backup", tmp_path / "data")
    etcd.start()
    async with asyncio.timeout(60):
        while True:
            try:
                await store.current_revision()
            except protocol.StoreUnavailable as error:
                if error.reason == "HistoryChanged":
                    break
            await asyncio.sleep(0.1)
    await store.close()


async def _write_until_taken(store: engine.EtcdStore, key: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await store.create(key, b"")
            except errors.Unavailable:
                await asyncio.sleep(0.1)
            except protocol.Mismatch:
                return
            else:
                return


@pytest.mark.slow
@pytest.mark.parametrize("etcd", [["--quota-backend-bytes=16777216"]], indirect=True, ids=["16 MiB"])
async def test_a_full_etcd_takes_deletes_and_says_what_to_do(etcd: etcds.Etcd) -> None:
    store = await engine.open_store(etcd.place("hf"), OPEN)
    revisions: dict[str, int] = {}

    async def fill() -> None:
        for number in range(64):
            revisions[f"k{number}"] = await store.create(f"k{number}", bytes(1 << 20))

    with pytest.raises(protocol.StoreFull, match=r"database space exceeded.*etcdctl alarm disarm"):
        await fill()
    assert (store.room().full, store.room().refused) == (True, 1)
    for key, revision in revisions.items():
        await store.delete(key, expected=revision)
    assert (await store.list_at("")).entries == []
    assert await store.compact(await store.current_revision()) > 0
    # A server begins on it, too: it reads, and removes.
    other = await engine.open_store(etcd.place("hf"), OPEN)
    assert other.identity == store.identity
    await other.close()
    await store.close()


async def fill(store: engine.EtcdStore) -> dict[str, int]:
    """Write until there is no room; what was written."""
    revisions: dict[str, int] = {}
    with contextlib.suppress(protocol.StoreFull):
        for number in range(64):
            revisions[f"k{number}"] = await store.create(f"k{number}", bytes(1 << 20))
    assert store.room().full
    return revisions


@pytest.mark.slow
@pytest.mark.parametrize("etcd", [["--quota-backend-bytes=16777216"]], indirect=True, ids=["16 MiB"])
async def test_deletes_of_others_on_a_full_etcd_hold_nobody_up(
    etcd: etcds.Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of a version whose word on progress is not believed.
    monkeypatch.setattr(live, "is_progress_believed", lambda _text: False)
    store = await engine.open_store(etcd.place("hf"), OPEN)
    for number in range(5):
        await raw(store, messages.PutRequest(key=b"/elsewhere/%d" % number, value=b"x"))
    before = await store.create("early", b"1")
    revisions = await fill(store)
    watch = store.watch("", after=await store.current_revision())
    for number, (key, revision) in enumerate(list(revisions.items())[:5]):
        gone = await raw(store, messages.DeleteRangeRequest(key=b"/elsewhere/%d" % number))
        assert await store.current_revision() >= gone.header.revision
        assert (await store.get("early")) == protocol.Entry("early", b"1", before, before)
        removed = await store.delete(key, expected=revision)
        events: list[protocol.Event] = []
        async with asyncio.timeout(60):
            while not events:
                events += (await watch.next())[0]
        # What is somebody else's is not told.
        assert events == [protocol.Event(removed, key, None)]
    # Nor is it waited for by whoever reads the past.
    last = await raw(store, messages.DeleteRangeRequest(key=b"/elsewhere/", range_end=b"/elsewhere0"))
    assert last.deleted == 0
    assert store._live.last_event == removed
    late, seen = store.watch("", after=removed - 3), list[str]()
    async with asyncio.timeout(60):
        while "k4" not in seen:
            seen += [event.key for event in (await late.next())[0]]
    assert store._live._has_all
    for key, revision in list(revisions.items())[5:]:
        await store.delete(key, expected=revision)
    await make_room(etcd, store)
    # The first put that is taken ends it: others' values do not come here.
    await store.create("room", b"")
    await until(lambda: not store._live._has_all and store._live._watching is not None)
    foreign = await foreign_write(store)
    assert await store.current_revision() >= foreign
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("etcd", [["--quota-backend-bytes=16777216"]], indirect=True, ids=["16 MiB"])
async def test_a_full_etcd_whose_other_keys_are_not_ours_to_watch_says_so(
    etcd: etcds.Etcd, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "is_progress_believed", lambda _text: False)
    monkeypatch.setattr(live, "REACH_SECONDS", 3.0)
    guarded_etcds.require_login(etcd)
    guarded_etcds.as_root(etcd, "put", "/elsewhere", "x")
    access = etcd_access.Access(username="handfast", password_file=guarded_etcds.password_file(tmp_path))
    store = await engine.open_store(etcd.place("hf"), access)
    revisions = await fill(store)
    await store.current_revision()
    guarded_etcds.as_root(etcd, "del", "/elsewhere")
    with pytest.raises(protocol.StoreUnavailable, match=r"cannot be watched \(.*denied\).*let its user read all keys"):
        await store.current_revision()
    # A delete needs no watch, and its event brings the watch forward.
    await store.delete("k0", expected=revisions["k0"])
    await store.current_revision()
    await store.close()


async def make_room(etcd: etcds.Etcd, store: engine.EtcdStore) -> None:
    """As an operator does it."""
    await raw(store, messages.CompactionRequest(revision=await store.current_revision(), physical=True))
    await asyncio.to_thread(etcd.make_room)


async def test_the_floor_is_raised_once_by_whoever_is_first(place: places.Place) -> None:
    stores = [await engine.open_store(place, OPEN) for _ in range(3)]
    revision = await stores[0].create("a", b"")
    # All have come that far: one that had not could not go on, and would end.
    assert min([await store.current_revision() for store in stores]) >= revision
    assert await asyncio.gather(*(store.compact(revision) for store in stores)) == [revision] * 3
    assert await marks.raise_floor(stores[0]._session, revision) == (revision, False)
    for store in stores:
        await store.close()


async def test_nothing_is_written_to_an_endpoint_of_another_cluster(tmp_path: pathlib.Path) -> None:
    """Two etcds in one URL, by mistake: when one is away, the other must not take what was meant for it."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    # A cluster's number comes of the addresses of its members.
    with etcds.running(tmp_path / "one") as one, etcds.running(tmp_path / "two") as two:
        store = await engine.open_store(places.Place((one.address, two.address), "hf"), OPEN)
        one.kill()
        # A write on the connection of before, whose end was not noticed, is uncertain.
        with contextlib.suppress(protocol.StoreUncertain, protocol.StoreUnavailable):
            await store.create("a", b"")
        with pytest.raises(protocol.StoreUnavailable, match="another cluster") as refusal:
            await store.create("b", b"")
        assert refusal.value.reason == "HistoryChanged"
        await store.close()
        client = etcd_client.Client((two.address,), OPEN)
        assert not (await client.call(0, sessions.range_of(b"\0", range_end=b"\0"), 20)).kvs
        await client.close()
