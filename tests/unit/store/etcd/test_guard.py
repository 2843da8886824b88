# SPDX-License-Identifier: Apache-2.0
"""Creates whose answers are lost on a line that hangs, and that etcd reads much later. On a real etcd, behind a real line."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest

from handfast.apiserver.state import lost_answers
from handfast.store import protocol
from handfast.store.etcd import engine, guard
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access
from tests.world import etcds, lines

OPEN = etcd_access.Access()


@pytest.fixture
async def line() -> AsyncIterator[lines.Line]:
    made = lines.Line(etcds.shared().address)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def store(line: lines.Line, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[engine.EtcdStore]:
    """Its watch is at the endpoint that stays; what is written goes over the line until that hangs."""
    place = places.Place((etcds.shared().address, line.address), etcds.shared().place().prefix)
    opened = await engine.open_store(place, OPEN)
    await opened.create("first", b"")
    opened._session.current = 1
    await opened.create("second", b"")
    monkeypatch.setattr(sessions, "WRITE_SECONDS", 2.0)
    yield opened
    await opened.close()


async def sent_over(line: lines.Line, store: engine.EtcdStore, attempt: lost_answers.Attempt) -> int:
    """A write whose first try hangs on the line; the second one goes another way."""
    line.hang()
    writing = asyncio.ensure_future(lost_answers.Attempts(store, lambda _why: None).make(attempt))
    async with asyncio.timeout(60):
        while line.held < len(attempt.value or b""):
            await asyncio.sleep(0.01)
    line.close_off()
    return await writing


async def test_a_create_that_was_lost_does_not_come_after_a_later_delete(
    line: lines.Line, store: engine.EtcdStore
) -> None:
    revision = await sent_over(line, store, lost_answers.Attempt("a", b"v" * 4096, 0))
    await store.delete("a", expected=revision)
    await line.let_go()
    # Whatever etcd makes of it, it has made it once a later write over the same connection would be done: it is given time.
    for _ in range(20):
        assert await store.get("a") is None
        await asyncio.sleep(0.05)
    # What is created from now on is created as before.
    assert await store.create("a", b"new") > revision


async def test_creates_of_other_servers_go_on_when_one_has_lost_an_answer(
    line: lines.Line, store: engine.EtcdStore
) -> None:
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
