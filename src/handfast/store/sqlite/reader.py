# SPDX-License-Identifier: Apache-2.0
"""The questions asked of the SQLite engine's tables: one entry, a list as of a revision, a stretch of history.

It does not decide in which thread they run (`sqlite.engine`), nor write (`sqlite.writer`). Every answer comes from one
read transaction and names the revision that transaction saw.

The state as of an older revision R is found without an index over history: keys not written since R are in `cur`;
for each other key the first log row after R names, as its `prev_rev`, the row that held at R. The cost is the page
plus the writes since R, and each write is spared the upkeep of an index.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Final

import apsw
import msgspec

from handfast.store import feed, protocol
from handfast.store.sqlite import schema

HISTORY_EVENTS = 1000
HISTORY_BYTES = 4 * 2**20

# Keys compare by code point, as Python's strings and UTF-8's bytes do. ?1 <= key < ?2.
_LIST_NOW: Final = """
SELECT cur.key, log.value, cur.rev, cur.create_rev FROM cur CROSS JOIN log ON log.rev = cur.rev
WHERE cur.key >= ?1 AND cur.key < ?2 ORDER BY cur.key LIMIT ?3
"""
_LIST_THEN: Final = """
WITH changed(key, first, held) AS (
    SELECT key, min(rev), prev_rev FROM log WHERE rev > ?4 AND key >= ?1 AND key < ?2 GROUP BY key
), then_current(key, rev) AS (
    SELECT key, rev FROM cur WHERE key >= ?1 AND key < ?2 AND rev <= ?4
    UNION ALL
    SELECT key, held FROM changed WHERE held > 0
    ORDER BY key LIMIT ?3
)
SELECT log.key, log.value, log.rev, log.create_rev FROM then_current CROSS JOIN log ON log.rev = then_current.rev
ORDER BY then_current.key
"""
_HISTORY: Final = """
SELECT rev, key, value FROM log WHERE rev > ?3 AND key >= ?1 AND key < ?2 ORDER BY rev
"""
_ENTRY: Final = """
SELECT cur.key, log.value, cur.rev, cur.create_rev FROM cur JOIN log ON log.rev = cur.rev WHERE cur.key = ?
"""


def entry(connection: apsw.Connection, key: str) -> protocol.Entry | None:
    """What a key holds, as the connection's transaction sees it."""
    entries = itertools.starmap(protocol.Entry, connection.execute(_ENTRY, (key,)).fetchall())
    return next(entries, None)


def get(connection: apsw.Connection, key: str) -> tuple[protocol.Entry | None, int]:
    with _snapshot(connection) as state:
        return entry(connection, key), state.revision


class ListQuery(msgspec.Struct, frozen=True):
    """The arguments of `Store.list_at`."""

    prefix: str
    revision: int
    after: str
    limit: int


def list_at(connection: apsw.Connection, query: ListQuery) -> tuple[protocol.Page, int]:
    """The page, and the revision of the transaction it was read in."""
    with _snapshot(connection) as state:
        revision = query.revision or state.revision
        _check_readable(revision, state)
        low, high = key_range(query.prefix, query.after)
        limit = query.limit + 1 if query.limit else -1
        if revision == state.revision:
            rows = connection.execute(_LIST_NOW, (low, high, limit))
        else:
            rows = connection.execute(_LIST_THEN, (low, high, limit, revision))
        entries = list(itertools.starmap(protocol.Entry, rows))
    more = bool(query.limit) and len(entries) > query.limit
    return protocol.Page(entries[: query.limit] if more else entries, revision, more), state.revision


def history(connection: apsw.Connection, prefix: str, after: int) -> feed.History:
    """The next events after a revision: a bounded number and size of them, so that a long log is read in pieces."""
    with _snapshot(connection) as state:
        _check_readable(after, state)
        events: list[protocol.Event] = []
        size = 0
        rows = connection.execute(_HISTORY, (*key_range(prefix, ""), after))
        for revision, key, value in rows:
            if len(events) >= HISTORY_EVENTS or size >= HISTORY_BYTES:
                rows.close(force=True)
                return feed.History(events, events[-1].revision, complete=False)
            events.append(protocol.Event(revision, key, value))
            size += len(value or b"")
        return feed.History(events, state.revision, complete=True)


def key_range(prefix: str, after: str) -> tuple[str, str | bytes]:
    """The half-open range of keys that start with `prefix` and sort after `after`."""
    # No text lies between a key and the same key with a NUL appended.
    low = max(prefix, after + "\0") if after else prefix
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return low, b""  # to SQLite every blob is greater than every text: no upper bound
    last = ord(stem[-1])
    following = 0xE000 if last == 0xD7FF else last + 1  # surrogates are not characters
    return low, stem[:-1] + chr(following)


def _check_readable(revision: int, state: schema.State) -> None:
    if revision < state.floor:
        raise protocol.Compacted(revision, state.floor)
    if revision > state.revision:
        raise protocol.FutureRevision(revision, state.revision)


@contextlib.contextmanager
def _snapshot(connection: apsw.Connection) -> Iterator[schema.State]:
    connection.execute("BEGIN")
    try:
        yield schema.read_state(connection)
    finally:
        # A failing disk may have ended the transaction already.
        if connection.in_transaction:
            connection.execute("COMMIT")
