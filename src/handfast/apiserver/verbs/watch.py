# SPDX-License-Identifier: Apache-2.0
"""Fan-out of changes to watchers: each event is encoded once and written straight to every transport.

1. A watch begins with the state it asked for (nothing, the current objects, or the changes since a version), then every
   later change once and in order. Between the last initial event and the first live one nothing is awaited, so no
   change can fall between them.
2. A watcher that cannot be written to fast enough is dropped when its buffer is over the cap, never waited for. The initial
   state is waited for, within the time limit of `serving.sending`.
3. When a watch ends, a last bookmark says how far it came. If a change arrives in the same moment there is none: the client
   goes on from the last version that it saw, and misses nothing.
4. A version older than what is remembered gets an ERROR event with a 410 Status, and the client lists again.

It does not authorise; who may watch was decided before.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec
import structlog
from aiohttp import web

from handfast.api import kinds, status
from handfast.apiserver import identity, turns
from handfast.apiserver.access import bonds
from handfast.apiserver.state import collection as collection_module
from handfast.apiserver.state import items as items_module
from handfast.apiserver.state import replica as replica_module
from handfast.apiserver.verbs import encode, options
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from handfast.serving import connection as connection_module
from handfast.serving import sending

_encode = msgspec.json.Encoder().encode
_log = structlog.get_logger("handfast.watch")
BOOKMARK_SECONDS = 60.0
# Without timeoutSeconds a watch ends after a random time in this range, as in Kubernetes, so that load evens out.
TIMEOUT_RANGE = (1800.0, 3600.0)
_CHUNK = 128 << 10
# How long a read waits for a version that this server has not seen.
FUTURE_SECONDS = 3.0


def chunk(frame: bytes) -> bytes:
    """One chunk of HTTP's chunked transfer coding."""
    return b"%x\r\n%s\r\n" % (len(frame), frame)


def _frame(kind: bytes, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind, body)


class Watcher:
    """One open watch. `offer` is called for every change of the collection, `flush` after each batch."""

    def __init__(
        self,
        transport: asyncio.Transport,
        count_unread: Callable[[int], None],
        shape: encode.Shape,
        namespace: str,
        selection: options.Selection,
        bookmark: bytes,
        buffer_cap: int,
        touched: list[Watcher],
        users: tuple[identity.User, ...] = (identity.ANONYMOUS,),
    ) -> None:
        self._touched = touched
        # In whose name it is, and who asked for it, where that is somebody else.
        self.users = users
        self._transport = transport
        # Called before something is written: what is not read counts for its user.
        self._count_unread = count_unread
        self.shape = shape
        self.namespace = namespace
        self.selection = selection
        # How a bookmark begins: apiVersion and kind of what is watched.
        self.bookmark = bookmark
        self._cap = buffer_cap
        self._pending: list[bytes] = []
        self._first = True
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.dropped = False

    def event(self, change: items_module.Change) -> bytes | None:
        """The chunk this watcher gets for a change, None if it does not see it."""
        before, after = change.before, change.after
        if self.namespace and (after or change.before).namespace != self.namespace:  # type: ignore[union-attr]
            return None
        if self.selection.everything:
            seen, sees = before is not None, after is not None
        else:
            seen = before is not None and self.selection.matches(before)
            sees = after is not None and self.selection.matches(after)
        if sees:
            return self._encoded(change, b"MODIFIED" if seen else b"ADDED", cast("items_module.Item", after))
        return self._encoded(change, b"DELETED", change.gone()) if seen else None

    def _encoded(self, change: items_module.Change, kind: bytes, item: items_module.Item) -> bytes:
        key = (self.shape.key, kind, self._first)
        frame = change.frames.get(key)
        if frame is None:
            frame = chunk(_frame(kind, self.shape.whole(item, first=self._first)))
            change.frames[key] = frame
        self._first = False
        return frame

    def initial(self, item: items_module.Item) -> bytes:
        frame = _frame(b"ADDED", self.shape.whole(item, first=self._first))
        self._first = False
        return frame

    def bookmarked(self, metadata: dict[str, Any]) -> bytes:
        """The object of a bookmark."""
        if not isinstance(self.shape, encode.Tabular):
            return b'{%s,"metadata":%s}' % (self.bookmark, _encode(metadata))
        row = self.shape.bookmark(metadata, first=self._first)
        self._first = False
        return row

    def offer_later(self, version: int, change: items_module.Change) -> None:
        """What comes after a version that is yet to come."""
        if change.version > version:
            self.offer(change)

    def offer(self, change: items_module.Change) -> None:
        try:
            frame = self.event(change)
        except Exception as error:  # noqa: BLE001  one watcher's trouble must not stop the copy that all read from
            _log.error("watcher dropped", error=repr(error), exc_info=error)
            self.drop()
            return
        if frame is not None:
            if not self._pending:
                self._touched.append(self)
            self._pending.append(frame)

    def flush(self) -> None:
        # What comes after the end stays: it is not told any more, and the last bookmark must not claim that it was.
        if not self._pending or self.done.done():
            return
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self.write(data)

    def write(self, data: bytes) -> None:
        if self.done.done():
            return
        if self._transport.is_closing():
            self.end()
            return
        # 2. over the cap: dropped, never waited for
        if self._transport.get_write_buffer_size() > self._cap:
            self.drop()
            return
        self._count_unread(len(data))
        self._transport.write(data)

    @property
    def complete(self) -> bool:
        """Whether everything it was offered has been written."""
        return not self._pending

    def drop(self) -> None:
        """Break the connection: the client finds out, and begins anew."""
        self.dropped = True
        self._transport.abort()
        self.end()

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Hub:
    """All watches of this server."""

    def __init__(
        self, replica: replica_module.Replica, clock: clocks.Clock, buffer_cap: int, write_seconds: float = 30.0
    ) -> None:
        self._replica = replica
        self._clock = clock
        self._cap = buffer_cap
        self._write_seconds = write_seconds
        self._watchers: set[Watcher] = set()
        self._bookmarked: set[Watcher] = set()
        # By what the users of a watch are bound to.
        self._bound: dict[str, set[Watcher]] = {}
        # Those that got something in this batch: only they are written to at its end.
        self._touched: list[Watcher] = []
        self._closing = False
        self.dropped = 0
        replica.on_batch.append(self._flush)

    def __len__(self) -> int:
        return len(self._watchers)

    async def bookmarks(self) -> None:
        """Send bookmarks for ever; the caller runs it as a task."""
        while True:
            await self._clock.sleep(BOOKMARK_SECONDS)
            for watcher in tuple(self._bookmarked):
                watcher.write(self._bookmark(watcher))

    def close(self) -> None:
        """End every watch cleanly; new ones end at once."""
        self._closing = True
        self.end_all()

    def end_all(self) -> None:
        """End every watch cleanly: clients come back, and are judged anew."""
        for watcher in tuple(self._watchers):
            watcher.end()

    def end_bound_to(self, bond: str) -> None:
        """End the watches of users that are bound to this: see `bonds`."""
        for watcher in tuple(self._bound.get(bond, ())):
            watcher.end()

    def count(self, is_counted: Callable[[identity.User], bool]) -> int:
        """How many watches are open of users for whom this holds."""
        return sum(any(map(is_counted, watcher.users)) for watcher in self._watchers)

    def judge(self, check: Callable[[identity.User], None]) -> None:
        """End the watches of users that `check` refuses, whatever they are doing."""
        for watcher in tuple(self._watchers):
            try:
                for user in watcher.users:
                    check(user)
            except status.StatusError:
                watcher.end()

    async def serve(
        self,
        http: web.BaseRequest,
        kind: kinds.Kind,
        namespace: str,
        shape: encode.Shape,
        list_options: options.ListOptions,
        users: tuple[identity.User, ...] = (identity.ANONYMOUS,),
        on_started: Callable[[], None] = lambda: None,
    ) -> web.StreamResponse:
        """Answer a watch request of `users` until it ends, at the latest when the first one's credential does.

        `on_started` is called when the answer has begun: until then the request can still be refused.
        """
        connection = cast("connection_module.Connection", http.protocol)
        transport = connection.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        collection = self._replica.collection(kind.prefix)
        bookmark = _bookmark_kind(kind, shape)
        watcher = Watcher(
            transport,
            connection.count,
            shape,
            namespace,
            list_options.selection,
            bookmark,
            self._cap,
            self._touched,
            users,
        )
        # Known before the first await: whoever is revoked while the watch begins must not be missed.
        self._watchers.add(watcher)
        bound = {bond for user in users for bond in bonds.of(user)}
        for bond in bound:
            self._bound.setdefault(bond, set()).add(watcher)
        connection.closed_hooks.add(watcher.end)
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        try:
            await self._wait_for(list_options)
            if _sends_state(list_options):
                connection.admit()
            await response.prepare(http)
            on_started()
            try:
                await self._begin(http, response, watcher, collection, list_options)
            except status.StatusError as error:
                watcher.write(chunk(_frame(b"ERROR", _encode(error.document()))))
                return response
            await self._run(watcher, list_options, users[0].until)
        finally:
            collection.forget(watcher)
            self._watchers.discard(watcher)
            for bond in bound:
                self._unbind(bond, watcher)
            self._bookmarked.discard(watcher)
            connection.closed_hooks.discard(watcher.end)
            self.dropped += watcher.dropped
        return response

    def _unbind(self, bond: str, watcher: Watcher) -> None:
        others = self._bound[bond]
        others.discard(watcher)
        if not others:
            del self._bound[bond]

    async def _wait_for(self, list_options: options.ListOptions) -> None:
        """Reach the version whose state the watch begins with: the newest by default, a named one within a few seconds.

        A watch that begins with no state waits for the changes after its version, however far ahead that is.
        """
        if list_options.version is None or list_options.initial_events:
            await self._replica.fresh()
        if list_options.initial_events and list_options.version and list_options.version > self._replica.version:
            await reach(self._replica, list_options.version, self._clock)

    async def _begin(
        self,
        http: web.BaseRequest,
        response: web.StreamResponse,
        watcher: Watcher,
        collection: collection_module.Collection,
        list_options: options.ListOptions,
    ) -> None:
        """Send what comes before the live events, then register: the last part runs without an await."""
        send_state = _sends_state(list_options)
        version = list_options.version or self._replica.version
        if send_state:
            version = self._replica.version
            await self._send_state(http, response, watcher, collection)
            if watcher.done.done():
                return
        # Large states take a while to send: catch up with what happened meanwhile, in memory-sized steps.
        while True:
            # 4. older than what is remembered
            if version < collection.window:
                raise status.expired(f"too old resource version: {version} ({collection.window})")
            changes = collection.since(version)
            behind = _first_turn(changes, watcher.selection.terms)
            if len(behind) == len(changes):
                break
            for change in behind:
                found = watcher.event(change)
                if found is not None:
                    watcher.write(found)
            version = behind[-1].version
            await self._clock.sleep(0)
        # 1. from here on nothing is awaited, so that no change is missed
        for change in changes:
            watcher.offer(change)
        watcher.flush()
        if send_state and list_options.initial_events:
            watcher.write(self._bookmark(watcher, initial_end=True))
        is_ahead = version > self._replica.version
        offer = functools.partial(watcher.offer_later, version) if is_ahead else watcher.offer
        collection.listen(watcher, offer, _index(watcher.namespace, watcher.selection))
        if list_options.bookmarks:
            self._bookmarked.add(watcher)

    async def _send_state(
        self,
        http: web.BaseRequest,
        response: web.StreamResponse,
        watcher: Watcher,
        collection: collection_module.Collection,
    ) -> None:
        """The current objects, unless the watch ends meanwhile."""
        for part in _parts(watcher, collection.snapshot(watcher.namespace)):
            if watcher.done.done():
                return
            if part:
                await sending.send(http, response, part, self._write_seconds)
            else:
                await self._clock.sleep(0)

    async def _run(
        self,
        watcher: Watcher,
        list_options: options.ListOptions,
        until: datetime.datetime | None,
    ) -> None:
        seconds = float(list_options.timeout) or random.uniform(*TIMEOUT_RANGE)
        if until is not None:
            seconds = min(seconds, max(0.0, (until - self._clock.now()).total_seconds()))
        if self._closing:
            return
        timer = asyncio.get_running_loop().call_later(seconds, watcher.end)
        try:
            await watcher.done
        finally:
            timer.cancel()
        # 3. a bookmark says how far it came, unless a change came with its end
        if list_options.bookmarks and not watcher.dropped and watcher.complete:
            watcher.done = asyncio.get_running_loop().create_future()
            watcher.write(self._bookmark(watcher))
            watcher.end()

    def _flush(self) -> None:
        touched = self._touched[:]
        self._touched.clear()
        for watcher in touched:
            watcher.flush()

    def _bookmark(self, watcher: Watcher, *, initial_end: bool = False) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(self._replica.version)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return chunk(_frame(b"BOOKMARK", watcher.bookmarked(metadata)))


def _sends_state(list_options: options.ListOptions) -> bool:
    """Whether what there is comes first."""
    return list_options.initial_events if list_options.initial_events is not None else not list_options.version


def _index(namespace: str, selection: options.Selection) -> collection_module.Index | None:
    """The most telling field that must have one value, if there is any."""
    for field in sorted(selection.fields.fields, key=lambda name: name != "metadata.name"):
        value = selection.fields.requires_exact(field)
        if value is not None:
            return collection_module.Index(field, value, selection.paths if field not in _ALWAYS else ())
    return collection_module.Index("metadata.namespace", namespace) if namespace else None


_ALWAYS = frozenset({"metadata.name", "metadata.namespace"})


def _bookmark_kind(kind: kinds.Kind, shape: encode.Shape) -> bytes:
    if isinstance(shape, encode.Partial):
        return b'"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"'
    return b'"kind":"%s","apiVersion":"%s"' % (kind.kind.encode(), kind.api_version.encode())


def _first_turn(changes: Sequence[items_module.Change], terms: int) -> Sequence[items_module.Change]:
    """So many of the changes as may be told before others get their turn."""
    turn = turns.Turns(terms)
    for count, change in enumerate(changes, 1):
        item = change.after or change.before
        if turn.spent(0 if item is None else len(item.body)):
            return changes[:count]
    return changes


def _parts(watcher: Watcher, items: list[items_module.Item]) -> Iterator[bytes]:
    """ADDED events of the current state, gathered into writes of moderate size; an empty one lets others have a turn."""
    gathered: list[bytes] = []
    size = 0
    turn = turns.Turns(watcher.selection.terms)
    for item in items:
        if watcher.selection.everything or watcher.selection.matches(item):
            gathered.append(watcher.initial(item))
            size += len(gathered[-1])
        if size >= _CHUNK:
            yield b"".join(gathered)
            gathered, size = [], 0
        elif turn.spent(len(item.body)):
            yield b""
    if gathered:
        yield b"".join(gathered)


async def reach(replica: replica_module.Replica, version: int, clock: clocks.Clock) -> None:
    """Wait a little for a version from the future (another server may have written it), then refuse."""
    if not await tasks.within(replica.reached(version), clock, FUTURE_SECONDS):
        raise status.too_large_resource_version(version, replica.version)
