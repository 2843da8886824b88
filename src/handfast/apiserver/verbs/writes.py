# SPDX-License-Identifier: Apache-2.0
"""The path of a write, from the decoded document to the store: create, update, and the change that a patch makes.

`Resources` has found the kind and decoded the body. These steps follow, in this order, for every write:

     1. the URL and the body agree   on namespace and name                                        400
     2. may create                   the verb `create`, also for an update or apply that          403, 405
                                     creates; the kind can be created
     3. the replica is current       and the object is there, with the version and uid named      404, 409, 422, 503
     4. complete                     the change; conform, strategy, conversion, defaults; the     400, 405, 409, 422
                                     record of who owns which field
     5. mutating admission           plugins, then webhooks: what they put in is nobody's         403, 404, a webhook's
     6. validation                   the rules of the kind (`api.validation`)                     422
     7. validating admission         plugins, then webhooks                                       403, 404, 422, a webhook's
     8. encode, reserve              the bytes to store, sealed; then quotas: heavy work that     413, 403
                                     waits its turn must not come after what it uses was noted
     9. the caller still stands      judged again, because 3 to 8 may have waited                 401, 403
    10. dry run                      ends here                                                    409
    11. store                        the name is free, or the version has not changed             409, 429, 503

A create is `create`, then `_finish`. Only a create has step 2. An update is `update`, `change`, then `_finish`. A patch and an
action (`patches`, `actions`) begin at `change`: what a patch names is known only when it has been applied, so `patches` checks
1 within 4. A Binding is not asked 5 to 7: see `_finish`.

A write that names a resourceVersion happens at that version or not at all. One that names none starts again at 3 if
another writer was faster. A write that changes nothing is not written. Deleting is `deletes`.

An object is stored under the name it was admitted with. A name that the server drew can be taken: then another is drawn,
and the write starts again at 5. A name that the caller chose is never replaced.
"""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Callable
from typing import Any, cast

import msgspec

from handfast.api import conversion, kinds, objects, status
from handfast.api.custom import definitions
from handfast.apiserver import calls
from handfast.apiserver.access import authz
from handfast.apiserver.access import standing as standing_module
from handfast.apiserver.admission import plugin, policies, station
from handfast.apiserver.state import envelope, items, storage
from handfast.apiserver.strategy import custom, strategies
from handfast.apiserver.verbs import write_steps
from handfast.rules import access
from handfast.runtime import clock as clocks
from handfast.store import protocol

_TRIES = 8
# Makes of the stored document the one that the client wants.
Edit = Callable[[objects.Document], objects.Document]


class Writer:
    """Carries out writes that were authorised."""

    def __init__(
        self,
        store: storage.Storage,
        clock: clocks.Clock,
        admitter: station.Admitter,
        authorizers: access.Authorizers,
        standing: standing_module.Standing,
    ) -> None:
        self._storage = store
        self._clock = clock
        self._admitter = admitter
        self._authorizers = authorizers
        self._standing = standing
        self._compiling = asyncio.Lock()

    async def create(self, call: calls.Call, kind: kinds.Kind, document: objects.Document) -> items.Item:
        """Store a new object."""
        namespace = call.info.space(kind)
        metadata = document["metadata"]
        # 1. the URL and the body agree
        _require_namespace(kind, metadata, namespace)
        # 2. may create
        if call.info.verb != "create":
            self._require_create(call)
        custom.require_creatable(kind)
        # 3. the replica is current. What came whole, and waited for nothing since, the pipeline has waited for already.
        if not call.came_whole or call.is_heavy:
            await self._storage.replica.fresh()
        # 4. complete
        prefix = "" if metadata.get("name") else str(metadata.get("generateName") or "")
        document = await call.work(write_steps.completed, call, kind, document, namespace, self._clock.now())
        await self._prepare_definition(call, kind, document)
        if prefix:
            return await self._create_under_drawn_name(call, kind, document, prefix)
        try:
            return await self._finish(call, kind, document)
        except protocol.Mismatch:
            raise status.already_exists(kind.plural, kind.group, str(document["metadata"].get("name"))) from None

    async def _create_under_drawn_name(
        self, call: calls.Call, kind: kinds.Kind, document: objects.Document, prefix: str
    ) -> items.Item:
        """Draw another name if the first is taken, and ask admission again: its answer was about the first."""
        warnings = tuple(call.warnings)
        for attempt in range(_TRIES):
            if attempt:
                document["metadata"]["name"] = strategies.generated_name(prefix)
                call.warnings = list(warnings)
            try:
                return await self._finish(call, kind, await call.work(copy.deepcopy, document))
            except protocol.Mismatch:
                continue
        raise status.already_exists(kind.plural, kind.group, str(document["metadata"]["name"]))

    async def update(self, call: calls.Call, kind: kinds.Kind, document: objects.Document) -> tuple[items.Item, bool]:
        """Replace an object (or a part of it); the second value says whether it was created."""
        info = call.info
        namespace = info.space(kind)
        metadata = document["metadata"]
        # 1. the URL and the body agree
        _require_namespace(kind, metadata, namespace)
        if metadata.get("name") not in {None, info.name}:
            raise status.bad_request(
                f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({info.name})"
            )
        metadata["name"] = info.name
        version, uid = str(metadata.get("resourceVersion") or ""), str(metadata.get("uid") or "")
        # 3. is it there: an update of what is not there creates it, where the kind allows that. Some kinds require the
        # version instead.
        creates = kind.create_on_update and not info.subresource
        if not version and (creates or kind.needs_resource_version):
            item = await self._storage.find(kind, namespace, info.name)
            if item is None and creates:
                return await self.create(call, kind, document), True
            if item is None:
                raise status.not_found(kind.plural, kind.group, info.name)
            if kind.needs_resource_version:
                raise custom.version_required(kind, info.name)
        # 4. in the stored form
        stored = await call.work(conversion.to_stored, kind, document)

        def replacement(_: objects.Document) -> objects.Document:
            # With a version it is tried once: what has changed meanwhile is a conflict.
            return stored if version else copy.deepcopy(stored)

        return await self.change(call, kind, replacement, version=version, uid=uid), False

    async def change(
        self, call: calls.Call, kind: kinds.Kind, edit: Edit, *, version: str = "", uid: str = ""
    ) -> items.Item:
        """Apply `edit` to the stored object until it is written; `version` and `uid` are preconditions.

        `edit` gets a document it may keep, and returns the document as the client wants it.
        """
        name, namespace = call.info.name, call.info.space(kind)
        for _ in range(_TRIES):
            # 3. the replica is current
            item = await self._storage.find(kind, namespace, name)
            if item is None:
                raise status.not_found(kind.plural, kind.group, name)
            call.weigh(item.body)
            is_foreign = self._storage.replica.is_foreign(item.version)
            old = await call.work(write_steps.started_from, kind, item, is_foreign)
            _require_version(kind, item, version)
            _require_uid(kind, old["metadata"], uid)
            # 4. complete. Decoding the item again is quicker than copying `old`.
            wanted = await call.work(_edited, edit, kind, item, is_foreign)
            _require_version(kind, item, str(wanted["metadata"].get("resourceVersion") or ""))
            document = await call.work(write_steps.replaced, call, kind, wanted, old, self._clock.now())
            await self._prepare_definition(call, kind, document)
            try:
                return await self._finish(call, kind, document, old, item)
            except protocol.Mismatch:
                continue
        raise status.conflict(kind.plural, kind.group, name)

    def _require_create(self, call: calls.Call) -> None:
        """An update or apply that makes a new object is a create: the caller must be allowed that, too."""
        attributes = authz.attributes(call.user, call.info)
        authz.require(self._authorizers, msgspec.structs.replace(attributes, verb="create", name=""))

    async def _prepare_definition(self, call: calls.Call, kind: kinds.Kind, document: objects.Document) -> None:
        if kind.resource == definitions.RESOURCE:
            # However small it is: all the others are looked at.
            call.is_heavy = True
            others = self._storage.replica.collection(custom.PREFIX).snapshot()
            now_text = objects.timestamp(self._clock.now())
            await call.work(custom.prepare_definition, call, document, others, now_text)
        elif kind.group == policies.GROUP:
            # However few values it has: one of them may be an expression of 16,384 characters.
            call.is_heavy = True

    async def _make_ready(self, call: calls.Call, kind: kinds.Kind) -> None:
        """Have the rules of a custom kind compiled, once for all who write its first objects: they wait here, and nobody is told to come back."""
        async with self._compiling:
            if not custom.is_ready(kind):
                await call.work_with(lambda: math.inf, custom.make_ready, kind)
        # What is too large to be kept is compiled again for each.
        call.is_heavy = call.is_heavy or not custom.is_ready(kind)

    async def _finish(
        self,
        call: calls.Call,
        kind: kinds.Kind,
        document: objects.Document,
        old: objects.Document | None = None,
        item: items.Item | None = None,
    ) -> items.Item:
        """Have a complete document admitted, judged and stored: as a new object, or in place of `old`, which is `item`.

        Mismatch if somebody was faster. A Binding was admitted as what it is, and the server itself made the change to
        the Pod (`actions`): 5 to 7 are not for it.
        """
        write = _write_of(call, kind, document, old)
        if not custom.is_ready(kind):
            await self._make_ready(call, kind)
        if write.subresource not in strategies.SERVER_MADE:
            # 5. mutating admission
            await self._mutate(call, write, document)
            # 6. validation
            await call.work(write_steps.require_valid, kind, document, old)
            # 7. validating admission
            await self._admitter.validate(call, write)
        # 8. encode, reserve. Before 9, so that nothing waits between 9 and 11.
        # None: the last finalizer is gone, and the object is deleted.
        prepared: storage.Prepared | None = None
        if item is None or not is_finished(kind, document):
            prepared = await call.work(self._prepare, kind, document, item)
        # In this order: the controller of quotas counts anew a second after it has seen a reservation: little may come after it.
        if write.subresource not in strategies.SERVER_MADE:
            await self._admitter.reserve(write)
        # 9. the caller still stands
        self._standing.require(call, "create" if item is None else "")
        # 10. dry run
        if write.dry_run:
            return self._pretend(kind, document, item)
        # 11. store
        if prepared is not None:
            return await self._storage.write(prepared, call.charge)
        # What was only marked for deletion is deleted in this one write: no crash can leave it behind with nobody to
        # finish it.
        gone = await self._storage.delete(kind, cast("items.Item", item))
        return _unstored(kind, document, gone.version)

    async def _mutate(self, call: calls.Call, write: plugin.Write, document: objects.Document) -> None:
        """Let admission change the document."""
        kind = write.kind
        if await self._admitter.mutate(call, write):
            await call.work(write_steps.completed_again, call, kind, document, write.old, self._clock.now())
        if write.old is not None and write.subresource in strategies.COUNTED:
            strategies.count_generation(kind, document, write.old)

    def _prepare(self, kind: kinds.Kind, document: objects.Document, item: items.Item | None) -> storage.Prepared:
        """Encoded. An object that is too large because of the record of its owners goes without, as in Kubernetes."""
        try:
            return self._storage.prepare(kind, document, item)
        except status.StatusError as error:
            if error.reason != "RequestEntityTooLarge" or not document["metadata"].pop("managedFields", None):
                raise
        return self._storage.prepare(kind, document, item)

    def _pretend(self, kind: kinds.Kind, document: objects.Document, item: items.Item | None) -> items.Item:
        """What a dry run answers: the object as it would be, under the version that there is; a new one has none."""
        if item is not None:
            return _unstored(kind, document, item.version)
        namespace, name = _space_and_name(kind, document)
        if self._storage.replica.collection(kind.prefix).get(namespace, name) is not None:
            raise status.already_exists(kind.plural, kind.group, name)
        return _unstored(kind, document, 0)


def _require_namespace(kind: kinds.Kind, metadata: dict[str, Any], namespace: str) -> None:
    """400 if the URL has no namespace where one is needed, or the body another one."""
    named = metadata.get("namespace")
    if kind.namespaced and not namespace:
        raise status.bad_request("an empty namespace may not be set during creation")
    if kind.namespaced and named and named != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _require_version(kind: kinds.Kind, item: items.Item, version: str) -> None:
    """409 if the write is for another version than the current one."""
    if version and version != str(item.version):
        raise status.conflict(kind.plural, kind.group, item.name)


def _require_uid(kind: kinds.Kind, metadata: dict[str, Any], uid: str) -> None:
    """409 if the write is for another object that had the same name."""
    actual = metadata.get("uid")
    if uid and uid != actual:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
        raise status.conflict(kind.plural, kind.group, metadata["name"], why)


def _edited(edit: Edit, kind: kinds.Kind, item: items.Item, is_foreign: bool) -> objects.Document:
    return edit(write_steps.started_from(kind, item, is_foreign))


def _write_of(
    call: calls.Call, kind: kinds.Kind, document: objects.Document, old: objects.Document | None
) -> plugin.Write:
    operation = plugin.CREATE if old is None else plugin.UPDATE
    name = str(document["metadata"].get("name") or "")
    return station.write_of(operation, call, kind, name=name, document=document, old=old, dry_run=is_dry_run(call))


def is_dry_run(call: calls.Call) -> bool:
    value = call.info.query.get("dryRun", "")
    if value not in {"", "All"}:
        cause = status.Cause(
            "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: "All"', "dryRun"
        )
        raise status.invalid("CreateOptions", "meta.k8s.io", "", [cause])
    return bool(value)


def is_finished(kind: kinds.Kind, document: objects.Document) -> bool:
    """Whether an object that is marked for deletion waits for nothing any more: no finalizer, no grace period."""
    metadata = document["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.resource == ("", "namespaces") and (document.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _space_and_name(kind: kinds.Kind, document: objects.Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata.get("namespace", "") if kind.namespaced else "", metadata["name"]


def _unstored(kind: kinds.Kind, document: objects.Document, version: int) -> items.Item:
    """A document that is answered, and is not in the store."""
    return items.Item(*_space_and_name(kind, document), version, envelope.encode_document(document))
