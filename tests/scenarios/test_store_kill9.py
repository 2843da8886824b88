# SPDX-License-Identifier: Apache-2.0
"""A store is killed with SIGKILL while writing and compacting, over and over; what it acknowledged is there.

What is proved is said in `tests.world.acknowledged`. It says nothing about power loss: the kernel keeps what was written
but not synced. CI has some thousand writes; `HANDFAST_ACKNOWLEDGED=500000` goes on until so many are acknowledged.

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
from tests.world import acknowledged

ROOT = pathlib.Path(__file__).parents[2]
ACKNOWLEDGED = int(os.environ.get("HANDFAST_ACKNOWLEDGED", "1000"))
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
    command = [sys.executable, "-m", "tests.scenarios.test_store_kill9", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, "the victim died by itself"
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        lines = [first, *process.stdout]
        killer.join()
    return lines


def hear(judge: acknowledged.Judge, lines: list[str]) -> None:
    for line in lines:
        revision, op, key, mark = line.split()
        judge.hear(int(revision), (op, key, mark))


@pytest.mark.slow
@pytest.mark.timeout(120 + ACKNOWLEDGED // 100)
def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store.db"
    judge = acknowledged.Judge()
    floors: list[int] = []
    while len(floors) < ROUNDS or judge.heard < ACKNOWLEDGED:
        hear(judge, killed_after(path, random.uniform(0.05, 0.8) if ACKNOWLEDGED < 100_000 else random.uniform(0.1, 5)))
        # A copy is judged, so that recovery after the crash is the next victim's own work.
        for suffix in ("", "-wal"):
            copied = path.with_name(f"store.db{suffix}")
            copied.with_name(f"copy.db{suffix}").write_bytes(copied.read_bytes())
        copy = apsw.Connection(str(tmp_path / "copy.db"))
        found = acknowledged.read_sqlite(copy)
        copy.close()
        judge.judge(found)
        floors.append(found.floor)
    assert floors == sorted(floors)
    assert floors[-1] > 0
    print(f"{judge.heard} writes acknowledged in {len(floors)} rounds")


if __name__ == "__main__":
    asyncio.run(victim(sys.argv[1]))
