# SPDX-License-Identifier: Apache-2.0
"""Documents in and out of the store: encodes, seals and writes; answers with the object as it is then served.

Resource versions are made here (engine revision + epoch offset). It does not decide whether a write is right: callers
bring a checked document and the item it replaces.

What becomes of a write whose answer was lost is `lost_answers`' to find out.

Whether the store can be read and written is known here, and `/readyz` says it: a balancer then asks another server. A store
that others write to is asked every `PROBE` seconds as well, so that a server that nobody asks notices it, and one that a balancer has
left notices that the store is back.

| what fails                           | clients get  | `/readyz`               | shown in tests/scenarios/test_etcd_store.py                          |
| ------------------------------------ | ------------ | ----------------------- | -------------------------------------------------------------------- |
| the etcd is away                     | 503          | 500 until it is back    | test_while_etcd_is_away_nothing_stale_is_served                      |
| most members of it are away          | 503          | 500 until they are back | test_without_a_majority_nothing_is_served_and_the_members_are_told   |
| the line of one server to it hangs   | 503 there    | 500 there               | test_a_server_whose_line_to_etcd_hangs_is_not_ready                  |
| it is full                           | 503 to a put | 200, with a note        | test_a_full_etcd_says_what_to_do_and_takes_deletes                   |
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import kinds, objects, status
from handfast.api.codec import bounds
from handfast.apiserver import flows
from handfast.apiserver.state import envelope, lost_answers
from handfast.apiserver.state import items as items_module
from handfast.apiserver.state import replica as replica_module
from handfast.runtime import clock as clocks
from handfast.store import protocol

# Of the value, the header of the envelope and the seal take their part. What is over it etcd would refuse with its default
# limits (1.5 MiB a request), and so Kubernetes cannot hold it.
OBJECT_LIMIT: Final = protocol.VALUE_BYTES - (1 << 10)
# What a step of a deletion may add to an object: its mark, a condition.
_MARK_BYTES = 1 << 10
# Seconds between two questions of our own to a store that others write to.
PROBE: Final = 2.0


_decode = msgspec.json.Decoder().decode
_canonical = msgspec.json.Encoder(order="deterministic").encode


def _says_the_same(one: bytes, other: bytes) -> bool:
    """Whether two documents differ in nothing but the order of their fields: clients send them in any order."""
    # The same fields in another order take the same room; only then is it worth a closer look.
    if len(one) != len(other):
        return False
    if one == other:
        return True
    first, second = _decode(one), _decode(other)
    # What differs is found at once. What is equal is compared as JSON, too: to Python 1 equals True.
    return bool(first == second) and _canonical(first) == _canonical(second)


class _DeletionMetadata(msgspec.Struct):
    deletion_timestamp: str | None = msgspec.field(name="deletionTimestamp", default=None)
    finalizers: list[str] | None = None


class _DeletionView(msgspec.Struct):
    """Of an object only what says whether it is on its way out."""

    metadata: _DeletionMetadata


_deletion_view = msgspec.json.Decoder(_DeletionView).decode


def _is_step_of_deletion(metadata: Mapping[str, Any], size: int, old: items_module.Item) -> bool:
    """Whether a new state of an object that is being deleted is a step of its deletion, and no larger but for the mark."""
    before = _deletion_view(old.body).metadata
    if before.deletion_timestamp is None:
        return size <= len(old.body) + _MARK_BYTES
    fewer = len(metadata.get("finalizers") or ()) < len(before.finalizers or ())
    return fewer and size < len(old.body)


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A write that is ready: what to store where, and in place of which state."""

    namespace: str
    name: str
    payload: bytes
    key: str
    value: bytes
    old: items_module.Item | None
    is_changed: bool = True
    # Also done on a full disk: what is being deleted gets its mark, or loses a finalizer.
    is_removing: bool = False


class Storage:
    """The only writer to the store in this process."""

    def __init__(self, store: protocol.Store, envelopes: envelope.Envelopes, replica: replica_module.Replica) -> None:
        self._store = store
        self._envelopes = envelopes
        self._attempts = lost_answers.Attempts(store, self._note_trouble)
        self.replica = replica
        # Why the last write could not be taken, until one is.
        self._not_written: str | None = None
        # When this server last raised the floor.
        self.compacted_at: datetime.datetime | None = None

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be written or read: what /readyz says."""
        return self._not_written or self.replica.trouble

    def names_makers(self) -> bool:
        """Whether every server of this store can read who made a token in the ledger."""
        return self._envelopes.form >= envelope.NAMES_MAKERS

    @property
    def uncertain(self) -> int:
        """Writes whose answer was lost."""
        return self._attempts.uncertain

    @property
    def unknown(self) -> int:
        """Those of them that nobody knows the outcome of to this day."""
        return self._attempts.unknown

    async def probe(self, clock: clocks.Clock) -> None:
        """Find out for ever whether a store that others write to can be used; the caller runs it as a task."""
        while True:
            await clock.sleep(PROBE)
            with contextlib.suppress(errors.Unavailable):
                await self.replica.fresh()
                # The same majority answered that a write needs.
                self._not_written = None

    def _note_trouble(self, why: str) -> None:
        self._not_written = why

    async def find(self, kind: kinds.Kind, namespace: str, name: str) -> items_module.Item | None:
        """The current state: linearizable."""
        await self.replica.fresh()
        return self.replica.collection(kind.prefix).get(namespace, name)

    async def create(self, kind: kinds.Kind, document: objects.Document) -> items_module.Item:
        """Store a new object; Mismatch if the key is taken."""
        return await self.write(self.prepare(kind, document))

    async def replace(self, kind: kinds.Kind, document: objects.Document, old: items_module.Item) -> items_module.Item:
        """Store a new state of an object; the old item itself if nothing changed; Mismatch if it is not current."""
        return await self.write(self.prepare(kind, document, old))

    def prepare(self, kind: kinds.Kind, document: objects.Document, old: items_module.Item | None = None) -> Prepared:
        """A new object, or a new state of `old`, encoded and sealed; 413 if it is too large to be stored."""
        metadata = document["metadata"]
        namespace, name = metadata.get("namespace", "") if kind.namespaced else "", metadata["name"]
        payload = envelope.encode_document(document)
        limit = 2 * kind.body_bytes or OBJECT_LIMIT
        if len(payload) > limit:
            whose = f"an object of the kind {kind.kind}" if kind.body_bytes else "an object"
            # The words in which Kubernetes passes etcd's refusal on.
            raise status.StatusError(
                "RequestEntityTooLarge",
                f"etcdserver: request is too large ({len(payload)} bytes; {whose} may have {limit})",
            )
        if len(payload) > bounds.LIGHT_BYTES:
            # An object that grew by patches, too: see `bounds`.
            most = bounds.limit(kind)
            bounds.require(bounds.values(payload, most), most, f"{kind.kind} to be stored")
        if old is not None and _says_the_same(payload, envelope.without_resource_version(old.body, old.at)):
            return Prepared(namespace, name, payload, "", b"", old, is_changed=False)
        key = kind.key(namespace, name)
        value = self._envelopes.wrap(key, kind.storage_api_version, payload)
        is_removing = (
            old is not None and "deletionTimestamp" in metadata and _is_step_of_deletion(metadata, len(payload), old)
        )
        return Prepared(namespace, name, payload, key, value, old, is_removing=is_removing)

    async def write(self, prepared: Prepared, charge: flows.Charge | None = None) -> items_module.Item:
        """The object as it is stored now, paid for by `charge`; the old item itself if nothing changed.

        Mismatch if somebody was faster.
        """
        old = prepared.old
        if old is not None and not prepared.is_changed:
            return old
        if charge is not None:
            charge.stores(len(prepared.payload), 0 if old is None else len(old.body))
        expected = 0 if old is None else old.version - self._store.epoch_offset
        revision = await self._write(
            lost_answers.Attempt(prepared.key, prepared.value, expected, removing=prepared.is_removing)
        )
        return items_module.Item(
            prepared.namespace, prepared.name, revision + self._store.epoch_offset, prepared.payload
        )

    async def delete(self, kind: kinds.Kind, old: items_module.Item) -> items_module.Item:
        """Remove an object; its last state under the version of the removal."""
        key = kind.key(old.namespace, old.name)
        expected = old.version - self._store.epoch_offset
        revision = await self._write(lost_answers.Attempt(key, None, expected))
        return old.at_version(revision + self._store.epoch_offset)

    async def _write(self, attempt: lost_answers.Attempt) -> int:
        try:
            revision = await self._attempts.make(attempt)
        except protocol.StoreFull:
            # Reads and deletes go on: no reason to send them elsewhere. `room` tells it.
            raise
        except protocol.StoreUnavailable as error:
            self._not_written = error.message
            raise
        except protocol.TooLarge as error:
            raise status.StatusError("RequestEntityTooLarge", error.message) from None
        self._not_written = None
        return revision

    async def page_at(
        self, kind: kinds.Kind, version: int, namespace: str, after: str, limit: int
    ) -> tuple[list[items_module.Item], bool]:
        """Items as of an older resource version, from the store's history."""
        offset = self._store.epoch_offset
        prefix = f"{kind.prefix}{namespace}/" if namespace else kind.prefix
        page = await self._store.list_at(prefix, revision=version - offset, after=after, limit=limit)
        items = []
        for entry in page.entries:
            space, name = objects.space_and_name(entry.key[len(kind.prefix) :])
            payload = self._envelopes.open(entry.key, entry.value)
            items.append(items_module.Item(space, name, entry.revision + offset, payload))
        return items, page.more

    async def floor(self) -> int:
        """The store's compaction floor, as a revision."""
        return await self._store.floor()

    async def compact(self, version: int) -> None:
        await self._store.compact(version - self._store.epoch_offset)
