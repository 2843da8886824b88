# SPDX-License-Identifier: Apache-2.0
"""Writes what this version makes of the oldest store in tests/vectors/formats: a store with its notes, and a backup.

    python scripts/fixture_stores.py DIRECTORY

Run it when the form of a store or of a backup changes, and put what it writes beside the files that are there, under new
names: a file there is never written anew (see its README). It needs nothing but that directory.
"""

from __future__ import annotations

import asyncio
import pathlib
import sqlite3
import sys
import tempfile

from handfast.store import backup_file, transfer
from handfast.store.sqlite import engine

FORMATS = pathlib.Path(__file__).parents[1] / "tests" / "vectors" / "formats"


async def write(into: pathlib.Path, work: pathlib.Path) -> None:
    """`store-notes.sql` and `store.backup`."""
    path = work / "store.db"
    with sqlite3.connect(path) as database:
        database.executescript((FORMATS / "store.sql").read_text())
    database.close()
    store = await engine.open_store(str(path))
    await store.set_note("stored-form", "1")
    source = await transfer.StoreSource.of(store, "sqlite", "store.db")
    header = backup_file.Header(
        identity=source.identity,
        revision=source.revision,
        epoch_offset=source.epoch_offset,
        taken_at="2026-11-18T00:00:00Z",
        engine=source.engine,
    )
    with (into / "store.backup").open("wb") as sink:
        await transfer.write_backup(source, backup_file.Writer(sink, header), lambda _count: None)
    await store.close()
    with sqlite3.connect(path) as database:
        lines = ["PRAGMA application_id=1212563795;", "PRAGMA journal_mode=WAL;", *database.iterdump()]
    database.close()
    (into / "store-notes.sql").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(write(pathlib.Path(sys.argv[1]), pathlib.Path(directory)))
