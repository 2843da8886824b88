# SPDX-License-Identifier: Apache-2.0
"""The contract of a store: a revisioned key-value map with history, watched from a revision.

Every engine keeps these promises, and `tests/contract` holds each engine to them:

1. One total order. Every successful write gets the next revision; revisions are never reused, across restarts,
   crashes and restores, and an acknowledged write is never lost.
2. Compare-and-swap only. A key is created when absent, updated or deleted at a known revision; a write whose
   precondition fails changes nothing and says what is there.
3. Reads at a revision. `list_at` answers as of any revision from the compaction floor (included) to now.
4. Gap-free watches. A watch from revision R yields every later write under its prefix once, in order, or raises
   `Compacted` when R lies below the floor (R equal to the floor works).
5. Space can be made. Without space for more, `create` and `update` raise `StoreFull`; `delete`, `compact` and an update on
   the way to a delete use what is kept for them, and what they free can be used again.
6. `current_revision` is linearizable: it is at least the revision of every write acknowledged, by anyone, before
   the call began. No answer names a revision it does not reach: a watch after any revision seen can start.

It knows nothing of Kubernetes: keys are text, values are bytes, and revisions are integers. The API server adds
the envelope, sealing, resource versions (revision + `epoch_offset`) and the copy in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from handfast import errors


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it was at some revision: `revision` wrote this value, `created` wrote the key's first one."""

    key: str
    value: bytes
    revision: int
    created: int


@dataclass(frozen=True, slots=True)
class Event:
    """One write. `value` is None for a delete; `previous` is the revision replaced (0: the key was absent)."""

    revision: int
    key: str
    value: bytes | None
    previous: int


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: entries in key order, as of `revision`; `more` tells that entries follow the last key."""

    entries: Sequence[Entry]
    revision: int
    more: bool


@dataclass(frozen=True, slots=True)
class Room:
    """The space a store has: free on its file system, kept for removals, whether it counts as full, writes refused so far."""

    free_bytes: int
    reserve_bytes: int
    full: bool
    refused: int


class Mismatch(errors.Refused):
    """A write's precondition failed; `actual` is what the key holds instead, None if it is absent."""

    reason = "Conflict"

    def __init__(self, key: str, actual: Entry | None) -> None:
        super().__init__(f"{key}: " + (f"found revision {actual.revision}" if actual else "not found"))
        self.key = key
        self.actual = actual


class Compacted(errors.Refused):
    """The revision lies below the compaction floor."""

    reason = "Expired"

    def __init__(self, revision: int, floor: int) -> None:
        super().__init__(f"revision {revision} is compacted; the oldest that can be read is {floor}")
        self.revision = revision
        self.floor = floor


class FutureRevision(errors.Refused):
    """The revision has not been written yet."""

    reason = "ResourceVersionTooLarge"

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is larger than the current {current}")
        self.revision = revision
        self.current = current


class StoreUnavailable(errors.Unavailable):
    """The store cannot take this operation now (disk full, engine stopped); nothing was changed."""

    reason = "StoreUnavailable"


class StoreFull(StoreUnavailable):
    """There is no space for a write that adds something; reads and removals go on."""

    reason = "StoreFull"


class StoreCorrupt(errors.Refused):
    """The file or peer is not a store this program may touch; it was left as it was."""

    reason = "StoreCorrupt"


class Watch(Protocol):
    """One open watch; `next` waits for the next batch of events, in order, or a bookmark.

    A batch is (events, revision): every write up to and including `revision` under the prefix has now been
    delivered, so an empty `events` is a bookmark. Cancelling `next` loses nothing; it has one caller at a time. After
    `close` of the watch or the store, `next` raises StoreUnavailable, also one that waits already. A consumer may be as
    slow as it likes: it costs no memory, but once compaction has overtaken it, `next` raises Compacted.
    """

    async def next(self) -> tuple[Sequence[Event], int]: ...

    def close(self) -> None: ...


class Store(Protocol):
    """What an engine offers. All methods are called on the event loop's thread.

    Keys are not empty and sort by code point. A write whose caller gave up waiting may still happen.
    """

    @property
    def epoch_offset(self) -> int:
        """What to add to a revision to get a resource version; only ever raised, by a restore."""
        ...

    async def current_revision(self) -> int: ...

    async def get(self, key: str) -> Entry | None: ...

    async def list_at(self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0) -> Page:
        """Entries whose key starts with `prefix` and sorts after `after`; revision 0 is now, limit 0 is all."""
        ...

    async def create(self, key: str, value: bytes) -> int:
        """Write a key that must be absent; returns the new revision, or raises Mismatch."""
        ...

    async def update(self, key: str, value: bytes, *, expected: int, removing: bool = False) -> int:
        """Replace the value written at revision `expected`; returns the new revision, or raises Mismatch.

        `removing` tells that this is a step on the way to a delete.
        """
        ...

    async def delete(self, key: str, *, expected: int) -> int:
        """Delete the value written at revision `expected`; returns the new revision, or raises Mismatch."""
        ...

    def watch(self, prefix: str, *, after: int) -> Watch:
        """Events with a revision greater than `after`; `next` raises Compacted or FutureRevision if it cannot."""
        ...

    async def compact(self, revision: int) -> int:
        """Forget history below `revision`; returns the floor then in force, which never goes down.

        Raises FutureRevision for one above now. StoreUnavailable may come after the floor has risen.
        """
        ...

    def room(self) -> Room:
        """The space there is."""
        ...

    async def close(self) -> None: ...
