# SPDX-License-Identifier: Apache-2.0
"""The contract of a store: a revisioned key-value map with history, watched from a revision.

Every engine keeps these promises, and `tests/contract` holds each engine to them:

1. One total order. Every successful write gets a revision greater than all before it. Revisions need not be consecutive:
   others may write beside us. None is ever given to two writes, across restarts and crashes, and an acknowledged write is
   never lost.
2. Compare-and-swap only. A key is created when absent, updated or deleted at a known revision; a write whose
   precondition fails changes nothing and says what is there.
3. Reads at a revision. `list_at` answers as of any revision from the compaction floor (included) to now.
4. Gap-free watches. A watch from revision R yields every later write under its prefix once, in order, or raises
   `Compacted` when R lies below the floor (R equal to the floor works). Others may compact, too: the floor is learned from
   the store, never assumed.
5. Space can be made. Without space for more, `create` and `update` raise `StoreFull`; `delete` and `compact` go on, and what
   they free can be used again. An update on the way to a delete goes on where the engine has something kept for it
   (SQLite); one that has not (etcd refuses every put once its quota is reached) raises `StoreFull` for it, too.
6. `current_revision` is linearizable: it is at least the revision of every write acknowledged, by anyone, before
   the call began. No answer names a revision it does not reach: a watch after any revision seen can start, and comes as
   far as that revision without another write of ours.
7. `StoreUnavailable` means that nothing was changed. `StoreUncertain` means that it may have been: the answer was lost. It
   is never tried again blindly: whoever wrote reads the key, and compares. A create that was lost does not come later than the
   next one that is acknowledged here: it is there by then, or never will be.
8. A store has an identity, given once, which copies and restores of it keep. Beside its entries it keeps notes: small texts
   by name, which have no revision, and are in no list or watch. A note can be swapped: of any number who write one where there is
   none, or in place of the same text, exactly one does.
9. A key of `KEY_BYTES` with a value of `VALUE_BYTES` fits into every engine; more may be refused, with `TooLarge`.

Whoever serves from a store remembers its identity and how far it had come. A store whose history went back, or is another,
raises the epoch before anything is served: see `apiserver.state.lineage`.

It knows nothing of Kubernetes: keys are text, values are bytes, and revisions are integers. The API server adds
the envelope, sealing, resource versions (revision + `epoch_offset`) and the copy in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from handfast import errors

# What a raised epoch adds to every resource version: more than any store writes before it is restored again.
EPOCH: Final = 10**9
# etcd takes requests of 1.5 MiB by default. One has the key three times, once with the value, and a few numbers.
KEY_BYTES: Final = 2 << 10
VALUE_BYTES: Final = (3 << 19) - (16 << 10)


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it was at some revision: `revision` wrote this value, `created` wrote the key's first one."""

    key: str
    value: bytes
    revision: int
    created: int


@dataclass(frozen=True, slots=True)
class Event:
    """One write. `value` is None for a delete."""

    revision: int
    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: entries in key order, as of `revision`; `more` tells that entries follow the last key."""

    entries: Sequence[Entry]
    revision: int
    more: bool


@dataclass(frozen=True, slots=True)
class Room:
    """The space a store has: free, kept for removals, whether it counts as full, writes refused so far.

    A store that does not tell how much is free has None. `note` is what is said of one that is full.
    """

    free_bytes: int | None
    reserve_bytes: int
    full: bool
    refused: int
    note: str


@dataclass(frozen=True, slots=True)
class Member:
    """One of the machines that keep a store together; one that does not answer has no name."""

    name: str
    address: str
    answers: bool
    leads: bool
    version: str
    # Whether it knows of a leader, itself included: without a majority none does.
    has_leader: bool = False


@dataclass(frozen=True, slots=True)
class Stats:
    """How a store is: its engine, the oldest revision that can be read, what it occupies, and who keeps it."""

    engine: str
    floor: int
    size_bytes: int | None
    members: Sequence[Member] = ()


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


class StoreUncertain(errors.Unavailable):
    """The store did not say whether it took the write: it may have happened, or may yet happen."""

    reason = "StoreUncertain"


class TooLarge(errors.Refused):
    """The store takes no write of this size; nothing was changed."""

    reason = "RequestEntityTooLarge"


class StoreFull(StoreUnavailable):
    """There is no space for a write that adds something; reads and removals go on."""

    reason = "StoreFull"


class NotEmpty(errors.Refused):
    """The store has entries, and this is for one that has none."""

    reason = "StoreNotEmpty"


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
    def identity(self) -> str:
        """Which store this is; never empty."""
        ...

    @property
    def epoch_offset(self) -> int:
        """What to add to a revision to get a resource version; only ever raised, by `raise_epoch`.

        Where another server raises it, everything here fails with StoreUnavailable until the store is opened again.
        """
        ...

    async def current_revision(self) -> int: ...

    async def floor(self) -> int:
        """The oldest revision that can be read now, as the store tells it."""
        ...

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

    async def raise_epoch(self, by: int = EPOCH, *, above: int = 0) -> int:
        """Before serving: move all resource versions past any that were given out before; returns the offset.

        It becomes `by` more than the greater of what it is and `above`. The floor rises to now, so that every older watch and
        continued list gets Compacted.
        """
        ...

    async def take_identity(self, identity: str) -> None:
        """Become the copy of the store that has this identity; NotEmpty if there are entries here."""
        ...

    async def note(self, name: str) -> str | None:
        """The text of a note; None if there is none."""
        ...

    async def set_note(self, name: str, text: str | None) -> None:
        """Write a note, or remove it. The last writer wins."""
        ...

    async def swap_note(self, name: str, expected: str | None, text: str | None) -> str | None:
        """Write a note, or remove it, if what is there is `expected` (None: nothing); what is there then.

        That is `text` if it was done, or what somebody else has written.
        """
        ...

    async def stats(self) -> Stats:
        """How the store is, as far as it can be told: of an etcd without a quorum, its members, and what was known before."""
        ...

    def room(self) -> Room:
        """The space there is."""
        ...

    async def close(self) -> None: ...


def require_key(key: str) -> None:
    """Return if every engine can have this key, else Misuse."""
    if not key:
        raise errors.Misuse("key: must not be empty")
    require_text(key)


def require_text(text: str) -> None:
    """Return if this can be a key, or the beginning of one, else Misuse."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise errors.Misuse(f"key or prefix {text!r}: not encodable as UTF-8") from error
