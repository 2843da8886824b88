# SPDX-License-Identifier: Apache-2.0
"""The SQLite engine against a model of a few lines: any sequence of calls, with reopening and compaction in between.

It does not test concurrency: the contract suite and the kill -9 scenario do.
"""

from __future__ import annotations

import asyncio
import pathlib
import shutil
import tempfile
from collections.abc import Coroutine
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from handfast.store import protocol
from handfast.store.sqlite import engine

T = TypeVar("T")

KEYS = st.sampled_from(["a", "a/", "a/x", "a/y", "a0", "b/ü", "b/😀", "\ud7ff", "\U0010ffff"])
PREFIXES = st.sampled_from(["", "a", "a/", "b/", "c", "\U0010ffff"])
VALUES = st.binary(max_size=20)
SHARES = st.floats(0, 1)
MEMORY = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None  # thousands of synced writes


class Model:
    """All writes, as events; every state is replayed from them."""

    def __init__(self) -> None:
        self.events: list[protocol.Event] = []
        self.floor = 0

    @property
    def revision(self) -> int:
        return len(self.events)

    def write(self, key: str, value: bytes | None, previous: int) -> None:
        self.events.append(protocol.Event(self.revision + 1, key, value, previous))

    def at(self, revision: int) -> dict[str, protocol.Entry]:
        state: dict[str, protocol.Entry] = {}
        for event in self.events[:revision]:
            if event.value is None:
                del state[event.key]
            else:
                created = state[event.key].created if event.key in state else event.revision
                state[event.key] = protocol.Entry(event.key, event.value, event.revision, created)
        return dict(sorted(state.items()))


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.mkdtemp(dir=MEMORY)
        self.model = Model()
        self.store = self.open()
        self.watch = self.store.watch("", after=0)
        self.watched = 0

    def run(self, coroutine: Coroutine[None, None, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 30))

    def open(self) -> engine.SqliteStore:
        return self.run(engine.open_store(f"{self.directory}/store.db"))

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
            self.model.write(key, value, 0)
            assert self.run(self.store.create(key, value)) == self.model.revision

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
            self.model.write(key, value, expected)
            assert self.run(attempt) == self.model.revision

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        assert self.run(self.store.get(key)) == self.model.at(self.model.revision).get(key)

    @rule(prefix=PREFIXES, share=SHARES, after=st.just("") | KEYS, limit=st.integers(0, 4))
    def list_at(self, prefix: str, share: float, after: str, limit: int) -> None:
        revision = round(self.model.revision * share)
        listing = self.store.list_at(prefix, revision=revision, after=after, limit=limit)
        effective = revision or self.model.revision
        if effective < self.model.floor:
            with pytest.raises(protocol.Compacted):
                self.run(listing)
            return
        page = self.run(listing)
        wanted = [entry for key, entry in self.model.at(effective).items() if key.startswith(prefix) and key > after]
        assert page.entries == (wanted[:limit] if limit else wanted)
        assert page.revision == effective
        assert page.more == bool(limit and len(wanted) > limit)

    @rule(prefix=PREFIXES, share=SHARES)
    def watch_history(self, prefix: str, share: float) -> None:
        after = round(self.model.revision * share)
        watch = self.store.watch(prefix, after=after)
        if after < self.model.floor:
            with pytest.raises(protocol.Compacted):
                self.run(watch.next())
        elif after < self.model.revision:
            events, revision = self.run(watch.next())
            assert revision == self.model.revision
            assert events == [event for event in self.model.events[after:] if event.key.startswith(prefix)]
        watch.close()

    @rule(share=SHARES)
    def compact(self, share: float) -> None:
        revision = round(self.model.revision * share)
        self.model.floor = max(self.model.floor, revision)
        assert self.run(self.store.compact(revision)) == self.model.floor

    @rule()
    def follow(self) -> None:
        if self.watched < self.model.revision:
            events, self.watched, before = *self.run(self.watch.next()), self.watched
            assert self.watched == self.model.revision
            assert events == self.model.events[before:]

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.open()
        self.watched = self.model.revision
        self.watch = self.store.watch("", after=self.watched)

    @invariant()
    def revisions_agree(self) -> None:
        assert self.run(self.store.current_revision()) == self.model.revision

    def teardown(self) -> None:
        stats = self.run(self.store.stats())
        now = self.model.at(self.model.revision)
        assert (stats.revision, stats.floor, stats.keys) == (self.model.revision, self.model.floor, len(now))
        self.run(self.store.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.directory)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
