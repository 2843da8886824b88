# SPDX-License-Identifier: Apache-2.0
"""The ledger's chain of the mesh, followed: each entry is read once, and what is in force is kept (`rules.mesh.issued`). It writes nothing.

1. A segment comes again with every entry that is added to it. Only its new lines are read.
2. Of a line that tells of an expired certificate nothing is decoded but its end: a ledger has a week of them.
3. A line that cannot be read is told of, and skipped: `handfast ledger verify` says more.
4. Nothing is known before the ledger was listed, or while it may not be read: `why_not`.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.api import handfast_kinds
from handfast.client import cache, partial, watch
from handfast.rules.ledger import entries, segments
from handfast.rules.mesh import issued
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

_log = structlog.get_logger("handfast.mesh.agents")


class _Spec(msgspec.Struct, frozen=True, gc=False):
    entries: tuple[str, ...] | None = None
    chain: str = ""


class Segment(msgspec.Struct, frozen=True, gc=False):
    """A segment of any chain."""

    metadata: partial.Meta = partial.Meta()
    spec: _Spec = _Spec()


class _Ends(msgspec.Struct, gc=False):
    not_after: datetime.datetime


_ends = msgspec.json.Decoder(_Ends)
SOURCE: Final = watch.Source(resource=handfast_kinds.ISSUANCE_LOG, view=Segment)


class Issuance:
    """What is in force; `notify` is called with each certificate that comes."""

    def __init__(
        self, informers: cache.Informers, clock: clocks.Clock, notify: Callable[[issued.Certificate], None]
    ) -> None:
        self.index = issued.Issued()
        self._clock = clock
        self._notify = notify
        self._read: dict[str, int] = {}
        self._unseen: set[str] | None = None
        self._synced = False
        self._refusal = ""
        self._awaited: dict[str, asyncio.Event] = {}
        informers.follow(SOURCE, self, self._refused)

    @property
    def why_not(self) -> str:
        """Why nothing is known of it; empty where it is (4)."""
        return self._refusal or ("" if self._synced else "the ledger was not listed")

    async def find(self, fingerprint: str, seconds: float) -> issued.Certificate | None:
        """The certificate with this SHA-256; one that has just been issued is waited for so long."""
        certificate = self.index.find(fingerprint)
        if certificate is None:
            event = self._awaited.setdefault(fingerprint, asyncio.Event())
            try:
                await tasks.wait_for_event(event, self._clock, seconds)
            finally:
                self._awaited.pop(fingerprint, None)
            certificate = self.index.find(fingerprint)
        return certificate

    # What the reflector calls.

    def begin(self) -> None:
        self._unseen = set(self._read)

    def put(self, item: Segment) -> None:
        if item.spec.chain != segments.MESH:
            return
        name, lines, now = item.metadata.name, item.spec.entries or (), self._clock.now()
        if self._unseen is not None:
            self._unseen.discard(name)
        # 1. only the new lines
        for stored in lines[self._read.get(name, 0) :]:
            self._take(name, stored, now)
        self._read[name] = len(lines)
        self.index.forget(now)

    def remove(self, item: Segment) -> None:
        self._read.pop(item.metadata.name, None)

    def end(self) -> None:
        for name in self._unseen or ():
            self._read.pop(name, None)
        self._unseen, self._synced = None, True

    def _refused(self, refusal: str) -> None:
        self._refusal = refusal

    def _take(self, segment: str, stored: str, now: datetime.datetime) -> None:
        try:
            # 2. its end first
            if _ends.decode(entries.line_of(stored)).not_after <= now:
                return
            certificate = issued.read(entries.decode_stored(stored))
        except (errors.Refused, *partial.UNREADABLE):
            # 3. told of, and skipped
            _log.warning("an entry of the ledger cannot be read", segment=segment)
            return
        if self.index.add(certificate, now):
            if (event := self._awaited.get(certificate.fingerprint)) is not None:
                event.set()
            self._notify(certificate)
