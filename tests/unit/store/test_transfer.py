# SPDX-License-Identifier: Apache-2.0
"""A store comes to hold exactly what another one held, also when the work was cut short and begun again."""

from __future__ import annotations

import io
import pathlib
from collections.abc import AsyncIterator, Sequence

import pytest

from handfast import errors
from handfast.store import backup_file, protocol, transfer
from handfast.store.sqlite import engine, snapshot


def ignore(_count: int) -> None:
    """Progress that nobody sees."""


async def held(store: protocol.Store) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in (await store.list_at("")).entries}


async def pages(content: dict[str, bytes], size: int = 3) -> AsyncIterator[Sequence[protocol.Entry]]:
    entries = [protocol.Entry(key, content[key], 1, 1) for key in sorted(content)]
    for at in range(0, len(entries), size):
        yield entries[at : at + size]


CONTENT = {f"k{n:03}": b"v%d" % n for n in range(20)}


async def test_an_empty_store_is_filled(store: engine.SqliteStore) -> None:
    counts = await transfer.synchronise(pages(CONTENT), store, ignore)
    assert await held(store) == CONTENT
    assert (counts.written, counts.kept, counts.removed, counts.seen) == (20, 0, 0, 20)


async def test_what_differs_is_replaced_and_what_is_gone_is_removed(store: engine.SqliteStore) -> None:
    await transfer.synchronise(pages(CONTENT), store, ignore)
    revision = await store.current_revision()
    wanted = CONTENT | {"k000a": b"new", "k005": b"other", "z": b"last"}
    for gone in ("k000", "k007", "k008", "k019"):
        del wanted[gone]
    counts = await transfer.synchronise(pages(wanted), store, ignore)
    assert await held(store) == wanted
    assert (counts.written, counts.kept, counts.removed) == (3, 15, 4)
    # What was there already was not written again.
    assert await store.current_revision() == revision + 7


async def test_a_store_may_be_emptied(store: engine.SqliteStore) -> None:
    await transfer.synchronise(pages(CONTENT), store, ignore)
    assert (await transfer.synchronise(pages({}), store, ignore)).removed == 20
    assert await held(store) == {}


@pytest.mark.parametrize("cut", [0, 1, 7, 19])
async def test_work_that_was_cut_short_is_gone_on_with(store: engine.SqliteStore, cut: int) -> None:
    async def broken() -> AsyncIterator[Sequence[protocol.Entry]]:
        done = 0
        async for page in pages(CONTENT, 1):
            if done == cut:
                raise errors.Unavailable("cut short")
            done += 1
            yield page

    with pytest.raises(errors.Unavailable, match="cut short"):
        await transfer.synchronise(broken(), store, ignore)
    counts = await transfer.synchronise(pages(CONTENT), store, ignore)
    assert (counts.kept, counts.written) == (cut, 20 - cut)
    assert await held(store) == CONTENT


async def test_more_than_a_page_is_compared(store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PAGE", 4)
    await transfer.synchronise(pages(CONTENT), store, ignore)
    counts = await transfer.synchronise(pages(CONTENT, 7), store, ignore)
    assert (counts.kept, counts.written, counts.removed) == (20, 0, 0)


async def test_a_backup_of_an_open_store_holds_one_revision(
    store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PAGE", 4)
    await transfer.synchronise(pages(CONTENT), store, ignore)
    source = await transfer.StoreSource.of(store, "sqlite", "here")
    sink = io.BytesIO()
    seen = 0

    def progress(count: int) -> None:
        nonlocal seen
        seen = count

    writer = backup_file.Writer(sink, backup_file.Header(revision=source.revision, identity=source.identity))
    writing = transfer.write_backup(source, writer, progress)
    # It begins when it is awaited: what is written before that, but after the revision was taken, is not in it.
    await store.create("later", b"")
    trailer, checksum = await writing
    assert (trailer.objects, seen) == (20, 20)

    def begin() -> backup_file.Reader:
        return backup_file.Reader(io.BytesIO(sink.getvalue()))

    backup = transfer.BackupSource(begin, "backup")
    assert {entry.key: entry.value async for page in backup.pages() for entry in page} == CONTENT
    assert [entry.key async for page in backup.pages("k01") for entry in page] == [f"k01{n}" for n in range(10)]
    assert (backup.checksum, backup.identity, backup.objects) == (checksum, store.identity, None)
    await backup.close()


async def test_a_revision_that_is_compacted_meanwhile_can_be_tried_again(store: engine.SqliteStore) -> None:
    await transfer.synchronise(pages(CONTENT), store, ignore)
    source = await transfer.StoreSource.of(store, "sqlite", "here")
    await store.compact(await store.create("later", b""))
    with pytest.raises(errors.Unavailable, match="was compacted while it was read"):
        [page async for page in source.pages()]


async def test_a_backup_that_changes_between_two_readings_is_refused() -> None:
    def made(value: bytes) -> bytes:
        sink = io.BytesIO()
        writer = backup_file.Writer(sink, backup_file.Header(revision=9))
        writer.add([protocol.Entry("k", value, 1, 1)])
        writer.finish()
        return sink.getvalue()

    versions = [made(b"1"), made(b"1"), made(b"2")]
    backup = transfer.BackupSource(lambda: backup_file.Reader(io.BytesIO(versions.pop(0))), "backup")
    assert [page async for page in backup.pages()]
    with pytest.raises(backup_file.BackupDamaged, match="backup: damaged at byte 0: the file was changed"):
        [page async for page in backup.pages()]


async def test_a_half_filled_store_takes_no_other_identity(store: engine.SqliteStore) -> None:
    await transfer.adopt(store, "", "here")
    await transfer.adopt(store, "a", "here")
    assert store.identity == "a"
    await store.create("k", b"")
    await transfer.adopt(store, "a", "here")
    with pytest.raises(errors.Refused, match="a copy of another store was begun there") as refusal:
        await transfer.adopt(store, "b", "here")
    assert refusal.value.reason == "OtherStore"


async def test_a_file_is_read_at_one_revision_while_its_owner_writes(
    store: engine.SqliteStore, path: pathlib.Path
) -> None:
    await transfer.synchronise(pages(CONTENT), store, ignore)
    there = snapshot.Snapshot(str(path))
    await store.create("later", b"")
    await store.set_note("n", "x")
    assert {entry.key: entry.value async for page in there.pages() for entry in page} == CONTENT
    assert (there.objects, there.revision, there.identity, await there.note("n")) == (20, 20, store.identity, None)
    assert (await there.stats()).size_bytes
    await there.close()
