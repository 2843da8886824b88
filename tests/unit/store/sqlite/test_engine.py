# SPDX-License-Identifier: Apache-2.0
"""What the SQLite store adds to the contract: arguments checked, the epoch, closing."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import Callable, Coroutine

import pytest

from handfast import errors
from handfast.store import protocol
from handfast.store.sqlite import engine, writer


async def test_it_is_a_store(store: engine.SqliteStore) -> None:
    as_store: protocol.Store = store
    assert await as_store.current_revision() == 0


async def test_wrong_arguments_are_named(store: engine.SqliteStore) -> None:
    with pytest.raises(errors.Misuse, match="empty"):
        await store.create("", b"")
    with pytest.raises(errors.Misuse, match=r"'a\\udc80'"):
        await store.create("a\udc80", b"")
    with pytest.raises(errors.Misuse, match="UTF-8"):
        store.watch("\udc80", after=0)
    with pytest.raises(errors.Misuse, match="limit: -1"):
        await store.list_at("", limit=-1)
    with pytest.raises(errors.Misuse, match="by: 0"):
        await store.raise_epoch(0)
    assert await store.current_revision() == 0


async def test_a_new_epoch_moves_versions_up_and_ends_the_past(path: pathlib.Path) -> None:
    store = await engine.open_store(str(path))
    assert store.epoch_offset == 0
    first = await store.create("a", b"")
    last = await store.create("b", b"")
    assert await store.raise_epoch() == 10**9
    assert store.epoch_offset == 10**9
    await store.close()
    store = await engine.open_store(str(path))
    assert store.epoch_offset == 10**9
    assert await store.raise_epoch(5) == 10**9 + 5
    for older in (first, last - 10**9):
        with pytest.raises(protocol.Compacted):
            await store.watch("", after=older).next()
        with pytest.raises(protocol.Compacted):
            await store.list_at("", revision=older)
    watch = store.watch("", after=last)
    assert await store.create("c", b"") == last + 1
    events, _ = await watch.next()
    assert [event.key for event in events] == ["c"]
    await store.close()


async def test_a_failing_read_is_unavailable(store: engine.SqliteStore) -> None:
    await store.create("a", b"")
    store._file.reading.set_progress_handler(lambda: True, 1)
    with pytest.raises(protocol.StoreUnavailable, match="interrupted"):
        await store.list_at("")
    store._file.reading.set_progress_handler(None)
    assert len((await store.list_at("")).entries) == 1


@pytest.mark.parametrize("question", ["get", "list_at", "watch"])
async def test_nobody_is_told_of_a_commit_before_it_is_passed_on(
    store: engine.SqliteStore, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader sees a commit before the event loop has heard of it; here the loop is kept from hearing."""
    committed = threading.Event()
    kept: list[Callable[[], None]] = []
    pass_on = store._writer._on_loop

    def keep(callback: Callable[..., None], *args: writer.Commit) -> None:
        kept.append(lambda: pass_on(callback, *args))
        committed.set()

    await store.create("a", b"")
    monkeypatch.setattr(store._writer, "_on_loop", keep)
    writing = asyncio.ensure_future(store.create("b", b""))
    await asyncio.to_thread(committed.wait)
    monkeypatch.undo()
    questions: dict[str, Callable[[], Coroutine[None, None, object]]] = {
        "get": lambda: store.get("b"),
        "list_at": lambda: store.list_at(""),
        "watch": store.watch("", after=0).next,
    }
    reading = asyncio.ensure_future(questions[question]())
    await asyncio.sleep(0)
    await asyncio.get_running_loop().run_in_executor(store._reads, lambda: None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert await store.current_revision() == 1
    assert not reading.done()
    kept[0]()
    await asyncio.gather(reading, writing)
    assert await store.current_revision() == 2


async def test_closing_from_two_sides_waits_for_one_end(path: pathlib.Path) -> None:
    store = await engine.open_store(str(path))
    await asyncio.gather(store.close(), store.close())
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


async def test_reads_under_way_are_answered_when_closing(path: pathlib.Path) -> None:
    store = await engine.open_store(str(path))
    await store.create("a", b"v")
    reading = asyncio.ensure_future(store.get("a"))
    await asyncio.sleep(0)
    await store.close()
    assert await reading == protocol.Entry("a", b"v", 1, 1)
