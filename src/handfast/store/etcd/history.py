# SPDX-License-Identifier: Apache-2.0
"""A stretch of a store's past from etcd: what a watch missed that began earlier than the live one.

It reads by a watch of its own from a revision, up to the last event that the live watch has seen: so it knows when nothing is
missing. Pieces are bounded, and the caller comes again for the next one. A piece ends between two revisions, never within one.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from handfast import errors
from handfast.runtime import clock as clocks
from handfast.store import feed as feeds
from handfast.store import protocol
from handfast.store.etcd import live as lives
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_client
from handfast.wire import etcd_messages as messages

HISTORY_EVENTS = 1000
HISTORY_BYTES = 4 * 2**20
_PAUSE: Final = 0.2


class Compacting(Exception):
    """etcd has compacted what was to be read."""

    def __init__(self, revision: int) -> None:
        super().__init__()
        self.revision = revision


async def read(
    session: sessions.Session, feed: feeds.Feed, live: lives.Live, clock: clocks.Clock, prefix: str, after: int
) -> feeds.History:
    """The next events after a revision that the feed has passed; tried again until etcd answers, or the store closes."""
    while True:
        if feed.ended is not None:
            raise feed.ended
        upto, last = feed.revision, live.last_event
        if after >= last:
            return feeds.History((), upto, complete=True)
        index = session.current
        try:
            return await _piece(session, index, prefix, (after, last, upto))
        except (TimeoutError, etcd_client.Failed, errors.Unavailable):
            session.turn(index)
            await clock.sleep(_PAUSE)


async def _piece(session: sessions.Session, index: int, prefix: str, span: tuple[int, int, int]) -> feeds.History:
    after, last, upto = span
    place = session.place
    # From `after` itself, whose events are dropped: if it is compacted, etcd refuses the watch, and no delete is missed unnoticed.
    create = messages.WatchCreateRequest(
        key=place.root, range_end=place.root_end, start_revision=max(after, 1), fragment=True
    )
    events: list[protocol.Event] = []
    size, position, torn = 0, after, False
    watching = await session.client.watch(index, create, sessions.READ_SECONDS)
    try:
        # What comes in pieces may be torn within a revision.
        while torn or (position < last and not _is_enough(events, size)):
            async with asyncio.timeout(lives.REACH_SECONDS):
                answer = await watching.read()
            if answer.canceled:
                if answer.compact_revision:
                    raise Compacting(int(answer.compact_revision))
                raise protocol.StoreUnavailable(f"{place}: the watch was refused: {answer.cancel_reason}")
            for event in answer.events:
                # Enough, and the revision is complete: a later one has begun.
                if torn and event.kv.mod_revision > position and _is_enough(events, size):
                    return feeds.History(events, position, complete=False)
                if after < event.kv.mod_revision <= last:
                    position = event.kv.mod_revision
                    size += _add(events, session.entry_key(event.kv.key), prefix, event)
            torn = answer.fragment
    finally:
        watching.cancel()
    complete = position >= last
    return feeds.History(events, upto if complete else position, complete=complete)


def _is_enough(events: list[protocol.Event], size: int) -> bool:
    return len(events) >= HISTORY_EVENTS or size >= HISTORY_BYTES


def _add(events: list[protocol.Event], key: str | None, prefix: str, event: Any) -> int:
    if key is None or not key.startswith(prefix):
        return 0
    value = None if event.type == messages.DELETE else event.kv.value
    events.append(protocol.Event(event.kv.mod_revision, key, value))
    return len(event.kv.value)
