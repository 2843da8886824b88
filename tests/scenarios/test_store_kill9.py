# SPDX-License-Identifier: Apache-2.0
"""A store is killed with SIGKILL while writing and compacting, over and over; what it acknowledged is there.

It proves: no acknowledged write is lost, no revision is given out twice, the log has no gap from the floor up and
nothing superseded below what was swept, and the file is sound. It says nothing about power loss: the kernel keeps
what was written but not synced.

Run as a program it is the victim: thirty-two writers, each with keys of its own, that tell every acknowledged write
on standard output before they go on.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import subprocess
import sys
import threading

import apsw
import pytest

from handfast.store.sqlite import engine

ROUNDS = 10
WRITERS = 32
KEYS_EACH = 4


# The victim


async def write(store: engine.SqliteStore, writer: int) -> None:
    held = {entry.key: entry.revision for entry in (await store.list_at(f"w{writer}/")).entries}
    choice = random.Random()
    while True:
        key = f"w{writer}/{choice.randrange(KEYS_EACH)}"
        value = f"{choice.getrandbits(64):016x}"
        padded = value.encode() + bytes(choice.randrange(6000))
        if key not in held:
            op, held[key] = "create", await store.create(key, padded)
        elif choice.random() < 0.8:
            op, held[key] = "update", await store.update(key, padded, expected=held[key])
        else:
            op, value, revision = "delete", "-", await store.delete(key, expected=held.pop(key))
        if op != "delete":
            revision = held[key]
        os.write(1, f"{revision} {op} {key} {value}\n".encode())  # shorter than PIPE_BUF: never torn


async def compact(store: engine.SqliteStore) -> None:
    while True:
        await store.compact(max(await store.current_revision() - random.randrange(400), 0))
        await asyncio.sleep(0.005)


async def victim(path: str) -> None:
    store = await engine.open_store(path)
    await asyncio.gather(compact(store), *(write(store, writer) for writer in range(WRITERS)))


# The judge


def killed_after(path: pathlib.Path, seconds: float) -> list[str]:
    """Let a victim acknowledge a first write, go on for a while, and die; all that it acknowledged."""
    with subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, "the victim died by itself"
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        lines = [first, *process.stdout]
        killer.join()
    return lines


class Judge:
    """Remembers all that was ever acknowledged, or found committed though nobody had been told.

    The second matters over several rounds: a delete that one victim did not live to acknowledge may be compacted by
    the next, and is then no loss.
    """

    def __init__(self) -> None:
        self.heard = 0
        self.acknowledged: dict[int, tuple[str, str, str]] = {}
        self.last: dict[str, int] = {}

    def hear(self, lines: list[str]) -> None:
        for line in lines:
            revision, op, key, value = line.split()
            assert int(revision) not in self.acknowledged, f"revision {revision} was given out twice"
            self.acknowledged[int(revision)] = (op, key, value)
            self.last[key] = int(revision)
            self.heard += 1

    def judge(self, database: apsw.Connection) -> None:
        assert database.pragma("integrity_check") == "ok"
        meta = dict(database.execute("SELECT name, value FROM meta"))
        text = (
            "SELECT rev, op, key, CASE WHEN value IS NULL THEN '-' ELSE CAST(substr(value, 1, 16) AS TEXT) END FROM log"
        )
        log = {row[0]: row[1:] for row in database.execute(text)}
        current = dict(database.execute("SELECT key, rev FROM cur"))
        floor = meta["floor"]
        newest = max(log)
        assert newest >= max(self.acknowledged)
        assert sorted(revision for revision in log if revision >= floor) == list(range(max(floor, 1), newest + 1))
        for revision, write in self.acknowledged.items():
            assert log.get(revision, None if revision < floor else "lost") in {write, None}
        assert set(current.values()) <= set(log)
        for key, revision in self.last.items():
            # Each key has one writer at a time: what follows its last acknowledged write, it had not heard of yet.
            assert current.get(key, newest) >= revision
            if key not in current and self.acknowledged[revision][0] != "delete":
                assert any(row[:2] == ("delete", key) for at, row in log.items() if at > revision)
        below = {revision for revision in log if revision < meta["swept"]}
        superseded = {row[0] for row in database.execute("SELECT prev_rev FROM log WHERE rev <= ?", (meta["swept"],))}
        assert not below & superseded
        assert not any(log[revision][0] == "delete" for revision in below)
        for revision, write in sorted(log.items()):
            self.acknowledged[revision] = write
            self.last[write[1]] = max(revision, self.last.get(write[1], 0))


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    judge = Judge()
    floors = []
    for _ in range(ROUNDS):
        judge.hear(killed_after(path, random.uniform(0.05, 0.8)))
        # A copy is judged, so that recovery after the crash is the next victim's own work.
        for suffix in ("", "-wal"):
            copied = path.with_name(f"store.db{suffix}")
            copied.with_name(f"copy.db{suffix}").write_bytes(copied.read_bytes())
        copy = apsw.Connection(str(tmp_path / "copy.db"))
        judge.judge(copy)
        floors += [floor for (floor,) in copy.execute("SELECT value FROM meta WHERE name = 'floor'")]
        copy.close()
    assert floors == sorted(floors)
    assert floors[-1] > 0
    assert judge.heard > 100 * ROUNDS


if __name__ == "__main__":
    asyncio.run(victim(sys.argv[1]))
