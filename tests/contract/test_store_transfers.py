# SPDX-License-Identifier: Apache-2.0
"""`handfast store` between engines: what one holds comes back from another, on a real etcd, also when it is cut short."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

import pytest
import structlog

from handfast import errors
from handfast.apiserver import announcement
from handfast.apiserver.state import envelope, lineage, replica, storage
from handfast.cli import main, output
from handfast.pki import seal
from handfast.runtime import clock as clocks
from handfast.store import protocol, transfer
from handfast.store.etcd import engine as etcd
from handfast.store.etcd import place as places
from handfast.store.etcd import target as etcd_target
from handfast.store.sqlite import engine as sqlite
from handfast.wire import etcd_access
from tests.world import etcds
from tests.world.clock import MovableClock

T = TypeVar("T")
ACCESS = etcd_access.Access()
COUNT = 1200


def run(*words: object) -> int:
    return output.run(main.command, ["store", *map(str, words)])


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> object:
    monkeypatch.setenv("HANDFAST_DIR", str(tmp_path / "d"))
    monkeypatch.delenv("HANDFAST_STORE", raising=False)
    yield
    structlog.reset_defaults()


def value(name: str) -> bytes:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
    return envelope.Envelopes().wrap("", "v1", envelope.encode_document(document))


async def fill(store: protocol.Store, names: range = range(COUNT)) -> None:
    for at in range(0, len(names), 200):
        part = [f"n{n:05}" for n in names[at : at + 200]]
        await asyncio.gather(*(store.create(f"core/configmaps/default/{name}", value(name)) for name in part))


def within_file(path: pathlib.Path, work: Callable[[protocol.Store], Awaitable[T]]) -> T:
    async def done() -> T:
        store = await sqlite.open_store(str(path))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(done())


def within_etcd(place: places.Place, work: Callable[[protocol.Store], Awaitable[T]]) -> T:
    async def done() -> T:
        store = await etcd.open_store(place, ACCESS)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(done())


async def held(store: protocol.Store) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in (await store.list_at("")).entries}


def told(store: protocol.Store) -> Coroutine[Any, Any, tuple[str, int]]:
    async def done() -> tuple[str, int]:
        return store.identity, store.epoch_offset + await store.current_revision()

    return done()


def test_a_store_moves_to_etcd_and_back(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    origin, place, back = tmp_path / "store.db", etcds.shared().place(), tmp_path / "back.db"
    within_file(origin, fill)
    content, (identity, version) = within_file(origin, held), within_file(origin, told)
    assert run("copy", origin, place, "-o", "json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["objects"], summary["written"]) == (COUNT, COUNT)
    assert within_etcd(place, held) == content
    in_etcd = within_etcd(place, told)
    assert in_etcd[0] == identity
    assert in_etcd[1] >= summary["firstVersion"] > version
    # It is no target any more.
    assert run("copy", origin, place) == 1
    assert f"a store already, with {COUNT} objects" in capsys.readouterr().err
    assert run("copy", place, back) == 0
    assert within_file(back, held) == content
    assert within_file(back, told)[1] > in_etcd[1]


async def announce(store: protocol.Store) -> None:
    """As a server does that is killed at once: its Lease stays."""
    envelopes = envelope.Envelopes()
    copy = replica.Replica(store, envelopes)
    await copy.load()
    documents = storage.Storage(store, envelopes, copy)
    await announcement.Announcer(store, documents, clocks.SystemClock(), raise_form=envelopes.write_as).announce()


def servers_of(content: Collection[str]) -> list[str]:
    return [key for key in content if key.startswith(announcement.KEYS)]


def test_who_served_from_the_old_store_does_not_count_for_the_new_one(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that was killed on a file is no reason against the way back from etcd. One that serves from the etcd is."""
    origin, place, back = tmp_path / "store.db", etcds.shared().place(), tmp_path / "back.db"
    named_alike = f"{announcement.KEYS}mine"

    async def begin(store: protocol.Store) -> None:
        await fill(store, range(3))
        await announce(store)
        # What only has such a name is no server, and goes along.
        await store.create(named_alike, value("mine"))

    within_file(origin, begin)
    content = within_file(origin, held)
    assert len(servers_of(content)) == 2
    wanted = {key: value for key, value in content.items() if key == named_alike or key not in servers_of(content)}
    assert run("copy", origin, place) == 0
    assert within_etcd(place, held) == wanted
    assert run("copy", place, back) == 0
    assert within_file(back, held) == wanted
    # Its own servers still count.
    within_etcd(place, announce)
    capsys.readouterr()
    assert run("copy", place, tmp_path / "second.db") == 1
    assert "is being served" in capsys.readouterr().err
    assert run("copy", "--prepare", place, tmp_path / "second.db") == 0


@pytest.mark.parametrize("engine", ["etcd", "sqlite"])
def test_who_served_when_a_backup_was_taken_does_not_count_for_what_is_restored(
    engine: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin, file, elsewhere = tmp_path / "store.db", tmp_path / "backup", tmp_path / "elsewhere.db"
    target = etcds.shared().place() if engine == "etcd" else elsewhere
    within_file(origin, lambda store: fill(store, range(3)))
    content = within_file(origin, held)
    within_file(origin, announce)
    assert run("backup", file, "--store", origin) == 0
    assert run("restore", file, "--store", target) == 0
    restored = within_etcd(target, held) if isinstance(target, places.Place) else within_file(target, held)
    assert restored == content
    capsys.readouterr()
    assert run("status", "--store", target, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["servers"] == []
    assert run("copy", target, tmp_path / "back.db") == 0


def test_a_backup_of_etcd_is_of_one_revision_and_is_restored_there(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, other, file = etcds.shared().place(), etcds.shared().place(), tmp_path / "backup"
    within_etcd(place, lambda store: fill(store, range(50)))
    assert run("backup", file, "--store", place) == 0
    assert "backed up 50 objects" in capsys.readouterr().out
    assert run("verify", file) == 0
    assert run("verify", "--store", place) == 0
    capsys.readouterr()
    assert run("restore", file, "--store", place) == 1
    assert capsys.readouterr().err.endswith("reason: StoreNotEmpty\n")
    assert run("restore", file, "--store", other) == 0
    assert within_etcd(other, held) == within_etcd(place, held)
    assert run("status", "--store", other, "-o", "json") == 0
    text = capsys.readouterr().out
    status = json.loads(text[text.index("\n{") :])
    assert (status["engine"], status["objects"], len(status["members"])) == ("etcd", 50, 1)
    assert status["members"][0]["leads"]
    assert status["sizeBytes"] > 0
    assert status["epochs"][0]["why"].startswith("restored from a backup of ")
    assert run("status", "--store", other) == 0
    assert "MEMBER" in capsys.readouterr().out


def test_a_prefix_without_a_store_is_not_begun(capsys: pytest.CaptureFixture[str]) -> None:
    place = etcds.shared().place()
    assert run("status", "--store", place) == 1
    assert capsys.readouterr().err.endswith("reason: NoStore\n")
    assert run("status", "--store", place) == 1


def test_a_restore_that_fails_leaves_nothing_in_etcd(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, file, origin = etcds.shared().place(), tmp_path / "backup", tmp_path / "store.db"
    within_file(origin, lambda store: fill(store, range(20)))
    assert run("backup", file, "--store", origin) == 0
    file.write_bytes(file.read_bytes()[:-1])
    capsys.readouterr()
    assert run("restore", file, "--store", place) == 1
    assert capsys.readouterr().err.endswith("reason: BackupTruncated\n")
    assert run("status", "--store", place) == 1
    assert capsys.readouterr().err.endswith("reason: NoStore\n")


async def test_no_server_serves_from_an_unfinished_store(tmp_path: pathlib.Path) -> None:
    place = etcds.shared().place()
    filling = await etcd_target.open_target(place, ACCESS, "a-store")
    await fill(filling.store, range(5))
    await filling.close(keep=True)
    store = await etcd.open_store(place, ACCESS)
    envelopes = envelope.Envelopes()
    copy = replica.Replica(store, envelopes)
    documents = storage.Storage(store, envelopes, copy)
    announcer = announcement.Announcer(store, documents, MovableClock(), raise_form=envelopes.write_as)
    with pytest.raises(errors.Refused, match="the store is unfinished") as refusal:
        await announcer.require_known()
    assert refusal.value.reason == "StoreUnfinished"
    await store.close()
    # It is gone on with by a copy of the same store, and by no other.
    with pytest.raises(errors.Refused, match="a copy of another store was begun there"):
        await etcd_target.open_target(place, ACCESS, "another")
    again = await etcd_target.open_target(place, ACCESS, "a-store")
    assert len(await held(again.store)) == 5
    await again.finish(10**15, "copied", MovableClock().now())
    await again.close(keep=True)
    store = await etcd.open_store(place, ACCESS)
    assert await store.note(transfer.UNFINISHED) is None
    await store.close()


@pytest.mark.parametrize("engine", ["etcd", "sqlite"])
def test_what_is_written_while_a_store_is_copied_is_not_lost(
    engine: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server begins when most is copied, writes, and is gone before the copy looks again."""
    place, path = etcds.shared().place(), tmp_path / "store.db"
    origin, destination = (place, path) if engine == "etcd" else (path, place)

    async def opened() -> protocol.Store:
        return await etcd.open_store(place, ACCESS) if engine == "etcd" else await sqlite.open_store(str(path))

    async def writing(names: range) -> None:
        store = await opened()
        await fill(store, names)
        await store.close()

    asyncio.run(writing(range(20)))
    synchronise = transfer.synchronise

    async def then_written(*arguments: Any) -> transfer.Counts:
        counts = await synchronise(*arguments)
        await writing(range(20, 22))
        return counts

    monkeypatch.setattr(transfer, "synchronise", then_written)
    assert run("copy", origin, destination) == 1
    said = capsys.readouterr().err
    assert "was written to since this copy began" in said
    assert "hint: stop the control plane first, then copy again" in said
    assert said.endswith("reason: StoreInUse\n")
    monkeypatch.undo()
    # It is gone on with.
    assert run("copy", origin, destination, "-o", "json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["kept"], summary["written"]) == (20, 2)


@pytest.mark.slow
def test_a_server_that_serves_when_the_copy_is_done_ends_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written nothing yet, and has the file open."""
    origin = tmp_path / "store.db"
    within_file(origin, lambda store: fill(store, range(5)))
    synchronise = transfer.synchronise
    servers: list[subprocess.Popen[str]] = []

    async def then_served(*arguments: Any) -> transfer.Counts:
        counts = await synchronise(*arguments)
        code = "import asyncio, sys; from handfast.store.sqlite import engine\n"
        code += "async def main():\n store = await engine.open_store(sys.argv[1]); print('open', flush=True); sys.stdin.read()\n"
        code += "asyncio.run(main())"
        command = [sys.executable, "-c", code, str(origin)]
        servers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert servers[0].stdout is not None
        assert servers[0].stdout.readline() == "open\n"
        return counts

    monkeypatch.setattr(transfer, "synchronise", then_served)
    try:
        assert run("copy", origin, tmp_path / "moved.db") == 1
    finally:
        for server in servers:
            server.communicate("", timeout=60)
    said = capsys.readouterr().err
    assert "is being served since this copy began, which is unfinished" in said
    assert not (tmp_path / "moved.db").exists()


def _lineage(store: protocol.Store, directory: pathlib.Path, name: str = "store-seen.json") -> lineage.Lineage:
    return lineage.Lineage(store, directory / name, seal.Sealer({"one": b"1" * 32}, "one"))


async def test_nothing_is_filled_where_a_server_has_begun(tmp_path: pathlib.Path) -> None:
    """Also before it has written its first object."""
    place = etcds.shared().place()
    store = await etcd.open_store(place, ACCESS)
    await _lineage(store, tmp_path).begin()
    with pytest.raises(errors.Refused, match="a server has begun a store there") as refusal:
        await etcd_target.open_target(place, ACCESS, "a-store")
    assert refusal.value.reason == "StoreNotEmpty"
    assert f"etcdctl del --prefix /{place.prefix}/" in (refusal.value.hint or "")
    await store.create("a", b"")
    await store.close()


async def test_no_server_begins_where_something_is_filled_and_nothing_is_removed_under_it(
    tmp_path: pathlib.Path,
) -> None:
    """The server has opened the store before the restore began, and so has seen no note of it."""
    place = etcds.shared().place()
    store = await etcd.open_store(place, ACCESS)
    filling = await etcd_target.open_target(place, ACCESS, "")
    with pytest.raises(errors.Refused) as refusal:
        await _lineage(store, tmp_path).begin()
    assert refusal.value.reason == "StoreUnfinished"
    # One that gets another's identity is no longer the store that this server has opened.
    await filling.store.take_identity("another")
    with pytest.raises(errors.Unavailable, match="the store was removed, or has become another one"):
        await store.swap_note("x", None, "y")
    await filling.close(keep=False)
    await store.close()


async def test_of_a_server_and_a_restore_at_once_one_is_refused(tmp_path: pathlib.Path) -> None:
    """Both have found an empty store, and go for it in the same moment."""
    for number in range(6):
        place = etcds.shared().place()
        store, filled = [await etcd.open_store(place, ACCESS) for _ in range(2)]
        serving = _lineage(store, tmp_path, f"seen-{number}").begin()
        filling = etcd_target.claim(filled, place)
        rivals = [serving, filling] if number % 2 else [filling, serving]
        answers = await asyncio.gather(*rivals, return_exceptions=True)
        assert [isinstance(answer, errors.Refused) for answer in answers].count(True) == 1, answers
        for each in (store, filled):
            await each.close()


async def test_who_has_lost_the_claim_finishes_and_removes_nothing() -> None:
    place = etcds.shared().place()
    first = await etcd_target.open_target(place, ACCESS, "a-store")
    await fill(first.store, range(3))
    second = await etcd_target.open_target(place, ACCESS, "a-store")
    with pytest.raises(errors.Refused, match="another restore or copy fills the same store") as refusal:
        await first.finish(10**15, "restored", MovableClock().now())
    assert refusal.value.reason == "StoreInUse"
    await first.close(keep=False)
    assert len(await held(second.store)) == 3
    await second.close(keep=False)
    store = await etcd.open_store(place, ACCESS)
    assert await held(store) == {}
    await store.close()


async def test_a_restore_that_is_cut_short_before_its_last_step_is_gone_on_with(tmp_path: pathlib.Path) -> None:
    """The note is removed and the claim is not: servers refuse the store, so a restore must not."""
    place = etcds.shared().place()
    filling = await etcd_target.open_target(place, ACCESS, "a-store")
    await fill(filling.store, range(3))
    await filling.store.set_note(transfer.UNFINISHED, None)
    await filling.close(keep=True)
    store = await etcd.open_store(place, ACCESS)
    with pytest.raises(errors.Refused) as refusal:
        await _lineage(store, tmp_path).begin()
    assert refusal.value.reason == "StoreUnfinished"
    await store.close()
    again = await etcd_target.open_target(place, ACCESS, "a-store")
    await again.finish(10**15, "restored", MovableClock().now())
    await again.close(keep=True)
    store = await etcd.open_store(place, ACCESS)
    await _lineage(store, tmp_path).begin()
    assert len(await held(store)) == 3
    await store.close()


@pytest.mark.slow
def test_a_copy_that_is_killed_is_gone_on_with(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    origin, place = tmp_path / "store.db", etcds.shared().place()
    within_file(origin, fill)
    content = within_file(origin, held)
    # It is killed while it writes: when the first entries are there.
    words = [sys.executable, "-m", "handfast", "store", "copy", str(origin), str(place)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ) as process:

        async def some(store: protocol.Store) -> int:
            async with asyncio.timeout(90):
                while not (there := len((await store.list_at("")).entries)) and process.poll() is None:
                    await asyncio.sleep(0.01)
            return there

        assert within_etcd(place, some)
        process.kill()
    capsys.readouterr()
    assert run("copy", origin, place, "-o", "json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["kept"] > 0
    assert summary["kept"] + summary["written"] == COUNT
    assert within_etcd(place, held) == content
