# SPDX-License-Identifier: Apache-2.0
"""Of several servers on one store, one compacts: who finds the floor risen since its last round does not. On the real engine."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.apiserver.state import compaction, envelope, replica, storage
from handfast.store.sqlite import engine
from tests.world.clock import MovableClock


class Server:
    """One server's compaction, on a clock of its own; `asked` is what it asked the store to forget."""

    def __init__(self, store: engine.SqliteStore) -> None:
        self._inner = store
        self.asked: list[int] = []
        self.rounds = 0
        self.clock = MovableClock()
        envelopes = envelope.Envelopes()
        self.replica = replica.Replica(self, envelopes)
        self.task = asyncio.ensure_future(compaction.run(storage.Storage(self, envelopes, self.replica), self))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def compact(self, revision: int) -> int:
        self.asked.append(revision)
        return await self._inner.compact(revision)

    async def sleep(self, seconds: float) -> None:
        self.rounds += 1
        await self.clock.sleep(seconds)

    def now(self) -> datetime.datetime:
        return self.clock.now()

    async def round(self) -> None:
        """Let five minutes pass, and the work of it be done."""
        async with asyncio.timeout(60):
            while not self.rounds:
                await asyncio.sleep(0)
            before = self.rounds
            await self.clock.advance(compaction.INTERVAL)
            while self.rounds == before:
                await asyncio.sleep(0.001)

    async def write(self, key: str) -> None:
        self.replica.version = await self._inner.create(key, b"")


@pytest.fixture
async def pair(tmp_path: pathlib.Path) -> AsyncIterator[tuple[Server, Server]]:
    store = await engine.open_store(str(tmp_path / "store.db"))
    servers = Server(store), Server(store)
    yield servers
    for server in servers:
        server.task.cancel()
    await asyncio.gather(*(server.task for server in servers), return_exceptions=True)
    await store.close()


async def test_one_of_two_servers_compacts(pair: tuple[Server, Server]) -> None:
    one, other = pair
    for number in range(4):
        await one.write(f"k{number}")
        other.replica.version = one.replica.version
        await one.round()
        await other.round()
    # What it asks for lies a round back; the first round of a server knows nothing of others.
    assert one.asked == [0, 1, 2, 3]
    assert other.asked == [0]


async def test_another_takes_over_when_the_first_is_gone(pair: tuple[Server, Server]) -> None:
    one, other = pair
    await one.round()
    await other.round()
    one.task.cancel()
    for number in range(3):
        await other.write(f"k{number}")
        await other.round()
    assert other.asked == [0, 0, 1, 2]
