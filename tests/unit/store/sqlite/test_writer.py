# SPDX-License-Identifier: Apache-2.0
"""Group commit, sweeping in pieces, and a disk that is full or fails."""

from __future__ import annotations

import asyncio
import os
import pathlib
import resource
import shutil
import threading
from collections.abc import Iterator

import apsw
import pytest

from handfast import errors
from handfast.store import protocol
from handfast.store.sqlite import engine, writer
from tests.world import leftovers, small_disk


def recorded(store: engine.SqliteStore) -> list[writer.Commit]:
    """The store's commits from now on."""
    commits: list[writer.Commit] = []
    publish = store._writer._publish

    def record(commit: writer.Commit) -> None:
        commits.append(commit)
        publish(commit)

    store._writer._publish = record
    return commits


class Held:
    """A store whose writer is busy until released, with a record of its commits."""

    def __init__(self, store: engine.SqliteStore) -> None:
        self.commits = recorded(store)
        self._gate = threading.Event()
        self._entered = threading.Event()
        self.first = store._writer.submit(self._wait)
        store._writer._hand_over()
        self._entered.wait()

    def _wait(self, transaction: writer.Transaction) -> int:
        self._entered.set()
        self._gate.wait()
        return 0

    async def release(self, *writes: asyncio.Future[int]) -> list[int | BaseException]:
        # Once for the writes to be submitted, once for them to be handed over to the writer.
        for _ in range(3):
            await asyncio.sleep(0)
        self._gate.set()
        return await asyncio.gather(self.first, *writes, return_exceptions=True)


def later(writing: object) -> asyncio.Future[int]:
    return asyncio.ensure_future(writing)  # type: ignore[call-overload, no-any-return]


async def test_a_refused_write_leaves_nothing_for_the_collector(store: engine.SqliteStore) -> None:
    await store.create("a", b"1")
    with leftovers.without_collector(writer.Job) as left:
        with pytest.raises(protocol.Mismatch):
            await store.create("a", b"2")
        assert left() == []


async def test_what_queues_up_is_one_commit(store: engine.SqliteStore) -> None:
    held = Held(store)
    count = writer.BATCH_JOBS + 10
    await held.release(*(later(store.create(f"k{n}", b"")) for n in range(count)))
    assert [len(commit.outcomes) for commit in held.commits] == [1, writer.BATCH_JOBS, 10]


async def test_the_writes_of_one_round_of_the_loop_are_one_commit(store: engine.SqliteStore) -> None:
    commits = recorded(store)
    await asyncio.gather(*(store.create(f"k{n}", b"") for n in range(5)))
    assert [len(commit.outcomes) for commit in commits] == [5]


async def test_what_was_submitted_last_is_committed_before_the_end(path: pathlib.Path) -> None:
    store = await engine.open_store(str(path))
    first = store._writer.submit(lambda transaction: transaction.create("a", b""))
    await store.close()
    assert await first == 1


async def test_a_revision_too_large_for_sqlite_is_a_mismatch_of_its_own(store: engine.SqliteStore) -> None:
    first = await store.create("a", b"")
    good, bad = store.create("b", b""), store.update("a", b"", expected=2**63)
    found = await asyncio.gather(good, bad, return_exceptions=True)
    assert found[0] == first + 1
    assert isinstance(found[1], protocol.Mismatch)


async def test_a_commit_is_bounded_in_bytes(store: engine.SqliteStore) -> None:
    held = Held(store)
    big = bytes(writer.BATCH_BYTES // 2)
    await held.release(*(later(store.create(f"k{n}", big)) for n in range(5)))
    assert [len(commit.events) for commit in held.commits if commit.events] == [2, 2, 1]


async def test_watchers_hear_of_a_write_before_its_writer(store: engine.SqliteStore) -> None:
    heard: list[str] = []
    watch = store.watch("", after=0)
    watching = asyncio.ensure_future(watch.next())
    writing = later(store.create("a", b""))
    watching.add_done_callback(lambda _: heard.append("watcher"))
    writing.add_done_callback(lambda _: heard.append("writer"))
    await asyncio.gather(watching, writing)
    await asyncio.sleep(0)
    assert heard == ["watcher", "writer"]


async def test_a_writer_that_gave_up_does_not_stop_the_others(store: engine.SqliteStore) -> None:
    held = Held(store)
    impatient, patient = later(store.create("a", b"")), later(store.create("b", b""))
    await asyncio.sleep(0)
    impatient.cancel()
    await held.release(patient)
    assert patient.result() == 2
    assert await store.get("a") is not None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_bug_in_the_writer_leaves_nobody_waiting(store: engine.SqliteStore) -> None:
    held = Held(store)

    def bug(transaction: writer.Transaction) -> int:
        raise ZeroDivisionError

    writes = [later(store.create("a", b"")), store._writer.submit(bug), later(store.create("b", b""))]
    results = await held.release(*writes)
    # What the writer had in hand may have been committed.
    assert [type(result) for result in results[1:]] == [protocol.StoreUncertain] * 3
    with pytest.raises(protocol.StoreUnavailable):
        await store.create("c", b"")
    assert await store.get("a") is None


def test_a_loop_that_is_gone_does_not_stop_the_commit(path: pathlib.Path) -> None:
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(engine.open_store(str(path)))
    gate = threading.Event()

    def slow(transaction: writer.Transaction) -> int:
        gate.wait()
        return transaction.create("a", b"")

    store._writer.submit(slow)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    gate.set()
    store._writer.stop()
    store._close_file()
    with asyncio.Runner() as runner:
        store = runner.run(engine.open_store(str(path)))
        assert runner.run(store.current_revision()) == 1
        runner.run(store.close())


async def rows(store: engine.SqliteStore) -> list[int]:
    return [revision for (revision,) in store._file.reading.execute("SELECT rev FROM log ORDER BY rev")]


async def test_compaction_removes_all_that_is_superseded_and_nothing_else(
    store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SWEEP_ROWS", 2)
    old = await store.create("old", b"")  # 1
    a = await store.create("a", b"")  # 2
    a = await store.update("a", b"", expected=a)  # 3
    b = await store.create("b", b"")  # 4
    await store.delete("b", expected=b)  # 5
    await store.create("b", b"")  # 6
    await store.update("a", b"", expected=a)  # 7
    await store.compact(5)
    assert await rows(store) == [old, 3, 5, 6, 7]  # the delete at the floor stays until the floor has passed it
    await store.compact(6)
    assert await rows(store) == [old, 3, 6, 7]
    await store.compact(7)
    assert await rows(store) == [old, 6, 7]


async def test_an_interrupted_sweep_is_taken_up_again(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SWEEP_ROWS", 2)
    store = await engine.open_store(str(path))
    revision = await store.create("a", b"")
    for _ in range(9):
        revision = await store.update("a", b"", expected=revision)
    await store._writer.submit(lambda transaction: transaction.raise_floor(10))
    await store._writer.submit(writer.Transaction.sweep)
    assert await rows(store) == list(range(2, 11))
    await store.close()
    store = await engine.open_store(str(path))
    assert await store.compact(1) == 10
    assert await rows(store) == [10]
    await store.close()


async def test_a_sweep_looks_at_no_more_rows_than_its_share(store: engine.SqliteStore) -> None:
    """However long the log beyond it: the writer must not be held up."""
    work: list[int] = []

    def counted(transaction: writer.Transaction) -> int:
        steps = 0

        def count() -> bool:
            nonlocal steps
            steps += 1
            return False

        connection = transaction._connection
        connection.set_progress_handler(count, 20)
        transaction.sweep()
        connection.set_progress_handler(None)
        work.append(steps)
        return 0

    for n in range(8):
        await asyncio.gather(*(store.create(f"{n}/{m}", b"") for m in range(250)))
    await store._writer.submit(lambda transaction: transaction.raise_floor(2000))
    for _ in range(6):
        await store._writer.submit(counted)
    assert min(work) > 10
    assert max(work) < 1.2 * min(work)


async def refused_for(
    store: engine.SqliteStore, says: str, kind: type[errors.Unavailable] = protocol.StoreUnavailable
) -> None:
    """A write fails with a clear message; everything else goes on, and memory agrees with the disk."""
    before = await store.current_revision()
    with pytest.raises(kind, match=says) as refusal:
        await store.create("too much", os.urandom(512 * 1024))
    assert store._file.path in refusal.value.message
    assert refusal.value.hint
    assert await store.current_revision() == before
    assert await store.get("too much") is None
    assert (await store.list_at("")).revision == before
    events, revision = await store.watch("", after=0).next()
    assert (len(events), revision) == (before, before)


async def recovered(store: engine.SqliteStore) -> None:
    before = await store.current_revision()
    watch = store.watch("", after=before)
    assert await store.create("fits again", bytes(1000)) == before + 1
    events, _ = await watch.next()
    assert [event.key for event in events] == ["fits again"]
    await store.close()
    again = await engine.open_store(store._file.path)
    assert await again.current_revision() == before + 1
    await again.close()


async def test_a_full_database_refuses_writes_until_there_is_room(store: engine.SqliteStore) -> None:
    for n in range(5):
        await store.create(f"k{n}", bytes(1000))
    limited = store._file.writing
    limited.pragma("max_page_count", 40)
    for _ in range(2):
        await refused_for(store, "no space left")
    limited.pragma("max_page_count", 100_000)
    await recovered(store)


async def test_one_write_too_big_for_the_disk_does_not_take_others_with_it(store: engine.SqliteStore) -> None:
    store._file.writing.pragma("max_page_count", 40)
    held = Held(store)
    writes = [later(store.create(key, bytes(size))) for key, size in (("a", 10), ("b", 10**6), ("c", 10), ("d", 10))]
    results = (await held.release(*writes))[1:]
    assert [results[0], *results[2:]] == [1, 2, 3]
    assert isinstance(results[1], protocol.StoreUnavailable)
    assert [entry.key for entry in (await store.list_at("")).entries] == ["a", "c", "d"]


async def test_a_write_the_tables_refuse_does_not_take_others_with_it(store: engine.SqliteStore) -> None:
    held = Held(store)
    writes = [
        later(store.create("a", b"")),
        store._writer.submit(lambda transaction: transaction.create("b", None)),  # type: ignore[arg-type]
        later(store.create("c", b"")),
    ]
    results = (await held.release(*writes))[1:]
    assert [type(result) for result in results] == [int, protocol.StoreUnavailable, int]
    assert [entry.key for entry in (await store.list_at("")).entries] == ["a", "c"]
    assert await store.current_revision() == 2


async def test_another_program_that_holds_the_database_is_named(store: engine.SqliteStore) -> None:
    await store.create("k", b"")
    store._file.writing.set_busy_timeout(1)
    other = apsw.Connection(store._file.path)
    other.execute("BEGIN IMMEDIATE")
    await refused_for(store, "another program")
    other.close()
    await recovered(store)


async def test_after_a_failure_the_counters_are_read_again(store: engine.SqliteStore) -> None:
    await store.create("a", b"")
    other = apsw.Connection(store._file.path)
    other.execute("INSERT INTO log VALUES (2, 'b', 'create', 0, 2, x'00'); INSERT INTO cur VALUES ('b', 2, 2)")
    other.close()
    with pytest.raises(protocol.StoreUnavailable):
        await store.create("c", b"")
    assert await store.create("c", b"") == 3
    assert [entry.key for entry in (await store.list_at("")).entries] == ["a", "b", "c"]


@pytest.fixture
def file_size_limit() -> Iterator[None]:
    """Any file that would grow past 256 KiB cannot be written: an I/O error to SQLite, not a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_failing_write_refuses_until_the_disk_works(store: engine.SqliteStore, file_size_limit: None) -> None:
    await store.create("k", bytes(1000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, hard))
    for _ in range(2):
        await refused_for(store, "disk failed")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await recovered(store)


class FailingSync(apsw.VFS):
    """SQLite's own file layer, but for syncing the write-ahead log, which can be made to fail."""

    def __init__(self) -> None:
        self.failing = False
        super().__init__("failing-sync", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, layer: FailingSync, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._layer = layer
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        if self._layer.failing:
            raise apsw.IOError("sync failed")
        super().xSync(flags)


async def test_a_failing_sync_acknowledges_nothing(path: pathlib.Path) -> None:
    layer = FailingSync()
    try:
        store = await engine.open_store(str(path))
        await store.create("k", bytes(1000))
        layer.failing = True
        for _ in range(2):
            await refused_for(store, "disk failed", protocol.StoreUncertain)
        layer.failing = False
        await recovered(store)
    finally:
        layer.unregister()


async def test_a_write_that_was_not_synced_may_be_there_after_a_crash(path: pathlib.Path) -> None:
    """Therefore nobody is told that it did not happen."""
    layer = FailingSync()
    try:
        store = await engine.open_store(str(path))
        await store.create("k", b"1")
        layer.failing = True
        with pytest.raises(protocol.StoreUncertain, match="may have kept this write"):
            await store.create("unsynced", b"2")
        assert await store.get("unsynced") is None
        crashed = path.with_name("crashed.db")
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
        layer.failing = False
        await store.close()
    finally:
        layer.unregister()
    found = await engine.open_store(str(crashed))
    assert await found.get("unsynced") == protocol.Entry("unsynced", b"2", 2, 2)
    await found.close()


@pytest.fixture
def full_soon() -> Iterator[pathlib.Path]:
    """Two MiB of disk."""
    with small_disk.of_mebibytes(2) as directory:
        yield directory


@pytest.mark.slow
async def test_a_full_file_system_refuses_writes_until_there_is_room(full_soon: pathlib.Path) -> None:
    store = await engine.open_store(str(full_soon / "store.db"))
    await store.create("k", bytes(1000))
    ballast = full_soon / "ballast"
    free = os.statvfs(full_soon)
    ballast.write_bytes(bytes(free.f_bavail * free.f_bsize))
    for _ in range(3):
        await refused_for(store, "no space left")
    ballast.unlink()
    await recovered(store)
