# SPDX-License-Identifier: Apache-2.0
"""A store of an older format is copied and migrated, by one of those who begin, with a step that was made up for it. On a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from handfast.store import protocol
from handfast.store.etcd import engine, formats, marks
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access
from handfast.wire import etcd_messages as messages
from tests.world import etcds

OPEN = etcd_access.Access()
MOVED = "core/moved"


async def step(session: sessions.Session) -> Sequence[Any]:
    """Format 2 has the entry `core/old` under another name."""
    place = session.place
    kvs = (await session.read(sessions.range_of(place.key("core/old")))).kvs
    removal = messages.RequestOp(request_delete_range=messages.DeleteRangeRequest(key=place.key("core/old")))
    return [marks.put(place.key(MOVED), kvs[0].value.decode()), removal] if kvs else []


async def everything(store: engine.EtcdStore, prefix: bytes) -> dict[bytes, bytes]:
    asked = messages.RangeRequest(key=prefix, range_end=places.after_all(prefix))
    answer = await store._client.call(0, asked, 20)
    return {kv.key[len(prefix) :]: kv.value for kv in answer.kvs}


def know_format_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "FORMAT", 2)
    monkeypatch.setattr(formats, "STEPS", {1: step})


async def test_an_older_store_is_copied_then_migrated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    place = etcds.shared().place()
    old = await engine.open_store(place, OPEN)
    await old.create("core/old", b"kept")
    for number in range(5):
        await old.create(f"core/large-{number}", bytes(protocol.VALUE_BYTES))
    await old.set_note("n", "x")
    before = await everything(old, place.objects)
    monkeypatch.setattr(formats, "_PAGE", 4)
    know_format_2(monkeypatch)
    stores = await asyncio.gather(*(engine.open_store(place, OPEN) for _ in range(3)))
    for store in stores:
        entry = await store.get(MOVED)
        assert entry is not None
        assert entry.value == b"kept"
        assert await store.get("core/old") is None
    copy = formats.beside(place, 1)
    assert await everything(old, copy + b"objects/") == before
    kept = await everything(old, copy + b"store/")
    assert (kept[b"format"], kept[b"identity"].decode(), kept[b"notes/n"]) == (b"1", stores[0].identity, b"x")
    # What is copied is no entry of the store.
    assert {entry.key for entry in (await stores[0].list_at("")).entries} == {
        MOVED,
        *(f"core/large-{number}" for number in range(5)),
    }
    for store in (*stores, old):
        await store.close()


async def test_a_copy_that_was_cut_short_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    place = etcds.shared().place()
    old = await engine.open_store(place, OPEN)
    await old.create("core/old", b"kept")
    await old._client.call(
        0, messages.PutRequest(key=formats.beside(place, 1) + b"objects/core/old", value=b"half"), 20
    )
    know_format_2(monkeypatch)
    new = await engine.open_store(place, OPEN)
    assert (await everything(new, formats.beside(place, 1) + b"objects/")) == {b"core/old": b"kept"}
    await new.close()
    await old.close()


async def test_a_server_of_the_version_before_ends_when_its_store_is_migrated() -> None:
    place = etcds.shared().place()
    old = await engine.open_store(place, OPEN)
    await old._client.call(0, messages.PutRequest(key=place.own(marks.FORMAT_KEY), value=b"2"), 20)
    with pytest.raises(protocol.StoreUnavailable, match="migrated the store to format 2") as ended:
        await old.current_revision()
    assert ended.value.reason == "StoreTooNew"
    await old.close()
    with pytest.raises(protocol.StoreCorrupt, match="newer than this program's 1"):
        await engine.open_store(place, OPEN)
