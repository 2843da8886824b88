# SPDX-License-Identifier: Apache-2.0
"""No restore gives out a resource version that was given out before."""

from __future__ import annotations

import datetime

from handfast.store import epochs
from handfast.store.sqlite import engine

NOW = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)


def test_a_restore_is_beyond_whatever_the_store_wrote_after_the_backup() -> None:
    # Also by a clock that stands in 1970.
    long_ago = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert epochs.first_version(7, 100, long_ago) == 7 + 100 + epochs.STEP


def test_the_same_backup_restored_again_begins_beyond_the_first_time() -> None:
    first = epochs.first_version(0, 100, NOW)
    # A second later, after as many writes as no server makes in a second.
    later = epochs.first_version(0, 100, NOW + datetime.timedelta(seconds=1))
    assert later >= first + 10**6
    # Also where an older backup, with a smaller revision, is restored after a newer one.
    assert epochs.first_version(0, 1, NOW + datetime.timedelta(seconds=1)) == later


def test_versions_stay_exact_in_programs_that_round() -> None:
    assert epochs.first_version(0, 0, NOW + datetime.timedelta(days=365 * 200)) < 2**53


async def test_why_an_epoch_was_raised_is_remembered(store: engine.SqliteStore) -> None:
    for n in range(12):
        await store.raise_epoch(5)
        await epochs.remember(store, f"restored {n}", NOW)
    raised = epochs.read(await store.note(epochs.NOTE))
    assert [each.why for each in raised] == [f"restored {n}" for n in range(2, 12)]
    assert raised[-1] == epochs.Raised(60, "2026-11-18T00:00:00Z", "restored 11")


def test_a_note_that_is_none_tells_of_nothing() -> None:
    assert epochs.read(None) == epochs.read("x") == epochs.read("{}") == ()


def test_what_a_server_raised_is_told_too() -> None:
    text = '[{"offset":9,"at":"2026-11-18T00:00:00Z","why":"restored"}]'
    assert [each.why for each in epochs.all_of(text, "12: the history went back")] == [
        "restored",
        "the history went back",
    ]
    assert [each.why for each in epochs.all_of(text, "9: the same")] == ["restored"]
    assert epochs.all_of(None, "x") == []
