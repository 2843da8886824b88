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
from collections.abc import Callable

import apsw
import pytest
import structlog

from handfast.store import protocol
from handfast.store.etcd import engine as etcd
from handfast.store.etcd import place as places
from handfast.store.sqlite import engine
from handfast.wire import etcd_access
from tests.world import acknowledged, etcds

ROOT = pathlib.Path(__file__).parents[2]
ACKNOWLEDGED = int(os.environ.get("HANDFAST_ACKNOWLEDGED", "1000"))
ROUNDS = 10
WRITERS = 32
KEYS_EACH = 4


# The victim


async def write(store: protocol.Store, writer: int) -> None:
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


async def compact(store: protocol.Store) -> None:
    while True:
        await store.compact(max(await store.current_revision() - random.randrange(400), 0))
        await asyncio.sleep(0.005)


async def opened(place: str) -> protocol.Store:
    """The store at a path, or at a URL of an etcd, which may have just begun to read what it has."""
    if not place.startswith(places.SCHEME):
        return await engine.open_store(place)
    async with asyncio.timeout(60):
        while True:
            try:
                return await etcd.open_store(places.parse(place), etcd_access.Access())
            except (protocol.StoreUnavailable, protocol.StoreUncertain):
                await asyncio.sleep(0.1)


async def victim(place: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    store = await opened(place)
    await asyncio.gather(compact(store), *(write(store, writer) for writer in range(WRITERS)))


# The judge


def killed_after(place: str, seconds: float, kill_more: Callable[[], None] = lambda: None) -> list[str]:
    """Let a victim acknowledge a first write, go on for a while, and die; all that it acknowledged."""
    command = [sys.executable, "-m", "tests.scenarios.test_store_kill9", place]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, "the victim died by itself"

        def kill() -> None:
            kill_more()
            process.kill()

        killer = threading.Timer(seconds, kill)
        killer.start()
        lines = [first, *process.stdout]
        killer.join()
    return lines


def lifetime() -> float:
    """In seconds; longer where there is much to be written."""
    return random.uniform(0.05, 0.8) if ACKNOWLEDGED < 100_000 else random.uniform(0.1, 5)


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
        hear(
            judge,
            killed_after(str(path), random.uniform(0.05, 0.8) if ACKNOWLEDGED < 100_000 else random.uniform(0.1, 5)),
        )
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


async def read_by_contract(store: protocol.Store) -> acknowledged.Found:
    """What is in any store: entries now, and history from the floor up. Whether a write was the first of its key is not told."""
    floor, page = await store.floor(), await store.list_at("")
    then = await store.list_at("", revision=floor)
    log = {entry.revision: written(entry.key, entry.value) for entry in (*then.entries, *page.entries)}
    watch = store.watch("", after=floor)
    reached = floor
    while reached < page.revision:
        events, reached = await watch.next()
        log |= {event.revision: written(event.key, event.value) for event in events}
    watch.close()
    current = {entry.key: entry.revision for entry in page.entries}
    # A delete at the floor itself is in no list and in no watch.
    return acknowledged.Found(log, current, floor + 1, page.revision)


def written(key: str, value: bytes | None) -> acknowledged.Write:
    return ("delete", key, "-") if value is None else ("put", key, value[: acknowledged.MARK].decode())


@pytest.mark.slow
@pytest.mark.timeout(120 + ACKNOWLEDGED // 20)
async def test_nothing_acknowledged_is_lost_when_etcd_is_killed_too(tmp_path: pathlib.Path) -> None:
    server = etcds.Etcd(tmp_path)
    place = str(server.place())
    judge = acknowledged.Judge()
    rounds = floor = 0
    server.start()
    try:
        while rounds < 3 or judge.heard < ACKNOWLEDGED:
            lines = await asyncio.to_thread(killed_after, place, lifetime(), server.kill)
            hear(judge, [line.replace(" create ", " put ").replace(" update ", " put ") for line in lines])
            server.start()
            store = await opened(place)
            found = await read_by_contract(store)
            await store.close()
            judge.judge(found)
            assert found.floor >= floor
            rounds, floor = rounds + 1, found.floor
    finally:
        server.kill()
    assert floor > 1
    print(f"{judge.heard} writes acknowledged in {rounds} rounds")


if __name__ == "__main__":
    asyncio.run(victim(sys.argv[1]))
