# SPDX-License-Identifier: Apache-2.0
"""With which resource version a restored store begins.

A resource version is the store's revision plus an offset. A restore brings back an older state, and counts revisions anew. A version
that a client has seen must never come again with another content. So the first version after a restore is beyond every version
that was ever given out:

1. Beyond those of the backup by `STEP`: as many as the store may have written after it was taken.
2. Beyond those of an earlier restore of the same backup, of which the backup knows nothing: at least `PER_SECOND` for each
   second since 2020. No server writes that fast, so a later restore is always ahead of what an earlier one came to.

Clocks may be wrong, hence 1. Versions stay below 2⁵³, beyond which some programs round numbers, until the year 2305.
It raises nothing: the engines do. Why an epoch was raised is remembered in a note of the store, for the last `REMEMBERED` ones.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

import msgspec

from handfast.store import protocol

NOTE: Final = "epochs"
# What `apiserver.state.lineage` writes when a server raises the epoch: the offset, a colon, and why.
SERVER_NOTE: Final = "epoch"
REMEMBERED: Final = 10
STEP: Final = protocol.EPOCH
PER_SECOND: Final = 10**6
_BEGINNING: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def first_version(offset: int, revision: int, now: datetime.datetime) -> int:
    """The version to begin with, restored at `now` from a store that had this offset and revision."""
    seconds = int((now - _BEGINNING).total_seconds())
    # 1. beyond the backup, and 2. beyond earlier restores of it
    return max(offset + revision + STEP, seconds * PER_SECOND)


class Raised(msgspec.Struct, frozen=True):
    """An epoch that was raised: to which offset, when, and why."""

    offset: int
    at: str
    why: str


def read(text: str | None) -> Sequence[Raised]:
    """The epochs that a note tells of, the oldest first; none where it is no such note."""
    try:
        return msgspec.json.decode(text or "[]", type=tuple[Raised, ...])
    except msgspec.MsgspecError:
        return ()


def all_of(text: str | None, by_server: str | None) -> Sequence[Raised]:
    """The epochs that the two notes tell of, by their offsets."""
    raised = {each.offset: each for each in read(text)}
    offset, colon, why = (by_server or "").partition(": ")
    if colon and offset.isdecimal():
        raised.setdefault(int(offset), Raised(int(offset), "", why))
    return [raised[offset] for offset in sorted(raised)]


async def remember(store: protocol.Store, why: str, now: datetime.datetime) -> None:
    """Note that the epoch was raised, to what it is now."""
    raised = [
        *read(await store.note(NOTE)),
        Raised(store.epoch_offset, now.isoformat(timespec="seconds")[:19] + "Z", why),
    ]
    await store.set_note(NOTE, msgspec.json.encode(raised[-REMEMBERED:]).decode())
