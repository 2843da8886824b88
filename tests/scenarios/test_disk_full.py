# SPDX-License-Identifier: Apache-2.0
"""A full disk: writes are refused with a reason that reaches the client, the log and the metrics; reads, watches and
deletes go on; what was deleted makes room; and a crash in the middle of it changes nothing.

The disks are real ones, of a few MiB. Run as a program it is the victim that is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from handfast.apiserver.state import compaction
from handfast.assembly import apiserver
from handfast.store import protocol
from handfast.store.sqlite import engine as sqlite
from handfast.store.sqlite import space
from tests.scenarios import up_world
from tests.world import small_disk as disks
from tests.world import world as worlds
from tests.world.clock import MovableClock

ROOT = pathlib.Path(__file__).parents[2]
PATH = "/api/v1/namespaces/default/configmaps"
SIZE_MIB = 48
FULL = "no space left for this write"
LARGE = "x" * (900 << 10)


@pytest.fixture
def small_disk() -> Iterator[pathlib.Path]:
    with disks.of_mebibytes(SIZE_MIB) as directory:
        yield directory


def fill(disk: pathlib.Path) -> pathlib.Path:
    """Another program takes all that is left."""
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0
    return ballast


async def create(world: worlds.World, name: str, text: str = LARGE, **metadata: Any) -> worlds.Answer:
    document = {"metadata": {"name": name, **metadata}, "data": {"text": text}}
    return await world.request("POST", PATH, document)


async def metrics(world: worlds.World) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in (await world.get("/metrics")).body.decode().splitlines())
    return {name: float(value) for name, _, value in rows if name.startswith("handfast_")}


async def fill_through_the_api(world: worlds.World) -> list[str]:
    made: list[str] = []
    while (answer := await create(world, f"large-{len(made)}")).status == 201:
        made.append(f"large-{len(made)}")
    assert (answer.status, answer.reason, answer.headers["Retry-After"]) == (503, "ServiceUnavailable", "1")
    assert FULL in answer.message
    return made


async def audit_lines_wait(world: worlds.World) -> None:
    """Until the server tells that its audit log cannot be written, and how much a crash would lose."""
    async with asyncio.timeout(20):
        while b"[+]audit ok, but lines wait in memory: [Errno 28]" not in (await world.get("/readyz?verbose")).body:
            await asyncio.sleep(0.01)
    assert (await world.get("/readyz")).body == b"ok"
    assert (await metrics(world))["handfast_audit_waiting_bytes"] > 0


async def passed(clock: MovableClock, seconds: float) -> None:
    """Time passes, and what it started gets to its end, in the thread that writes too."""
    await clock.advance(seconds)
    await asyncio.sleep(0.5)


@pytest.mark.slow
async def test_deletes_make_room_on_a_full_disk(small_disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    clock = MovableClock()
    store = await sqlite.open_store(str(small_disk / "store.db"), reserve=space.RESERVE, clock=clock)
    with structlog.testing.capture_logs() as logged:
        audit = apiserver.AuditOptions(path=str(small_disk / "audit.log"))
        async with worlds.world(tmp_path / "d", store=store, clock=clock, audit=audit) as world:
            assert (await create(world, "held", "", finalizers=["example.com/held"])).status == 201
            found = await metrics(world)
            assert (found["handfast_store_full"], found["handfast_store_reserve_bytes"]) == (0, (SIZE_MIB << 20) // 4)
            made = await fill_through_the_api(world)
            fill(small_disk)
            # Everything else is refused, too, until there is room: in the same words, told to the log once.
            update = {"metadata": {"name": made[0]}, "data": {"text": "y"}}
            for answer in (await create(world, "small", ""), await world.request("PUT", f"{PATH}/{made[0]}", update)):
                assert (answer.status, FULL in answer.message) == (503, True)
            told = [line for line in logged if line.get("reason") == "StoreFull"]
            assert len(told) == 1
            assert (told[0]["file"], told[0]["log_level"]) == (str(small_disk / "store.db"), "error")
            assert {"free_bytes", "reserve_bytes", "hint"} <= set(told[0])
            found = await metrics(world)
            assert found["handfast_store_full"] == 1
            assert found["handfast_store_free_bytes"] == 0
            assert found["handfast_store_writes_refused_total"] >= 3
            # Reads and deletes are served: nobody should be sent elsewhere for them.
            assert (await world.get("/readyz")).body == b"ok"
            shown = (await world.get("/readyz?verbose")).body
            assert b"[+]store ok, but the disk is full: writes are refused, deletes are not\n" in shown
            assert (await world.get(f"{PATH}/{made[-1]}")).status == 200
            await audit_lines_wait(world)
            for name in made:
                assert (await world.request("DELETE", f"{PATH}/{name}")).status == 200
            # A deletion of several steps, of which the first two are updates.
            assert (await world.request("DELETE", f"{PATH}/held")).status == 200
            held = (await world.get(f"{PATH}/held")).json()
            # What is no step of it is refused: else whoever has one such object could use the reserve up.
            touched = {**held, "metadata": {**held["metadata"], "annotations": {"a": "b"}}}
            assert (await world.request("PUT", f"{PATH}/held", touched)).status == 503
            assert held["metadata"].pop("finalizers")
            assert (await world.request("PUT", f"{PATH}/held", held)).status == 200
            assert (await world.get(f"{PATH}/held")).status == 404
            # Compaction frees what they took, although the file system is as full as before.
            for _ in range(3):
                await passed(clock, compaction.INTERVAL)
            assert os.statvfs(small_disk).f_bavail * 4096 < space.MARGIN
            assert (await create(world, "after")).status == 201
            assert (await metrics(world))["handfast_store_full"] == 0
            # The audit log took what it found, and not what deletes need.
            assert (await metrics(world))["handfast_audit_lost_total"] == 0
            assert "the disk has room again" in [line["event"] for line in logged]


async def test_while_it_lasts_the_log_says_so_every_few_minutes(
    small_disk: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    clock = MovableClock()
    store = await sqlite.open_store(str(small_disk / "store.db"), reserve=space.RESERVE, clock=clock)
    async with worlds.world(tmp_path / "d", store=store, clock=clock) as world:
        ballast = fill(small_disk)
        with structlog.testing.capture_logs() as logged:
            for seconds in (0, 1, 299, 1):
                await clock.advance(seconds)
                assert (await create(world, "a", "")).status == 503
            ballast.unlink()
            assert (await create(world, "a", "")).status == 201
        told = [(line["event"], line["refused"]) for line in logged if line.get("file") == str(small_disk / "store.db")]
        full = "the disk is full: writes are refused, deletes are not"
        assert told == [(full, 1), (full, 3), ("the disk has room again", 4)]


async def victim(path: str) -> None:
    """Fill the disk, delete some, and wait to be killed."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    store = await sqlite.open_store(path, reserve=space.RESERVE)
    revisions: list[int] = []
    with contextlib.suppress(protocol.StoreFull):
        while True:
            revisions.append(await store.create(f"k{len(revisions)}", os.urandom(900 << 10)))
    fill(pathlib.Path(path).parent)
    await store.delete("k0", expected=revisions[0])
    os.write(1, f"{len(revisions)}\n".encode())
    await asyncio.sleep(3600)


@pytest.mark.slow
async def test_killed_on_a_full_disk_it_comes_back(small_disk: pathlib.Path) -> None:
    path = str(small_disk / "store.db")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.scenarios.test_disk_full", path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        count = int(process.stdout.readline())
        process.kill()
    store = await sqlite.open_store(path, reserve=space.RESERVE)
    entries = {entry.key: entry for entry in (await store.list_at("")).entries}
    assert set(entries) == {f"k{number}" for number in range(1, count)}
    with pytest.raises(protocol.StoreFull):
        await store.create("more", b"")
    for key, entry in entries.items():
        await store.delete(key, expected=entry.revision)
    await store.compact(await store.current_revision())
    await store.create("more", os.urandom(900 << 10))
    await store.close()
    # After an orderly end SQLite's own files are gone, and have to be made again.
    (small_disk / "ballast").unlink()
    fill(small_disk)
    again = await sqlite.open_store(path, reserve=space.RESERVE)
    assert await again.get("more") is not None
    await again.close()


@pytest.mark.slow
def test_a_control_plane_on_a_full_disk_survives_the_death_of_its_api_server(small_disk: pathlib.Path) -> None:
    with up_world.Up(small_disk / "d") as up:
        up.ready()
        document = {"metadata": {"generateName": "large-"}, "data": {"text": LARGE}}
        names: list[str] = []
        while (answer := up.call("POST", PATH, document))[0] == 201:
            names.append(answer[1]["metadata"]["name"])
        assert (answer[0], FULL in answer[1]["message"]) == (503, True)
        fill(small_disk)
        code, rows = up.checked()
        assert (code, rows["store"]["verdict"], rows["store"]["reason"]) == (1, "failed", "StoreFull")
        # The rest is told all the same.
        assert rows["tokens"]["verdict"] == "ok"
        assert rows["store"]["message"] == "store ok, but the disk is full: writes are refused, deletes are not"
        assert up.call("DELETE", f"{PATH}/{names.pop()}")[0] == 200
        os.kill(up.pids()["apiserver"], signal.SIGKILL)
        up_world.until(lambda: _answers(up), what="another API server")
        assert up.call("POST", PATH, document)[0] == 503
        for name in names:
            assert up.call("DELETE", f"{PATH}/{name}")[0] == 200
        assert [item["metadata"]["name"] for item in up.call("GET", PATH)[1]["items"]] == ["kube-root-ca.crt"]


def _answers(up: up_world.Up) -> bool:
    with contextlib.suppress(OSError):
        return up.call("GET", PATH)[0] == 200
    return False


class Failing:
    """The real engine, whose disk fails while `failing` is set."""

    def __init__(self, engine: sqlite.SqliteStore) -> None:
        self._engine = engine
        self.failing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def create(self, key: str, value: bytes) -> int:
        if self.failing:
            raise protocol.StoreUnavailable("the disk failed")
        return await self._engine.create(key, value)


async def test_a_disk_that_fails_is_not_ready(tmp_path: pathlib.Path) -> None:
    store = Failing(await sqlite.open_store(str(tmp_path / "store.db")))
    async with worlds.world(tmp_path / "d", store=store) as world:
        await world.create_config_map("before")
        store.failing = True
        answer = await world.request("POST", PATH, {"metadata": {"name": "lost"}})
        assert (answer.status, answer.reason, answer.message) == (503, "ServiceUnavailable", "the disk failed")
        assert answer.headers["Retry-After"] == "1"
        assert (await world.get(f"{PATH}/before")).status == 200
        assert (await world.get(f"{PATH}/lost")).status == 404
        ready = await world.get("/readyz")
        assert (ready.status, b"[-]store failed: the disk failed" in ready.body) == (500, True)
        stranger = await world.get("/readyz", context=world.anonymous_context())
        assert (stranger.status, b"[-]store failed: reason withheld" in stranger.body) == (500, True)
        assert (await world.get("/livez")).status == 200
        store.failing = False
        await world.create_config_map("after")
        assert (await world.get("/readyz")).body == b"ok"


if __name__ == "__main__":
    asyncio.run(victim(sys.argv[1]))
