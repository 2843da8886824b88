# SPDX-License-Identifier: Apache-2.0
"""delete and deletecollection: at once, or marked and kept while finalizers or a grace period are left.

1. The preconditions (uid, resourceVersion) hold (409).
2. The propagation policy sets or clears the two finalizers the garbage collector works with.
3. A Pod on a node gets its grace period; everything else has none.
4. With nothing to wait for, the object is removed; else `deletionTimestamp` is set and whoever owns a finalizer, or the
   node, does the rest. Asking again may shorten the grace period, never lengthen it.

Dependents are the garbage collector's work, not done here.
"""

from __future__ import annotations

import copy
import datetime
from dataclasses import dataclass
from typing import Any

from handfast.api import kinds, objects, status
from handfast.api.codec import decode
from handfast.apiserver import bodies, calls, turns
from handfast.apiserver.access import standing as standing_module
from handfast.apiserver.admission import plugin, station
from handfast.apiserver.state import items as items_module
from handfast.apiserver.state import storage
from handfast.apiserver.verbs import writes
from handfast.runtime import clock as clocks
from handfast.store import protocol

_TRIES = 8
_POLICIES = ("Background", "Foreground", "Orphan")
_DEFAULT_GRACE = 30
# Longer ones mean the same: nobody waits 68 years, and the end must still be a date.
_MAX_GRACE = 2**31 - 1
# What trying to delete an object costs beside reading it, in the measure of `turns`: some 40 µs.
_DELETE_BYTES = 8 << 10


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete, checked."""

    grace: int | None = None
    uid: str = ""
    version: str = ""
    policy: str = ""
    dry_run: bool = False


def parse_options(call: calls.Call, body: bytes) -> DeleteOptions:
    """From the body if there is one (DeleteOptions of any group), else from the query."""
    document: objects.Document = {}
    if body:
        document = decode.document(body, call.header("Content-Type"))
        # A tuple, because what is no text may have no hash.
        if document.get("kind") not in (None, "", "DeleteOptions"):
            raise status.bad_request(f"expected DeleteOptions in the body of a delete, found kind {document['kind']!r}")
    return options_from(document, call)


def options_from(document: objects.Document, call: calls.Call) -> DeleteOptions:
    """The options of a DeleteOptions document, with those of the query where it says nothing."""
    bodies.check_fields(document, "meta.v1.DeleteOptions", bodies.IGNORE)
    query = call.info.query
    if document.get("dryRun") not in (None, [], ["All"]):
        cause = status.Cause("FieldValueNotSupported", 'Unsupported value: supported values: "All"', "dryRun")
        raise status.invalid("DeleteOptions", "meta.k8s.io", "", [cause])
    grace = document.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    policy = document.get("propagationPolicy") or query.get("propagationPolicy") or ""
    orphan = document.get("orphanDependents", query.get("orphanDependents"))
    if orphan is not None and not policy:
        policy = "Orphan" if orphan in {True, "true"} else "Background"
    if policy and policy not in _POLICIES:
        supported = ", ".join(f'"{name}"' for name in (*_POLICIES, "nil"))
        cause = status.Cause(
            "FieldValueNotSupported",
            f'Unsupported value: "{policy}": supported values: {supported}',
            "propagationPolicy",
        )
        raise status.invalid("DeleteOptions", "meta.k8s.io", "", [cause])
    preconditions = document.get("preconditions") or {}
    return DeleteOptions(
        grace=_grace(grace),
        uid=str(preconditions.get("uid") or ""),
        version=str(preconditions.get("resourceVersion") or ""),
        policy=policy,
        dry_run=bool(document.get("dryRun")) or writes.is_dry_run(call),
    )


def _grace(value: object) -> int | None:
    if value is None:
        return None
    try:
        seconds = int(str(value))
    except ValueError:
        raise status.bad_request(f"gracePeriodSeconds: invalid value {value!r}: an integer is wanted") from None
    # Kubernetes reads negative values as "the least possible".
    return seconds if seconds >= 0 else 1


class Deleter:
    """Carries out deletes that were authorised."""

    def __init__(
        self,
        store: storage.Storage,
        clock: clocks.Clock,
        admitter: station.Admitter,
        standing: standing_module.Standing,
    ) -> None:
        self._storage = store
        self._clock = clock
        self._admitter = admitter
        self._standing = standing

    async def delete(
        self, call: calls.Call, kind: kinds.Kind, namespace: str, name: str, wanted: DeleteOptions
    ) -> tuple[items_module.Item, bool]:
        """The object's last state; the second value tells that it is really gone."""
        for _ in range(_TRIES):
            item = await self._storage.find(kind, namespace, name)
            if item is None:
                raise status.not_found(kind.plural, kind.group, name)
            call.weigh(item.body)
            old = await call.work(item.document)
            _check_preconditions(kind, old, wanted)
            # An Eviction was admitted as what it is.
            if call.info.subresource != "eviction":
                await self._admit(call, kind, old, wanted)
            marked = await call.work(self._marked, kind, old, wanted)
            gone = marked is None or writes.is_finished(kind, marked)
            prepared = None if gone else await call.work(self._storage.prepare, kind, marked, item)
            self._standing.require(call)
            try:
                if prepared is None:
                    return (item if wanted.dry_run else await self._storage.delete(kind, item)), True
                if wanted.dry_run:
                    return items_module.Item(namespace, name, item.version, prepared.payload), False
                return await self._storage.write(prepared, call.charge), False
            except protocol.Mismatch:
                continue
        raise status.conflict(kind.plural, kind.group, name)

    async def _admit(self, call: calls.Call, kind: kinds.Kind, old: objects.Document, wanted: DeleteOptions) -> None:
        metadata = old["metadata"]
        write = plugin.Write(
            operation=plugin.DELETE,
            kind=kind,
            subresource=call.info.subresource,
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            document=None,
            old=old,
            user=call.user,
            dry_run=wanted.dry_run,
        )
        await self._admitter.admit(call, write)

    def _marked(self, kind: kinds.Kind, old: objects.Document, wanted: DeleteOptions) -> objects.Document | None:
        """The object as marked for deletion; None if nothing has to be waited for."""
        document = copy.deepcopy(old)
        metadata = document["metadata"]
        metadata.pop("resourceVersion", None)
        # 2. the propagation policy
        finalizers = _finalizers(metadata.get("finalizers") or [], wanted.policy)
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        # 3. the grace period of a Pod
        grace = _grace_for(kind, old, wanted)
        namespace_waits = kind.resource == ("", "namespaces") and (old.get("spec") or {}).get("finalizers")
        # 4. nothing to wait for: removed; else marked
        if not finalizers and not grace and not namespace_waits:
            return None
        mark(metadata, self._clock.now(), grace, counts=kind.has_generation)
        if namespace_waits:
            document.setdefault("status", {})["phase"] = "Terminating"
            metadata.pop("deletionGracePeriodSeconds", None)
        return document

    async def delete_collection(
        self, call: calls.Call, kind: kinds.Kind, items: list[items_module.Item], wanted: DeleteOptions
    ) -> None:
        """Delete each of `items`; one that is gone already is no error."""
        turn = turns.Turns()
        for item in items:
            # A delete that is only tried waits for nothing.
            if turn.spent(len(item.body) + _DELETE_BYTES):
                await self._clock.sleep(0)
            try:
                await self.delete(call, kind, item.namespace, item.name, wanted)
            except status.StatusError as error:
                if error.reason != "NotFound":
                    raise


def _check_preconditions(kind: kinds.Kind, old: objects.Document, wanted: DeleteOptions) -> None:
    metadata = old["metadata"]
    # 1. preconditions
    for label, wanted_value, actual in (
        ("UID", wanted.uid, metadata.get("uid", "")),
        ("ResourceVersion", wanted.version, metadata["resourceVersion"]),
    ):
        if wanted_value and wanted_value != actual:
            why = f"Precondition failed: {label} in precondition: {wanted_value}, {label} in object meta: {actual}"
            raise status.conflict(kind.plural, kind.group, metadata["name"], why)


def mark(metadata: dict[str, Any], now: datetime.datetime, grace: int, *, counts: bool) -> None:
    """Mark an object for deletion, or shorten the grace period of one that is; `counts`: it has a generation."""
    first = not metadata.get("deletionTimestamp")
    if first or grace < (metadata.get("deletionGracePeriodSeconds") or 0):
        metadata["deletionTimestamp"] = objects.timestamp(now + datetime.timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    if first and counts:
        metadata["generation"] = metadata.get("generation", 0) + 1


def _finalizers(present: list[str], policy: str) -> list[str]:
    if not policy:
        return present
    kept = [name for name in present if name not in {objects.FINALIZER_FOREGROUND, objects.FINALIZER_ORPHAN}]
    if policy == "Foreground":
        return [*kept, objects.FINALIZER_FOREGROUND]
    return [*kept, objects.FINALIZER_ORPHAN] if policy == "Orphan" else kept


def _grace_for(kind: kinds.Kind, old: objects.Document, wanted: DeleteOptions) -> int:
    if kind.resource != ("", "pods"):
        return 0
    spec = old.get("spec") or {}
    # Nobody has to stop what no node runs.
    if not spec.get("nodeName") or (old.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    seconds = spec.get("terminationGracePeriodSeconds") if wanted.grace is None else wanted.grace
    return min(int(seconds), _MAX_GRACE) if seconds is not None else _DEFAULT_GRACE
