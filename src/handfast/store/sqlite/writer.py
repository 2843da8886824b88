# SPDX-License-Identifier: Apache-2.0
"""The one writer of the SQLite engine: a thread that commits whatever has queued up as one transaction.

It does not deliver events or serve reads (`sqlite.watch`, `sqlite.reader`); it hands each commit to the event loop.

1. Each job of a batch succeeds or fails by itself: a failed precondition changes nothing. When the database itself
   refuses a batch that one job may be to blame for (no space, too big), the jobs are committed one by one.
2. State in memory changes only after COMMIT has returned, and after any failure it is read again: it is what the disk
   says.
3. Each batch wakes the event loop once, and each round of the event loop wakes the writer once. Between two rounds the
   writer would only take the interpreter's lock from others about to write, and commit a part of what belongs together.
4. Nothing at or above the compaction floor is ever removed. So the log is contiguous there, its last row carries
   the last revision, and a reader that saw the floor below its revision finds every row it needs.
5. A commit that the disk failed to sync is uncertain. This process goes on without it, and the next commit writes over it; but should
   the process end first, whoever opens the file finds it in the log. One that was not even written is certain not to be.
6. Jobs that add something are refused where there is no space for them: `sqlite.space`. A removal that finds none is tried
   again with some that was kept for it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

import apsw
import msgspec

from handfast import errors
from handfast.store import protocol
from handfast.store.sqlite import file as sqlite_file
from handfast.store.sqlite import reader, schema
from handfast.store.sqlite import space as sqlite_space

BATCH_JOBS: Final = 256
BATCH_BYTES: Final = 8 * 2**20
SWEEP_ROWS: Final = 256

# The precondition is part of the statement: each one hands the interpreter's lock back and forth, so there are few.
_CREATE: Final = """
INSERT INTO log (rev, key, op, prev_rev, create_rev, value)
SELECT ?1, ?2, ?3, ?4, ?1, ?5 WHERE NOT EXISTS (SELECT * FROM cur WHERE key = ?2)
"""
_REPLACE: Final = """
INSERT INTO log (rev, key, op, prev_rev, create_rev, value)
SELECT ?1, key, ?3, rev, create_rev, ?5 FROM cur WHERE key = ?2 AND rev = ?4
"""

_BLAMABLE: Final = (apsw.FullError, apsw.TooBigError, apsw.ConstraintError)


class Transaction:
    """What the jobs of one batch see and change; its counters become the store's if COMMIT succeeds."""

    def __init__(self, connection: apsw.Connection, state: schema.State) -> None:
        self._connection = connection
        self.revision = state.revision
        self.floor = state.floor
        self.swept = state.swept
        self.epoch_offset = state.epoch_offset
        self.events: list[protocol.Event] = []

    def state(self) -> schema.State:
        return schema.State(self.revision, self.floor, self.swept, self.epoch_offset)

    def create(self, key: str, value: bytes) -> int:
        revision = self._append(key, value, 0, _CREATE, "create")
        self._connection.execute("INSERT INTO cur VALUES (?1, ?2, ?2)", (key, revision))
        return revision

    def update(self, key: str, value: bytes, expected: int) -> int:
        revision = self._append(key, value, expected, _REPLACE, "update")
        self._connection.execute("UPDATE cur SET rev = ? WHERE key = ?", (revision, key))
        return revision

    def delete(self, key: str, expected: int) -> int:
        revision = self._append(key, None, expected, _REPLACE, "delete")
        self._connection.execute("DELETE FROM cur WHERE key = ?", (key,))
        return revision

    def raise_floor(self, revision: int) -> int:
        if revision > self.revision:
            raise protocol.FutureRevision(revision, self.revision)
        if revision > self.floor:
            self.floor = revision
            self._set("floor", revision)
        return self.floor

    def sweep(self) -> int:
        """Remove a bounded number of rows no revision from the floor up can see; returns what is left to look at.

        A row is superseded by the row that names it as its `prev_rev`, and a delete below the floor is not seen
        itself: so each row above the last sweep is looked at once, and live rows, however old, never.
        """
        first, last = self.swept, min(self.swept + SWEEP_ROWS, self.floor)
        if first == last:
            return 0
        # The row at `first` was looked at before, but as the floor itself: if a delete, it can go only now.
        self._connection.execute(
            "DELETE FROM log WHERE rev IN (SELECT prev_rev FROM log WHERE rev BETWEEN ?1 AND ?2"
            " UNION ALL SELECT rev FROM log WHERE rev BETWEEN ?1 AND ?3 AND op = 'delete')",
            (first, last, min(last, self.floor - 1)),
        )
        self.swept = last
        self._set("swept", last)
        return self.floor - last

    def raise_epoch(self, by: int, above: int) -> int:
        self.epoch_offset = max(self.epoch_offset, above) + by
        self._set("epoch_offset", self.epoch_offset)
        self.raise_floor(self.revision)
        return self.epoch_offset

    def take_identity(self, identity: str) -> int:
        if schema.number(self._connection, "SELECT count(*) FROM cur"):
            raise protocol.NotEmpty("a store with entries keeps its identity")
        return self.set_note(schema.IDENTITY, identity)

    def set_note(self, name: str, text: str | None) -> int:
        if text is None:
            self._connection.execute("DELETE FROM notes WHERE name = ?", (name,))
        else:
            self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, text))
        return self.revision

    def swap_note(self, name: str, expected: str | None, text: str | None) -> str | None:
        found = schema.read_note(self._connection, name)
        if found != expected:
            return found
        self.set_note(name, text)
        return text

    def _append(self, key: str, value: bytes | None, previous: int, statement: str, op: str) -> int:
        """Write a row of the log if its precondition holds, else Mismatch."""
        revision = self.revision + 1
        # A revision that was never issued may be too large for SQLite's integers.
        issued = 0 <= previous <= self.revision
        if issued:
            self._connection.execute(statement, (revision, key, op, previous, value))
        if not issued or not self._connection.changes():
            raise protocol.Mismatch(key, reader.entry(self._connection, key))
        self.revision = revision
        self.events.append(protocol.Event(revision, key, value))
        return revision

    def _set(self, name: str, value: int) -> None:
        self._connection.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))


class Job(msgspec.Struct, frozen=True):
    """Something to do within a transaction, and who waits for it."""

    apply: Callable[[Transaction], int]
    future: asyncio.Future[int]
    size: int
    # 6. Whether it adds something: it is no removal.
    adds: bool


Outcome = tuple[Job, int | errors.HandfastError]


class Commit(msgspec.Struct, frozen=True):
    """What a transaction came to: the state after it, its events, and an answer for each of its jobs."""

    state: schema.State
    events: Sequence[protocol.Event]
    outcomes: Sequence[Outcome]


class Writer:
    """Takes jobs on the event loop's thread, commits them on its own, and publishes each commit on the loop."""

    def __init__(
        self, file: sqlite_file.OpenFile, space: sqlite_space.Space, publish: Callable[[Commit], None]
    ) -> None:
        self._connection = file.writing
        self._space = space
        self._path = file.path
        self._state = file.state
        self._in_doubt = False
        self._committing = False
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        # 3. Jobs of this round of the event loop, handed over together; those that arrived; those being committed.
        self._gathered: list[Job] = []
        self._queue: queue.SimpleQueue[Sequence[Job] | None] = queue.SimpleQueue()
        self._arrived: collections.deque[Job] = collections.deque()
        self._in_hand: Sequence[Job] = ()
        self._accepting = True
        self._thread = threading.Thread(target=self._run, name="handfast-store-writer", daemon=True)
        self._thread.start()

    def submit(self, apply: Callable[[Transaction], int], size: int = 0, *, adds: bool = False) -> asyncio.Future[int]:
        """Queue a job. Cancelling the future does not take it back."""
        if not self._accepting:
            raise protocol.StoreUnavailable(f"{self._path}: the store is closed")
        job = Job(apply, self._loop.create_future(), size, adds)
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(job)
        return job.future

    def stop(self) -> None:
        """Take no more jobs; those queued are still committed."""
        self._accepting = False
        self._hand_over()
        self._queue.put(None)

    def join(self) -> None:
        self._thread.join()

    def _hand_over(self) -> None:
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _run(self) -> None:
        try:
            while self._take():
                self._commit(self._fitting(self._in_hand))
                self._in_hand = ()
        finally:
            # Reached without jobs in hand, or by a bug that must not leave anyone waiting forever.
            self._on_loop(self._abandon)

    def _take(self) -> bool:
        """Wait for a job, then take all that have queued up behind it; false once told to stop."""
        batch: list[Job] = []
        size = 0
        while len(batch) < BATCH_JOBS and size < BATCH_BYTES:
            if not self._arrived:
                if batch and self._queue.empty():
                    break
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)  # seen behind the last jobs, or alone: seen again after them
                    break
                self._arrived.extend(more)
            job = self._arrived.popleft()
            batch.append(job)
            size += job.size
        self._in_hand = batch
        return bool(batch)

    def _fitting(self, batch: Sequence[Job]) -> Sequence[Job]:
        """The batch without what there is no space for (6)."""
        size = sum(job.size for job in batch if job.adds)
        if self._space.is_plenty(size) or not any(job.adds for job in batch):
            return batch
        fitting: list[Job] = []
        refused: list[Job] = []
        taken = 0
        try:
            free_pages = schema.free_bytes(self._connection)
        except apsw.Error:  # the transaction will say what is wrong
            free_pages = 0
        for job in batch:
            fits = not job.adds or self._space.fits(taken + job.size, free_pages)
            (fitting if fits else refused).append(job)
            taken += job.size if fits else 0
        if refused:
            failure = [(job, self._space.refuse()) for job in refused]
            self._on_loop(self._settle, Commit(self._state, (), failure))
        return fitting

    def _commit(self, batch: Sequence[Job]) -> None:
        if not batch:
            return
        try:
            commit = self._transact(batch)
        except apsw.Error as error:
            self._in_doubt = True
            with contextlib.suppress(apsw.Error):  # the next BEGIN fails if this did
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            if len(batch) > 1 and isinstance(error, _BLAMABLE):
                for job in batch:
                    self._commit([job])
                return
            full = isinstance(error, apsw.FullError)
            if full and not batch[0].adds and self._make_room():
                self._commit(batch)
                return
            failure = self._space.refuse() if full else self._failure(error)
            commit = Commit(self._state, (), [(job, failure) for job in batch])
        else:
            if any(job.adds for job in batch):
                self._space.accepted()
        self._state = commit.state
        self._on_loop(self._settle, commit)

    def _failure(self, error: apsw.Error) -> errors.HandfastError:
        """What to tell whoever wanted this: that nothing was changed, or that nobody can say (5)."""
        # The types that come with apsw leave the code out.
        unwritten = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
        if self._committing and isinstance(error, apsw.IOError) and not unwritten:
            return sqlite_file.uncertain(self._path, error)
        return sqlite_file.unavailable(self._path, error)

    def _make_room(self) -> bool:
        """Give a piece of the reserve to the removal it is kept for (6); false if nothing is left of it."""
        if not self._space.release():
            return False
        # Folded into the file now, while there is space for it: the log is then written from its beginning again.
        with contextlib.suppress(apsw.Error):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        return True

    def _transact(self, batch: Sequence[Job]) -> Commit:
        self._committing = False
        self._connection.execute("BEGIN IMMEDIATE")
        # 2. after any failure the state is what the disk says
        if self._in_doubt:
            self._state = schema.read_state(self._connection)
            self._in_doubt = False
        transaction = Transaction(self._connection, self._state)
        outcomes: list[Outcome] = []
        for job in batch:
            try:
                outcomes.append((job, job.apply(transaction)))
            except errors.Refused as refusal:
                # An answer like any other; its traceback would hold this frame, and so every job of the batch.
                outcomes.append((job, refusal.with_traceback(None)))
        self._committing = True
        self._connection.execute("COMMIT")
        return Commit(transaction.state(), transaction.events, outcomes)

    def _on_loop(self, callback: Callable[..., None], *args: Commit) -> None:
        # A loop that is gone has nobody left to tell; what was committed stays committed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _settle(self, commit: Commit) -> None:
        # Watchers first: whoever is then told of its own write finds the copy in memory up to date.
        self._publish(commit)
        for job, result in commit.outcomes:
            if job.future.done():
                continue
            if isinstance(result, errors.HandfastError):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)

    def _abandon(self) -> None:
        self._accepting = False
        self._hand_over()
        says = f"{self._path}: the writer has stopped"
        abandoned = [*self._arrived]
        while not self._queue.empty():
            abandoned.extend(self._queue.get() or ())
        for job in abandoned:
            if not job.future.done():
                job.future.set_exception(protocol.StoreUnavailable(says))
        for job in self._in_hand:
            # It may have been committed before the writer stopped.
            if not job.future.done():
                job.future.set_exception(protocol.StoreUncertain(says))
