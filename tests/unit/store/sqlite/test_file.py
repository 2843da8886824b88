# SPDX-License-Identifier: Apache-2.0
"""Which files the SQLite engine opens, and that a refused one is left exactly as it was."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pathlib
import stat
import subprocess
import sys

import apsw
import pytest

from handfast.store import protocol
from handfast.store.sqlite import engine, schema

READY_THEN_WAIT = """
import asyncio, sys
from handfast.store.sqlite import engine
async def main():
    await engine.open_store(sys.argv[1])
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


def trace(directory: pathlib.Path) -> dict[str, tuple[bytes, int, int]]:
    """All that could be seen to have changed."""
    found = {}
    for file in sorted(directory.iterdir()):
        status = file.stat()
        found[file.name] = (file.read_bytes() if file.is_file() else b"", status.st_mtime_ns, status.st_mode)
    return found


async def fill(path: pathlib.Path, entries: int = 40) -> None:
    store = await engine.open_store(str(path))
    await asyncio.gather(*(store.create(f"k{n:03}", bytes([n]) * 3000) for n in range(entries)))
    await store.close()


def tamper(path: pathlib.Path, sql: str, *, keep_log: bool) -> None:
    """Change a closed store behind its back; `keep_log` leaves the change in the write-ahead log, as a crash would."""
    connection = apsw.Connection(str(path))
    if keep_log:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.execute(sql)
    connection.close()
    assert path.with_name("store.db-wal").exists() == keep_log


async def refused(path: pathlib.Path) -> protocol.StoreCorrupt:
    before = trace(path.parent)
    with pytest.raises(protocol.StoreCorrupt) as refusal:
        await engine.open_store(str(path))
    assert trace(path.parent) == before
    assert str(path) in refusal.value.message
    assert refusal.value.hint
    return refusal.value


async def test_a_new_file_is_private_and_alone_after_close(path: pathlib.Path) -> None:
    store = await engine.open_store(str(path))
    await store.create("a", b"secret")
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {
        "store.db": 0o600,
        "store.db-wal": 0o600,
        "store.db-shm": 0o600,
    }
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


async def test_a_file_others_can_read_is_made_private(path: pathlib.Path) -> None:
    await fill(path)
    tamper(path, "UPDATE meta SET value = 5 WHERE name = 'floor'", keep_log=True)
    for file in path.parent.iterdir():
        file.chmod(0o644)
    store = await engine.open_store(str(path))
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    await store.close()


async def test_durability_settings_are_in_force(store: engine.SqliteStore) -> None:
    for connection in (store._file.writing, store._file.reading):
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
        assert connection.pragma("temp_store") == 2


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "empty"),
        (b"not a database, but a text that is longer than a header" * 4, "not a SQLite database"),
        (b"SQLite format 3\0", "not a SQLite database"),
    ],
)
async def test_a_file_that_is_no_database_is_refused(path: pathlib.Path, content: bytes, says: str) -> None:
    path.write_bytes(content)
    assert says in (await refused(path)).message


@pytest.mark.parametrize("application", [0, 0x7FFFFFFF, -1])
@pytest.mark.parametrize("keep_log", [False, True])
async def test_a_database_of_another_program_is_refused(path: pathlib.Path, application: int, keep_log: bool) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", application)
    connection.pragma("journal_mode", "WAL")
    connection.execute("CREATE TABLE log (rev)")
    connection.close()
    tamper(path, "INSERT INTO log VALUES (1)", keep_log=keep_log)
    assert "another program" in (await refused(path)).message


@pytest.mark.parametrize("keep_log", [False, True])
@pytest.mark.parametrize(
    "sql, says",
    [
        ("UPDATE meta SET value = 2 WHERE name = 'schema_version'", "newer"),
        ("UPDATE meta SET value = 0 WHERE name = 'schema_version'", "cannot be migrated"),
        ("DELETE FROM meta WHERE name = 'schema_version'", "damaged"),
        ("DELETE FROM meta WHERE name = 'floor'", "damaged"),
        ("DROP TABLE cur", "damaged"),
        ("DELETE FROM log WHERE rev = 40", "ends at 39, but 40"),
        ("DELETE FROM log WHERE rev = 7", "1 keys have lost their values"),
        ("UPDATE log SET key = 'other' WHERE rev < 4", "3 keys have lost their values"),
        ("UPDATE meta SET value = 41 WHERE name = 'floor'", "floor 41 beyond revision 40"),
        ("UPDATE meta SET value = 1 WHERE name = 'swept'", "damaged"),
    ],
)
async def test_a_store_that_cannot_be_trusted_is_refused(
    path: pathlib.Path, sql: str, says: str, keep_log: bool
) -> None:
    await fill(path)
    tamper(path, sql, keep_log=keep_log)
    assert says in (await refused(path)).message


@pytest.mark.parametrize("keep_log", [False, True])
@pytest.mark.parametrize("page", [1, 5, 20])
async def test_a_damaged_page_is_refused(path: pathlib.Path, page: int, keep_log: bool) -> None:
    await fill(path)
    tamper(path, "UPDATE meta SET value = 3 WHERE name = 'floor'", keep_log=keep_log)
    with path.open("r+b") as file:
        file.seek(4096 * page)
        file.write(b"\xa5" * 512)
    assert "damaged" in (await refused(path)).message


async def test_a_flipped_page_that_nothing_but_the_check_reads_is_refused(path: pathlib.Path) -> None:
    """The end of a long value lies on pages that only whoever reads the value would look at, perhaps in a year."""
    store = await engine.open_store(str(path))
    await store.create("long", b"\xaa" * 40_000)
    await store.close()
    content = bytearray(path.read_bytes())
    # A page of the value begins with the number of the next one.
    page = next(
        start
        for start in range(4096, len(content), 4096)
        if content[start + 4 : start + 4096] == b"\xaa" * 4092 and any(content[start : start + 4])
    )
    content[page : page + 4096] = bytes(byte ^ 0xFF for byte in content[page : page + 4096])
    path.write_bytes(content)
    refusal = await refused(path)
    assert refusal.message.startswith(f"{path}: damaged: ")
    assert refusal.message.endswith("; nothing was changed")
    assert refusal.hint == "restore a backup; the file was not repaired"


async def test_a_file_cut_short_is_refused(path: pathlib.Path) -> None:
    await fill(path)
    os.truncate(path, path.stat().st_size // 2)
    assert "damaged" in (await refused(path)).message


async def test_a_log_without_its_file_is_refused(path: pathlib.Path) -> None:
    await fill(path)
    tamper(path, "UPDATE meta SET value = 3 WHERE name = 'floor'", keep_log=True)
    path.unlink()
    assert "missing" in (await refused(path)).message


async def test_a_directory_is_refused(path: pathlib.Path) -> None:
    path.mkdir()
    assert "not a regular file" in (await refused(path)).message


async def test_a_refused_file_can_be_opened_once_mended(path: pathlib.Path) -> None:
    await fill(path)
    tamper(path, "UPDATE meta SET value = 2 WHERE name = 'schema_version'", keep_log=False)
    await refused(path)
    tamper(path, "UPDATE meta SET value = 1 WHERE name = 'schema_version'", keep_log=False)
    store = await engine.open_store(str(path))
    assert await store.current_revision() == 40
    await store.close()


async def test_what_a_crash_left_in_the_log_is_recovered(path: pathlib.Path) -> None:
    await fill(path)
    tamper(path, "UPDATE meta SET value = 30 WHERE name = 'floor'", keep_log=True)
    store = await engine.open_store(str(path))
    assert (await store.stats()).floor == 30
    await store.close()


async def test_a_missing_directory_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(protocol.StoreUnavailable, match=r"absent/store\.db: No such file or directory"):
        await engine.open_store(str(tmp_path / "absent" / "store.db"))


async def test_a_link_is_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real" / "store.db")
    await fill(link, 1)
    assert link.is_symlink()
    store = await engine.open_store(str(tmp_path / "real" / "store.db"))
    assert await store.current_revision() == 1
    await store.close()


async def test_a_path_with_the_signs_of_a_uri_is_a_path(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "100%25 a?mode=ro#ü.db"
    await fill(path, 1)
    assert path.is_file()


async def test_a_file_that_appears_during_creation_is_not_replaced(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = schema.empty_database()

    def slow() -> bytes:
        path.write_bytes(b"someone else's")
        return image

    monkeypatch.setattr(schema, "empty_database", slow)
    with pytest.raises(protocol.StoreCorrupt):
        await engine.open_store(str(path))
    assert path.read_bytes() == b"someone else's"
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


async def test_a_second_store_in_this_process_is_refused(store: engine.SqliteStore, path: pathlib.Path) -> None:
    def sqlite_locks() -> list[str]:
        inode = f":{path.stat().st_ino} "
        return [
            line for line in pathlib.Path("/proc/locks").read_text().splitlines() if "POSIX" in line and inode in line
        ]

    assert await store.create("a", b"") == 1
    before = sqlite_locks()
    assert before
    with pytest.raises(protocol.StoreUnavailable, match="in use") as refusal:
        await engine.open_store(str(path))
    assert str(path) in refusal.value.message
    assert len(sqlite_locks()) == len(before)  # closing a second descriptor would have dropped them


async def test_a_locked_file_is_refused_and_free_after_release(path: pathlib.Path) -> None:
    await fill(path, 1)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = trace(path.parent)
        with pytest.raises(protocol.StoreUnavailable, match="in use"):
            await engine.open_store(str(path))
        assert trace(path.parent) == before
    store = await engine.open_store(str(path))
    await store.close()


@pytest.mark.slow
async def test_a_second_process_is_refused_until_the_first_is_gone(path: pathlib.Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READY_THEN_WAIT, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        with pytest.raises(protocol.StoreUnavailable, match="in use"):
            await engine.open_store(str(path))
        owner.kill()
    store = await engine.open_store(str(path))
    assert await store.create("a", b"") == 1
    await store.close()
