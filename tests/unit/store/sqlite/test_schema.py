# SPDX-License-Identifier: Apache-2.0
"""Migration of an older file, with its backup. The step is made up here: only one version exists so far."""

from __future__ import annotations

import pathlib
import stat

import apsw
import pytest

from handfast.store import protocol
from handfast.store.sqlite import engine, schema


def read_only(path: pathlib.Path) -> apsw.Connection:
    return apsw.Connection(f"{path.as_uri()}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


@pytest.fixture
async def older(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    store = await engine.open_store(str(path))
    await store.create("a", b"kept")
    await store.close()
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 3)
    return path


async def test_an_older_file_is_migrated_after_a_backup(older: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {1: "CREATE TABLE first (x)", 2: "CREATE TABLE second (x)"}
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    for _ in range(2):  # the second time there is nothing to do
        store = await engine.open_store(str(older))
        assert await store.get("a") == protocol.Entry("a", b"kept", 1, 1)
        await store.close()
    backup = older.with_name("store.db.schema-1.backup")
    assert sorted(older.parent.iterdir()) == [older, backup]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    versions = {older: (3, 1), backup: (1, 0)}
    for file, (version, tables) in versions.items():
        connection = read_only(file)
        assert schema.read_meta(connection)["schema_version"] == version
        count = "SELECT count(*) FROM sqlite_schema WHERE name = 'second'"
        assert schema.number(connection, count) == tables
        assert schema.number(connection, "SELECT count(*) FROM cur WHERE key = 'a'") == 1
        connection.close()


async def test_a_migration_that_fails_leaves_the_old_schema(
    older: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", {1: "CREATE TABLE half (x); CREATE TABLE log (x)", 2: ""})
    with pytest.raises(protocol.StoreUnavailable, match="already exists"):
        await engine.open_store(str(older))
    monkeypatch.undo()
    store = await engine.open_store(str(older))
    assert await store.get("a") == protocol.Entry("a", b"kept", 1, 1)
    await store.close()
    connection = read_only(older)
    assert schema.number(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'") == 0
    connection.close()


def test_a_counter_that_is_no_number_is_damage() -> None:
    connection = apsw.Connection(":memory:")
    with pytest.raises(apsw.CorruptError, match="not a number"):
        schema.number(connection, "SELECT 'x'")
    connection.close()
