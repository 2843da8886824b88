# SPDX-License-Identifier: Apache-2.0
"""What this server says of itself to the others on the same store, and to whoever asks how the store is.

It is a Lease in `kube-system`, named and labelled as those of Kubernetes' servers are, so that whoever looks for API servers finds it
(`kubectl -n kube-system get lease -l apiserver.kubernetes.io/identity=kube-apiserver`). Its annotations say which forms of values the server can read, how far
its copy of the store has come, and how many answers of the store were lost. Who keeps the Lease depends on the store:

- A store of this process's own: `Announcer` does. It renews the Lease every `INTERVAL` seconds, for `LEASE_SECONDS`, removes it when the
  server stops, and removes those that nobody renewed for an hour, as Kubernetes does.
- A store that servers share: `peers` does, more often, with the annotations from here.

By these Leases each server decides which form of values it writes (`rules.stored_forms`):

1. Before it reads the store, a server that does not know the form that the marker names ends. So does one whose store is unfinished:
   a restore or a copy is filling it.
2. The server is announced before it serves, unless its store takes no writes.
3. The marker is raised before the first value of a form is written, by compare-and-swap.
4. With each renewal the marker is looked at. A server that does not know its form ends: it was raised while this one started, or while its
   Lease had ended.
5. A Lease speaks for the store in which it was written. Restores and copies leave it out: where they put it, it would count as a server,
   with a share of the budgets and an address, until it ends.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog

from handfast import errors
from handfast.api import jsonpath, objects, resources
from handfast.api.defaulting import defaults
from handfast.apiserver import identity
from handfast.apiserver.state import envelope, items, storage
from handfast.apiserver.strategy import strategies
from handfast.rules import access, server_leases, stored_forms
from handfast.runtime import clock as clocks
from handfast.store import protocol, transfer

# Seconds: between two renewals, and for which a renewal is in force.
INTERVAL: Final = 60.0
LEASE_SECONDS: Final = 180
NAMESPACE: Final = server_leases.NAMESPACE
PREFIX: Final = "apiserver-"
# What the keys of these Leases begin with in the store.
KEYS: Final = f"coordination.k8s.io/leases/{NAMESPACE}/{PREFIX}"
LABEL: Final = server_leases.LABEL
ROLE: Final = "kube-apiserver"
FORMS: Final = server_leases.FORMS
APPLIED: Final = server_leases.APPLIED
LAG: Final = server_leases.LAG
UNCERTAIN: Final = server_leases.UNCERTAIN
COMPACTED: Final = server_leases.COMPACTED
VERSION: Final = server_leases.VERSION
# The note of the store that says which form may be found there.
MARKER: Final = "stored-form"
# After so long without a renewal a Lease is removed.
FORGOTTEN: Final = datetime.timedelta(hours=1)
_USER: Final = identity.User("system:apiserver", (access.MASTERS,))
_log = structlog.get_logger("handfast.store")


def of_lease(document: Mapping[str, Any]) -> stored_forms.Announcement | None:
    """What a Lease announces, if a server wrote it."""
    # Restores and copies ask of values that nobody has validated.
    metadata, spec = jsonpath.mapping(document, "metadata"), jsonpath.mapping(document, "spec")
    forms = stored_forms.parse(jsonpath.text(metadata, "annotations", FORMS))
    if LABEL not in jsonpath.mapping(metadata, "labels") or forms is None:
        return None
    try:
        renewed = objects.parse_timestamp(spec["renewTime"])
        until = renewed + datetime.timedelta(seconds=spec["leaseDurationSeconds"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return stored_forms.Announcement(jsonpath.text(metadata, "name"), forms, until)


def carried(entries: Sequence[protocol.Entry]) -> Sequence[protocol.Entry]:
    """Entries as they belong into another store."""
    # 5. no server of this store serves from that one
    return [entry for entry in entries if not (entry.key.startswith(KEYS) and _is_announcement(entry))]


def _is_announcement(entry: protocol.Entry) -> bool:
    try:
        return of_lease(envelope.read_document(entry.key, entry.value)) is not None
    except envelope.EnvelopeBroken:
        # It goes along as it is: `handfast store verify` names it.
        return False


async def read_marker(store: protocol.Store) -> int:
    """The newest form of values that may be found in a store."""
    return parse_marker(await store.note(MARKER))


def parse_marker(text: str | None) -> int:
    """The form that the marker says; a store without a marker is older than markers, and of form 1."""
    return int(text) if text and text.isascii() and text.isdecimal() else 1


def is_forgotten(document: Mapping[str, Any], now: datetime.datetime) -> bool:
    """Whether this is the Lease of an API server that nobody renewed for too long."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    if not str(metadata.get("name")).startswith(PREFIX) or LABEL not in (metadata.get("labels") or {}):
        return False
    try:
        return objects.parse_timestamp(str(spec.get("renewTime"))) + FORGOTTEN < now
    except (ValueError, OverflowError):
        return False


def new_lease(name: str, spec: Mapping[str, Any], now: datetime.datetime) -> objects.Document:
    """The Lease of an API server, without annotations."""
    kind = resources.LEASES
    document: objects.Document = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {LABEL: ROLE}},
        "spec": dict(spec),
    }
    strategies.prepare_create(kind, document, NAMESPACE, _USER, now)
    defaults.apply(kind, document)
    return document


class Announcer:
    """Keeps this server's Lease, and decides by those of all which form is written: `raise_form` is told, when it is another one."""

    def __init__(
        self,
        store: protocol.Store,
        documents: storage.Storage,
        clock: clocks.Clock,
        *,
        raise_form: Callable[[int], None],
        forms: stored_forms.Forms = envelope.KNOWN,
        more_annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._store = store
        self._documents = documents
        self._clock = clock
        self._forms = forms
        self._raise_form = raise_form
        self._more_annotations = more_annotations
        # A new one at each start: the Lease of the server before it is not taken over.
        self.name = f"{PREFIX}{secrets.token_hex(8)}"
        self.form = forms.oldest

    async def require_known(self) -> None:
        """Before the store is read: refuse one that is unfinished, or of a form that is not known here."""
        # 1. nothing is filling it
        if await self._store.note(transfer.UNFINISHED) is not None:
            raise transfer.unfinished()
        # 1. the marker names a form that is known
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
        announcements = list(self._in_force(now))
        text = await self._store.note(MARKER)
        marker = parse_marker(text)
        # 4. raised while this server started, or was silent
        stored_forms.require_known(marker, self._forms)
        form = stored_forms.to_write(marker, self._forms, announcements, now)
        # 3. the marker before the first value; it only ever rises
        if form > marker and parse_marker(await self._store.swap_note(MARKER, text, str(form))) < form:
            return  # another server was faster: it is decided again at the next renewal
        if form != self.form:
            self._raise_form(form)
            self.form = form

    async def try_to(self) -> None:
        """Announce, if the store takes writes. A full disk is no reason not to serve: reads and deletes go on."""
        # 2. a store that takes no writes
        if self._store.room().full:
            return
        try:
            await self.announce()
        except (errors.Unavailable, protocol.Mismatch) as error:
            # The last renewal is in force for two more tries.
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
        spec = {"holderIdentity": f"{self.name}_{socket.gethostname()}", "leaseDurationSeconds": LEASE_SECONDS}
        document = item.document() if item is not None else new_lease(self.name, spec, now)
        document["metadata"]["annotations"] = await self.annotations()
        document["spec"]["renewTime"] = objects.micro_timestamp(now)
        if item is None:
            await self._documents.create(resources.LEASES, document)
        else:
            await self._documents.replace(resources.LEASES, document, item)

    async def annotations(self) -> dict[str, str]:
        """The annotations of this server's Lease."""
        applied = self._documents.replica.version
        current = await self._store.current_revision() + self._store.epoch_offset
        return {
            FORMS: str(self._forms),
            VERSION: importlib.metadata.version("handfast"),
            APPLIED: str(applied),
            LAG: str(max(0, current - applied)),
            **self._more_annotations(),
        }

    def _in_force(self, now: datetime.datetime) -> Iterator[stored_forms.Announcement]:
        """What all servers announce that are alive, this one included."""
        for item in self._collection().iterate(NAMESPACE):
            if item.name.startswith(PREFIX) and (found := of_lease(item.document())) is not None and found.until > now:
                yield found

    def _ended(self, now: datetime.datetime) -> list[items.Item]:
        """The Leases of servers that are long gone; the names of all others need not be looked into."""
        leases = self._collection().iterate(NAMESPACE)
        return [item for item in leases if item.name.startswith(PREFIX) and is_forgotten(item.document(), now)]

    async def _remove(self, item: items.Item) -> None:
        try:
            await self._documents.delete(resources.LEASES, item)
        except protocol.Mismatch:
            return  # another server was faster

    def _collection(self) -> Any:
        return self._documents.replica.collection(resources.LEASES.prefix)


def of_server(
    store: protocol.Store,
    documents: storage.Storage,
    clock: clocks.Clock,
    envelopes: envelope.Envelopes,
    more_annotations: Callable[[], Mapping[str, str]],
) -> Announcer:
    """What announces the forms that these envelopes know, and has them write the one that all servers know."""
    return Announcer(
        store,
        documents,
        clock,
        raise_form=envelopes.write_as,
        forms=envelopes.known,
        more_annotations=more_annotations,
    )
