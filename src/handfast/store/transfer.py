# SPDX-License-Identifier: Apache-2.0
"""Everything a store holds at one revision, taken from one place and put into another: for backups, restores and copies.

`Source` is where it comes from: a store that is open (`StoreSource`), the file of one that another process owns
(`sqlite.snapshot`), or a backup (`BackupSource`). `write_backup` makes a backup of it; `synchronise` makes a store hold exactly
that. It knows no engine, prints nothing, and does not raise the epoch: whoever finishes a restore does.

`synchronise` compares before it writes. So it can be cut short anywhere and begun again, with what the source holds by then:
what is there already is not written twice, what differs is replaced, and what the source no longer has is removed.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from handfast import errors
from handfast.store import backup_file, protocol

PAGE: Final = 500
# Writes under way at once: an engine commits together what waits.
IN_FLIGHT: Final = 256
# The note of a store that is not complete, on engines that cannot rename: no server serves from it.
UNFINISHED: Final = "unfinished"
# The note by which a store is taken, by whoever is first: servers write a text that their keys open (`apiserver.state.lineage`),
# and whoever fills a store writes this word and a number of its own.
CLAIM: Final = "sealed"
FILLING: Final = "filling:"
# The note that says when the store was last backed up, on engines that take it from a process that does not serve.
LAST_BACKUP: Final = "last-backup"

Progress = Callable[[int], None]


class Source(Protocol):
    """What a store holds at `revision`; `objects` is None where it cannot be known without reading everything."""

    @property
    def engine(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def identity(self) -> str: ...

    @property
    def revision(self) -> int: ...

    @property
    def epoch_offset(self) -> int: ...

    @property
    def objects(self) -> int | None: ...

    def pages(self, prefix: str = "") -> AsyncIterator[Sequence[protocol.Entry]]:
        """All entries whose key starts with `prefix`, in key order, from the first, each time it is called."""
        ...

    async def close(self) -> None: ...


class Described(Source, Protocol):
    """A source that is a store, and no backup: it can say more of itself."""

    async def note(self, name: str) -> str | None: ...

    async def stats(self) -> protocol.Stats: ...

    async def keep_note(self, name: str, text: str) -> bool:
        """Write a note, if whoever does not serve from the store may; whether it is written."""
        ...


class StoreSource:
    """A store that is open in this process, read in pages at one revision."""

    objects: int | None = None

    def __init__(self, store: protocol.Store, revision: int, engine: str, place: str) -> None:
        self._store = store
        self.revision = revision
        self.engine = engine
        self.place = place

    @classmethod
    async def of(cls, store: protocol.Store, engine: str, place: str) -> StoreSource:
        return cls(store, await store.current_revision(), engine, place)

    @property
    def identity(self) -> str:
        return self._store.identity

    @property
    def epoch_offset(self) -> int:
        return self._store.epoch_offset

    async def pages(self, prefix: str = "") -> AsyncIterator[Sequence[protocol.Entry]]:
        after = ""
        while True:
            try:
                page = await self._store.list_at(prefix, revision=self.revision, after=after, limit=PAGE)
            except protocol.Compacted as error:
                raise errors.Unavailable(
                    f"{self.place}: revision {self.revision} was compacted while it was read",
                    reason="Expired",
                    hint="try again; history is kept for five minutes at least, unless somebody else compacts",
                ) from error
            if page.entries:
                yield page.entries
            if not page.more:
                return
            after = page.entries[-1].key

    async def close(self) -> None:
        await self._store.close()


class BackupSource:
    """A backup that can be read again from its beginning: `open_reader` begins anew."""

    engine: Final = "backup"

    def __init__(self, open_reader: Callable[[], backup_file.Reader], place: str) -> None:
        self._open_reader = open_reader
        self.place = place
        first = open_reader()
        self.header = first.header
        # Secrets of a data directory, if they are in it.
        self.files = first.files
        self.checksum = ""

    @property
    def identity(self) -> str:
        return self.header.identity

    @property
    def revision(self) -> int:
        return self.header.revision

    @property
    def epoch_offset(self) -> int:
        return self.header.epoch_offset

    @property
    def objects(self) -> int | None:
        return self.header.objects

    async def pages(self, prefix: str = "") -> AsyncIterator[Sequence[protocol.Entry]]:
        reader = self._open_reader()
        for entries in reader.blocks():
            yield [entry for entry in entries if entry.key.startswith(prefix)] if prefix else entries
        if self.checksum and reader.checksum != self.checksum:
            raise backup_file.BackupDamaged(0, "the file was changed while it was read", name=f"{self.place}: ")
        self.checksum = reader.checksum

    async def close(self) -> None:
        """There is nothing to close: the file is the caller's."""


class Target(Protocol):
    """A store that is being filled, and that no server takes for one before `finish`."""

    @property
    def place(self) -> str: ...

    @property
    def store(self) -> protocol.Store: ...

    async def finish(self, first_version: int, why: str, now: datetime.datetime) -> None:
        """Everything is there: give it the epoch whose first resource version is this one, and let servers have it."""
        ...

    async def close(self, *, keep: bool) -> None:
        """End; what is unfinished stays, so that a later call goes on from there, or is removed."""
        ...


def unfinished() -> errors.Refused:
    """The refusal of a server to begin on a store that is being filled."""
    return errors.Refused(
        "the store is unfinished: a restore or a copy fills it, or was cut short",
        reason="StoreUnfinished",
        hint="begin the restore or the copy again, and start when it is done",
    )


async def write_backup(
    source: Source, writer: backup_file.Writer, progress: Progress
) -> tuple[backup_file.Trailer, str]:
    """All of a source into a backup; its trailer, and the checksum of the whole."""
    count = 0
    async for entries in source.pages():
        writer.add(entries)
        count += len(entries)
        progress(count)
    return writer.finish()


async def written_since(store: protocol.Store, revision: int) -> bool:
    """Whether an entry of a store was written after a revision; notes are no entries."""
    now = await store.current_revision()
    watch = store.watch("", after=revision)
    try:
        while revision < now:
            events, revision = await watch.next()
            if events:
                return True
    except protocol.Compacted:
        # Nobody can tell any more: as good as written.
        return True
    finally:
        watch.close()
    return False


async def adopt(store: protocol.Store, identity: str, place: str) -> None:
    """Have a store that is to be filled take the identity of what fills it; one that is half filled must have it."""
    if not identity or store.identity == identity:
        return
    if (await store.list_at("", limit=1)).entries:
        raise errors.Refused(
            f"{place}: a copy of another store was begun there, and is unfinished",
            reason="OtherStore",
            hint="go on with that one, or remove what there is of it",
        )
    await store.take_identity(identity)


class Counts(msgspec.Struct):
    """What `synchronise` did."""

    written: int = 0
    kept: int = 0
    removed: int = 0

    @property
    def seen(self) -> int:
        return self.written + self.kept


async def synchronise(
    pages: AsyncIterator[Sequence[protocol.Entry]], target: protocol.Store, progress: Progress
) -> Counts:
    """Make `target` hold exactly what `pages` give, in key order; nobody else may write to it meanwhile."""
    counts = Counts()
    present = _Present(target)
    async for entries in pages:
        writes: list[Awaitable[int]] = []
        for wanted in entries:
            # What sorts before it is not in the source.
            writes.extend(target.delete(each.key, expected=each.revision) for each in await present.before(wanted.key))
            there = await present.take(wanted.key)
            if there is None:
                writes.append(target.create(wanted.key, wanted.value))
            elif there.value != wanted.value:
                writes.append(target.update(wanted.key, wanted.value, expected=there.revision))
            else:
                counts.kept += 1
                continue
            counts.written += 1
        await _all(writes)
        progress(counts.seen)
    left = [each async for each in present.rest()]
    await _all([target.delete(each.key, expected=each.revision) for each in left])
    counts.removed = present.removed + len(left)
    return counts


async def _all(writes: Sequence[Awaitable[int]]) -> None:
    for at in range(0, len(writes), IN_FLIGHT):
        await asyncio.gather(*writes[at : at + IN_FLIGHT])


class _Present:
    """What the target holds, walked in key order beside the source."""

    def __init__(self, target: protocol.Store) -> None:
        self._target = target
        self._page: list[protocol.Entry] = []
        self._after = ""
        self._more = True
        self.removed = 0

    async def before(self, key: str) -> Sequence[protocol.Entry]:
        """Entries that sort before `key`, which are passed by."""
        passed: list[protocol.Entry] = []
        while (first := await self._first()) is not None and first.key < key:
            passed.append(self._page.pop())
        self.removed += len(passed)
        return passed

    async def take(self, key: str) -> protocol.Entry | None:
        """The entry of `key`, if it is next."""
        first = await self._first()
        return self._page.pop() if first is not None and first.key == key else None

    async def rest(self) -> AsyncIterator[protocol.Entry]:
        while await self._first() is not None:
            yield self._page.pop()

    async def _first(self) -> protocol.Entry | None:
        if not self._page and self._more:
            page = await self._target.list_at("", after=self._after, limit=PAGE)
            # The next one is the last of the list: taken without moving the others.
            self._page = list(reversed(page.entries))
            self._more = page.more
            if page.entries:
                self._after = page.entries[-1].key
        return self._page[-1] if self._page else None
