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
from typing import Any, NoReturn

import msgspec

from handfast import errors
from handfast.api import apply, conversion, defaults, definitions, kinds, objects, status, validation
from handfast.apiserver import (
    admission,
    admitting,
    authz,
    bodies,
    call,
    custom_strategies,
    envelope,
    standing,
    states,
    storage,
    strategies,
)
from handfast.rules import access
from handfast.runtime import clock as clock_module
from handfast.store import protocol

_TRIES = 8
_MANAGER_BYTES = 128
Change = Callable[[objects.Document], objects.Document]


class Writer:
    """Carries out writes that were authorised."""

    def __init__(
        self,
        store: storage.Storage,
        clock: clock_module.Clock,
        admitter: admitting.Admitter,
        authorizers: access.Authorizers,
        standing_: standing.Standing,
    ) -> None:
        self._storage = store
        self._clock = clock
        self._admitter = admitter
        self._authorizers = authorizers
        self._standing = standing_

    async def create(self, asked: call.Call, kind: kinds.Kind, document: objects.Document) -> states.Item:
        """Store a new object."""
        namespace = asked.info.space(kind)
        metadata = document["metadata"]
        _check_url(asked, kind, metadata, namespace)
        if asked.info.verb != "create":
            self._require_create(asked)
        custom_strategies.require_creatable(kind)
        custom_strategies.conform(asked, kind, document)
        # Whether the server draws the name: asked before it does.
        prefix = "" if metadata.get("name") else str(metadata.get("generateName") or "")
        strategies.prepare_create(kind, document, namespace, asked.user, self._clock.now())
        document = conversion.to_stored(kind, document)
        defaults.apply(kinds.stored_row(kind), document)
        # The copy must be current before admission looks at it (is the namespace there?).
        await self._storage.replica.fresh()
        self._prepare_definition(asked, kind, document)
        told, name = tuple(asked.warnings), document["metadata"].get("name")
        for attempt in range(_TRIES if prefix else 1):
            if attempt:
                name = document["metadata"]["name"] = strategies.generated_name(prefix)
                asked.warnings = list(told)
            try:
                return await self._admit_and_create(asked, kind, copy.deepcopy(document) if prefix else document)
            except protocol.Mismatch:
                continue
        raise status.already_exists(kind.plural, kind.group, str(name))

    async def _admit_and_create(self, asked: call.Call, kind: kinds.Kind, document: objects.Document) -> states.Item:
        """Have a complete document admitted and validated, and store it under the name it has; Mismatch if it is taken."""
        write = _attributes(admission.CREATE, asked, kind, document, None)
        await self._mutate(asked, write, lambda: strategies.settle_create(kind, document, asked.user))
        causes = [*validation.create(kinds.stored_row(kind), document), *custom_strategies.problems(kind, document)]
        _require(kind, document, causes)
        await self._admitter.validate(asked, write)
        self._standing.require(asked, "create")
        if is_dry_run(asked):
            return self._pretend_create(kind, document)
        return await self._storage.create(kind, document)

    async def update(self, asked: call.Call, kind: kinds.Kind, document: objects.Document) -> tuple[states.Item, bool]:
        """Replace an object (or a part of it); the second value tells that it was created."""
        info = asked.info
        namespace = info.space(kind)
        metadata = document["metadata"]
        _check_url(asked, kind, metadata, namespace)
        if metadata.get("name") not in {None, info.name}:
            raise status.bad_request(
                f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({info.name})"
            )
        metadata["name"] = info.name
        if not info.subresource and kind.create_on_update and not metadata.get("resourceVersion"):
            found = await self._storage.find(kind, namespace, info.name)
            if found is None:
                return await self.create(asked, kind, document), True
        if kind.needs_resource_version and not metadata.get("resourceVersion"):
            if await self._storage.find(kind, namespace, info.name) is None:
                raise status.not_found(kind.plural, kind.group, info.name)
            raise custom_strategies.version_required(kind, info.name)
        stored = conversion.to_stored(kind, document)
        version, uid = metadata.get("resourceVersion") or "", metadata.get("uid") or ""

        def sent(_: objects.Document) -> objects.Document:
            # With a version it is tried once: what has changed meanwhile is a conflict.
            return stored if version else copy.deepcopy(stored)

        item = await self.change(asked, kind, sent, version=str(version), uid=str(uid))
        return item, False

    async def change(
        self, asked: call.Call, kind: kinds.Kind, change: Change, *, version: str = "", uid: str = ""
    ) -> states.Item:
        """Apply `change` to the stored object until it is written; `version` and `uid` are preconditions.

        `change` gets a document it may keep, and returns the document as the client wants it.
        """
        info = asked.info
        namespace = info.space(kind)
        for _ in range(_TRIES):
            found = await self._storage.find(kind, namespace, info.name)
            if found is None:
                raise status.not_found(kind.plural, kind.group, info.name)
            old = custom_strategies.stored(kind, found.document())
            if version and version != str(found.version):
                raise status.conflict(kind.plural, kind.group, info.name)
            if uid and uid != old["metadata"].get("uid"):
                why = (
                    f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata'].get('uid')}"
                )
                raise status.conflict(kind.plural, kind.group, info.name, why)
            # Decoding it again is quicker than copying it.
            wanted = change(custom_strategies.stored(kind, found.document()))
            named = str(wanted["metadata"].get("resourceVersion") or "")
            if named and named != str(found.version):
                raise status.conflict(kind.plural, kind.group, info.name)
            document = await self._prepared(asked, kind, wanted, old)
            try:
                return await self._store(asked, kind, document, found)
            except protocol.Mismatch:
                continue
        raise status.conflict(kind.plural, kind.group, info.name)

    def _require_create(self, asked: call.Call) -> None:
        """An update or apply that makes a new object is a create: the caller must be allowed that, too."""
        facts = authz.attributes(asked.user, asked.info)
        authz.require(self._authorizers, msgspec.structs.replace(facts, verb="create", name=""))

    async def _mutate(
        self, asked: call.Call, write: admission.Attributes, settle: Callable[[], None]
    ) -> objects.Document:
        """Let admission change the document; returns it as it was sent, for the record of who owns which field.

        A webhook knows neither what only the server decides (`settle`), nor defaults, nor which fields a custom kind has.
        """
        kind, document = write.kind, write.document
        if document is None:
            raise errors.Misuse("a create or update has a document")
        if not self._admitter.may_change(write):
            await self._admitter.mutate(asked, write)
            return document
        sent = copy.deepcopy(document)
        if await self._admitter.mutate(asked, write):
            custom_strategies.conform(asked, kind, document)
            settle()
            defaults.apply(kinds.stored_row(kind), document)
        if write.old is None and document != sent and not document["metadata"].get("managedFields"):
            document["metadata"]["managedFields"] = apply.record_create(
                sent,
                manager=field_manager(asked),
                types=kind.message or kind.schema,
                api_version=kind.api_version,
                now_text=objects.timestamp(self._clock.now()),
            )
        return sent

    async def _prepared(
        self, asked: call.Call, kind: kinds.Kind, wanted: objects.Document, old: objects.Document
    ) -> objects.Document:
        subresource = asked.info.subresource
        if subresource == "scale":
            wanted = custom_strategies.place_replicas(kind, wanted, old)
        custom_strategies.conform(asked, kind, wanted)
        strategy = strategies.strategy(subresource, self._clock.now())
        document = strategy(kind, wanted, old)
        document["metadata"].pop("resourceVersion", None)
        stored = kinds.stored_row(kind)
        defaults.apply(stored, document)
        self._prepare_definition(asked, kind, document)
        write = _attributes(admission.UPDATE, asked, kind, document, old)
        # A Binding is admitted as what it is, before it becomes an update of its Pod.
        admitted = subresource == "binding"
        sent = document
        if not admitted:

            def settle() -> None:
                # In place: plugins and what follows hold this very document.
                settled = strategy(kind, copy.deepcopy(document), old)
                settled["metadata"].pop("resourceVersion", None)
                document.clear()
                document.update(settled)

            sent = await self._mutate(asked, write, settle)
        if subresource in strategies.COUNTED:
            strategies.count_generation(kind, document, old)
        if subresource not in strategies.SERVER_MADE:
            causes = [*validation.update(stored, document, old), *custom_strategies.problems(kind, document, old)]
            _require(kind, document, causes)
        _keep_finalizers_closed(kind, document, old)
        if not admitted:
            await self._admitter.validate(asked, write)
        # An apply wrote the record itself; `track_update` finds nothing changed by others then.
        if "managedFields" in old["metadata"] and not _is_apply(asked):
            managed = apply.track_update(
                old,
                sent,
                manager=field_manager(asked),
                types=kind.message or kind.schema,
                api_version=kind.api_version,
                now_text=objects.timestamp(self._clock.now()),
                subresource=subresource,
            )
            if managed:
                document["metadata"]["managedFields"] = managed
            else:
                document["metadata"].pop("managedFields", None)
        _keep_times(document, old)
        return document

    def _prepare_definition(self, asked: call.Call, kind: kinds.Kind, document: objects.Document) -> None:
        if kind.resource == definitions.RESOURCE:
            now_text = objects.timestamp(self._clock.now())
            custom_strategies.prepare_definition(asked, kind, document, self._storage.replica, now_text)

    async def _store(
        self, asked: call.Call, kind: kinds.Kind, document: objects.Document, old: states.Item
    ) -> states.Item:
        self._standing.require(asked)
        if is_dry_run(asked):
            return self._pretend(kind, document, old.version)
        if is_finished(kind, document):
            # The last finalizer is gone: what was only marked for deletion is deleted, in one write, so that no crash
            # can leave it behind with nobody to finish it.
            gone = await self._storage.delete(kind, old)
            return self._pretend(kind, document, gone.version)
        return await self._storage.replace(kind, document, old)

    def _pretend_create(self, kind: kinds.Kind, document: objects.Document) -> states.Item:
        metadata = document["metadata"]
        namespace = metadata.get("namespace", "") if kind.namespaced else ""
        if self._storage.replica.collection(kind.prefix).get(namespace, metadata["name"]) is not None:
            raise status.already_exists(kind.plural, kind.group, metadata["name"])
        return self._pretend(kind, document, self._storage.replica.version)

    def _pretend(self, kind: kinds.Kind, document: objects.Document, version: int) -> states.Item:
        metadata = document["metadata"]
        namespace = metadata.get("namespace", "") if kind.namespaced else ""
        return states.Item(namespace, metadata["name"], version, envelope.encode_document(document))


def _attributes(
    operation: str, asked: call.Call, kind: kinds.Kind, document: objects.Document, old: objects.Document | None
) -> admission.Attributes:
    name = str(document["metadata"].get("name") or "")
    return admitting.attributes(
        operation, asked, kind, name=name, document=document, old=old, dry_run=is_dry_run(asked)
    )


def is_dry_run(asked: call.Call) -> bool:
    value = asked.info.query.get("dryRun", "")
    if value not in {"", "All"}:
        cause = status.Cause(
            "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: "All"', "dryRun"
        )
        raise status.invalid("CreateOptions", "meta.k8s.io", "", [cause])
    return bool(value)


def field_manager(asked: call.Call) -> str:
    """Who a write belongs to: the parameter, else the first word of the User-Agent, as Kubernetes has it."""
    given = asked.info.query.get("fieldManager", "")
    if len(given.encode()) > _MANAGER_BYTES:
        text = f"Too long: may not be more than {_MANAGER_BYTES} bytes"
        _refuse_manager(status.Cause("FieldValueTooLong", text, "fieldManager"))
    if not given.isprintable():
        text = f"Invalid value: {given!a}: should only contain printable characters"
        _refuse_manager(status.Cause("FieldValueInvalid", text, "fieldManager"))
    return given or asked.header("User-Agent").partition("/")[0][:_MANAGER_BYTES] or "unknown"


def _refuse_manager(cause: status.Cause) -> NoReturn:
    raise status.invalid("PatchOptions", "meta.k8s.io", "", [cause])


def is_finished(kind: kinds.Kind, document: objects.Document) -> bool:
    """Whether an object marked for deletion has nothing left to wait for."""
    metadata = document["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.resource == ("", "namespaces") and (document.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _keep_times(document: objects.Document, old: objects.Document) -> None:
    """A write that changes nothing but the times in the record of owners is no change: the old times stay."""
    written, before = (each["metadata"].get("managedFields") for each in (document, old))
    if written and before and written != before and _without_times(document) == _without_times(old):
        document["metadata"]["managedFields"] = before


def _without_times(document: objects.Document) -> tuple[objects.Document, dict[str, Any], list[Any]]:
    metadata = {
        key: value for key, value in document["metadata"].items() if key not in {"managedFields", "resourceVersion"}
    }
    rows = [
        {key: value for key, value in row.items() if key != "time"} for row in document["metadata"]["managedFields"]
    ]
    return {**document, "metadata": None}, metadata, sorted(rows, key=str)


def _is_apply(asked: call.Call) -> bool:
    return asked.header("Content-Type").startswith("application/apply-patch")


def _check_url(asked: call.Call, kind: kinds.Kind, metadata: dict[str, Any], namespace: str) -> None:
    named = metadata.get("namespace")
    if kind.namespaced and not namespace:
        raise status.bad_request("an empty namespace may not be set during creation")
    if kind.namespaced and named and named != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    bodies.validation_mode(asked.info)


def _require(kind: kinds.Kind, document: objects.Document, causes: list[status.Cause]) -> None:
    if causes:
        raise status.invalid(kind.kind, kind.group, str(document["metadata"].get("name") or ""), causes)


def _keep_finalizers_closed(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> None:
    """Once an object is being deleted, nobody may give it new finalizers to wait for."""
    if not old["metadata"].get("deletionTimestamp"):
        return
    added = sorted(set(document["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ()))
    if added:
        shown = ", ".join(f'"{name}"' for name in added)
        text = (
            f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers [{shown}]"
        )
        cause = status.Cause("FieldValueForbidden", text, "metadata.finalizers")
        raise status.invalid(kind.kind, kind.group, str(document["metadata"]["name"]), [cause])
