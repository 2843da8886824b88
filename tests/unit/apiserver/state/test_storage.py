# SPDX-License-Identifier: Apache-2.0
"""Writes whose answer is lost: what the real engine did, or did not do, is found out and never guessed."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from handfast.api import resources, status
from handfast.apiserver.state import envelope, replica, storage
from handfast.store import protocol
from handfast.store.sqlite import engine

KIND = resources.CONFIG_MAPS
LOST = "lost on the way"
Step = Callable[[], Coroutine[Any, Any, None]]


async def nothing() -> None:
    pass


class Losing:
    """The real engine, whose answers get lost as `plan` says: the write is `done` or not, and `then` happens to the key."""

    def __init__(self, inner: engine.SqliteStore) -> None:
        self.inner = inner
        self.plan: list[tuple[bool, Step]] = []
        self.unreadable = False
        self.attempts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def _write(self, writing: Coroutine[Any, Any, int]) -> int:
        self.attempts += 1
        if not self.plan:
            return await writing
        done, then = self.plan.pop(0)
        if done:
            await writing
        else:
            writing.close()
        await then()
        raise protocol.StoreUncertain(LOST)

    async def create(self, key: str, value: bytes) -> int:
        return await self._write(self.inner.create(key, value))

    async def update(self, key: str, value: bytes, *, expected: int, removing: bool = False) -> int:
        return await self._write(self.inner.update(key, value, expected=expected, removing=removing))

    async def delete(self, key: str, *, expected: int) -> int:
        return await self._write(self.inner.delete(key, expected=expected))

    async def get(self, key: str) -> protocol.Entry | None:
        if self.unreadable:
            raise protocol.StoreUnavailable("no answer")
        return await self.inner.get(key)


@pytest.fixture
async def losing(tmp_path: pathlib.Path) -> AsyncIterator[Losing]:
    store = Losing(await engine.open_store(str(tmp_path / "store.db")))
    yield store
    await store.close()


@pytest.fixture
def writer(losing: Losing) -> storage.Storage:
    envelopes = envelope.Envelopes()
    return storage.Storage(losing, envelopes, replica.Replica(losing, envelopes))


def document(text: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default", "uid": "u"},
        "data": {"k": text},
    }


KEY = KIND.key("default", "a")


@pytest.mark.parametrize("done, attempts", [(True, 1), (False, 2)])
async def test_a_lost_create_is_there_once(writer: storage.Storage, losing: Losing, done: bool, attempts: int) -> None:
    losing.plan = [(done, nothing)]
    item = await writer.create(KIND, document("new"))
    entry = await losing.inner.get(KEY)
    assert entry is not None
    assert (item.version, losing.attempts) == (entry.revision, attempts)
    assert (writer.uncertain, writer.unknown, writer.trouble) == (1, 0, None)


@pytest.mark.parametrize("done, attempts", [(True, 1), (False, 2)])
async def test_a_lost_update_is_made_once(writer: storage.Storage, losing: Losing, done: bool, attempts: int) -> None:
    old = await writer.create(KIND, document("old"))
    losing.attempts, losing.plan = 0, [(done, nothing)]
    item = await writer.replace(KIND, document("new"), old)
    entry = await losing.inner.get(KEY)
    assert entry is not None
    assert (item.version, losing.attempts, await losing.current_revision()) == (
        entry.revision,
        attempts,
        entry.revision,
    )


@pytest.mark.parametrize("done, attempts", [(True, 1), (False, 2)])
async def test_a_lost_delete_is_made_once(writer: storage.Storage, losing: Losing, done: bool, attempts: int) -> None:
    old = await writer.create(KIND, document("old"))
    losing.attempts, losing.plan = 0, [(done, nothing)]
    gone = await writer.delete(KIND, old)
    assert (gone.version, losing.attempts) == (await losing.current_revision(), attempts)
    assert await losing.inner.get(KEY) is None


async def test_a_write_that_comes_through_late_is_not_a_conflict(writer: storage.Storage, losing: Losing) -> None:
    """The first try is done between the read and the second try."""
    old = await writer.create(KIND, document("old"))
    prepared = writer.prepare(KIND, document("new"), old)
    losing.plan = [(False, nothing)]
    read = losing.get

    async def then_it_comes_through(key: str) -> protocol.Entry | None:
        found = await read(key)
        await losing.inner.update(KEY, prepared.value, expected=old.version)
        return found

    losing.get = then_it_comes_through  # type: ignore[method-assign]
    item = await writer.write(prepared)
    assert item.version == await losing.current_revision() == old.version + 1


@pytest.mark.parametrize("op", ["create", "replace", "delete"])
async def test_another_value_there_is_a_conflict(writer: storage.Storage, losing: Losing, op: str) -> None:
    old = None if op == "create" else await writer.create(KIND, document("old"))

    async def somebody_else() -> None:
        if old is None:
            await losing.inner.create(KEY, b"theirs")
        else:
            await losing.inner.update(KEY, b"theirs", expected=old.version)

    losing.plan = [(False, somebody_else)]
    if old is None:
        writing = writer.create(KIND, document("new"))
    else:
        writing = writer.replace(KIND, document("new"), old) if op == "replace" else writer.delete(KIND, old)
    with pytest.raises(protocol.Mismatch) as refusal:
        await writing
    assert refusal.value.actual is not None
    assert refusal.value.actual.value == b"theirs"


@pytest.mark.parametrize("how", ["unreadable", "lost twice", "lost, then unavailable"])
async def test_what_stays_unknown_is_a_504_that_says_so(writer: storage.Storage, losing: Losing, how: str) -> None:
    async def stop_reading() -> None:
        losing.unreadable = True

    async def fail() -> None:
        raise protocol.StoreUnavailable("gone")

    plans = {
        "unreadable": [(True, stop_reading)],
        "lost twice": [(False, nothing)] * 2,
        "lost, then unavailable": [(False, nothing), (False, fail)],
    }
    losing.plan = plans[how]
    with pytest.raises(status.StatusError, match="it may have been: read the object before you try again") as refusal:
        await writer.create(KIND, document("new"))
    # No time to try again in: clients would.
    assert (refusal.value.code, refusal.value.reason, refusal.value.retry_after) == (504, "Timeout", 0)
    assert (writer.unknown, writer.trouble, losing.attempts <= 2) == (1, LOST, True)


async def test_a_second_try_that_is_done_but_lost_is_found(writer: storage.Storage, losing: Losing) -> None:
    losing.plan = [(False, nothing), (True, nothing)]
    item = await writer.create(KIND, document("new"))
    assert (item.version, losing.attempts) == (await losing.current_revision(), 2)


async def test_an_object_at_the_limit_is_stored_and_one_over_it_is_named(
    writer: storage.Storage, losing: Losing
) -> None:
    size = storage.OBJECT_LIMIT - len(envelope.encode_document(document("")))
    await writer.create(KIND, document("x" * size))
    entry = await losing.inner.get(KEY)
    assert entry is not None
    assert len(entry.value) <= protocol.VALUE_BYTES
    with pytest.raises(status.StatusError) as refusal:
        await writer.create(KIND, document("x" * (size + 1)))
    assert refusal.value.code == 413
    assert f"({storage.OBJECT_LIMIT + 1} bytes; an object may have {storage.OBJECT_LIMIT})" in refusal.value.message


async def test_what_the_store_finds_too_large_is_a_413(
    writer: storage.Storage, losing: Losing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_key: str, _value: bytes) -> int:
        raise protocol.TooLarge("the store takes 5 bytes")

    monkeypatch.setattr(losing, "create", refuse)
    with pytest.raises(status.StatusError, match="the store takes 5 bytes") as refusal:
        await writer.create(KIND, document("new"))
    assert refusal.value.code == 413
