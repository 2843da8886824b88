# SPDX-License-Identifier: Apache-2.0
"""Follows CustomResourceDefinitions: puts their rows into the table of kinds, and cleans up when one is deleted.

1. The table changes in the same step in which the copy of the store does, before anyone who waited for it goes on: a
   request that waited until the copy was fresh finds the kinds that were defined by then, on whichever server.
2. When the rows of a definition change, watches of its objects end, and clients come back for the new form.
3. A definition that is marked for deletion loses its objects first, then its finalizer, and with it its rows. Objects
   with finalizers of their own are marked, and waited for. What another server wrote at the last moment goes afterwards.
4. A definition whose names were taken is looked at again when others change.
5. Objects of built-in kinds are no definition's: whatever one says, they are not deleted with it.

Every server does 3. and 4. Each write names the state that it replaces, so the second server changes nothing. It
does not judge definitions (`api.custom.definitions`), nor objects (`strategy.custom`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import structlog

from handfast import errors
from handfast.api import kinds, objects
from handfast.api.custom import definitions
from handfast.apiserver import discovery
from handfast.apiserver.state import items, storage
from handfast.apiserver.strategy import custom
from handfast.apiserver.verbs import deletes
from handfast.runtime import clock as clocks
from handfast.store import protocol

_log = structlog.get_logger("handfast.customs")
_RETRY_SECONDS = 1.0
Hooks = set[Callable[[], None]]


class Customs:
    """The definitions of this server's copy of the store, as kinds."""

    def __init__(
        self,
        table: kinds.Table,
        store: storage.Storage,
        discovered: discovery.Discovery,
        clock: clocks.Clock,
    ) -> None:
        self.table = table
        self._storage = store
        self._replica = store.replica
        self._discovery = discovered
        self._clock = clock
        self._kind = next(row for row in kinds.builtin() if row.resource == definitions.RESOURCE)
        self._changed: dict[str, items.Item | None] = {}
        self._rows: dict[str, list[kinds.Kind]] = {}
        self._claims: dict[str, definitions.Claim] = {}
        # Definition -> where its objects lie, for those that ever had any.
        self._stored: dict[str, kinds.Kind] = {}
        self._unsettled: set[str] = set()
        # Prefixes whose definition is gone: what is still there goes too.
        self._left: dict[str, kinds.Kind] = {}
        self._work = asyncio.Event()
        self._watches: dict[str, list[Hooks]] = {}

    def load(self) -> None:
        """Take in what the copy holds, and follow it from now on. No event may have been applied in between."""
        collection = self._replica.collection(custom.PREFIX)
        self._changed = {item.name: item for item in collection.snapshot()}
        collection.listen(self, self._note)
        self._replica.on_batch.append(self._refresh)
        self._refresh()

    async def fresh(self) -> None:
        """Wait until the table has the kinds of every definition acknowledged before this call."""
        await self._replica.fresh()

    @contextlib.contextmanager
    def following(self, kind: kinds.Kind, hooks: Hooks) -> Iterator[None]:
        """While a watch is open: `hooks` are what ends it."""
        if kind.message:
            yield
            return
        watches = self._watches.setdefault(kind.prefix, [])
        watches.append(hooks)
        try:
            yield
        finally:
            watches.remove(hooks)
            if not watches:
                self._watches.pop(kind.prefix, None)

    # --- rows

    def _note(self, change: items.Change) -> None:
        name = (change.after or change.gone()).name
        self._changed[name] = change.after

    def _refresh(self) -> None:
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        stale: set[tuple[str, str]] = set()
        for name, item in changed.items():
            if item is None:
                stale |= self._forget(name)
            else:
                stale |= self._take(name, item.document())
        if stale:
            self._discovery.refresh()
        self._work.set()

    def _take(self, name: str, document: objects.Document) -> set[tuple[str, str]]:
        self._claims[name] = definitions.claim(document)
        self._unsettled.add(name)
        if definitions.is_established(document):
            stored = self._stored[name] = definitions.stored_row(document)
            if self._left.pop(stored.prefix, None) is not None:
                self._replica.collection(stored.prefix).forget(self)
        return self._replace(name, definitions.rows(document))

    def _forget(self, name: str) -> set[tuple[str, str]]:
        self._claims.pop(name, None)
        self._unsettled.discard(name)
        stored = self._stored.pop(name, None)
        if stored is not None:
            self._left[stored.prefix] = stored
        return self._replace(name, [])

    def _replace(self, name: str, rows: list[kinds.Kind]) -> set[tuple[str, str]]:
        """Put the rows of one definition into the table; the group-versions that look different now."""
        before = self._rows.pop(name, [])
        if rows:
            self._rows[name] = rows
        if rows == before:
            return set()
        for row in before:
            self.table.remove(row)
        for row in rows:
            self.table.add(row)
        if _shown(rows) != _shown(before):
            for prefix in {row.prefix for row in before}:
                self._end_watches(prefix)
        return {(row.group, row.version) for row in (*before, *rows)}

    def _end_watches(self, prefix: str) -> None:
        # Runs after the batch was written to watchers, so that they have seen the last objects go.
        for hooks in self._watches.get(prefix, ()):
            for hook in tuple(hooks):
                hook()

    # --- clean-up

    async def run(self) -> None:
        """Settle definitions for ever; the caller runs it as a task."""
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._settle()
            except protocol.Mismatch:
                # Someone else was faster. With their write in the copy, look again.
                self._work.set()
            except errors.HandfastError as error:
                _log.warning("custom resource definitions are not settled", error=error.message)
                await self._clock.sleep(_RETRY_SECONDS)
                self._work.set()

    async def _settle(self) -> None:
        await self._replica.fresh()
        for name in sorted(self._unsettled):
            item = self._replica.collection(custom.PREFIX).get("", name)
            if item is None:
                continue
            if await self._is_settled(item):
                self._unsettled.discard(name)
        for prefix, kind in tuple(self._left.items()):
            # Looked at again right before: a definition that came back meanwhile owns what is there now.
            if prefix not in self._left:
                continue
            if await self._empty(kind):
                self._left.pop(prefix, None)

    async def _is_settled(self, item: items.Item) -> bool:
        """Bring one definition on its way; whether nothing is left to be done about it until it changes."""
        document = item.document()
        wanted = definitions.accept(document, self._claims.values(), objects.timestamp(self._clock.now()))
        if wanted != document.get("status"):
            # The write comes back as a change, and with it this definition.
            await self._write(item, {**document, "status": wanted})
            return False
        if not definitions.is_terminating(document):
            # Names may become free.
            return definitions.is_established(document) and _names_accepted(document)
        if definitions.FINALIZER not in document["metadata"].get("finalizers", ()):
            return True
        kind = self._stored.get(item.name)
        if kind is not None and not await self._empty(kind):
            return False
        rest = [each for each in document["metadata"]["finalizers"] if each != definitions.FINALIZER]
        document["metadata"]["finalizers"] = rest
        if rest:
            await self._write(item, document)
        else:
            await self._storage.delete(self._kind, item)
        return True

    async def _write(self, item: items.Item, document: objects.Document) -> None:
        written = await self._storage.replace(self._kind, document, item)
        await self._replica.reached(written.version)

    async def _empty(self, kind: kinds.Kind) -> bool:
        """Delete the objects at a prefix; whether none is left."""
        # 5. objects of built-in kinds are no definition's
        if definitions.is_builtin_prefix(kind.prefix):
            return True
        collection = self._replica.collection(kind.prefix)
        for item in collection.snapshot():
            await self._remove(kind, item)
        await self._replica.fresh()
        if collection.count():
            collection.listen(self, lambda _: self._work.set())
            return False
        collection.forget(self)
        return True

    async def _remove(self, kind: kinds.Kind, item: items.Item) -> None:
        # Cheap test first: few objects have finalizers at all.
        if b'"finalizers"' in item.body:
            document = item.document()
            metadata = document["metadata"]
            if metadata.get("deletionTimestamp"):
                return
            if metadata.get("finalizers"):
                deletes.mark(metadata, self._clock.now(), 0, counts=True)
                await self._storage.replace(kind, document, item)
                return
        await self._storage.delete(kind, item)


def _shown(rows: list[kinds.Kind]) -> list[kinds.Kind]:
    """The rows as far as watchers can tell: who follows objects of a kind on its way out sees them go."""
    return [dataclasses.replace(row, verbs=()) for row in rows]


def _names_accepted(document: objects.Document) -> bool:
    rows = document["status"]["conditions"]
    return any(row.get("type") == "NamesAccepted" and row.get("status") == "True" for row in rows)
