# SPDX-License-Identifier: Apache-2.0
"""Thirty-two clients write, read and watch a store at once; what they saw can have been: linearizable, without gap, loss or repetition.

What is judged, and how, is said in `tests.world.histories`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
from typing import Any, cast

import pytest

from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.world import linearizability, recording
from tests.world.histories import Outcome

SECONDS = float(os.environ.get("HANDFAST_HISTORY_SECONDS", "0"))


async def until_through(recorder: recording.Recorder, count: int) -> None:
    """Until so many operations were answered, and so long as somebody asked for."""
    async with asyncio.timeout(SECONDS + 60):
        await asyncio.sleep(SECONDS)
        while recorder.done.total() < count:
            await asyncio.sleep(0.05)


async def compact(store: protocol.Store) -> None:
    while True:
        await store.compact(max(await store.current_revision() - 500, 0))
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(180 + SECONDS * 4)
async def test_sqlite_is_linearizable_while_it_compacts(tmp_path: pathlib.Path) -> None:
    store = await engine.open_store(str(tmp_path / "store.db"))
    recorder = recording.Recorder()
    compacting = asyncio.create_task(compact(store))
    async with recorder.clients([store]):
        await until_through(recorder, 3000)
    compacting.cancel()
    await store.close()
    assert linearizability.check(recorder.history()) == []
    assert recorder.count(Outcome.DONE) > 300
    assert recorder.count(Outcome.REFUSED) > 100


class Wrong:
    """The real engine, but for a mistake now and then: the judge has to find each."""

    def __init__(self, engine: engine.SqliteStore, mistake: str) -> None:
        self._engine = engine
        self._mistake = mistake
        self._calls = 0
        self._before: dict[str, protocol.Entry | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _is_wrong(self, mistake: str) -> bool:
        self._calls += 1
        return mistake == self._mistake and self._calls % 40 == 0

    async def update(self, key: str, value: bytes, *, expected: int) -> int:
        self._before[key] = await self._engine.get(key)
        if self._is_wrong("forgets a write"):
            return await self._engine.current_revision() + 1
        if self._is_wrong("writes what it refuses"):
            await self._engine.update(key, value, expected=expected)
            raise protocol.StoreUnavailable("nothing was changed")
        if self._is_wrong("compares with nothing") and (now := await self._engine.get(key)) is not None:
            return await self._engine.update(key, value, expected=now.revision)
        return await self._engine.update(key, value, expected=expected)

    async def get(self, key: str) -> protocol.Entry | None:
        return self._before.get(key) if self._is_wrong("reads what was") else await self._engine.get(key)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake", ["forgets a write", "writes what it refuses", "compares with nothing", "reads what was"]
)
async def test_a_store_that_is_wrong_now_and_then_is_found(tmp_path: pathlib.Path, mistake: str) -> None:
    store = await engine.open_store(str(tmp_path / "store.db"))
    recorder = recording.Recorder()
    # (What it makes up may lie beyond the end: nobody waits for that.)
    with contextlib.suppress(TimeoutError):
        async with recorder.clients([cast("protocol.Store", Wrong(store, mistake))], patience=2):
            await until_through(recorder, 1000)
    await store.close()
    assert linearizability.check(recorder.history()) != []
