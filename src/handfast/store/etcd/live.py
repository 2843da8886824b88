# SPDX-License-Identifier: Apache-2.0
"""The one watch of a server on its whole prefix in etcd: it feeds all watches, and says how far they have come.

1. A batch reaches the revision of its last event, never that of its header: events of the header's revision may follow. Of a
   batch that comes in pieces, the last revision waits for the next piece: others may write many keys at once.
2. etcd's word on progress is believed only from versions that never send it ahead of events (3.4.31, 3.5.13, 3.6 and later).
   From older ones, when the revision has moved without an event for us, a write to a fence key brings the watch forward.
3. A watch begins at the revision that it has, and drops what it has had: so etcd refuses it when that revision is compacted,
   and no removed delete is missed.
4. A stream that ends, or comes no further, is opened again at the next endpoint, after a quorum read: a lower revision than
   was seen is another history (`session`).
5. An epoch that another server has raised ends this store: versions have to be counted anew.
6. etcd sends each write by itself. While several writes of ours are under way, events are gathered for a moment and passed on
   together: each batch costs whoever follows a wake-up, and every open watch of a client a message. One write alone is
   passed on at once.
7. A full etcd takes no fence. Where its word is not believed, all its keys are watched then: every revision has an event there, and as
   long as nothing can be put these are deletes, which carry no values. The first put ends it. Others' events are dropped here.
   To count our keys instead would not do: an update that is on its way when the quota is reached leaves their number as it is.
   A login that may read nothing but the prefix cannot watch all keys, and whoever waits is told.

| on a full etcd that is not believed        | so                                | shown in tests/unit/store/etcd/test_engine.py                   |
| ------------------------------------------ | --------------------------------- | --------------------------------------------------------------- |
| somebody else deletes                      | reads and deletes go on           | test_deletes_of_others_on_a_full_etcd_hold_nobody_up            |
| … and the login may not watch all keys     | reads get 503, with what to do    | test_a_full_etcd_whose_other_keys_are_not_ours_to_watch_says_so |

It keeps no events beyond that: see `store.feed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import structlog

from handfast import errors
from handfast.runtime import clock as clocks
from handfast.store import feed as feeds
from handfast.store import protocol
from handfast.store.etcd import marks
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_client
from handfast.wire import etcd_messages as messages

# How long events that are on their way get, before the watch is brought forward.
_PATIENCE: Final = 0.02
_ASKED_AGAIN: Final = 0.5
# How long a watch may lag behind what a quorum read has seen, before another endpoint is tried; and before readers are told.
_STALL: Final = 3.0
REACH_SECONDS: Final = 10.0
# How long a write waits for its own event. It is done, whatever becomes of the watch.
_OWN_SECONDS: Final = 2.0
# How long events may be gathered.
_GATHERING: Final = 0.008
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 2.0
_OLDEST: Final = (3, 4, 0)
# 7. the range of all keys
_EVERYTHING: Final = b"\0"
_BARRED: Final = "make room in etcd, upgrade it to 3.4.31, 3.5.13 or later, or let its user read all keys"
_log = structlog.get_logger("handfast.store")


def version(text: str) -> tuple[int, int, int]:
    found = re.match(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})", text)
    return (0, 0, 0) if found is None else (int(found[1]), int(found[2]), int(found[3]))


def require_new_enough(text: str, endpoint: str) -> None:
    if version(text) < _OLDEST:
        raise protocol.StoreCorrupt(
            f"etcd at {endpoint}: its version is {text or 'unknown'}; 3.4 is the oldest that is used",
            reason="EtcdTooOld",
            hint="upgrade etcd",
        )


def is_progress_believed(text: str) -> bool:
    """Whether this version of etcd never tells of progress ahead of events (2)."""
    found = version(text)
    least = {(3, 4): 31, (3, 5): 13}.get(found[:2])
    return found[:2] >= (3, 6) if least is None else found[2] >= least


class Live:
    """Keeps the feed fed."""

    def __init__(
        self,
        session: sessions.Session,
        feed: feeds.Feed,
        clock: clocks.Clock,
        on_mark: Callable[[str, bytes], None],
        fail: Callable[[str, str], None],
    ) -> None:
        self._session = session
        self._feed = feed
        self._clock = clock
        self._on_mark = on_mark
        self._fail = fail
        self._watching: etcd_client.Watching | None = None
        self._is_believed = False
        self._is_torn = False
        # 7. whether all keys are to be watched, whether they are, and what stands against it
        self._wants_all = False
        self._has_all = False
        self._barred = ""
        # 1. events of a revision that may not be complete
        self._held: list[Any] = []
        self._wanted = 0
        self._is_wanted = asyncio.Event()
        # 6. what was gathered, how far it goes, and when it is passed on at the latest
        self._gathered: list[protocol.Event] = []
        self._come = 0
        self._own = 0
        self._timer: asyncio.TimerHandle | None = None
        self._under_way = 0
        # The last event of our own prefix: whoever reads history knows by it that nothing is missing.
        self.last_event = feed.revision
        self.fences = 0

    async def reach(self, revision: int) -> None:
        """Wait until the feed has come as far as a revision that etcd has."""
        if revision <= self._feed.revision:
            return
        if revision > self._wanted:
            self._wanted = revision
            self._is_wanted.set()
        try:
            async with asyncio.timeout(REACH_SECONDS):
                await self._feed.reached(revision)
        except TimeoutError:
            raise protocol.StoreUnavailable(
                f"{self._session.place}: the watch of etcd is behind: it has revision {self._feed.revision}, etcd {revision}"
                + self._barred,
            ) from None

    async def heard(self, revision: int) -> None:
        """Wait a while for the event of a write of our own, which is on its way: whoever wrote finds its copy up to date."""
        await self._comes_to(revision, _OWN_SECONDS)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """While a write of our own is under way, until its event is here (6)."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            # One that was refused has no event to wait for.
            if self._timer is not None and len(self._gathered) >= self._under_way:
                self._pass_on()

    def restart(self) -> None:
        """Open the stream again."""
        if self._watching is not None:
            self._watching.cancel()

    async def follow(self) -> None:
        """For ever; the caller runs it as a task."""
        index, pause = self._session.current, _PAUSE
        while self._feed.ended is None:
            before = self._feed.revision
            try:
                await self._stream(index)
            except (etcd_client.Failed, errors.Unavailable, errors.Refused) as error:
                if pause == _PAUSE:
                    _log.warning("the watch of etcd ended; it is opened again", error=error.message)
            # 4. the next endpoint
            index = (index + 1) % len(self._session.client.endpoints)
            pause = _PAUSE if self._feed.revision > before else min(2 * pause, _LONGEST_PAUSE)
            await self._clock.sleep(pause)

    async def push(self) -> None:
        """Bring the watch forward to what was seen, for ever; the caller runs it as a task."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            since = self._clock.monotonic()
            while self._feed.revision < self._wanted and self._feed.ended is None:
                target = self._wanted
                if await self._comes_to(target, _PATIENCE):
                    continue
                if self._clock.monotonic() - since > _STALL:
                    since = self._clock.monotonic()
                    self.restart()
                try:
                    await self._ask()
                except (errors.Unavailable, sessions.OutOfRange):
                    await self._clock.sleep(_PAUSE)
                await self._comes_to(target, _ASKED_AGAIN)

    async def _comes_to(self, revision: int, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._feed.reached(revision)
        except (TimeoutError, protocol.StoreUnavailable):
            # Later, or never: the store has ended, and says so to whoever calls it.
            return False
        return True

    async def _ask(self) -> None:
        # 2. its word is believed
        if self._watching is not None and self._is_believed:
            await self._watching.send(messages.WatchRequest(progress_request=messages.WatchProgressRequest()))
            return
        # 7. the events of others come by themselves
        if self._watching is not None and self._has_all:
            return
        # 2. a fence
        self.fences += 1
        key = self._session.place.own(marks.FENCE)
        try:
            await self._session.write(messages.PutRequest(key=key, value=b"fence"))
        except protocol.StoreFull:
            self._watch_all()
        else:
            self._session.note_room()
            self._barred = ""

    def _watch_all(self) -> None:
        # 7. a full etcd takes no fence
        if not self._barred and not self._wants_all:
            _log.warning(
                "etcd is full and takes no fence: all its keys are watched until it takes writes again",
                store=str(self._session.place),
            )
            self._wants_all = True
            self.restart()

    async def _stream(self, index: int) -> None:
        session, place = self._session, self._session.place
        # 4. a quorum read, which finds another history
        await session.read(sessions.range_of(place.own(marks.FENCE), count_only=True))
        status = await session.require_same(index)
        require_new_enough(status.version, session.client.name(index))
        self._is_believed, self._is_torn, self._held = is_progress_believed(status.version), False, []
        self._has_all = self._wants_all and not self._is_believed
        key, end = (_EVERYTHING, _EVERYTHING) if self._has_all else (place.root, place.root_end)
        # 3. from the revision that it has
        create = messages.WatchCreateRequest(
            key=key, range_end=end, start_revision=max(self._feed.revision, 1), fragment=True
        )
        watching = self._watching = await session.client.watch(index, create, sessions.READ_SECONDS)
        try:
            while True:
                self._take(await watching.read())
        finally:
            self._watching = None
            watching.cancel()
            self._pass_on()

    def _take(self, answer: Any) -> None:
        if answer.compact_revision:
            have = self._feed.revision
            self._fail(
                "EtcdWatchCompacted", f"etcd has compacted {answer.compact_revision}; the watch had come to {have}"
            )
        if answer.canceled:
            if self._has_all:
                # 7. a login for the prefix alone
                self._wants_all = False
                self._barred = f"; etcd is full, and all its keys cannot be watched ({answer.cancel_reason}): {_BARRED}"
            raise protocol.StoreUnavailable(f"{self._session.place}: the watch was refused: {answer.cancel_reason}")
        if answer.events:
            batch, have = self._whole(answer), max(self._come, self._feed.revision)
            self._gather(batch)
            # 7. puts are taken again
            if self._has_all and any(each.type != messages.DELETE and each.kv.mod_revision > have for each in batch):
                self._wants_all = False
                self.restart()
        # 2. what comes in pieces has no progress in between
        elif not answer.created and self._is_believed and not self._is_torn:
            self._pass_on()
            self._feed.publish(max(answer.header.revision, self._feed.revision), ())
        self._is_torn = answer.fragment

    def _whole(self, answer: Any) -> list[Any]:
        """The events that were held back and those of an answer, as far as their revisions are complete (1)."""
        events = [*self._held, *answer.events]
        self._held = []
        if answer.fragment:
            last = events[-1].kv.mod_revision
            complete = [event for event in events if event.kv.mod_revision < last]
            events, self._held = complete, events[len(complete) :]
        return events

    def _gather(self, batch: list[Any]) -> None:
        if not batch:
            return
        have, root = max(self._come, self._feed.revision), self._session.place.own("")
        every = self._session.place.root
        for event in batch:
            kv = event.kv
            # 7. an event of others tells how far we are, and nothing else
            if kv.mod_revision <= have or not kv.key.startswith(every):
                continue
            self._own = kv.mod_revision
            key = self._session.entry_key(kv.key)
            if key is not None:
                value = None if event.type == messages.DELETE else kv.value
                self._gathered.append(protocol.Event(kv.mod_revision, key, value))
            elif kv.key.startswith(root):
                self._on_mark(kv.key[len(root) :].decode(errors="replace"), kv.value)
        # 1. as far as the last event
        self._come = max(have, batch[-1].kv.mod_revision)
        # 6. at once, or with those that are on their way
        if len(self._gathered) >= self._under_way:
            self._pass_on()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHERING, self._pass_on)

    def _pass_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._come > self._feed.revision:
            events, self._gathered = self._gathered, []
            self.last_event = max(self.last_event, self._own)
            self._feed.publish(self._come, events)
