# SPDX-License-Identifier: Apache-2.0
"""A store that is not what the server has seen of it: older, begun anew, or another cluster's. On the real engine."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import shutil
from collections.abc import AsyncIterator, Sequence

import pytest

from handfast import errors
from handfast.apiserver.state import lineage
from handfast.pki import seal
from handfast.store import protocol
from handfast.store.etcd import engine as etcd
from handfast.store.sqlite import engine
from handfast.wire import etcd_access
from tests.world import etcds

OURS = seal.Sealer({"one": b"1" * 32}, "one")
THEIRS = seal.Sealer({"two": b"2" * 32}, "two")


class Place:
    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.file = directory / "store-seen.json"
        self.database = directory / "store.db"

    @contextlib.asynccontextmanager
    async def opened(self, sealer: seal.Sealer = OURS) -> AsyncIterator[tuple[protocol.Store, lineage.Lineage]]:
        store = await engine.open_store(str(self.database))
        try:
            yield store, lineage.Lineage(store, self.file, sealer)
        finally:
            await store.close()

    async def served(self, *keys: str) -> tuple[str, int]:
        """One run of a server that writes these keys; why the epoch was raised, and what it is then."""
        async with self.opened() as (store, line):
            why = await line.begin()
            for key in keys:
                await store.create(key, b"")
            await line.seen(await store.current_revision())
            return why, store.epoch_offset

    def keep(self, name: str) -> None:
        shutil.copy(self.database, self.directory / name)

    def restore(self, name: str) -> None:
        shutil.copy(self.directory / name, self.database)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


async def test_a_store_that_goes_on_keeps_its_epoch(place: Place) -> None:
    for number in range(3):
        assert await place.served(f"k{number}") == ("", 0)


async def test_a_store_that_went_back_gets_a_new_epoch(place: Place) -> None:
    await place.served("a")
    place.keep("backup")
    await place.served("b")
    place.restore("backup")
    assert await place.served() == ("the store's history went back from revision 2 to 1", protocol.EPOCH)
    assert await place.served() == ("", protocol.EPOCH)
    # The same backup again has the old epoch: the next one is not the one that was given before.
    place.restore("backup")
    assert await place.served() == ("the store's epoch went back from 1000000000 to 0", 2 * protocol.EPOCH)


async def test_an_older_copy_that_others_brought_further_is_noticed(place: Place) -> None:
    """It has the witness of the server's start, and more revisions than the server saw: only what was left since tells."""
    async with place.opened() as (store, line):
        await line.begin()
    place.keep("backup")
    async with place.opened() as (store, running):
        running._seen = line._seen
        await store.create("b", b"")
        await running.seen(await store.current_revision())
    place.restore("backup")
    async with place.opened() as (store, line):
        for key in "xyz":
            await store.create(key, b"")
        assert await line.begin() == "the store's history is not the one that this server has seen"


async def test_a_history_that_went_another_way_gets_a_new_epoch(place: Place) -> None:
    await place.served("a")
    place.keep("backup")
    await place.served("b")
    place.restore("backup")
    async with place.opened() as (store, _):
        for key in ("x", "y", "z"):
            await store.create(key, b"")
    assert await place.served() == ("the store's history is not the one that this server has seen", protocol.EPOCH)


async def test_an_epoch_that_somebody_raised_is_enough(place: Place) -> None:
    await place.served("a")
    place.keep("backup")
    await place.served("b")
    place.restore("backup")
    async with place.opened() as (store, _):
        await store.raise_epoch()
    assert await place.served() == ("", protocol.EPOCH)


async def test_a_store_begun_anew_gets_a_new_epoch(place: Place) -> None:
    await place.served("a")
    place.database.unlink()
    assert await place.served() == ("the store was begun anew", protocol.EPOCH)


async def test_a_store_of_another_cluster_is_refused(place: Place) -> None:
    await place.served("a")
    async with place.opened(THEIRS) as (store, line):
        with pytest.raises(
            protocol.StoreCorrupt, match="another cluster's: it was sealed with the key 'one'"
        ) as refusal:
            await line.begin()
        assert refusal.value.reason == "OtherStore"
        assert store.epoch_offset == 0
    # The same keys, and another store than the one that was served here.
    place.database.unlink()
    async with place.opened() as (store, line):
        await store.create("b", b"")
        with pytest.raises(protocol.StoreCorrupt, match="the store is another one: its identity is"):
            await line.begin()


@contextlib.asynccontextmanager
async def one_place_twice(name: str, directory: pathlib.Path) -> AsyncIterator[Sequence[protocol.Store]]:
    """One store as two servers have it: each by itself in an etcd; a file has one owner, whom both share here."""
    if name == "etcd":
        place = etcds.shared().place()
        stores: Sequence[protocol.Store] = [await etcd.open_store(place, etcd_access.Access()) for _ in range(2)]
    else:
        stores = 2 * [await engine.open_store(str(directory / "store.db"))]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


@pytest.mark.parametrize("name", ["etcd", "sqlite"])
@pytest.mark.parametrize("number", range(3))
async def test_of_two_that_begin_at_once_with_other_keys_one_is_refused(
    name: str, number: int, tmp_path: pathlib.Path
) -> None:
    async with one_place_twice(name, tmp_path) as stores:
        lines = [
            lineage.Lineage(store, tmp_path / f"seen-{key}", sealer)
            for store, (key, sealer) in zip(stores, [("one", OURS), ("two", THEIRS)], strict=True)
        ]
        answers = await asyncio.gather(*(line.begin() for line in lines), return_exceptions=True)
        refusals = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(refusals) == 1, answers
        assert isinstance(refusals[0], protocol.StoreCorrupt)
        assert refusals[0].reason == "OtherStore"
        assert "use the encryption.key of the servers that share this store" in (refusals[0].hint or "")
        # Who was refused stays so; with the same keys, any number may begin.
        refused = answers.index(refusals[0])
        with pytest.raises(protocol.StoreCorrupt):
            await lines[refused].begin()
        same = [OURS, THEIRS][1 - refused]
        again = [lineage.Lineage(store, tmp_path / f"again-{at}", same) for at, store in enumerate(stores)]
        assert await asyncio.gather(*(line.begin() for line in again)) == ["", ""]


async def test_of_two_that_bring_different_new_keys_one_is_refused(place: Place) -> None:
    """Both can open what the old key has sealed, and neither what the other will seal."""
    old = b"0" * 32
    sealers = [seal.Sealer({name: name.encode() * 16, "old": old}, name) for name in ("k1", "k2")]
    async with place.opened(seal.Sealer({"old": old}, "old")) as (store, line):
        await line.begin()
        lines = [lineage.Lineage(store, place.directory / f"seen-{at}", sealer) for at, sealer in enumerate(sealers)]
        answers = await asyncio.gather(*(line.begin() for line in lines), return_exceptions=True)
    assert [type(answer) for answer in answers].count(protocol.StoreCorrupt) == 1, answers


async def test_a_server_that_could_not_seal_a_full_store_ends_when_another_has(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.opened() as (store, line):

        async def full(*_: object) -> None:
            raise protocol.StoreFull("no space")

        monkeypatch.setattr(store, "swap_note", full)
        assert await line.begin() == ""
        monkeypatch.undo()
        await lineage.Lineage(store, place.directory / "theirs", THEIRS).begin()
        await store.create("a", b"")
        with pytest.raises(protocol.StoreCorrupt, match="another cluster's"):
            await line.seen(await store.current_revision())


async def test_a_note_that_is_no_seal_is_refused(place: Place) -> None:
    async with place.opened() as (store, line):
        await store.set_note("sealed", "one:!")
        with pytest.raises(protocol.StoreCorrupt, match="another cluster's"):
            await line.begin()


async def test_a_file_that_is_no_such_file_is_named(place: Place) -> None:
    place.file.write_text("{}")
    async with place.opened() as (_, line):
        with pytest.raises(errors.Refused, match=r"store-seen\.json: not what a server writes there") as refusal:
            await line.begin()
        assert refusal.value.hint == "remove the file if the store is the right one"


async def test_without_space_the_old_witness_holds(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.served("a")
    async with place.opened() as (store, line):

        async def full(_name: str, _text: str | None) -> None:
            raise protocol.StoreFull("no space")

        monkeypatch.setattr(store, "set_note", full)
        assert await line.begin() == ""
        await store.create("b", b"")
        await line.seen(await store.current_revision())
    assert await place.served() == ("", 0)


async def test_old_witnesses_do_not_pile_up(place: Place) -> None:
    for _ in range(3):
        await place.served()
    async with place.opened() as (store, _):
        assert isinstance(store, engine.SqliteStore)
        names = [
            str(name) for (name,) in store._file.reading.execute("SELECT name FROM notes ORDER BY name").fetchall()
        ]
    assert names[:2] == ["identity", "sealed"]
    assert [name.split("/")[0] for name in names[2:]] == ["witness"]


async def test_a_seal_key_that_is_no_longer_used_can_be_taken_away(place: Place) -> None:
    old, new = bytes([1]) * 32, bytes([2]) * 32
    for sealer in (
        seal.Sealer({"old": old}, "old"),
        seal.Sealer({"new": new, "old": old}, "new"),
        seal.Sealer({"new": new}, "new"),
    ):
        async with place.opened(sealer) as (_, line):
            assert await line.begin() == ""
