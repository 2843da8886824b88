# SPDX-License-Identifier: Apache-2.0
"""What this server says of itself to the others on the same store, and to whoever asks how the store is.

It is a Lease in `kube-system`, as Kubernetes' servers have one: renewed every `INTERVAL` seconds, in force for `SECONDS`, removed
when the server stops. Its annotations say which forms of values the server can read, how far its copy of the store has come,
and how many writes it does not know the outcome of. Where servers share a store the Lease is kept by `peers`, more often, and the
annotations are in that one. By these Leases each server decides which form it writes (`rules.stored_forms`):

1. Before it reads the store, a server that does not know the form of its marker ends. So does one whose store is unfinished:
   a restore or a copy is filling it.
2. The server is announced before it serves, unless its store takes no writes.
3. The marker is raised before the first value of a form is written.

Leases that ended a day ago are removed by whoever sees them.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import structlog

from handfast import errors
from handfast.api import kinds, objects
from handfast.api.defaulting import defaults
from handfast.apiserver import identity
from handfast.apiserver.state import envelope, items, storage
from handfast.apiserver.strategy import strategies
from handfast.rules import access, stored_forms
from handfast.runtime import clock as clocks
from handfast.store import protocol, transfer

INTERVAL: Final = 60.0
SECONDS: Final = 180
NAMESPACE: Final = "kube-system"
PREFIX: Final = "apiserver-"
# What the keys of these Leases begin with in the store.
KEYS: Final = f"coordination.k8s.io/leases/{NAMESPACE}/{PREFIX}"
LABEL: Final = "apiserver.kubernetes.io/identity"
FORMS: Final = "handfast.dev/stored-forms"
APPLIED: Final = "handfast.dev/applied-version"
LAG: Final = "handfast.dev/store-lag"
UNCERTAIN: Final = "handfast.dev/uncertain-writes"
COMPACTED: Final = "handfast.dev/last-compaction"
VERSION: Final = "handfast.dev/version"
# The note of the store that says which form may be found there.
MARKER: Final = "stored-form"
_FORGOTTEN: Final = datetime.timedelta(days=1)
_USER: Final = identity.User("system:apiserver", (access.MASTERS,))
_log = structlog.get_logger("handfast.store")


def of_lease(document: Mapping[str, Any]) -> stored_forms.Announcement | None:
    """What a Lease announces, if a server wrote it."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    forms = stored_forms.parse((metadata.get("annotations") or {}).get(FORMS, ""))
    if LABEL not in (metadata.get("labels") or {}) or forms is None:
        return None
    try:
        renewed = objects.parse_timestamp(spec["renewTime"])
        until = renewed + datetime.timedelta(seconds=spec["leaseDurationSeconds"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return stored_forms.Announcement(metadata["name"], forms, until)


async def read_marker(store: protocol.Store) -> int:
    """The newest form of values that may be found in a store."""
    return parse_marker(await store.note(MARKER))


def parse_marker(text: str | None) -> int:
    """The form that the marker says; a store that has none is of before there was one."""
    return int(text) if text and text.isascii() and text.isdecimal() else 1


class Announcer:
    """Keeps this server's Lease, and decides by those of all which form is written."""

    def __init__(
        self,
        store: protocol.Store,
        documents: storage.Storage,
        clock: clocks.Clock,
        *,
        forms: stored_forms.Forms = envelope.KNOWN,
        raise_form: Callable[[int], None] = lambda _form: None,
        facts: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._store = store
        self._documents = documents
        self._clock = clock
        self._forms = forms
        self._raise_form = raise_form
        self._facts = facts
        self._kind = next(kind for kind in kinds.builtin() if kind.plural == "leases")
        # A new one at each start: what a server before it has said is its own.
        self.name = f"{PREFIX}{secrets.token_hex(8)}"
        self.form = forms.oldest

    async def require_known(self) -> None:
        """Before the store is read (1)."""
        if await self._store.note(transfer.UNFINISHED) is not None:
            raise errors.Refused(
                "the store is unfinished: a restore or a copy fills it, or was cut short",
                reason="StoreUnfinished",
                hint="begin the restore or the copy again, and start when it is done",
            )
        stored_forms.require_known(await read_marker(self._store), self._forms)

    async def announce(self) -> None:
        """Write the Lease, then decide by all of them which form is written."""
        now = self._clock.now()
        await self._renew(now)
        await self.decide()
        for item in self._ended(now):
            await self._remove(item)

    async def decide(self) -> None:
        """Which form is written, by the Leases of all servers; this one's is among them."""
        now = self._clock.now()
        announcements = list(self._others(now))
        marker = await read_marker(self._store)
        form = stored_forms.to_write(marker, self._forms, announcements, now)
        if form > marker:
            # 3. the marker first
            await self._store.set_note(MARKER, str(form))
        if form != self.form:
            self._raise_form(form)
            self.form = form

    async def try_to(self) -> None:
        """Announce, if the store takes it. A full disk is no reason not to serve: reads and deletes go on."""
        if self._store.room().full:
            return
        try:
            await self.announce()
        except (errors.Unavailable, protocol.Mismatch) as error:
            # The Lease of before is in force for two more tries.
            _log.warning("this server could not announce itself", reason=error.reason, error=error.message)

    async def keep(self) -> None:
        """Renew for ever; the caller runs it as a task."""
        while True:
            await self._clock.sleep(INTERVAL)
            await self.try_to()

    async def end(self) -> None:
        """The server stops: nobody need wait for its Lease to end."""
        item = self._collection().get(NAMESPACE, self.name)
        if item is not None:
            await self._remove(item)

    async def _renew(self, now: datetime.datetime) -> None:
        item = self._collection().get(NAMESPACE, self.name)
        document = item.document() if item is not None else self._new(now)
        document["metadata"]["annotations"] = await self.said()
        document["spec"]["renewTime"] = objects.micro_timestamp(now)
        if item is None:
            await self._documents.create(self._kind, document)
        else:
            await self._documents.replace(self._kind, document, item)

    def _new(self, now: datetime.datetime) -> objects.Document:
        document: objects.Document = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {"name": self.name, "namespace": NAMESPACE, "labels": {LABEL: "handfast-apiserver"}},
            "spec": {"holderIdentity": f"{self.name}_{socket.gethostname()}", "leaseDurationSeconds": SECONDS},
        }
        strategies.prepare_create(self._kind, document, NAMESPACE, _USER, now)
        defaults.apply(self._kind, document)
        return document

    async def said(self) -> dict[str, str]:
        """The annotations of this server's Lease."""
        applied = self._documents.replica.version
        current = await self._store.current_revision() + self._store.epoch_offset
        return {
            FORMS: str(self._forms),
            VERSION: importlib.metadata.version("handfast"),
            APPLIED: str(applied),
            LAG: str(max(0, current - applied)),
            **self._facts(),
        }

    def _others(self, now: datetime.datetime) -> Iterator[stored_forms.Announcement]:
        for item in self._collection().iterate(NAMESPACE):
            if item.name.startswith(PREFIX) and (found := of_lease(item.document())) is not None and found.until > now:
                yield found

    def _ended(self, now: datetime.datetime) -> list[items.Item]:
        ended = []
        for item in self._collection().iterate(NAMESPACE):
            if item.name.startswith(PREFIX):
                found = of_lease(item.document())
                if found is not None and found.until + _FORGOTTEN < now:
                    ended.append(item)
        return ended

    async def _remove(self, item: items.Item) -> None:
        try:
            await self._documents.delete(self._kind, item)
        except protocol.Mismatch:
            return  # another server was faster

    def _collection(self) -> Any:
        return self._documents.replica.collection(self._kind.prefix)
