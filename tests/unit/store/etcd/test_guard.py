# SPDX-License-Identifier: Apache-2.0
"""Creates whose answers are lost on a line that hangs, and that etcd reads much later. On a real etcd, behind a real line."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest

from handfast.apiserver.state import lost_answers
from handfast.runtime import addresses
from handfast.store import protocol
from handfast.store.etcd import engine, guard
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access
from tests.world import etcds

OPEN = etcd_access.Access()


class Line:
    """A line to an etcd that can hang: what is sent meanwhile arrives when it is let go, as far as it was held."""

    def __init__(self, upstream: addresses.Address) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._up: asyncio.StreamWriter | None = None
        self._hangs = False
        self._closed_off = False
        self._held = bytearray()
        self.address = addresses.Address("127.0.0.1", 0)
        self._ends: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = addresses.Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    def hang(self) -> None:
        self._hangs = True

    def close_off(self) -> None:
        """From now on nothing more is held: not that the sender gave up."""
        self._closed_off = True

    @property
    def held(self) -> int:
        return len(self._held)

    async def let_go(self) -> None:
        assert self._up is not None
        self._up.write(bytes(self._held))
        await self._up.drain()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for end in self._ends:
            end.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, up = await asyncio.open_connection(self._upstream.host, self._upstream.port)
        self._up = up
        self._ends += [writer, up]
        await asyncio.gather(self._forth(reader, up), self._back(back, writer), return_exceptions=True)

    async def _forth(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not self._hangs:
                up.write(data)
                await up.drain()
            elif not self._closed_off:
                self._held += data

    async def _back(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await back.read(1 << 16):
            if not self._hangs:
                writer.write(data)
                await writer.drain()


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    made = Line(etcds.shared().address)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def store(line: Line, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[engine.EtcdStore]:
    """Its watch is at the endpoint that stays; what is written goes over the line until that hangs."""
    place = places.Place((etcds.shared().address, line.address), etcds.shared().place().prefix)
    opened = await engine.open_store(place, OPEN)
    await opened.create("first", b"")
    opened._session.current = 1
    await opened.create("second", b"")
    monkeypatch.setattr(sessions, "WRITE_SECONDS", 2.0)
    yield opened
    await opened.close()


async def sent_over(line: Line, store: engine.EtcdStore, attempt: lost_answers.Attempt) -> int:
    """A write whose first try hangs on the line; the second one goes another way."""
    line.hang()
    writing = asyncio.ensure_future(lost_answers.Attempts(store, lambda _why: None).make(attempt))
    async with asyncio.timeout(60):
        while line.held < len(attempt.value or b""):
            await asyncio.sleep(0.01)
    line.close_off()
    return await writing


async def test_a_create_that_was_lost_does_not_come_after_a_later_delete(line: Line, store: engine.EtcdStore) -> None:
    revision = await sent_over(line, store, lost_answers.Attempt("a", b"v" * 4096, 0))
    await store.delete("a", expected=revision)
    await line.let_go()
    # Whatever etcd makes of it, it has made it once a later write over the same connection would be done: it is given time.
    for _ in range(20):
        assert await store.get("a") is None
        await asyncio.sleep(0.05)
    # What is created from now on is created as before.
    assert await store.create("a", b"new") > revision


async def test_creates_of_other_servers_go_on_when_one_has_lost_an_answer(line: Line, store: engine.EtcdStore) -> None:
    other = await engine.open_store(store._place, OPEN)
    await other.create("before", b"")
    await sent_over(line, store, lost_answers.Attempt("a", b"v" * 4096, 0))
    results = await asyncio.gather(*(other.create(f"k{number}", b"") for number in range(20)))
    assert len(set(results)) == 20
    with pytest.raises(protocol.Mismatch) as refusal:
        await other.create("a", b"")
    assert refusal.value.actual is not None
    await other.close()


@pytest.mark.slow
async def test_while_a_lost_create_may_still_come_no_other_is_sent(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "WRITE_SECONDS", 0.5)
    monkeypatch.setattr(sessions, "READ_SECONDS", 0.5)
    monkeypatch.setattr(guard, "_PAUSE", 0.1)
    with etcds.running(tmp_path) as etcd:
        store = await engine.open_store(etcd.place(), OPEN)
        etcd.freeze()
        with pytest.raises(protocol.StoreUncertain):
            await store.create("a", b"1")
        with pytest.raises(protocol.StoreUnavailable, match="whether an earlier write was done is not known"):
            await store.create("b", b"1")
        etcd.thaw()
        # By itself: nobody has to write for it.
        async with asyncio.timeout(60):
            while store._guard._lost > store._guard._settled:
                await asyncio.sleep(0.05)
        entry = await store.get("a")
        assert (entry is None) or entry.value == b"1"
        assert await store.get("b") is None
        await store.create("b", b"2")
        await store.close()
