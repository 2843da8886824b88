# SPDX-License-Identifier: Apache-2.0
"""List, then watch, for as long as it takes: a `Reflector` feeds a sink the state of a resource and every change.

It survives what watches meet every day:

1. a clean close, a reset or a timeout: it watches again from the last version seen (events and bookmarks count);
2. 410, as an ERROR event or as the answer's code: it lists anew, and the sink learns what is gone;
3. 429, 5xx and an absent server: it waits, at least as long as Retry-After says, longer each time;
4. a server that closes at once again and again: it waits as for an error;
5. an object that does not fit the view: it is told of once and skipped. Of its deletion the sink learns all the same;
6. a bookmark with an object that could not exist, as kube-apiserver sends it (null where the kind requires something):
   nothing counts but its version;
7. 403 for what is optional, and 404 for a kind that the server does not have: it is told of once, the sink learns that
   nothing is known, and it is asked for again every ten minutes, or as often as the source says;
8. 403 for anything else, also for a kind that is followed only where the server has it: it is told of, what was known stays, and
   it is asked for again as after other errors. Whoever follows is told as long as it lasts (`refused`), and can do what needs no
   look at it. A server that asks for rights first says 403 of a kind that it does not have, and a proxy may say 404 of one that it
   has: discovery, which everybody may read, tells them apart;
9. a kind in several versions: before each list the server is asked which of those that can be read here it prefers. One that it
   no longer serves is left for another, with a new list.

It keeps no objects; that is the sink's (`cache`). What arrives in one read is handed over without a task, a
suspension or a log line per event.
"""

from __future__ import annotations

import datetime
import random as randomness
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
import structlog

from handfast import errors
from handfast.api import status
from handfast.client import api, partial
from handfast.client import transport as transports
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

V = TypeVar("V", bound=partial.Viewed)
V_contra = TypeVar("V_contra", bound=partial.Viewed, contravariant=True)

_log = structlog.get_logger("handfast.watch")

RETRY = backoff.Schedule(initial=0.2, cap=30.0)
# How long what is optional is done without, until it is asked for again.
WITHOUT_SECONDS = 600.0
_WITHOUT = frozenset({403, 404})
# Reasons of which the transport tells: no answer, and a certificate that is not believed (`bootstrap.diagnosis`).
_TOLD = transports.NO_ANSWER | transports.NOT_BELIEVED
# A watch is asked to end after this long, so that clients spread again over several servers; and a stream that is
# silent for longer than that is dead.
_LIFE_SECONDS = 300
_GRACE_SECONDS = 30
# A watch that lived this long was healthy, whatever ended it.
_HEALTHY_SECONDS = 1.0
_MAX_LINE = 32 << 20


class Sink(Protocol[V_contra]):
    """Who is told. Calls are made on the event loop and must not block."""

    def begin(self) -> None:
        """A list starts; the objects put until `end` are all there are."""
        ...

    def put(self, item: V_contra) -> None: ...

    def remove(self, item: V_contra) -> None:
        """An object is gone; of `item` only name, namespace and uid are sure to be there."""
        ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Generic[V]):
    """What to follow and how to see it; `metadata` asks the server for nothing but metadata.

    What is `optional` is done without where the server forbids it, or does not have it. What is followed `if_served` is done
    without where the server does not have it, and not where it is forbidden. After `without_seconds` it is asked for again.
    `versions` are those that the view can read, where there are several; `resource` then names any of them. A list comes in pages
    of `page_size`.
    """

    resource: api.Addressable
    view: type[V]
    scope: api.Scope = api.EVERYTHING
    metadata: bool = False
    optional: bool = False
    if_served: bool = False
    without_seconds: float = WITHOUT_SECONDS
    versions: tuple[str, ...] = ()
    page_size: int = api.PAGE


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a resource cannot be followed at the moment: the words, their reason, the code of an answer (0: there was none), and since when."""

    message: str
    reason: str
    code: int
    since: datetime.datetime


class _Event(msgspec.Struct, Generic[V], gc=False):
    type: str
    object: V


class _RawEvent(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


_raw_events = msgspec.json.Decoder(_RawEvent)


class Reflector(Generic[V]):
    """Follows one source for one sink until cancelled."""

    def __init__(
        self,
        client: api.Client,
        source: Source[V],
        sink: Sink[V],
        *,
        clock: clocks.Clock,
        random: Callable[[], float] = randomness.random,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        # 8. Why the server forbids it now; empty while it does not.
        self.refusal = ""
        # 3. what is in its way now, and since when; None while it lists or watches.
        self.trouble: Trouble | None = None
        self._refused = refused
        self._client = client
        self._source = source
        # As it is followed now: in which version is the server's to say (9).
        self.resource = source.resource
        self._sink = sink
        self._clock = clock
        self._random = random
        self._backoff = backoff.Backoff(RETRY, random)
        self._version: str | None = None
        self._healthy = False
        self._expired = False
        self._logged_without = False
        view: Any = source.view
        self._lists: msgspec.json.Decoder[api.Listing[V]] = msgspec.json.Decoder(api.Listing[view])
        self._events: msgspec.json.Decoder[_Event[V]] = msgspec.json.Decoder(_Event[view])

    async def run(self) -> None:
        """Never returns."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                await self._watch()
                wait = 0.0 if self._healthy else next(self._backoff)
            except (errors.Refused, errors.Unavailable) as error:
                wait = self._after(await self._told_apart(error))
                self._meet(error)
            if wait:
                await self._clock.sleep(wait)

    async def _told_apart(self, error: errors.HandfastError) -> errors.HandfastError:
        """The error, by what discovery says of the kind (8): neither a 403 nor a 404 alone is believed."""
        resource = self.resource
        code = error.code if isinstance(error, status.StatusError) else 0
        if not self._source.if_served or code not in _WITHOUT:
            return error
        if not await self._client.serves(resource):
            other = await self._chosen()
            if other is not None and other.version != resource.version:
                return status.expired(f"{resource.plural} of {resource.group}/{resource.version} are served no longer")
            return status.not_found(resource.plural, resource.group, "")
        if code == 403:
            return error
        # A proxy's, or that of a server in the middle of a change: what was known stays.
        return errors.Unavailable(f"{error.message}, and the server says that it serves it", reason="NotServedNow")

    def _after(self, error: errors.HandfastError) -> float:
        """How long to wait after a failure, and whether to list anew."""
        wait = next(self._backoff)
        if isinstance(error, status.StatusError):
            if error.code == 410:
                # Once is normal life and costs no delay; a server that says it again and again is waited for.
                again, self._expired, self._version = self._expired, True, None
                return wait if again else 0.0
            wait = max(wait, float(error.retry_after))
            if error.code in _WITHOUT and (self._source.optional or (self._source.if_served and error.code == 404)):
                return self._without(error)
            if error.code == 403:
                self._note(error.message)
        # An unreachable server, or one that is not believed, is told of once, by the transport.
        write: Any = _log.debug if error.reason in _TOLD else _log.warning
        write(
            "watch interrupted",
            resource=self._source.resource.plural,
            reason=error.reason,
            error=error.message,
            wait=round(wait, 3),
        )
        return wait

    def _meet(self, error: errors.HandfastError) -> None:
        """Remember what is in the way (3). A 410 is none: the list that follows is."""
        code = error.code if isinstance(error, status.StatusError) else 0
        if code == 410 or self._logged_without:
            return
        since = self._clock.now() if self.trouble is None else self.trouble.since
        self.trouble = Trouble(error.message, error.reason, code, since)

    def _note(self, refusal: str) -> None:
        """Remember what the server says of the right to follow this; empty: it lets us (8)."""
        if refusal != self.refusal:
            self.refusal = refusal
            self._refused(refusal)

    def _without(self, error: status.StatusError) -> float:
        """Do without what is optional (7): that may be meant, and is logged once."""
        if not self._logged_without:
            self._logged_without = True
            why = "is forbidden" if error.code == 403 else "is not served there"
            _log.info(f"not followed, since it {why}", resource=self._source.resource.plural, error=error.message)
            self._version = None
            self._sink.begin()
            self._sink.end()
            self._note("")
        return self._source.without_seconds

    async def _chosen(self) -> api.Addressable | None:
        """The resource in the version that the server prefers of those that can be read (9); None: in no such version."""
        source = self._source
        return await self._client.preferred(source.resource, source.versions) if source.versions else source.resource

    async def _list(self) -> None:
        source, sink = self._source, self._sink
        # 9. in which version
        self.resource = await self._chosen() or source.resource
        version = ""
        sink.begin()
        try:
            async for page in self._client.pages(
                self.resource, source.scope, self._lists, metadata=source.metadata, page_size=source.page_size
            ):
                version = page.metadata.resource_version
                for item in page.items:
                    sink.put(item)
        except partial.UNREADABLE as error:
            raise errors.Unavailable(f"the list cannot be decoded: {error}", reason="BadAnswer") from error
        sink.end()
        self._note("")
        self._version, self._logged_without = version, False

    async def _watch(self) -> None:
        """One watch until it closes."""
        source = self._source
        life = round(_LIFE_SECONDS * (1 + self._random()))
        params = {
            **source.scope.params(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(life),
        }
        accept = api.METADATA if source.metadata else api.JSON
        at = api.path(self.resource, namespace=source.scope.namespace)
        self._healthy = False
        async with self._client.transport.stream(
            at, params=params, accept=accept, idle_seconds=life + _GRACE_SECONDS
        ) as body:
            self._note("")
            self.trouble = None
            opened = self._clock.monotonic()
            try:
                await self._read(body)
            finally:
                if self._clock.monotonic() - opened >= _HEALTHY_SECONDS:
                    self._healthy, self._expired = True, False
                    self._backoff.reset()

    async def _read(self, body: transports.Body) -> None:
        rest = b""
        while chunk := await body.readany():
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if lines:
                self._take(lines)
            elif len(rest) > _MAX_LINE:
                raise errors.Unavailable(f"a watch event is longer than {_MAX_LINE} bytes", reason="BadAnswer")

    def _take(self, lines: list[bytes]) -> None:
        decode, put, remove = self._events.decode, self._sink.put, self._sink.remove
        version = ""
        try:
            for line in lines:
                try:
                    event = decode(line)
                except partial.UNREADABLE as error:
                    version = self._skip(line, error) or version
                    continue
                kind = event.type
                if kind in {"ADDED", "MODIFIED"}:
                    put(event.object)
                elif kind == "DELETED":
                    remove(event.object)
                elif kind != "BOOKMARK":
                    raise _failure(line)
                version = event.object.metadata.resource_version or version
        finally:
            # Of what arrived together only the last version matters.
            self._version = version or self._version

    def _skip(self, line: bytes, error: Exception) -> str:
        """5, 6: the version of an event whose object cannot be seen; what is no event of ours is a failure."""
        try:
            event = _raw_events.decode(line)
        except partial.UNREADABLE:
            raise _failure(line) from error
        item = partial.identify(event.object)
        # 6. of a bookmark nothing counts but its version
        if event.type == "BOOKMARK" and item.metadata.resource_version:
            return item.metadata.resource_version
        # A Status does not look like the objects watched for.
        if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            raise _failure(line) from error
        self._client.oddities.skip(self._source.resource.plural, item, error)
        if event.type == "DELETED":
            # Whoever removes looks at nothing but the identity.
            self._sink.remove(cast("V", item))
        return item.metadata.resource_version


def _failure(line: bytes) -> errors.HandfastError:
    try:
        event = _raw_events.decode(line)
    except partial.UNREADABLE as error:
        return errors.Unavailable(f"a watch event cannot be decoded: {error}", reason="BadAnswer")
    if event.type == "ERROR":
        return transports.status_error(bytes(event.object), 500)
    return errors.Unavailable(f"a watch event of type {event.type!r} cannot be decoded", reason="BadAnswer")
