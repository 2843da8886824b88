# SPDX-License-Identifier: Apache-2.0
"""The etcd engine: a store under one prefix of an etcd, shared by any number of servers.

This file puts its parts together: `session` calls, `marks` knows what the store says of itself, `live` follows,
`history` reads the past, `shared_read` asks for the revision. What the contract says is done here by:

1. A write is a transaction that compares the revision at which the key was last written. If that differs, it reads the key
   instead. A create also compares a guard: see `guard`. A write that is done waits a moment for its own event, so that whoever wrote finds its copy up to date.
2. `current_revision` is a quorum read, and returns once the watch has come that far: whoever is told it finds its copy there.
3. Lists are read in pages of one revision, as large as their entries allow.
4. Where the history turns out to be another one, or another server raises the epoch or migrates the store, it fails for good: whoever serves
   from it begins anew, and `apiserver.state.lineage` decides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, NoReturn

import structlog

from handfast import errors
from handfast.runtime import clock as clocks
from handfast.runtime import crowd
from handfast.store import feed as feeds
from handfast.store import protocol
from handfast.store.etcd import formats, history, live, marks, members, shared_read
from handfast.store.etcd import guard as guards
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access, etcd_client
from handfast.wire import etcd_messages as messages

PAGE_ENTRIES: Final = 500
PAGE_BYTES: Final = 4 << 20
FILES_SECONDS: Final = 5.0
# How long calls that were begun may take to end when the store is closed.
_FAREWELL: Final = 5.0
_START_SECONDS: Final = 5.0
_START_PAUSE: Final = 0.5
NOTES: Final = "notes/"
# etcd's own are of 64 bits; what a caller names need not be.
_LAST_REVISION: Final = (1 << 63) - 1
_log = structlog.get_logger("handfast.store")


async def open_store(place: places.Place, access: etcd_access.Access, clock: clocks.Clock | None = None) -> EtcdStore:
    """Open the store at a place, beginning it if there is none.

    Raises StoreCorrupt if what is there is no store of ours, or a newer one, having changed nothing; StoreUnavailable, with
    the endpoint, if etcd does not answer or does not let us in.
    """
    client = etcd_client.Client(place.endpoints, access)
    store = EtcdStore(client, place, clock or clocks.SystemClock())
    try:
        await store.begin()
    except protocol.StoreUnavailable as error:
        explained = await members.explained(client, place.endpoints, error)
        await store.close()
        raise explained from None
    except BaseException:
        await store.close()
        raise
    return store


class EtcdStore:
    """See `protocol.Store`; made by `open_store`."""

    def __init__(self, client: etcd_client.Client, place: places.Place, clock: clocks.Clock) -> None:
        self._place = place
        self._clock = clock
        self._client = client
        self._session = sessions.Session(client, place, self._fail)
        self._crowd = crowd.Crowd("store/etcd")
        self._feed = feeds.Feed(0, self._history)
        self._live = live.Live(self._session, self._feed, clock, self._on_mark, self._fail)
        self._shared = shared_read.SharedRead(self._ask_revision)
        self._guard = guards.Guard(self._session, clock, self._crowd)
        self._identity = ""
        self._epoch_offset = 0
        # What this server is raising the epoch to: its own mark, when that comes, ends nothing.
        self._raising_to = 0
        self._floor = 0
        self._ended: protocol.StoreUnavailable | None = None
        self._closing: asyncio.Future[None] | None = None
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def begin(self) -> None:
        """See that etcd is new enough, that the store is ours, and follow it."""
        status = await self._first_answer()
        live.require_new_enough(status.version, self._client.name(self._session.current))
        found = await formats.ensure(self._session)
        self._identity, self._epoch_offset, self._floor = found.identity, found.epoch_offset, found.floor
        revision = await self._first_revision(found.revision)
        self._feed.revision = self._live.last_event = revision
        self._crowd.start(self._live.follow())
        self._crowd.start(self._live.push())
        self._crowd.start(self._follow_files())
        _log.info("the store is in etcd", store=str(self._place), version=status.version, revision=revision)

    async def _first_answer(self) -> Any:
        """An etcd that is starting, too, gets a few seconds."""
        until = self._clock.monotonic() + _START_SECONDS
        while True:
            try:
                return await self._session.read(messages.StatusRequest())
            except protocol.StoreUnavailable as error:
                if error.reason != protocol.StoreUnavailable.reason or self._clock.monotonic() > until:
                    raise
                await self._clock.sleep(_START_PAUSE)

    async def _first_revision(self, revision: int) -> int:
        """An event of our own to begin at: who reads history knows by it that nothing is missing."""
        try:
            answer = await self._session.write(messages.PutRequest(key=self._place.own(marks.FENCE), value=b"begin"))
        except protocol.StoreFull:
            # Nothing earlier can be told from what is missing: watches begin here.
            self._floor = revision
            return revision
        return int(answer.header.revision)

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def epoch_offset(self) -> int:
        return self._epoch_offset

    async def current_revision(self) -> int:
        with self._call():
            revision = await self._shared.get()
            # 2. the watch has come that far
            await self._live.reach(revision)
            return revision

    async def floor(self) -> int:
        with self._call():
            self._floor = max(self._floor, await marks.floor(self._session))
            return self._floor

    async def get(self, key: str) -> protocol.Entry | None:
        protocol.require_key(key)
        with self._call():
            answer = await self._session.read(sessions.range_of(self._place.key(key)))
            return self._entries(answer)[0] if answer.kvs else None

    async def list_at(self, prefix: str, *, revision: int = 0, after: str = "", limit: int = 0) -> protocol.Page:
        protocol.require_text(prefix)
        protocol.require_text(after)
        if limit < 0:
            raise errors.Misuse(f"limit: {limit} is negative; 0 means no limit")
        with self._call():
            if revision and revision < self._floor:
                raise protocol.Compacted(revision, self._floor)
            if revision > _LAST_REVISION:
                raise protocol.FutureRevision(revision, await self._ask_revision())
            try:
                return await self._list(prefix, revision, after, limit)
            except sessions.OutOfRange as out:
                raise await self._out_of_range(revision, out) from None

    async def create(self, key: str, value: bytes) -> int:
        return await self._write(key, 0, messages.RequestOp(request_put=self._put(key, value)))

    async def update(self, key: str, value: bytes, *, expected: int, removing: bool = False) -> int:
        # etcd keeps nothing back for removals: `removing` makes no difference here.
        del removing
        return await self._replace(key, expected, messages.RequestOp(request_put=self._put(key, value)))

    async def delete(self, key: str, *, expected: int) -> int:
        protocol.require_key(key)
        removal = messages.DeleteRangeRequest(key=self._place.key(key))
        return await self._replace(key, expected, messages.RequestOp(request_delete_range=removal))

    def watch(self, prefix: str, *, after: int) -> feeds.LogWatch:
        protocol.require_text(prefix)
        self._check_open()
        return self._feed.watch(prefix, after)

    async def compact(self, revision: int) -> int:
        """The floor is written first; whoever raised it has etcd forget what lies below."""
        with self._call():
            now = await self._ask_revision()
            if revision > now:
                raise protocol.FutureRevision(revision, now)
            # What the watch has not had yet must not be forgotten.
            await self._live.reach(revision)
            is_raised = True
            with contextlib.suppress(protocol.StoreFull):
                # Without space the floor is not written, and etcd's own is learned from it.
                written, is_raised = await marks.raise_floor(self._session, revision)
                self._floor = max(self._floor, written)
            if is_raised:
                # Already further is as good.
                with contextlib.suppress(sessions.OutOfRange):
                    await self._session.write(messages.CompactionRequest(revision=revision))
                self._floor = max(self._floor, revision)
            return self._floor

    async def raise_epoch(self, by: int = protocol.EPOCH, *, above: int = 0) -> int:
        if by <= 0:
            raise errors.Misuse(f"by: {by} is not positive; the epoch offset is only ever raised")
        with self._call():
            found = await marks.raise_epoch(self._session, by, above, self._expect_epoch)
            self._epoch_offset, self._floor = found.epoch_offset, max(self._floor, found.floor)
            return self._epoch_offset

    async def take_identity(self, identity: str) -> None:
        if not identity:
            raise errors.Misuse("identity: must not be empty")
        with self._call():
            if (await self._list("", 0, "", 1)).entries:
                raise protocol.NotEmpty("a store with entries keeps its identity")
            key = self._place.own(marks.IDENTITY)
            await self._session.write(messages.PutRequest(key=key, value=identity.encode()))
            self._identity = identity

    async def note(self, name: str) -> str | None:
        with self._call():
            answer = await self._session.read(sessions.range_of(self._place.own(NOTES + name)))
            return answer.kvs[0].value.decode() if answer.kvs else None

    async def set_note(self, name: str, text: str | None) -> None:
        key = self._place.own(NOTES + name)
        with self._call():
            if text is None:
                await self._session.write(messages.DeleteRangeRequest(key=key))
            else:
                await self._session.write(messages.PutRequest(key=key, value=text.encode()))

    async def swap_note(self, name: str, expected: str | None, text: str | None) -> str | None:
        key, identity = self._place.own(NOTES + name), self._place.own(marks.IDENTITY)
        is_expected = marks.at(key, 0) if expected is None else marks.same(key, expected)
        # Of a store that was removed or became a copy of another one meanwhile, nothing is claimed.
        compare = [is_expected, marks.same(identity, self._identity)]
        swap = messages.RequestOp(request_delete_range=messages.DeleteRangeRequest(key=key))
        if text is not None:
            swap = marks.put(key, text)
        with self._call():
            try:
                answer = await self._guard.commit(compare, swap, [key, identity])
            except (protocol.StoreFull, protocol.StoreUncertain):
                # It may be done all the same.
                if await self.note(name) != text:
                    raise
                return text
            if answer.succeeded:
                return text
            found = [each.response_range.kvs for each in answer.responses]
            texts = [kvs[0].value.decode(errors="replace") if kvs else None for kvs in found]
            if texts[1] != self._identity:
                self._fail("HistoryChanged", "the store was removed, or has become another one")
            return texts[0]

    async def stats(self) -> protocol.Stats:
        self._check_open()
        size, found = await members.ask(self._client, self._place.endpoints)
        # The watch brings the floor: without a quorum, too, there is one that was known.
        return protocol.Stats("etcd", self._floor, size, found)

    def room(self) -> protocol.Room:
        session = self._session
        return protocol.Room(None, 0, full=session.is_full, refused=session.refused, note=sessions.FULL)

    async def close(self) -> None:
        """Let calls that were begun end, then end watches and connections."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        ended = self._ended or protocol.StoreUnavailable(f"{self._place}: the store is closed")
        self._ended = ended
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._idle.wait()
        self._feed.close(ended)
        await self._shared.stop()
        await self._guard.stop()
        await self._crowd.stop()
        await self._client.close()

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        self._check_open()
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    def _check_open(self) -> None:
        if self._ended is not None:
            raise protocol.StoreUnavailable(self._ended.message, reason=self._ended.reason, hint=self._ended.hint)

    def _fail(self, reason: str, why: str) -> NoReturn:
        # 4. another history, or another server's epoch: the store fails for good
        error = protocol.StoreUnavailable(
            f"{self._place}: {why}", reason=reason, hint="the server begins anew by itself"
        )
        if self._ended is None:
            self._ended = error
            _log.error("the store cannot be used any longer", reason=reason, error=error.message)
            self._feed.close(error)
        raise error

    def _expect_epoch(self, offset: int) -> None:
        self._raising_to = offset

    def _on_mark(self, name: str, value: bytes) -> None:
        text = value.decode(errors="replace")
        if name == marks.FLOOR and text.isdecimal():
            self._floor = max(self._floor, int(text))
        # 4. another server's epoch
        if name == marks.EPOCH and text not in {str(self._raising_to), str(self._epoch_offset)}:
            self._fail("EpochRaised", f"another server raised the epoch to {text}")
        # 4. another version's format
        if name == marks.FORMAT_KEY and text != str(marks.FORMAT) and value:
            self._fail("StoreTooNew", f"another server migrated the store to format {text}")
        if name == marks.IDENTITY and text != self._identity and not value:
            self._fail("HistoryChanged", "the store was removed")

    async def _ask_revision(self) -> int:
        answer = await self._session.read(sessions.range_of(self._place.own(marks.FENCE), count_only=True))
        return int(answer.header.revision)

    async def _history(self, prefix: str, after: int) -> feeds.History:
        if after > self._feed.revision:
            current = await self.current_revision()
            if after > current:
                raise protocol.FutureRevision(after, current)
        if after < self._floor or after < 0:
            raise protocol.Compacted(after, self._floor)
        try:
            return await history.read(self._session, self._feed, self._live, self._clock, prefix, after)
        except history.Compacting as compacting:
            self._floor = max(self._floor, compacting.revision)
            raise protocol.Compacted(after, self._floor) from None

    async def _out_of_range(self, revision: int, out: sessions.OutOfRange) -> errors.HandfastError:
        if not out.compacted:
            return protocol.FutureRevision(revision, await self._ask_revision())
        self._floor = max(self._floor, await marks.floor(self._session))
        return protocol.Compacted(revision, self._floor)

    async def _list(self, prefix: str, revision: int, after: str, limit: int) -> protocol.Page:
        if revision < 0:
            raise protocol.Compacted(revision, self._floor)
        entries: list[protocol.Entry] = []
        more = True
        async for answer, page in self._pages(prefix, revision, after, limit):
            entries += page
            revision, more = revision or int(answer.header.revision), bool(answer.more)
        return protocol.Page(entries, revision, more and bool(limit))

    async def _pages(
        self, prefix: str, revision: int, after: str, limit: int
    ) -> AsyncIterator[tuple[Any, list[protocol.Entry]]]:
        """Answers in the order of keys, all of one revision (3), until there are no more or the limit is reached."""
        start, end = self._place.key(prefix), places.after_all(self._place.key(prefix))
        start = max(start, self._place.key(after) + b"\0") if after else start
        size, left, more = PAGE_ENTRIES, limit, start < end
        if not more:
            answer = await self._session.read(sessions.range_of(self._place.own(marks.FENCE), revision=revision))
            del answer.kvs[:]
            yield answer, []
        while more:
            count = min(size, left) if limit else size
            asked = sessions.range_of(start, range_end=end, limit=count, revision=revision)
            try:
                answer = await self._session.read(asked)
            except protocol.TooLarge:
                if count == 1:
                    raise
                size = max(count // 4, 1)
                continue
            page = self._entries(answer)
            yield answer, page
            left -= len(page)
            more = bool(answer.more) and not (limit and left <= 0)
            if more:
                revision = revision or int(answer.header.revision)
                start = bytes(answer.kvs[-1].key) + b"\0"
                bulk = sum(len(entry.value) for entry in page) // max(len(page), 1)
                size = max(min(PAGE_BYTES // max(bulk, 1), 10 * PAGE_ENTRIES), 1)

    def _entries(self, answer: Any) -> list[protocol.Entry]:
        return [
            protocol.Entry(key, kv.value, kv.mod_revision, kv.create_revision)
            for kv in answer.kvs
            if (key := self._session.entry_key(kv.key)) is not None
        ]

    def _put(self, key: str, value: bytes) -> Any:
        protocol.require_key(key)
        return messages.PutRequest(key=self._place.key(key), value=value)

    async def _replace(self, key: str, expected: int, operation: Any) -> int:
        if not 0 < expected <= _LAST_REVISION:
            # No revision that was ever given; 0 would mean "absent" to etcd.
            raise protocol.Mismatch(key, await self.get(key))
        return await self._write(key, expected, operation)

    async def _write(self, key: str, expected: int, operation: Any) -> int:
        place = self._place.key(key)
        # 1. compare, write, or read what is there instead
        compare = [marks.at(place, expected)]
        with self._call(), self._live.writing():
            try:
                if expected:
                    answer = await self._session.write(guards.transaction(compare, operation, [place]))
                else:
                    answer = await self._guard.commit(compare, operation, [place])
            except protocol.StoreFull as full:
                return await self._done_though_full(key, expected, operation.request_put.value, full)
            if not answer.succeeded:
                found = self._entries(answer.responses[0].response_range)
                raise protocol.Mismatch(key, found[0] if found else None)
            await self._heard(answer.header.revision)
        if operation.HasField("request_put"):
            self._session.note_room()
        return int(answer.header.revision)

    async def _done_though_full(self, key: str, expected: int, value: bytes, full: protocol.StoreFull) -> int:
        """The write that reaches etcd's quota is done, and answered with an error all the same: only the key tells."""
        try:
            entry = await self.get(key)
        except protocol.StoreUnavailable as error:
            raise protocol.StoreUncertain(f"{full.message}; {error.message}") from None
        if entry is None or entry.value != value or entry.revision <= expected:
            self._session.refused += 1
            raise full
        return entry.revision

    async def _heard(self, revision: int) -> None:
        # A store that ends meanwhile has still taken the write.
        with contextlib.suppress(protocol.StoreUnavailable):
            await self._live.heard(revision)

    async def _follow_files(self) -> None:
        """Take up certificates that were renewed."""
        while True:
            await self._clock.sleep(FILES_SECONDS)
            try:
                if await self._client.reload():
                    self._live.restart()
                    await self._client.retire()
            except errors.HandfastError as error:
                _log.warning("the files of etcd's TLS were not taken up", reason=error.reason, error=error.message)
