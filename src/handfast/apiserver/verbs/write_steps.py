# SPDX-License-Identifier: Apache-2.0
"""What `writes` does to a document: complete it, judge whether it is valid, and record who owns which field.

The functions stand in the order of the path of a write, which is the list in `writes`. Each costs in proportion to the
document, and touches nothing but the call and the documents that it gets: where they are heavy, `writes` has it done
aside (`calls.Call.work`). Nothing here waits, stores, or asks another object.
"""

from __future__ import annotations

import copy
import datetime
import itertools
from typing import Any, NoReturn

from handfast.api import conversion, kinds, objects, status
from handfast.api.codec import bounds, decode
from handfast.api.defaulting import defaults
from handfast.api.merging import apply
from handfast.api.validation import validation
from handfast.apiserver import calls
from handfast.apiserver.state import items
from handfast.apiserver.strategy import custom, strategies

_MANAGER_BYTES = 128


def completed(
    call: calls.Call, kind: kinds.Kind, document: objects.Document, namespace: str, now: datetime.datetime
) -> objects.Document:
    """A new document as it is stored: in the shape of its schema, with what the server fills in, and defaults."""
    custom.conform(call, kind, document)
    strategies.prepare_create(kind, document, namespace, call.user, now, call.own_source)
    document = conversion.to_stored(kind, document)
    defaults.apply(kinds.stored_row(kind), document)
    return document


def started_from(kind: kinds.Kind, item: items.Item, aged: bool) -> objects.Document:
    """A stored object as a write starts from it: a document of one's own. `aged`: see `strategy.custom.stored`."""
    return custom.stored(kind, item.document(), aged=aged)


def replaced(
    call: calls.Call, kind: kinds.Kind, wanted: objects.Document, old: objects.Document, now: datetime.datetime
) -> objects.Document:
    """What the client wants in place of `old`, with what this subresource may not change as it was, and defaults."""
    if call.info.subresource == "scale":
        wanted = custom.place_replicas(kind, wanted, old)
    custom.conform(call, kind, wanted)
    document = strategies.strategy(call.info.subresource, now)(kind, wanted, old)
    document["metadata"].pop("resourceVersion", None)
    defaults.apply(kinds.stored_row(kind), document)
    return document


def completed_again(
    call: calls.Call,
    kind: kinds.Kind,
    document: objects.Document,
    old: objects.Document | None,
    now: datetime.datetime,
) -> None:
    """The same once more, in place, after a webhook: it knows neither what only the server decides, nor defaults."""
    custom.conform(call, kind, document)
    if old is None:
        strategies.settle_create(kind, document, call.user, call.own_source)
    else:
        settled = strategies.strategy(call.info.subresource, now)(kind, copy.deepcopy(document), old)
        settled["metadata"].pop("resourceVersion", None)
        document.clear()
        document.update(settled)
    defaults.apply(kinds.stored_row(kind), document)


def record_changed_create(
    call: calls.Call, kind: kinds.Kind, document: objects.Document, sent: objects.Document, now: datetime.datetime
) -> None:
    """Who owns what of a new object that admission changed: its sender what was sent."""
    if document != sent and not document["metadata"].get("managedFields"):
        document["metadata"]["managedFields"] = apply.record_create(
            sent,
            manager=field_manager(call),
            types=kind.message or kind.schema,
            api_version=kind.api_version,
            now_text=objects.timestamp(now),
        )


def require_valid(kind: kinds.Kind, document: objects.Document, old: objects.Document | None = None) -> None:
    """422 with the first causes, if the document may not be created, or may not replace `old`."""
    # Before anything looks at each item: the length of a list is known.
    _require(kind, document, bounds.items(kind, document))
    stored = kinds.stored_row(kind)
    causes = validation.create(stored, document) if old is None else validation.update(stored, document, old)
    all_causes = itertools.chain(causes, custom.problems(kind, document, old))
    _require(kind, document, list(itertools.islice(all_causes, status.MAX_CAUSES + 1)))
    if old is not None:
        _require_no_new_finalizers(kind, document, old)


def _require(kind: kinds.Kind, document: objects.Document, causes: list[status.Cause]) -> None:
    if causes:
        raise status.invalid(kind.kind, kind.group, str(document["metadata"].get("name") or ""), causes)


def _require_no_new_finalizers(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> None:
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
        _require(kind, document, [cause])


def record_update(
    call: calls.Call,
    kind: kinds.Kind,
    document: objects.Document,
    sent: objects.Document,
    old: objects.Document,
    now: datetime.datetime,
) -> None:
    """Who owns what from now on, where that is kept of the object."""
    # An apply has written the record itself.
    if "managedFields" in old["metadata"] and not _is_apply(call):
        managed = apply.track_update(
            old,
            sent,
            manager=field_manager(call),
            types=kind.message or kind.schema,
            api_version=kind.api_version,
            now_text=objects.timestamp(now),
            subresource=call.info.subresource,
        )
        if managed:
            document["metadata"]["managedFields"] = managed
        else:
            document["metadata"].pop("managedFields", None)
    _keep_times(document, old)


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


def _is_apply(call: calls.Call) -> bool:
    return decode.media_type(call.header("Content-Type")) == decode.APPLY


def field_manager(call: calls.Call) -> str:
    """Who a write belongs to: the parameter, else the first word of the User-Agent, as Kubernetes has it."""
    manager = call.info.query.get("fieldManager", "")
    if len(manager.encode()) > _MANAGER_BYTES:
        text = f"Too long: may not be more than {_MANAGER_BYTES} bytes"
        _refuse_manager(status.Cause("FieldValueTooLong", text, "fieldManager"))
    if not manager.isprintable():
        text = f"Invalid value: {manager!a}: should only contain printable characters"
        _refuse_manager(status.Cause("FieldValueInvalid", text, "fieldManager"))
    return manager or call.header("User-Agent").partition("/")[0][:_MANAGER_BYTES] or "unknown"


def _refuse_manager(cause: status.Cause) -> NoReturn:
    raise status.invalid("PatchOptions", "meta.k8s.io", "", [cause])
