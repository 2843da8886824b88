# SPDX-License-Identifier: Apache-2.0
"""patch: which patch types there are, and how each turns the stored object into the wanted one.

Applying is pure (`api.merging.patch`, `api.merging.strategic`, `api.merging.apply`); storing, retries and checks are `writes`. Patches are
always JSON (server-side apply: YAML), whatever else the client speaks.

What is patched at /scale is the Scale, whichever the patch type: of the object behind it nothing but the number of
replicas is read from the result, or owned by who applied it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from handfast.api import conversion, kinds, objects, status
from handfast.api.codec import counting, decode, nesting
from handfast.api.custom import definitions
from handfast.api.merging import apply, patch, strategic
from handfast.apiserver import bodies, calls
from handfast.apiserver.state import items
from handfast.apiserver.strategy import strategies
from handfast.apiserver.verbs import write_steps, writes
from handfast.runtime import clock as clocks

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_SCALE = "autoscaling.v1.Scale"
# What an operation of a JSON patch may have (RFC 6902, section 4).
_STEP_FIELDS = frozenset({"op", "path", "from", "value"})
# A refusal should not outgrow the request.
_MAX_TEXTS = 100


class Patcher:
    """Carries out patches through the ordinary writer."""

    def __init__(self, writer: writes.Writer, clock: clocks.Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def patch(self, call: calls.Call, kind: kinds.Kind, body: bytes) -> tuple[items.Item, bool]:
        """The patched object; the second value tells that server-side apply created it."""
        media = decode.media_type(call.header("Content-Type"))
        if media == decode.APPLY:
            return await self._apply(call, kind, body)
        if "force" in call.info.query:
            text = "Forbidden: may not be specified for non-apply patch"
            write_steps.refuse_option(call, status.Cause("FieldValueForbidden", text, "force"))
        change = _change(media, kind, body)
        checked = await call.work(self._checked, call, kind, change, body)
        return await self._writer.change(call, kind, checked), False

    def _checked(
        self, call: calls.Call, kind: kinds.Kind, change: Callable[[objects.Document], objects.Document], body: bytes
    ) -> Callable[[objects.Document], objects.Document]:
        mode = bodies.validation_mode(call.info)
        repeated = [] if mode == bodies.IGNORE else odd_parts(decode.media_type(call.header("Content-Type")), body)

        def patched(document: objects.Document) -> objects.Document:
            served = conversion.to_served(kind, document)
            if call.info.subresource == "scale":
                wanted = change(strategies.scale_of(kind, served))
                bodies.check_fields(wanted, _SCALE, bodies.IGNORE)
                return strategies.set_scale(wanted, document)
            result = change(served)
            _require_same_object(kind, result, document)
            call.warnings = bodies.check_patched(result, kind, mode, repeated)
            return conversion.to_stored(kind, result)

        return patched

    async def _apply(self, call: calls.Call, kind: kinds.Kind, body: bytes) -> tuple[items.Item, bool]:
        manager = write_steps.field_manager(call)
        if not call.info.query.get("fieldManager"):
            cause = status.Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")
            write_steps.refuse_option(call, cause)
        if call.info.subresource == "scale":
            return await self._apply_scale(call, kind, body, manager), False
        mode = bodies.validation_mode(call.info)
        applied, call.warnings = await call.work(bodies.for_apply, body, kind, mode)
        applied["metadata"].setdefault("name", call.info.name)
        _require_place(applied["metadata"], call.info.name, call.info.space(kind))

        def merged(live: objects.Document | None) -> objects.Document:
            return conversion.to_stored(kind, self._merged(call, kind, live, applied, manager))

        # The configuration owns no uid or resourceVersion; where it names them, they are preconditions.
        version, uid = (str(applied["metadata"].get(field) or "") for field in ("resourceVersion", "uid"))
        try:
            return await self._writer.change(call, kind, merged, version=version, uid=uid), False
        except status.StatusError as error:
            if error.reason != "NotFound" or call.info.subresource:
                raise
        return await self._writer.create(call, kind, await call.work(merged, None)), True

    async def _apply_scale(self, call: calls.Call, kind: kinds.Kind, body: bytes, manager: str) -> items.Item:
        """Apply a Scale: its replicas are set, and owned, where the kind has them."""
        scale = bodies.document(body, decode.YAML, "Scale", "autoscaling/v1", _SCALE)
        metadata = scale["metadata"]
        metadata.setdefault("name", call.info.name)
        _require_place(metadata, call.info.name, call.info.space(kind))
        if (scale.get("spec") or {}).get("replicas") is None:
            cause = status.Cause("FieldValueRequired", "Required value: is required for apply patch", "spec.replicas")
            raise status.invalid("Scale", "autoscaling", call.info.name, [cause])
        applied: objects.Document = {"apiVersion": kind.api_version, "kind": kind.kind}
        applied["metadata"] = {key: metadata[key] for key in ("name", "managedFields") if key in metadata}
        definitions.set_replicas(applied, strategies.replicas_path(kind), scale["spec"]["replicas"])

        def scaled(live: objects.Document) -> objects.Document:
            document = strategies.set_scale(scale, live)
            merged = self._merged(call, kind, live, applied, manager)
            document["metadata"]["managedFields"] = merged["metadata"]["managedFields"]
            return document

        version, uid = (str(metadata.get(field) or "") for field in ("resourceVersion", "uid"))
        return await self._writer.change(call, kind, scaled, version=version, uid=uid)

    def _merged(
        self,
        call: calls.Call,
        kind: kinds.Kind,
        live: objects.Document | None,
        applied: objects.Document,
        manager: str,
    ) -> objects.Document:
        document, _ = apply.server_side_apply(
            None if live is None else conversion.to_served(kind, live),
            applied,
            manager=manager,
            force=call.info.flag("force"),
            types=kind.message or kind.schema,
            api_version=kind.api_version,
            now_text=objects.timestamp(self._clock.now()),
            subresource=call.info.subresource,
            ignored=write_steps.ignored_fields(kind, call.info.subresource, {*applied, *(live or ())}),
        )
        return document


def _require_same_object(kind: kinds.Kind, result: objects.Document, document: objects.Document) -> None:
    metadata = result.get("metadata")
    if not isinstance(metadata, dict):
        raise status.bad_request(f"the patch leaves no metadata in the {kind.kind}")
    bodies.require_type(result, kind.kind, kind.api_version)
    _require_place(metadata, document["metadata"]["name"], document["metadata"].get("namespace", ""))


def _require_place(metadata: dict[str, Any], name: str, namespace: str) -> None:
    if metadata.get("name") != name:
        raise status.bad_request(
            f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({name})"
        )
    if (metadata.get("namespace") or namespace) != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _change(media: str, kind: kinds.Kind, body: bytes) -> Callable[[objects.Document], objects.Document]:
    # Parsed anew for each try: the result may share parts with the patch, and what follows changes the result.
    if media == JSON_PATCH:
        return lambda document: patch.apply_json_patch(document, _parse(body))
    if media == MERGE_PATCH:
        return lambda document: patch.apply_merge_patch(document, _parse(body))
    if media == STRATEGIC and kind.message:
        return lambda document: strategic.apply_strategic(document, _parse(body), kind.message)
    # Custom resources have no merge keys: strategic merge is not offered for them.
    offered = (JSON_PATCH, MERGE_PATCH, *((STRATEGIC,) if kind.message else ()), decode.APPLY)
    raise status.StatusError(
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(offered),
    )


def odd_parts(media: str, body: bytes) -> list[str]:
    """What is odd in a patch itself: keys that are given twice, and in a JSON patch those that no operation has."""
    decoded = _parse(body)
    # Looking for repeated keys recurses.
    if not counting.at_most(body, (b"{", b"["), nesting.MAX_DEPTH):
        patch.check_depth(decoded)
    texts = [f'duplicate field "{path}"' for path in decode.duplicate_fields(body, decode.JSON, decoded)]
    if media != JSON_PATCH:
        return texts
    unknown = [
        f'unknown field "[{index}].{key}"'
        for index, step in enumerate(decoded if isinstance(decoded, list) else ())
        for key in (step if isinstance(step, dict) else ())
        if key not in _STEP_FIELDS
    ]
    return [f"json patch {text}" for text in (*texts, *unknown[:_MAX_TEXTS])]


def _parse(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise status.bad_request(f"error decoding patch: {error}") from None
