# SPDX-License-Identifier: Apache-2.0
"""Writes what this version makes of the oldest store in tests/vectors/formats: a store with its notes, and a backup.

    python scripts/fixture_stores.py DIRECTORY [etcd://HOST:2379/PREFIX]

With an etcd, the store is made there, too, below a prefix that holds nothing, and all its keys are written into `store-etcd.jsonl`.

Run it when the form of a store or of a backup changes, and put what it writes beside the files that are there, under new
names: a file there is never written anew (see its README). It needs nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import pathlib
import sqlite3
import sys
import tempfile

from handfast.apiserver.state import lineage
from handfast.pki import seal
from handfast.store import backup_file, transfer
from handfast.store.etcd import engine as etcd
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.store.etcd import source
from handfast.store.sqlite import engine
from handfast.wire import etcd_access

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


async def write_from_etcd(into: pathlib.Path, work: pathlib.Path, url: str) -> None:
    """`store-etcd.jsonl`: the keys below the prefix, and their values, of a store that a server has claimed."""
    place = places.parse(url)
    store = await etcd.open_store(place, etcd_access.Access())
    backup = transfer.BackupSource(
        lambda: backup_file.Reader(io.BytesIO((FORMATS / "store.backup").read_bytes())), "store.backup"
    )
    await store.take_identity(backup.identity)
    await transfer.synchronise(backup.pages(), store, lambda _count: None)
    await store.raise_epoch()
    await store.set_note("stored-form", "1")
    sealer = seal.Sealer.from_text((FORMATS / "encryption.key").read_text())
    await lineage.Lineage(store, work / "seen", sealer).begin()
    await store.close()
    async with source.session_of(place, etcd_access.Access()) as session:
        answer = await session.read(sessions.range_of(place.root, range_end=place.root_end))
    rows = [
        {"key": kv.key[len(place.root) :].decode(), "value": base64.b64encode(kv.value).decode()} for kv in answer.kvs
    ]
    (into / "store-etcd.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


async def main(into: pathlib.Path, urls: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        await write(into, pathlib.Path(directory))
        for url in urls[:1]:
            await write_from_etcd(into, pathlib.Path(directory), url)


if __name__ == "__main__":
    asyncio.run(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
