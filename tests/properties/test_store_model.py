# SPDX-License-Identifier: Apache-2.0
"""Every engine against a model of a few lines: any sequence of calls, with reopening and compaction in between.

It does not test concurrency: the contract suite and the kill -9 scenario do. Nor does it say which revision a write gets:
only that they rise.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from handfast.store import protocol
from tests.contract import engines

T = TypeVar("T")

KEYS = st.sampled_from(["a", "a/", "a/x", "a/y", "a0", "b/ü", "b/😀", "\ud7ff", "\U0010ffff"])
PREFIXES = st.sampled_from(["", "a", "a/", "b/", "c", "\U0010ffff"])
VALUES = st.binary(max_size=20)
SHARES = st.floats(0, 1)
MEMORY = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None  # thousands of synced writes


class Model:
    """All writes, as events; every state is replayed from them."""

    def __init__(self, start: int) -> None:
        self.events: list[protocol.Event] = []
        self.start = self.floor = start

    @property
    def revision(self) -> int:
        return self.events[-1].revision if self.events else self.start

    def share(self, share: float) -> int:
        """A revision of the past, the start or now."""
        count = round(len(self.events) * share)
        return self.events[count - 1].revision if count else self.start

    def write(self, revision: int, key: str, value: bytes | None) -> None:
        assert revision > self.revision
        self.events.append(protocol.Event(revision, key, value))

    def since(self, revision: int) -> list[protocol.Event]:
        return [event for event in self.events if event.revision > revision]

    def at(self, revision: int) -> dict[str, protocol.Entry]:
        state: dict[str, protocol.Entry] = {}
        for event in self.events:
            if event.revision > revision:
                break
            if event.value is None:
                del state[event.key]
            else:
                created = state[event.key].created if event.key in state else event.revision
                state[event.key] = protocol.Entry(event.key, event.value, event.revision, created)
        return dict(sorted(state.items()))


@functools.cache
def one_loop() -> asyncio.AbstractEventLoop:
    """The loop of all examples: gRPC does not like loops that come and go."""
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


class StoreMachine(RuleBasedStateMachine):
    engine: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = one_loop()
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=MEMORY))
        self.opener = engines.ENGINES[self.engine](self.directory)
        self.store = self.run(self.opener())
        self.model = Model(self.run(self.store.current_revision()))
        self.watched = self.model.start
        self.watch = self.store.watch("", after=self.watched)

    def run(self, coroutine: Coroutine[None, None, T] | Awaitable[T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 30))

    def following(self, watch: protocol.Watch, after: int) -> list[protocol.Event]:
        """All that a watch gives up to the last write."""
        events: list[protocol.Event] = []
        while after < self.model.revision:
            batch, after = self.run(watch.next())
            events += batch
        return events

    @initialize(keys=st.lists(KEYS, unique=True))
    def fill(self, keys: list[str]) -> None:
        for key in keys:
            self.create(key, b"first")

    def mismatch(self, coroutine: Coroutine[None, None, int], found: protocol.Entry | None) -> None:
        with pytest.raises(protocol.Mismatch) as refusal:
            self.run(coroutine)
        assert refusal.value.actual == found

    @rule(key=KEYS, value=VALUES)
    def create(self, key: str, value: bytes) -> None:
        found = self.model.at(self.model.revision).get(key)
        if found is not None:
            self.mismatch(self.store.create(key, value), found)
        else:
            self.model.write(self.run(self.store.create(key, value)), key, value)

    @rule(key=KEYS, value=st.none() | VALUES, stale=st.integers(0, 3))
    def change(self, key: str, value: bytes | None, stale: int) -> None:
        found = self.model.at(self.model.revision).get(key)
        expected = max((found.revision if found else 1) - stale, 0)
        if value is None:
            attempt = self.store.delete(key, expected=expected)
        else:
            attempt = self.store.update(key, value, expected=expected)
        if found is None or found.revision != expected:
            self.mismatch(attempt, found)
        else:
            self.model.write(self.run(attempt), key, value)

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        assert self.run(self.store.get(key)) == self.model.at(self.model.revision).get(key)

    @rule(prefix=PREFIXES, share=SHARES, after=st.just("") | KEYS, limit=st.integers(0, 4))
    def list_at(self, prefix: str, share: float, after: str, limit: int) -> None:
        revision = self.model.share(share)
        listing = self.store.list_at(prefix, revision=revision, after=after, limit=limit)
        if 0 < revision < self.model.floor:
            with pytest.raises(protocol.Compacted):
                self.run(listing)
            return
        effective = revision or self.model.revision
        page = self.run(listing)
        wanted = [entry for key, entry in self.model.at(effective).items() if key.startswith(prefix) and key > after]
        assert page.entries == (wanted[:limit] if limit else wanted)
        assert page.revision == revision or (not revision and page.revision >= effective)
        assert page.more == bool(limit and len(wanted) > limit)

    @rule(prefix=PREFIXES, share=SHARES)
    def watch_history(self, prefix: str, share: float) -> None:
        after = self.model.share(share)
        watch = self.store.watch(prefix, after=after)
        if after < self.model.floor:
            with pytest.raises(protocol.Compacted):
                self.run(watch.next())
        elif after < self.model.revision:
            wanted = [event for event in self.model.since(after) if event.key.startswith(prefix)]
            assert self.following(watch, after) == wanted
        watch.close()

    @rule(share=SHARES)
    def compact(self, share: float) -> None:
        revision = self.model.share(share)
        self.model.floor = max(self.model.floor, revision)
        assert self.run(self.store.compact(revision)) == self.model.floor

    @rule()
    def follow(self) -> None:
        before, self.watched = self.watched, max(self.watched, self.model.revision)
        assert self.following(self.watch, before) == self.model.since(before)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(self.opener())
        # From now: a watch that has not begun to read can be overtaken by compaction.
        self.watched = self.run(self.store.current_revision())
        self.watch = self.store.watch("", after=self.watched)

    @invariant()
    def revisions_agree(self) -> None:
        assert self.run(self.store.current_revision()) >= self.model.revision

    def teardown(self) -> None:
        floor = self.run(self.store.floor())
        assert floor == self.model.floor if self.model.floor > self.model.start else floor <= self.model.start
        listed = self.run(self.store.list_at("")).entries
        assert list(listed) == list(self.model.at(self.model.revision).values())
        self.run(self.store.close())
        shutil.rmtree(self.directory)


class SqliteMachine(StoreMachine):
    engine = "sqlite"


TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


class EtcdMachine(StoreMachine):
    engine = "etcd"


TestEtcd = EtcdMachine.TestCase
TestEtcd.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
