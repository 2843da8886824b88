# SPDX-License-Identifier: Apache-2.0
"""What `writes` does to a document: complete it, record who owns which field, and judge whether it is valid.

The functions stand in the order of the path of a write, which is the list in `writes`. Each costs in proportion to the
document, and touches nothing but the call and the documents that it gets: where they are heavy, `writes` has it done
aside (`calls.Call.work`). Nothing here waits, stores, or asks another object.
"""

from __future__ import annotations

import copy
import datetime
import itertools
from collections.abc import Iterable
from typing import Any, NoReturn

from handfast.api import conversion, kinds, objects, status
from handfast.api.codec import bounds, decode
from handfast.api.defaulting import defaults
from handfast.api.merging import differences, managed_fields, updates
from handfast.api.validation import validation
from handfast.apiserver import calls
from handfast.apiserver.state import items
from handfast.apiserver.strategy import custom, strategies

_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions"}
# Written over and over, by machines that never apply: their owners are recorded from the first apply on. See decision 63.
_UNRECORDED = frozenset({("coordination.k8s.io", "leases"), ("", "events"), ("events.k8s.io", "events")})
_WHOLE: frozenset[str] = frozenset()
_STATUS_DOORS = frozenset({"status", "approval"})
# A write to /status changes these of an object, and of its metadata all but the second.
_OF_STATUS = frozenset({"apiVersion", "kind", "metadata", "status"})
_NOT_OF_STATUS = frozenset({"ownerReferences", "finalizers"})
# What the server says of who asks for a certificate, in the words of the request.
_STAMPED = {("certificates.k8s.io", "certificatesigningrequests"): frozenset({"username", "uid", "groups", "extra"})}


def started_from(kind: kinds.Kind, item: items.Item, is_foreign: bool) -> objects.Document:
    """A stored object as a write starts from it: a document of one's own. `strategy.custom.stored` says what the flag is for."""
    return custom.stored(kind, item.document(), is_foreign=is_foreign)


def completed(
    call: calls.Call, kind: kinds.Kind, document: objects.Document, namespace: str, now: datetime.datetime
) -> objects.Document:
    """A new document as it is stored: in the shape of its schema, with what the server fills in, and defaults."""
    custom.conform(call, kind, document)
    sent = document["metadata"].pop("managedFields", None)
    strategies.prepare_create(kind, document, namespace, call.user, now, call.own_source)
    document = conversion.to_stored(kind, document)
    defaults.apply(kinds.stored_row(kind), document)
    _set_record(document, sent if _is_apply(call) else _created(call, kind, document, sent, now))
    return document


def replaced(
    call: calls.Call, kind: kinds.Kind, wanted: objects.Document, old: objects.Document, now: datetime.datetime
) -> objects.Document:
    """What the client wants in place of `old`, with what this subresource may not change as it was, and defaults."""
    if call.info.subresource == "scale":
        wanted = custom.place_replicas(kind, wanted, old)
    custom.conform(call, kind, wanted)
    sent = wanted["metadata"].get("managedFields")
    document = strategies.strategy(call.info.subresource, now)(kind, wanted, old)
    # One's own: some strategies share it with `old`.
    document["metadata"] = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    defaults.apply(kinds.stored_row(kind), document)
    if call.info.subresource not in strategies.SERVER_MADE:
        _set_record(document, sent if _is_apply(call) else _updated(call, kind, document, sent, old, now))
        _keep_times(document, old)
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
        record = document["metadata"].get("managedFields")
        settled = strategies.strategy(call.info.subresource, now)(kind, copy.deepcopy(document), old)
        settled["metadata"] = {key: value for key, value in settled["metadata"].items() if key != "resourceVersion"}
        _set_record(settled, record)
        document.clear()
        document.update(settled)
    defaults.apply(kinds.stored_row(kind), document)


def _created(
    call: calls.Call, kind: kinds.Kind, document: objects.Document, sent: Any, now: datetime.datetime
) -> list[objects.Document]:
    """Who owns what of a new object."""
    manager = field_manager(call)
    if kind.resource in _UNRECORDED:
        return managed_fields.write_entries(managed_fields.read_sent(sent))
    return updates.created(
        document,
        sent,
        manager=manager,
        types=kind.message or kind.schema,
        api_version=kind.api_version,
        now_text=objects.timestamp(now),
        ignored=ignored_fields(kind, ""),
    )


def _updated(
    call: calls.Call,
    kind: kinds.Kind,
    document: objects.Document,
    sent: Any,
    old: objects.Document,
    now: datetime.datetime,
) -> list[objects.Document]:
    """Who owns what from now on, where that is kept of the object."""
    return updates.updated(
        old,
        document,
        sent,
        manager=field_manager(call),
        types=kind.message or kind.schema,
        api_version=kind.api_version,
        now_text=objects.timestamp(now),
        subresource=call.info.subresource,
    )


def _set_record(document: objects.Document, managed: list[objects.Document] | None) -> None:
    if managed:
        document["metadata"]["managedFields"] = managed
    else:
        document["metadata"].pop("managedFields", None)


def ignored_fields(kind: kinds.Kind, subresource: str, names: Iterable[str] = ()) -> differences.Ignored:
    """Which of the fields `names` nobody gets by a write through `subresource`: it leaves them alone, or the server sets them."""
    if subresource in _STATUS_DOORS:
        return {**dict.fromkeys(set(names) - _OF_STATUS, _WHOLE), "metadata": _NOT_OF_STATUS}
    ignored: dict[str, frozenset[str]] = {}
    if not subresource and kind.subresource("status") is not None:
        ignored["status"] = _WHOLE
    if kind.resource in _STAMPED:
        ignored["spec"] = _STAMPED[kind.resource]
    return ignored


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
    if len(manager.encode()) > managed_fields.MANAGER_BYTES:
        text = f"Too long: may not be more than {managed_fields.MANAGER_BYTES} bytes"
        refuse_option(call, status.Cause("FieldValueTooLong", text, "fieldManager"))
    if not manager.isprintable():
        place, sign = next((place, sign) for place, sign in enumerate(manager) if not sign.isprintable())
        text = f'Invalid value: "{ascii(manager)[1:-1]}": invalid character U+{ord(sign):04X} (at position {place})'
        refuse_option(call, status.Cause("FieldValueInvalid", text, "fieldManager"))
    return manager or _user_agent(call) or "unknown"


def _user_agent(call: calls.Call) -> str:
    word = call.header("User-Agent").partition("/")[0]
    return "".join(filter(str.isprintable, word))[: managed_fields.MANAGER_BYTES]


def refuse_option(call: calls.Call, cause: status.Cause) -> NoReturn:
    """422 about a parameter of a write."""
    raise status.invalid(_OPTIONS.get(call.info.verb, "PatchOptions"), "meta.k8s.io", "", [cause])
