# SPDX-License-Identifier: Apache-2.0
"""A store's file that is being filled has its name only when it is complete."""

from __future__ import annotations

import datetime
import pathlib

import pytest

from handfast import errors
from handfast.store import epochs, protocol
from handfast.store.sqlite import engine, snapshot, target

NOW = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)


async def test_a_finished_store_has_its_epoch_identity_and_reason(path: pathlib.Path) -> None:
    filling = await target.open_target(str(path), "a-store")
    await filling.store.create("k", b"v")
    assert not path.exists()
    await filling.finish(5000, "restored", NOW)
    await filling.close(keep=True)
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]
    store = await engine.open_store(str(path))
    assert (store.identity, store.epoch_offset + await store.current_revision()) == ("a-store", 5000)
    assert [each.why for each in epochs.read(await store.note(epochs.NOTE))] == ["restored"]
    assert await store.floor() == 1
    await store.close()


async def test_what_is_there_is_refused_by_name_and_left_alone(path: pathlib.Path) -> None:
    store = await engine.open_store(str(path))
    await store.create("k", b"v")
    with pytest.raises(errors.Refused, match=r"a store already, with 1 object at revision 1") as refusal:
        await target.open_target(str(path), "x")
    assert refusal.value.reason == "StoreNotEmpty"
    await store.close()
    path.write_bytes(b"something else, long enough to have a header" * 10)
    before = path.read_bytes()
    with pytest.raises(errors.Refused, match="there is a file that is no store"):
        await target.open_target(str(path), "x")
    assert path.read_bytes() == before


async def test_a_file_that_appears_meanwhile_is_not_replaced(path: pathlib.Path) -> None:
    filling = await target.open_target(str(path), "x")
    path.write_bytes(b"mine")
    with pytest.raises(errors.Refused, match="no store"):
        await filling.finish(5000, "restored", NOW)
    assert path.read_bytes() == b"mine"


async def test_what_is_unfinished_stays_or_goes(path: pathlib.Path) -> None:
    filling = await target.open_target(str(path), "x")
    await filling.store.create("k", b"v")
    await filling.close(keep=True)
    filling = await target.open_target(str(path), "x")
    assert await filling.store.get("k") is not None
    await filling.close(keep=False)
    assert list(path.parent.iterdir()) == []


def test_a_store_that_is_not_there_is_not_made(path: pathlib.Path) -> None:
    with pytest.raises(errors.Refused, match="there is no store") as refusal:
        snapshot.Snapshot(str(path))
    assert refusal.value.reason == "NoStore"
    assert not path.exists()


def test_a_file_that_is_no_store_is_said_to_be_none(path: pathlib.Path) -> None:
    path.write_bytes(b"something else, long enough to have a header" * 10)
    with pytest.raises(errors.Refused, match="not a store, or damaged"):
        snapshot.Snapshot(str(path))


async def test_the_log_of_a_store_that_was_moved_away_is_not_taken_for_the_new_ones(path: pathlib.Path) -> None:
    log = path.with_name("store.db-wal")
    log.write_bytes(b"x")
    with pytest.raises(errors.Refused, match="the last writes of a store that was there"):
        await target.open_target(str(path), "x")
    log.write_bytes(b"")
    await (await target.open_target(str(path), "x")).close(keep=False)


async def test_reading_a_store_that_nobody_serves_leaves_nothing_beside_it(path: pathlib.Path) -> None:
    await (await engine.open_store(str(path))).close()
    before = path.read_bytes()
    snapshot.Snapshot(str(path)).end()
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]
    assert path.read_bytes() == before


async def test_a_server_starts_and_stops_while_its_store_is_read(path: pathlib.Path) -> None:
    store = await engine.open_store(str(path))
    await store.create("a", b"1")
    there = snapshot.Snapshot(str(path))
    await store.create("b", b"1")
    # The log cannot be folded into the file while somebody reads: the next start finds it.
    await store.close()
    assert path.with_name("store.db-wal").stat().st_size
    store = await engine.open_store(str(path))
    await store.create("c", b"1")
    assert [entry.key async for page in there.pages() for entry in page] == ["a"]
    there.end()
    assert [entry.key for entry in (await store.list_at("")).entries] == ["a", "b", "c"]
    await store.close()
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]


async def test_no_new_store_is_begun_beside_an_unfinished_one(path: pathlib.Path) -> None:
    filling = await target.open_target(str(path), "x")
    await filling.close(keep=True)
    with pytest.raises(protocol.StoreCorrupt, match="a restore or a copy was begun and is not complete"):
        await engine.open_store(str(path))
    assert not path.exists()
