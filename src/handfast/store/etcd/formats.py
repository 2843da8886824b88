# SPDX-License-Identifier: Apache-2.0
"""The way of a store in etcd from one format to the next. The format is that of its keys; values have forms of their own.

1. Before the first step, everything is copied beside the store, below its prefix, as it was at one revision. A copy that was cut short is
   made again.
2. What a step changes is written in one transaction with the number of the format, if that is still the one before: of any number of
   servers that begin at once, one does it.
3. A server of the version before sees the number rise, and ends: the engine sees to that.

A format that is newer than this program's, or none, is refused by `marks`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from handfast.store import protocol
from handfast.store.etcd import marks
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_messages as messages

# What takes a store of format N to N + 1: the changes, of which etcd takes 128 at once. Format 1 is the first there ever was.
Step = Callable[[sessions.Session], Awaitable[Sequence[Any]]]
STEPS: Mapping[int, Step] = {}
_PAGE: Final = 100
_log = structlog.get_logger("handfast.store")


async def ensure(session: sessions.Session) -> marks.Marks:
    """What is written of a store of this program's format: begun where there is nothing, migrated where it is older."""
    found = await marks.ensure(session)
    while found.format < marks.FORMAT:
        await _migrate(session, found.format)
        found = await marks.ensure(session)
    return found


async def _migrate(session: sessions.Session, number: int) -> None:
    place, key = session.place, session.place.own(marks.FORMAT_KEY)
    # 1. a copy before the first step
    await _back_up(session, number)
    changes = await STEPS[number](session)
    # 2. together with the number, once
    answer = await session.write(
        messages.TxnRequest(compare=[marks.same(key, str(number))], success=[*changes, marks.put(key, str(number + 1))])
    )
    if answer.succeeded:
        _log.info("the store was migrated", store=str(place), format=number + 1)


def beside(place: places.Place, number: int) -> bytes:
    """Where the copy of a store of this format is."""
    return place.root + f"before-format-{number + 1}/".encode()


async def _back_up(session: sessions.Session, number: int) -> None:
    place, copy = session.place, beside(session.place, number)
    complete = copy + b"complete"
    if (await session.read(sessions.range_of(complete))).kvs:
        return
    revision = 0
    for part in (place.own(""), place.objects):
        async for answer in _pages(session, part, revision):
            revision = revision or int(answer.header.revision)
            for kv in answer.kvs:
                await session.write(messages.PutRequest(key=copy + kv.key[len(place.root) :], value=kv.value))
    await session.write(messages.PutRequest(key=complete, value=str(revision).encode()))


async def _pages(session: sessions.Session, prefix: bytes, revision: int) -> AsyncIterator[Any]:
    start, limit, more = prefix, _PAGE, True
    while more:
        asked = sessions.range_of(start, range_end=places.after_all(prefix), limit=limit, revision=revision)
        try:
            answer = await session.read(asked)
        except protocol.TooLarge:
            # Of the largest values only a few fit into an answer.
            limit = 1
            continue
        yield answer
        revision, more = revision or int(answer.header.revision), bool(answer.more)
        start = bytes(answer.kvs[-1].key) + b"\0" if answer.kvs else start
