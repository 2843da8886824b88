# SPDX-License-Identifier: Apache-2.0
"""The SQLite engine: a store in one file, owned by one process; the default.

This file puts its parts together and does nothing else: `sqlite.file` opens and checks, `sqlite.writer` commits,
`sqlite.reader` asks, `store.feed` follows, `sqlite.space` knows how much fits.

Reads run on a read-only connection in a thread of their own. They are rare, since the API server answers from its
copy in memory, but they can be long (the whole store at start-up), and a long one must not stop the event loop. In
WAL mode they do not wait for the writer, nor the writer for them.

The compaction floor F: lists at F and later, and watches after F and later, are answered; earlier ones raise
`Compacted`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import pathlib
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from handfast import errors
from handfast.runtime import clock as clocks
from handfast.store import feed as feeds
from handfast.store import protocol
from handfast.store.sqlite import file as sqlite_file
from handfast.store.sqlite import reader, schema, writer
from handfast.store.sqlite import space as sqlite_space

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def open_store(path: str, *, reserve: int = 0, clock: clocks.Clock | None = None) -> SqliteStore:
    """Open the store in the file at `path`, creating it if absent, with so many bytes kept for removals.

    Raises StoreCorrupt if the file is damaged, another program's or from a newer version, having changed nothing;
    StoreUnavailable if another process has it open or the file system refuses.
    """
    return SqliteStore(*await asyncio.to_thread(_open, path, reserve, clock or clocks.SystemClock()))


def _open(path: str, reserve: int, clock: clocks.Clock) -> tuple[sqlite_file.OpenFile, sqlite_space.Space]:
    space = sqlite_space.Space(pathlib.Path(path).resolve(), clock, reserve)
    space.prepare()
    file = sqlite_file.OpenFile(path)
    space.make()
    return file, space


class SqliteStore:
    """See `protocol.Store`; made by `open_store`."""

    def __init__(self, file: sqlite_file.OpenFile, space: sqlite_space.Space) -> None:
        self._file = file
        self._space = space
        self._identity = file.identity
        self._epoch_offset = file.state.epoch_offset
        self._closing: asyncio.Future[None] | None = None
        self._reads = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="handfast-store-reader")
        self._feed = feeds.Feed(file.state.revision, self._history)
        self._writer = writer.Writer(file, space, self._publish)

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def epoch_offset(self) -> int:
        return self._epoch_offset

    async def current_revision(self) -> int:
        """From memory: this process owns the file, and a write is acknowledged after the number has moved."""
        return self._feed.revision

    async def floor(self) -> int:
        return (await self._read(schema.read_state)).floor

    async def get(self, key: str) -> protocol.Entry | None:
        protocol.require_key(key)
        entry, seen = await self._read(reader.get, key)
        await self._feed.reached(seen)
        return entry

    async def list_at(self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0) -> protocol.Page:
        protocol.require_text(prefix)
        protocol.require_text(after)
        if limit < 0:
            raise errors.Misuse(f"limit: {limit} is negative; 0 means no limit")
        query = reader.ListQuery(prefix, revision, after, limit)
        page, seen = await self._read(reader.list_at, query)
        await self._feed.reached(seen)
        return page

    async def create(self, key: str, value: bytes) -> int:
        protocol.require_key(key)
        return await self._writer.submit(lambda transaction: transaction.create(key, value), len(value), adds=True)

    async def update(self, key: str, value: bytes, *, expected: int, removing: bool = False) -> int:
        protocol.require_key(key)
        return await self._writer.submit(
            lambda transaction: transaction.update(key, value, expected), len(value), adds=not removing
        )

    async def delete(self, key: str, *, expected: int) -> int:
        protocol.require_key(key)
        return await self._writer.submit(lambda transaction: transaction.delete(key, expected))

    def watch(self, prefix: str, *, after: int) -> feeds.LogWatch:
        protocol.require_text(prefix)
        self._check_open()
        return self._feed.watch(prefix, after)

    async def compact(self, revision: int) -> int:
        """Raise the floor durably, then clear what lies below it, piece by piece between other writes.

        If clearing is cut short (close, a full disk), the floor stays and the next call goes on from there.
        """
        floor = await self._writer.submit(lambda transaction: transaction.raise_floor(revision))
        while await self._writer.submit(writer.Transaction.sweep):
            pass
        return floor

    async def raise_epoch(self, by: int = protocol.EPOCH, *, above: int = 0) -> int:
        if by <= 0:
            raise errors.Misuse(f"by: {by} is not positive; the epoch offset is only ever raised")
        return await self._writer.submit(lambda transaction: transaction.raise_epoch(by, above))

    async def take_identity(self, identity: str) -> None:
        if not identity:
            raise errors.Misuse("identity: must not be empty")
        await self._writer.submit(lambda transaction: transaction.take_identity(identity))
        self._identity = identity

    async def note(self, name: str) -> str | None:
        return await self._read(schema.read_note, name)

    async def set_note(self, name: str, text: str | None) -> None:
        if name == schema.IDENTITY:
            raise errors.Misuse("name: the identity of a store is given once")
        await self._writer.submit(lambda transaction: transaction.set_note(name, text), len(text or ""))

    async def swap_note(self, name: str, expected: str | None, text: str | None) -> str | None:
        if name == schema.IDENTITY:
            raise errors.Misuse("name: the identity of a store is given once")
        # A job that is committed anew is applied anew.
        there: list[str | None] = []

        def swap(transaction: writer.Transaction) -> int:
            there[:] = [transaction.swap_note(name, expected, text)]
            return transaction.revision

        await self._writer.submit(swap, len(text or ""))
        return there[0]

    async def stats(self) -> protocol.Stats:
        return protocol.Stats("sqlite", await self.floor(), self._file.size())

    def room(self) -> protocol.Room:
        return self._space.room()

    async def close(self) -> None:
        """Commit what was submitted, end watches, close the file. Calling it again waits for the same end."""
        if self._closing is None:
            self._writer.stop()
            self._feed.close()
            loop = asyncio.get_running_loop()
            self._closing = loop.run_in_executor(None, self._close_file)
        await asyncio.shield(self._closing)

    def _close_file(self) -> None:
        self._writer.join()
        self._reads.shutdown()
        self._file.close()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise protocol.StoreUnavailable(f"{self._file.path}: the store is closed")

    def _publish(self, commit: writer.Commit) -> None:
        self._epoch_offset = commit.state.epoch_offset
        self._feed.publish(commit.state.revision, commit.events)

    async def _history(self, prefix: str, after: int) -> feeds.History:
        history = await self._read(reader.history, prefix, after)
        await self._feed.reached(history.revision)
        return history

    async def _read(
        self, question: Callable[Concatenate[apsw.Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._reads, lambda: question(self._file.reading, *args, **kwargs))
        except apsw.Error as error:
            raise sqlite_file.unavailable(self._file.path, error) from error
