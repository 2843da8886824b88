# SPDX-License-Identifier: Apache-2.0
"""Power is lost while a store writes, compacts, migrates, recovers and is created; what it acknowledged is there.

It proves: nothing that was acknowledged, or seen in a watch, is lost, no revision is given out again for something else, the file is sound,
and a migration is done whole, after a whole backup, or not at all. With `synchronous=NORMAL`, and on a disk that forgets its
directories, the same rounds fail: the harness can.

The disk is that of `tests.world.power`. CI has 100 rounds; `HANDFAST_POWER_CUTS=5000` has more, and `HANDFAST_SEED=…` has the same again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pathlib
import random
import shutil
import tempfile
import traceback
from collections.abc import Iterator

import apsw
import pytest

from handfast.store import protocol
from handfast.store.sqlite import engine, file, schema
from tests.world import acknowledged, power, powered

ROUNDS = int(os.environ.get("HANDFAST_POWER_CUTS", "100"))
SEED = int(os.environ.get("HANDFAST_SEED", random.randrange(1 << 32)))
WRITERS = 8
KEYS_EACH = 3
NAME = "store.db"
VERSION = schema.SCHEMA_VERSION
SURVIVALS: tuple[power.Survival, ...] = ("nothing", "something", "something", "everything")


class Story:
    """Rounds on one disk: a process works until power is lost or it is killed, and the next one finds what is left."""

    def __init__(self, directory: pathlib.Path, *, forgets_directories: bool = False) -> None:
        self.choice = random.Random(SEED)
        self.directory = directory
        self.disk = power.Disk(directory / "0", forgets_directories=forgets_directories)
        self.disk.lay_out()
        self.judge = acknowledged.Judge()
        self.rounds = self.cut_during_open = self.cut_during_checkpoint = 0
        self.identity = ""
        self.noted = self.epoch = 0
        # That of the program, and that which was last found on the disk.
        self.version = self.stored = VERSION
        self.floor = 0
        # A copy of the disk that was not judged yet.
        self.left_behind: pathlib.Path | None = None
        # All that was ever found on the disk, and all that a watch has shown.
        self.history: dict[int, acknowledged.Write] = {}
        self.seen: dict[int, protocol.Event] = {}

    async def round(self, *, longest: int = 500) -> None:
        """A process lives for so many operations on the disk, and then there is no power."""
        if self.choice.random() < 0.3:
            self.version += 1
        self.disk.cut_at = self.disk.operations + self.choice.randrange(1, longest)
        folds_often = self.choice.random() < 0.5
        with powered.powered(self.disk), _schema_of(self.version), _folding(25 if folds_often else 1000):
            await self._live()
        self.cut_during_checkpoint += self.disk.is_unsynced(NAME)
        self.rounds += 1
        root = self.directory / str(self.rounds)
        killed = self.choice.random() < 0.2
        if killed:
            after = self.disk.after_kill(root)
        else:
            after = self.disk.after_power_loss(root, self.choice.choice(SURVIVALS), self.choice)
        shutil.rmtree(self.disk.root)
        self.disk = after
        after.lay_out()
        # What a killed process left behind is nobody's before the next one has opened it: that one looks.
        self.left_behind = shutil.copytree(after.root, self.directory / "copy")
        if not killed:
            self._look()

    async def _live(self) -> None:
        path = str(self.disk.root / NAME)
        cut, loop = asyncio.Event(), asyncio.get_running_loop()
        self.disk.on_cut = lambda: loop.call_soon_threadsafe(cut.set)
        store = await engine.open_store(path)
        if self.disk.is_off:
            self.cut_during_open += 1
            self._forget()
        self._look()
        watch = asyncio.create_task(self._follow(store, await store.current_revision()))
        work = [asyncio.create_task(self._write(store, writer)) for writer in range(WRITERS)]
        work += [asyncio.create_task(self._compact(store)), asyncio.create_task(self._note(store))]
        try:
            async with asyncio.timeout(60):
                ended, _ = await asyncio.wait(
                    [watch, *work, cutting := asyncio.create_task(cut.wait())], return_when=asyncio.FIRST_COMPLETED
                )
            assert ended == {cutting}, [task.exception() for task in ended]
        finally:
            for task in (watch, *work):
                task.cancel()
            await asyncio.gather(watch, *work, return_exceptions=True)
            await store.close()

    async def _write(self, store: engine.SqliteStore, writer: int) -> None:
        held = {entry.key: entry.revision for entry in (await store.list_at(f"w{writer}/")).entries}
        while True:
            key = f"w{writer}/{self.choice.randrange(KEYS_EACH)}"
            mark = f"{self.choice.getrandbits(64):016x}"
            value = mark.encode() + bytes(self.choice.choice((0, 100, 3000, 9000)))
            if key not in held:
                op, revision = "create", await store.create(key, value)
                held[key] = revision
            elif self.choice.random() < 0.8:
                op, revision = "update", await store.update(key, value, expected=held[key])
                held[key] = revision
            else:
                op, mark, revision = "delete", "-", await store.delete(key, expected=held.pop(key))
            if not self.disk.is_off:
                self.judge.hear(revision, (op, key, mark))

    async def _follow(self, store: engine.SqliteStore, after: int) -> None:
        """What a watch has shown is as good as acknowledged: it is heard before the writer hears of it."""
        watch = store.watch("", after=after)
        while True:
            events, _ = await watch.next()
            if not self.disk.is_off:
                for event in events:
                    assert self.seen.setdefault(event.revision, event) == event

    async def _compact(self, store: engine.SqliteStore) -> None:
        while True:
            await asyncio.sleep(0.002)
            floor = await store.compact(max(await store.current_revision() - self.choice.randrange(60), 0))
            if not self.disk.is_off:
                self.floor = max(self.floor, floor)

    async def _note(self, store: engine.SqliteStore) -> None:
        """Notes and the epoch have no revision, and are acknowledged all the same."""
        number = self.noted
        while True:
            number += 1
            await store.set_note("number", str(number))
            if not self.disk.is_off:
                self.noted = number
                self.identity = store.identity
            if self.choice.random() < 0.05:
                epoch = await store.raise_epoch(10)
                if not self.disk.is_off:
                    self.epoch = epoch
            await asyncio.sleep(0.001)

    def _forget(self) -> None:
        if self.left_behind is not None:
            shutil.rmtree(self.left_behind)
            self.left_behind = None

    def _look(self) -> None:
        """Judge a copy, if it was not judged yet, so that recovery is the next process's own work."""
        copy = self.left_behind
        if copy is None:
            return
        if not (copy / NAME).exists():
            assert not self.judge.heard, "the whole store is gone"
            self._forget()
            return
        database = apsw.Connection(str(copy / NAME))
        found = acknowledged.read_sqlite(database)
        self.judge.judge(found)
        assert found.floor >= self.floor
        for revision, write in found.log.items():
            assert self.history.setdefault(revision, write) == write, "a revision stands for something else"
        for revision, event in self.seen.items():
            mark = "-" if event.value is None else event.value[: acknowledged.MARK].decode()
            assert revision in self.history or revision < found.floor, "seen, and then lost"
            assert self.history.get(revision, ("", event.key, mark))[1:] == (event.key, mark)
        self.seen = {revision: event for revision, event in self.seen.items() if revision >= found.floor}
        self._look_at_notes(database)
        self._look_at_migrations(database, copy)
        database.close()
        self._forget()

    def _look_at_notes(self, database: apsw.Connection) -> None:
        assert self.identity in {"", schema.read_note(database, schema.IDENTITY)}
        noted = int(schema.read_note(database, "number") or 0)
        assert noted >= self.noted, f"the note {self.noted} was acknowledged, {noted} is there"
        epoch = schema.read_state(database).epoch_offset
        assert epoch >= self.epoch, f"the epoch {self.epoch} was acknowledged, {epoch} is there"
        self.noted, self.epoch = noted, epoch

    def _look_at_migrations(self, database: apsw.Connection, directory: pathlib.Path) -> None:
        version = schema.read_meta(database)["schema_version"]
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'migrated_%'")}
        assert tables == ({f"migrated_{version - 1}"} if version > VERSION else set())
        # One migration may have several steps: the backup is from before the first.
        backups = {_version_of(path): path for path in directory.glob(f"{NAME}.schema-*.backup")}
        for step, backup in backups.items():
            connection = apsw.Connection(str(backup))
            before = acknowledged.read_sqlite(connection)
            assert schema.read_meta(connection)["schema_version"] == step
            connection.close()
            assert all(self.history.setdefault(at, write) == write for at, write in before.log.items())
        last = max((step for step in backups if step < version), default=0)
        assert version == self.stored or last >= self.stored, "migrated, and the backup is missing"
        assert last or not tables, "migrated, and the backup is missing"
        for step, backup in backups.items():
            if step < last:
                self.disk.discard(backup.name)
        self.stored = version


def _version_of(backup: pathlib.Path) -> int:
    return int(backup.name.removeprefix(f"{NAME}.schema-").removesuffix(".backup"))


@contextlib.contextmanager
def _schema_of(version: int) -> Iterator[None]:
    """A program whose schema is so many steps ahead. Each copies something and writes every row of the log again."""
    known, steps = schema.SCHEMA_VERSION, schema.MIGRATIONS
    more = {
        step: f"DROP TABLE IF EXISTS migrated_{step - 1}; CREATE TABLE migrated_{step} AS SELECT rev, key FROM log; "
        "UPDATE log SET value = value"
        for step in range(known, version)
    }
    vars(schema).update(SCHEMA_VERSION=version, MIGRATIONS={**steps, **more})
    try:
        yield
    finally:
        vars(schema).update(SCHEMA_VERSION=known, MIGRATIONS=steps)


@contextlib.contextmanager
def _folding(pages: int) -> Iterator[None]:
    """The write-ahead log is folded into the file after so many pages: every thousand a checkpoint is rare in a short life."""

    def hook(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(pages)

    apsw.connection_hooks.append(hook)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(hook)


@pytest.fixture
def directory() -> Iterator[pathlib.Path]:
    """In memory: what a real disk does is modelled, and thousands of syncs would only take long."""
    made = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.timeout(120 + ROUNDS)
async def test_nothing_acknowledged_is_lost_to_a_power_cut(directory: pathlib.Path) -> None:
    print(f"HANDFAST_SEED={SEED}")
    story = Story(directory)
    for _ in range(ROUNDS):
        await story.round()
    assert story.judge.heard > 5 * ROUNDS
    # The cuts reached what they are there for.
    assert story.floor > 0
    assert story.stored > VERSION
    assert story.cut_during_open > ROUNDS // 50
    assert story.cut_during_checkpoint > ROUNDS // 50
    print(
        f"{story.judge.heard} writes, {story.cut_during_open} cuts while opening, {story.cut_during_checkpoint} in a checkpoint"
    )


async def entries_of(path: pathlib.Path) -> list[protocol.Entry]:
    store = await engine.open_store(str(path))
    try:
        return list((await store.list_at("")).entries)
    finally:
        await store.close()


@pytest.mark.slow
async def test_what_is_shown_after_a_kill_outlives_a_power_cut(directory: pathlib.Path) -> None:
    """A killed process may leave a commit in the log that it had not synced. Whoever opens the store next shows it."""
    shown_at: list[int] = []
    for cut_at in itertools.count(1):
        disk = power.Disk(directory / f"{cut_at}")
        disk.lay_out()
        disk.cut_at = cut_at
        with powered.powered(disk):
            store = await engine.open_store(str(disk.root / NAME))
            await store.create("a", b"1")
            await store.create("b", b"2")
            await store.close()
        killed = disk.after_kill(directory / f"{cut_at}-killed")
        killed.lay_out()
        # It dies, too, before it has closed the store.
        with powered.powered(killed):
            store = await engine.open_store(str(killed.root / NAME))
            killed.cut_at = killed.operations + 1
            shown = list((await store.list_at("")).entries)
            await store.close()
        left = killed.after_power_loss(directory / f"{cut_at}-left", "nothing", random.Random(0))
        left.lay_out()
        assert await entries_of(left.root / NAME) == shown, f"killed at operation {cut_at}"
        shown_at.append(len(shown))
        if not disk.is_off:
            break
    assert shown_at == sorted(shown_at)
    assert {0, 1, 2} == set(shown_at)


async def fails_within(story: Story, rounds: int) -> str:
    for _ in range(rounds):
        try:
            await story.round()
        except (AssertionError, protocol.StoreCorrupt) as found:
            # What was looked at by a helper has no words of its own: where it was is told instead.
            return str(found) or traceback.format_exc()
    pytest.fail(f"{rounds} power cuts took nothing away: the harness shows nothing")


@pytest.mark.slow
async def test_without_full_syncing_acknowledged_writes_are_lost(
    directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = file.OpenFile._connect

    def connect(self: file.OpenFile, flags: int) -> apsw.Connection:
        connection = plain(self, flags)
        connection.pragma("synchronous", "NORMAL")
        return connection

    monkeypatch.setattr(file.OpenFile, "_connect", connect)
    assert "was acknowledged" in await fails_within(Story(directory), 30)


@pytest.mark.slow
async def test_on_a_disk_that_forgets_directories_a_store_is_lost(directory: pathlib.Path) -> None:
    lost = await fails_within(Story(directory, forgets_directories=True), 60)
    # All of it, the write-ahead log, the file but not its log, the backup, or what a watch was shown.
    missing = (
        "the whole store is gone",
        "was acknowledged",
        "the file is missing",
        "the backup is missing",
        "Traceback",
    )
    assert any(part in lost for part in missing), lost
