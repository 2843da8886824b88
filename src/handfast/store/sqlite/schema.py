# SPDX-License-Identifier: Apache-2.0
"""The tables of the SQLite engine, their version, and the way from one version to the next.

It does not decide whether a file may be opened: that is `sqlite.file`.

    log    every write, the only copy of its value; `prev_rev` is the row it supersedes, 0 if the key was absent
    cur    key -> the log row that holds now; absent keys have none
    meta   schema_version; floor (the compaction floor); swept (how far below it superseded rows are gone);
           epoch_offset
    notes  name -> text; the note `identity` says which store this is
"""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Final

import apsw
import msgspec

from handfast.runtime import files

APPLICATION_ID: Final = 0x48464153
SCHEMA_VERSION = 1
IDENTITY: Final = "identity"

# What takes a file of version N to N + 1, inside one transaction. Version 1 is the first there ever was.
MIGRATIONS: Mapping[int, str] = {}

_TABLES: Final = """
CREATE TABLE log (
    rev INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    op TEXT NOT NULL CHECK (op IN ('create', 'update', 'delete')),
    prev_rev INTEGER NOT NULL,
    create_rev INTEGER NOT NULL,
    value BLOB CHECK ((value IS NULL) = (op = 'delete'))
) STRICT;
CREATE TABLE cur (
    key TEXT PRIMARY KEY,
    rev INTEGER NOT NULL,
    create_rev INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('schema_version', 1), ('floor', 0), ('swept', 0), ('epoch_offset', 0);
"""
# Files of before there were notes get them when they are opened: an older program does not mind one table more.
_NOTES: Final = """
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO notes VALUES ('identity', lower(hex(randomblob(16))));
"""
_FORMAT_VERSIONS_AT: Final = 18
_WAL_FORMAT: Final = b"\x02\x02"


class State(msgspec.Struct, frozen=True):
    """The counters of a store: the last revision, the compaction floor, how far below it is cleared, the offset."""

    revision: int
    floor: int
    swept: int
    epoch_offset: int


def read_meta(connection: apsw.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT name, value FROM meta"))


def number(connection: apsw.Connection, query: str) -> int:
    """The answer to a query for one number."""
    ((answer,),) = connection.execute(query).fetchall()
    if not isinstance(answer, int):
        raise apsw.CorruptError(f"{query}: {answer!r} is not a number")
    return answer


def read_state(connection: apsw.Connection) -> State:
    """The counters as the connection's transaction sees them."""
    meta = read_meta(connection)
    revision = number(connection, "SELECT coalesce(max(rev), 0) FROM log")
    return State(revision=revision, floor=meta["floor"], swept=meta["swept"], epoch_offset=meta["epoch_offset"])


def read_note(connection: apsw.Connection, name: str) -> str | None:
    for (text,) in connection.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchall():
        return str(text)
    return None


def identify(connection: apsw.Connection) -> str:
    """The identity of the store; a file that has none yet gets one."""
    if not number(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'notes'"):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_NOTES).fetchall()
        connection.execute("COMMIT")
    found = read_note(connection, IDENTITY)
    if not found:
        raise apsw.CorruptError("the store has no identity")
    return found


def free_bytes(connection: apsw.Connection) -> int:
    """What the file can take without becoming longer."""
    return number(connection, "PRAGMA freelist_count") * number(connection, "PRAGMA page_size")


def empty_database() -> bytes:
    """The content of a new store's file."""
    connection = apsw.Connection(":memory:")
    try:
        connection.pragma("application_id", APPLICATION_ID)
        connection.execute(_TABLES)
        connection.execute(_NOTES)
        image = bytearray(connection.serialize("main"))
    finally:
        connection.close()
    # Born in WAL mode: switching later would need a rollback journal, and recovery from a crash in the middle.
    image[_FORMAT_VERSIONS_AT : _FORMAT_VERSIONS_AT + 2] = _WAL_FORMAT
    return bytes(image)


def migrate(connection: apsw.Connection, path: pathlib.Path, version: int) -> None:
    """Bring an older file to this schema, step by step, after a backup beside it."""
    _back_up(connection, path.with_name(f"{path.name}.schema-{version}.backup"))
    for step in range(version, SCHEMA_VERSION):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(MIGRATIONS[step]).fetchall()  # all of it: statements after one with rows run on demand
        connection.execute("UPDATE meta SET value = ? WHERE name = 'schema_version'", (step + 1,))
        connection.execute("COMMIT")


def _back_up(connection: apsw.Connection, target: pathlib.Path) -> None:
    # Through a temporary name: a copy cut short must never pass for a backup.
    handle, name = tempfile.mkstemp(prefix=f"{target.name}.new-", dir=target.parent)
    os.close(handle)
    temporary = pathlib.Path(name)
    try:
        copy = apsw.Connection(temporary.as_uri(), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
        try:
            with copy.backup("main", connection, "main") as backup:
                backup.step()
        finally:
            copy.close()
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    files.sync_directory(target.parent)
