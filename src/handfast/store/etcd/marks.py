# SPDX-License-Identifier: Apache-2.0
"""What a store in etcd says of itself, in keys of its own beside its entries: which it is, its epoch and its floor.

1. A prefix that holds anything but a store of ours is refused, and left as it is. So is a format newer than this program's;
   an older one is `formats`' to migrate.
2. A new store's keys are written together, or not at all: two servers that begin it at once agree on one.
3. The floor is the greater of what is written there and of what etcd says that it has compacted: others compact, too.
4. Epoch and floor are changed by compare-and-swap, and never go down.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec

from handfast.store import protocol
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_client
from handfast.wire import etcd_messages as messages

FORMAT: Final = 1
EPOCH: Final = "epoch"
FLOOR: Final = "floor"
IDENTITY: Final = "identity"
FENCE: Final = "fence"
FORMAT_KEY: Final = "format"
_TRIES: Final = 20


class Marks(msgspec.Struct, frozen=True):
    """Identity, epoch offset and floor as they are written, and the revision at which they were read."""

    identity: str
    epoch_offset: int
    floor: int
    revision: int
    # The revisions that wrote epoch and floor.
    written: tuple[int, int]
    format: int = FORMAT


def put(key: bytes, value: str) -> Any:
    return messages.RequestOp(request_put=messages.PutRequest(key=key, value=value.encode()))


def at(key: bytes, revision: int) -> Any:
    """That the key was last written at a revision; 0: that it is absent."""
    return messages.Compare(result=messages.EQUAL, target=messages.MOD, key=key, mod_revision=revision)


def same(key: bytes, text: str) -> Any:
    """That the key has this value."""
    return messages.Compare(result=messages.EQUAL, target=messages.VALUE, key=key, value=text.encode())


async def read(session: sessions.Session) -> Marks | None:
    """What is written; None if there is no store yet."""
    place = session.place
    asked = [sessions.range_of(place.own(name)) for name in _NAMES]
    asked.append(sessions.range_of(place.root, range_end=place.root_end, limit=1, keys_only=True))
    # A transaction of reads is one quorum read: what is begun at this moment is seen whole.
    reads = [messages.RequestOp(request_range=each) for each in asked]
    answer = await session.read(messages.TxnRequest(success=reads))
    *kvs, anything = [response.response_range.kvs for response in answer.responses]
    if not any(kvs):
        # 1. the prefix holds something else
        if anything:
            raise _corrupt(place, "there are keys under the prefix, and they are no store of Handfast's")
        return None
    texts = [found[0].value.decode(errors="replace") if found else "" for found in kvs]
    numbers = dict(zip(_NAMES, texts, strict=True))
    if not (all(kvs) and all(numbers[name].isdecimal() for name in (FORMAT_KEY, EPOCH, FLOOR))):
        raise _corrupt(place, "the keys that say what it is are damaged")
    number = int(numbers[FORMAT_KEY])
    # 1. a newer format, or one that never was
    if number > FORMAT:
        raise _corrupt(place, f"its format {number} is newer than this program's {FORMAT}")
    if number < 1:
        raise _corrupt(place, f"its format {number} is none; the first is 1")
    written = kvs[_NAMES.index(EPOCH)][0].mod_revision, kvs[_NAMES.index(FLOOR)][0].mod_revision
    return Marks(numbers[IDENTITY], int(numbers[EPOCH]), int(numbers[FLOOR]), answer.header.revision, written, number)


_NAMES: Final = (FORMAT_KEY, IDENTITY, EPOCH, FLOOR)


async def ensure(session: sessions.Session) -> Marks:
    """What is written; a new store is begun where there is nothing."""
    place = session.place
    found = await read(session)
    if found is None:
        first = {FORMAT_KEY: str(FORMAT), IDENTITY: secrets.token_hex(16), EPOCH: "0", FLOOR: "0"}
        # 2. all of them together
        await session.write(
            messages.TxnRequest(
                compare=[at(place.own(IDENTITY), 0)],
                success=[put(place.own(name), text) for name, text in first.items()],
            )
        )
        found = await read(session)
    if found is None:
        raise protocol.StoreUnavailable(f"{place}: the store was removed while it was begun")
    return found


async def raise_epoch(session: sessions.Session, by: int, above: int, expect: Callable[[int], None]) -> Marks:
    """Raise the epoch, and the floor to now (4); `expect` is told the offset before it is written."""
    place = session.place
    for _ in range(_TRIES):
        old = await ensure(session)
        offset = max(old.epoch_offset, above) + by
        expect(offset)
        raising = messages.TxnRequest(
            compare=[at(place.own(EPOCH), old.written[0]), at(place.own(FLOOR), old.written[1])],
            success=[put(place.own(EPOCH), str(offset)), put(place.own(FLOOR), str(old.revision))],
        )
        try:
            answer = await session.write(raising)
        except (protocol.StoreFull, protocol.StoreUncertain):
            # It may be done all the same.
            new = await ensure(session)
            if new.epoch_offset != offset:
                raise
            return new
        if answer.succeeded:
            return Marks(old.identity, offset, old.revision, answer.header.revision, (0, 0))
    raise protocol.StoreUnavailable(f"{place}: others kept changing the epoch")


async def raise_floor(session: sessions.Session, revision: int) -> tuple[int, bool]:
    """The floor, which is at least `revision` now; and whether it was raised here (4)."""
    place = session.place
    for _ in range(_TRIES):
        old = await ensure(session)
        if old.floor >= revision:
            return old.floor, False
        answer = await session.write(
            messages.TxnRequest(
                compare=[at(place.own(FLOOR), old.written[1])], success=[put(place.own(FLOOR), str(revision))]
            )
        )
        if answer.succeeded:
            return revision, True
    raise protocol.StoreUnavailable(f"{place}: others kept changing the floor")


async def floor(session: sessions.Session) -> int:
    """The oldest revision that can be read (3)."""
    written = (await ensure(session)).floor
    probe = sessions.range_of(session.place.own(FLOOR), revision=max(written, 1), keys_only=True)
    try:
        await session.read(probe)
    except sessions.OutOfRange as out:
        if out.compacted:
            return max(written, await compacted(session, max(written, 1)))
    return written


async def compacted(session: sessions.Session, revision: int) -> int:
    """The revision that etcd has compacted, which lies above this one: only a watch is told it."""
    index = session.current
    key = session.place.own(FLOOR)
    create = messages.WatchCreateRequest(key=key, start_revision=revision)
    try:
        watching = await session.client.watch(index, create, sessions.READ_SECONDS)
        try:
            async with asyncio.timeout(sessions.READ_SECONDS):
                while True:
                    answer = await watching.read()
                    if answer.canceled and answer.compact_revision:
                        return int(answer.compact_revision)
        finally:
            watching.cancel()
    except (TimeoutError, etcd_client.Failed) as error:
        session.turn(index)
        raise protocol.StoreUnavailable(f"{session.place}: etcd did not say what it has compacted") from error


def _corrupt(place: places.Place, why: str) -> protocol.StoreCorrupt:
    return protocol.StoreCorrupt(
        f"{place}: {why}; nothing was changed", hint="choose another prefix, or the version of Handfast that wrote it"
    )
