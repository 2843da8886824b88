# SPDX-License-Identifier: Apache-2.0
"""create and update: fill in, admit, complete, validate, admit, store; with optimistic concurrency and dry-run.

A write that names a resourceVersion happens at that version or not at all. One that names none is applied to the state
found and tried again if another writer was faster. A write that changes nothing is not written. Deleting is `deletes`.

An object is stored under the name it was admitted with. A name that the server drew and that is taken is drawn again
only together with everything that admission says about the new one; a name that the caller chose is never replaced.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from handfast import errors
from handfast.api import conversion, kinds, objects, status
from handfast.api.custom import definitions
from handfast.apiserver import bodies, calls
from handfast.apiserver.access import authz, standing
from handfast.apiserver.admission import plugin, station
from handfast.apiserver.state import envelope, items, storage
from handfast.apiserver.strategy import custom, strategies
from handfast.apiserver.verbs import write_steps
from handfast.rules import access
from handfast.runtime import clock as clock_module
from handfast.store import protocol

_TRIES = 8
Change = Callable[[objects.Document], objects.Document]


class Writer:
    """Carries out writes that were authorised."""

    def __init__(
        self,
        store: storage.Storage,
        clock: clock_module.Clock,
        admitter: station.Admitter,
        authorizers: access.Authorizers,
        standing_: standing.Standing,
    ) -> None:
        self._storage = store
        self._clock = clock
        self._admitter = admitter
        self._authorizers = authorizers
        self._standing = standing_

    async def create(self, call: calls.Call, kind: kinds.Kind, document: objects.Document) -> items.Item:
        """Store a new object."""
        namespace = call.info.space(kind)
        metadata = document["metadata"]
        _check_url(call, kind, metadata, namespace)
        if call.info.verb != "create":
            self._require_create(call)
        custom.require_creatable(kind)
        # Whether the server draws the name: asked before it does.
        prefix = "" if metadata.get("name") else str(metadata.get("generateName") or "")
        document = await call.work(write_steps.completed, call, kind, document, namespace, self._clock.now())
        # The copy must be current before admission looks at it (is the namespace there?).
        await self._storage.replica.fresh()
        await self._prepare_definition(call, kind, document)
        told, name = tuple(call.warnings), document["metadata"].get("name")
        for attempt in range(_TRIES if prefix else 1):
            if attempt:
                name = document["metadata"]["name"] = strategies.generated_name(prefix)
                call.warnings = list(told)
            try:
                mine = await call.work(copy.deepcopy, document) if prefix else document
                return await self._admit_and_create(call, kind, mine)
            except protocol.Mismatch:
                continue
        raise status.already_exists(kind.plural, kind.group, str(name))

    async def _admit_and_create(self, call: calls.Call, kind: kinds.Kind, document: objects.Document) -> items.Item:
        """Have a complete document admitted and validated, and store it under the name it has; Mismatch if it is taken."""
        write = _attributes(plugin.CREATE, call, kind, document, None)
        await self._mutate(call, write)
        await call.work(write_steps.require_valid, kind, document)
        await self._admitter.validate(call, write)
        prepared = await call.work(self._storage.prepare, kind, document)
        self._standing.require(call, "create")
        if is_dry_run(call):
            return self._pretend_create(kind, document)
        return await self._storage.write(prepared, call.charge)

    async def update(self, call: calls.Call, kind: kinds.Kind, document: objects.Document) -> tuple[items.Item, bool]:
        """Replace an object (or a part of it); the second value tells that it was created."""
        info = call.info
        namespace = info.space(kind)
        metadata = document["metadata"]
        _check_url(call, kind, metadata, namespace)
        if metadata.get("name") not in {None, info.name}:
            raise status.bad_request(
                f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({info.name})"
            )
        metadata["name"] = info.name
        if not info.subresource and kind.create_on_update and not metadata.get("resourceVersion"):
            found = await self._storage.find(kind, namespace, info.name)
            if found is None:
                return await self.create(call, kind, document), True
        if kind.needs_resource_version and not metadata.get("resourceVersion"):
            if await self._storage.find(kind, namespace, info.name) is None:
                raise status.not_found(kind.plural, kind.group, info.name)
            raise custom.version_required(kind, info.name)
        stored = conversion.to_stored(kind, document)
        version, uid = metadata.get("resourceVersion") or "", metadata.get("uid") or ""

        def sent(_: objects.Document) -> objects.Document:
            # With a version it is tried once: what has changed meanwhile is a conflict.
            return stored if version else copy.deepcopy(stored)

        item = await self.change(call, kind, sent, version=str(version), uid=str(uid))
        return item, False

    async def change(
        self, call: calls.Call, kind: kinds.Kind, change: Change, *, version: str = "", uid: str = ""
    ) -> items.Item:
        """Apply `change` to the stored object until it is written; `version` and `uid` are preconditions.

        `change` gets a document it may keep, and returns the document as the client wants it.
        """
        info = call.info
        namespace = info.space(kind)
        for _ in range(_TRIES):
            found = await self._storage.find(kind, namespace, info.name)
            if found is None:
                raise status.not_found(kind.plural, kind.group, info.name)
            call.weigh(found.body)
            aged = found.version <= self._storage.replica.start
            old = await call.work(write_steps.started_from, kind, found, aged)
            if version and version != str(found.version):
                raise status.conflict(kind.plural, kind.group, info.name)
            if uid and uid != old["metadata"].get("uid"):
                why = (
                    f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata'].get('uid')}"
                )
                raise status.conflict(kind.plural, kind.group, info.name, why)
            # Decoding it again is quicker than copying it.
            wanted = await call.work(_changed, change, kind, found, aged)
            named = str(wanted["metadata"].get("resourceVersion") or "")
            if named and named != str(found.version):
                raise status.conflict(kind.plural, kind.group, info.name)
            document = await self._prepared(call, kind, wanted, old)
            try:
                return await self._store(call, kind, document, found)
            except protocol.Mismatch:
                continue
        raise status.conflict(kind.plural, kind.group, info.name)

    def _require_create(self, call: calls.Call) -> None:
        """An update or apply that makes a new object is a create: the caller must be allowed that, too."""
        facts = authz.attributes(call.user, call.info)
        authz.require(self._authorizers, msgspec.structs.replace(facts, verb="create", name=""))

    async def _mutate(self, call: calls.Call, write: plugin.Attributes) -> objects.Document:
        """Let admission change the document; returns it as it was sent, for the record of who owns which field."""
        kind, document = write.kind, write.document
        if document is None:
            raise errors.Misuse("a create or update has a document")
        if not self._admitter.may_change(write):
            await self._admitter.mutate(call, write)
            return document
        sent: objects.Document = await call.work(copy.deepcopy, document)
        now = self._clock.now()
        if await self._admitter.mutate(call, write):
            await call.work(write_steps.completed_again, call, kind, document, write.old, now)
        if write.old is None:
            await call.work(write_steps.record_changed_create, call, kind, document, sent, now)
        return sent

    async def _prepared(
        self, call: calls.Call, kind: kinds.Kind, wanted: objects.Document, old: objects.Document
    ) -> objects.Document:
        subresource = call.info.subresource
        document = await call.work(write_steps.replaced, call, kind, wanted, old, self._clock.now())
        await self._prepare_definition(call, kind, document)
        write = _attributes(plugin.UPDATE, call, kind, document, old)
        # A Binding is admitted as what it is, before it becomes an update of its Pod.
        admitted = subresource == "binding"
        sent = document if admitted else await self._mutate(call, write)
        if subresource in strategies.COUNTED:
            strategies.count_generation(kind, document, old)
        if subresource not in strategies.SERVER_MADE:
            await call.work(write_steps.require_valid, kind, document, old)
        write_steps.keep_finalizers_closed(kind, document, old)
        if not admitted:
            await self._admitter.validate(call, write)
        await call.work(write_steps.record_update, call, kind, document, sent, old, self._clock.now())
        return document

    async def _prepare_definition(self, call: calls.Call, kind: kinds.Kind, document: objects.Document) -> None:
        if kind.resource == definitions.RESOURCE:
            # However small it is: all the others are looked at.
            call.is_heavy = True
            others = self._storage.replica.collection(custom.PREFIX).snapshot()
            now_text = objects.timestamp(self._clock.now())
            await call.work(custom.prepare_definition, call, document, others, now_text)

    async def _store(
        self, call: calls.Call, kind: kinds.Kind, document: objects.Document, old: items.Item
    ) -> items.Item:
        finished = is_finished(kind, document)
        prepared = None if finished else await call.work(self._storage.prepare, kind, document, old)
        self._standing.require(call)
        if is_dry_run(call):
            return self._pretend(kind, document, old.version)
        if prepared is None:
            # The last finalizer is gone: what was only marked for deletion is deleted, in one write, so that no crash
            # can leave it behind with nobody to finish it.
            gone = await self._storage.delete(kind, old)
            return self._pretend(kind, document, gone.version)
        return await self._storage.write(prepared, call.charge)

    def _pretend_create(self, kind: kinds.Kind, document: objects.Document) -> items.Item:
        metadata = document["metadata"]
        namespace = metadata.get("namespace", "") if kind.namespaced else ""
        if self._storage.replica.collection(kind.prefix).get(namespace, metadata["name"]) is not None:
            raise status.already_exists(kind.plural, kind.group, metadata["name"])
        return self._pretend(kind, document, self._storage.replica.version)

    def _pretend(self, kind: kinds.Kind, document: objects.Document, version: int) -> items.Item:
        metadata = document["metadata"]
        namespace = metadata.get("namespace", "") if kind.namespaced else ""
        return items.Item(namespace, metadata["name"], version, envelope.encode_document(document))


def _changed(change: Change, kind: kinds.Kind, item: items.Item, aged: bool) -> objects.Document:
    return change(write_steps.started_from(kind, item, aged))


def _attributes(
    operation: str, call: calls.Call, kind: kinds.Kind, document: objects.Document, old: objects.Document | None
) -> plugin.Attributes:
    name = str(document["metadata"].get("name") or "")
    return station.attributes(operation, call, kind, name=name, document=document, old=old, dry_run=is_dry_run(call))


def is_dry_run(call: calls.Call) -> bool:
    value = call.info.query.get("dryRun", "")
    if value not in {"", "All"}:
        cause = status.Cause(
            "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: "All"', "dryRun"
        )
        raise status.invalid("CreateOptions", "meta.k8s.io", "", [cause])
    return bool(value)


def is_finished(kind: kinds.Kind, document: objects.Document) -> bool:
    """Whether an object marked for deletion has nothing left to wait for."""
    metadata = document["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.resource == ("", "namespaces") and (document.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _check_url(call: calls.Call, kind: kinds.Kind, metadata: dict[str, Any], namespace: str) -> None:
    named = metadata.get("namespace")
    if kind.namespaced and not namespace:
        raise status.bad_request("an empty namespace may not be set during creation")
    if kind.namespaced and named and named != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    bodies.validation_mode(call.info)
