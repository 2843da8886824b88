# SPDX-License-Identifier: Apache-2.0
"""Ranges of keys, and the pieces in which history is read."""

from __future__ import annotations

import asyncio

import pytest

from handfast.store.sqlite import engine, reader


@pytest.mark.parametrize(
    "prefix, after, low, high",
    [
        ("", "", "", b""),
        ("a/", "", "a/", "a0"),
        ("a/", "a/x", "a/x\0", "a0"),
        ("a/", "A", "a/", "a0"),
        ("a/", "b", "b\0", "a0"),
        ("", "x", "x\0", b""),
        ("a\U0010ffff", "", "a\U0010ffff", "b"),
        ("\U0010ffff", "", "\U0010ffff", b""),
        ("\ud7ff", "", "\ud7ff", "\ue000"),
    ],
)
def test_key_range(prefix: str, after: str, low: str, high: str | bytes) -> None:
    assert reader.key_range(prefix, after) == (low, high)


async def test_history_comes_in_pieces_of_bounded_number(
    store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "HISTORY_EVENTS", 3)
    await asyncio.gather(*(store.create(f"{'ab'[n % 2]}/{n}", b"") for n in range(10)))
    first = await store._history("a/", 0)
    assert (len(first.events), first.revision, first.complete) == (3, 5, False)
    second = await store._history("a/", first.revision)
    assert (len(second.events), second.revision, second.complete) == (2, 10, True)
    exact = await store._history("a/", 4)
    assert (len(exact.events), exact.revision, exact.complete) == (3, 10, True)


async def test_history_comes_in_pieces_of_bounded_size(
    store: engine.SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "HISTORY_BYTES", 25)
    await asyncio.gather(*(store.create(f"k{n}", b"x" * 10) for n in range(7)))
    pieces, position = [], 0
    while position < 7:
        piece = await store._history("", position)
        pieces.append(len(piece.events))
        position = piece.revision
    assert pieces == [3, 3, 1]


async def test_an_older_page_reads_no_more_values_than_it_returns(store: engine.SqliteStore) -> None:
    """The sort must be over keys alone: a page of ten out of a store of many must not carry all values about."""
    plan = [
        str(row[3]) for row in store._file.reading.execute("EXPLAIN QUERY PLAN " + reader._LIST_THEN, ("", b"", 1, 0))
    ]
    assert any("SEARCH log USING INTEGER PRIMARY KEY (rowid=?)" in step for step in plan)
    assert not any(step.startswith("SCAN log") for step in plan)
    assert "MERGE (UNION ALL)" in plan


async def test_stats_tell_the_floor_and_the_size(store: engine.SqliteStore) -> None:
    first = await store.create("a", b"x" * 10_000)
    await store.create("b", b"")
    await store.delete("a", expected=first)
    await store.compact(2)
    stats = await store.stats()
    assert (stats.engine, stats.floor, stats.members) == ("sqlite", 2, ())
    assert stats.size_bytes is not None
    assert stats.size_bytes > 10_000
