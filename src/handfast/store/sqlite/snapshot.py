# SPDX-License-Identifier: Apache-2.0
"""Reads a store's file at one revision, from a process that does not own it: the server that does goes on writing.

In WAL mode a reader sees the database as it was when its transaction began, in any process of the same machine, and neither
waits for the writer nor holds it up. So a backup needs no server's help, works beside one that hangs, and is never half of
two states. What it costs: while it is open the write-ahead log cannot begin anew, and grows by what is written meanwhile.

1. The file is there. It is never created.
2. It is a store, of a schema that this version knows.
3. Everything is read in one transaction, on a connection that cannot write, and nothing is left beside the file.

It takes no lock of the owner's: a server may start or stop meanwhile (`sqlite.file`). It does not look into values.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

import apsw

from handfast import errors
from handfast.store import protocol
from handfast.store.sqlite import file as sqlite_file
from handfast.store.sqlite import reader, schema

PAGE: Final = 500
_ALL: Final = """
SELECT cur.key, log.value, cur.rev, cur.create_rev FROM cur CROSS JOIN log ON log.rev = cur.rev
WHERE cur.key >= ?1 AND cur.key < ?2 ORDER BY cur.key
"""


class Snapshot:
    """A store as it was when this was opened; see `transfer.Described`. For one thread, which it may hold."""

    engine: Final = "sqlite"

    def __init__(self, path: str) -> None:
        self._path = pathlib.Path(path).resolve()
        self.place = str(self._path)
        # 1. never created
        if not self._path.is_file():
            raise errors.Refused(
                f"{self._path}: there is no store",
                reason="NoStore",
                hint="name its data directory with --dir, or the place of another store with --store",
            )
        with contextlib.ExitStack() as cleanup, sqlite_file.as_unavailable(self.place):
            # 3. Whoever may write removes what is beside the file when it is the last to close it; beside a server it is not.
            access = apsw.SQLITE_OPEN_READONLY if sqlite_file.is_owned(self.place) else apsw.SQLITE_OPEN_READWRITE
            self._connection = apsw.Connection(self._path.as_uri(), flags=access | apsw.SQLITE_OPEN_URI)
            cleanup.callback(self._connection.close)
            self._connection.pragma("query_only", "ON")
            self._connection.set_busy_timeout(sqlite_file.BUSY_MILLISECONDS)
            self._connection.pragma("temp_store", "MEMORY")
            # 3. one transaction, which begins with the first read
            self._connection.execute("BEGIN")
            sqlite_file.check_foreign(self._path, self._connection)
            self.state = schema.read_state(self._connection)
            self.identity = schema.read_note(self._connection, schema.IDENTITY) or ""
            self.objects = schema.number(self._connection, "SELECT count(*) FROM cur")
            self._cleanup = cleanup.pop_all()

    @property
    def revision(self) -> int:
        return self.state.revision

    @property
    def epoch_offset(self) -> int:
        return self.state.epoch_offset

    async def pages(self, prefix: str = "") -> AsyncIterator[Sequence[protocol.Entry]]:
        low, high = reader.key_range(prefix, "")
        rows = itertools.starmap(protocol.Entry, self._connection.execute(_ALL, (low, high)))
        while True:
            with sqlite_file.as_unavailable(self.place):
                page = list(itertools.islice(rows, PAGE))
            if not page:
                return
            yield page

    async def note(self, name: str) -> str | None:
        return schema.read_note(self._connection, name)

    async def stats(self) -> protocol.Stats:
        return protocol.Stats(self.engine, self.state.floor, sqlite_file.occupied(self._path))

    async def keep_note(self, name: str, text: str) -> bool:
        """Not written: only the process that owns the file writes to it."""
        del name, text
        return False

    async def close(self) -> None:
        self.end()

    def end(self) -> None:
        with contextlib.suppress(apsw.Error):
            self._connection.execute("COMMIT")
        self._cleanup.close()
