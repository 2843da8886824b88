# SPDX-License-Identifier: Apache-2.0
"""Remembers what a store has acknowledged, and judges what is found in it after it was killed or lost power.

It proves: no acknowledged write is lost, no revision is given out twice, every key holds its last write or a later one, and what is
read of history from the compaction floor up is what was written. Of a SQLite file also that it is sound, that its log has no gap, and
that nothing superseded is left below what was swept. It writes nothing, and does not ask when a write happened.
"""

from __future__ import annotations

from dataclasses import dataclass

import apsw

# What was done, to which key, and the first octets of the value, which no other write has ("-" for a delete).
Write = tuple[str, str, str]
MARK = 16


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a store: every write that is kept, by revision; the revision of each key; the floor; the last revision."""

    log: dict[int, Write]
    current: dict[str, int]
    floor: int
    newest: int


class Judge:
    """Remembers what was acknowledged, or found committed though nobody had been told.

    The second matters over several rounds: a delete that one victim did not live to acknowledge may be compacted by the next, and is
    then no loss. Each key has one writer at a time.
    """

    def __init__(self) -> None:
        self.heard = 0
        # Every revision up to this one was found in the store, or was compacted there.
        self._reached = 0
        self._kept: dict[int, Write] = {}
        self._last: dict[str, tuple[int, str]] = {}

    def hear(self, revision: int, write: Write) -> None:
        """Somebody was told that this write has happened."""
        assert revision > self._reached, f"revision {revision} was given out twice"
        assert revision not in self._kept, f"revision {revision} was given out twice"
        self._remember(revision, write)
        self.heard += 1

    def judge(self, found: Found) -> None:
        newest = max(self._kept, default=0)
        assert found.newest >= newest, f"the last revision is {found.newest}, and {newest} was acknowledged"
        for revision, write in self._kept.items():
            row = found.log.get(revision)
            assert row == write or (row is None and revision < found.floor), f"{revision}: {row}, not {write}"
        assert set(found.current.values()) <= set(found.log), "a key has no value"
        for key, (revision, op) in self._last.items():
            # What follows its last acknowledged write, its writer had not heard of yet.
            assert found.current.get(key, found.newest) >= revision, f"{key} went back behind revision {revision}"
            if key not in found.current and op != "delete":
                deleted = [at for at, row in found.log.items() if row[:2] == ("delete", key) and at > revision]
                assert deleted, f"{key} of revision {revision} is gone, and nobody deleted it"
        self._reached, self._kept = found.newest, {}
        for revision, write in sorted(found.log.items()):
            self._remember(revision, write)

    def _remember(self, revision: int, write: Write) -> None:
        self._kept[revision] = write
        op, key, _ = write
        self._last[key] = max((revision, op), self._last.get(key, (0, "")))


def read_sqlite(database: apsw.Connection) -> Found:
    """What is in the file of a store, which has to be sound."""
    assert database.pragma("integrity_check") == "ok"
    meta = dict(database.execute("SELECT name, value FROM meta"))
    mark = f"CASE WHEN value IS NULL THEN '-' ELSE CAST(substr(value, 1, {MARK}) AS TEXT) END"
    log: dict[int, Write] = {row[0]: row[1:] for row in database.execute(f"SELECT rev, op, key, {mark} FROM log")}
    current = dict(database.execute("SELECT key, rev FROM cur"))
    floor, swept = meta["floor"], meta["swept"]
    newest = max(log, default=0)
    assert sorted(revision for revision in log if revision >= floor) == list(range(max(floor, 1), newest + 1))
    below = {revision for revision in log if revision < swept}
    superseded = {row[0] for row in database.execute("SELECT prev_rev FROM log WHERE rev <= ?", (swept,))}
    assert not below & superseded
    assert not any(log[revision][0] == "delete" for revision in below)
    return Found(log, current, floor, newest)
