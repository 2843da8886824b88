# SPDX-License-Identifier: Apache-2.0
"""What the answers of admission webhooks mean: a yes, a refusal, a patch, or a failure.

It calls nobody and reads no time: the dispatcher (`apiserver.admission.webhooks`) does what is decided here.

What an answer must be (`read_answer`), or it is a failure of the webhook and its failure policy decides:

1. An AdmissionReview of admission.k8s.io/v1 with a response, JSON types where they belong, and not too many values.
2. The response names the uid of the request.
3. A mutating webhook gives a patch and its type or neither, the type is JSONPatch and the patch the JSON of a list; a
   validating one gives neither.

And whatever the failure policy is, the request ends with an error (`BadPatch` for the first) if

4. the patch does not apply to the document as it was sent;
5. the patch changes what the object is: apiVersion, kind, name, namespace or uid; or there is no object to change.

Metadata that only the server sets is put back silently after a patch, as it is for clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects, status
from handfast.api.codec import bounds
from handfast.api.merging import patch
from handfast.rules.webhooks import configurations

API_VERSION = "admission.k8s.io/v1"
# Of a refusal that names no code.
_DENIED_CODE = 403
# Sent as headers; whatever bounds those must not be asked to look at a million empty ones.
MAX_WARNINGS = 64
MAX_ANNOTATION_CHARACTERS = 16 << 10
# Of an answer, and of its patch: more than a thousand operations. It is read and applied where everybody waits.
MAX_VALUES = 5000
_IDENTITY = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"))
_REASONS = {code: reason for reason, code in reversed(status.CODES.items())} | {409: "Conflict", 410: "Expired"}


class CallFailed(errors.Unavailable):
    """A webhook could not be asked, or what it said is no answer: its failure policy decides."""

    reason = "WebhookFailed"


class BadPatch(errors.Unavailable):
    """A webhook answered, and what it wants done cannot be done: as in Kubernetes, no failure policy excuses that."""

    reason = "WebhookPatchFailed"


class _Cause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(msgspec.Struct, rename="camel"):
    name: str | None = None
    group: str | None = None
    kind: str | None = None
    causes: list[_Cause] | None = None
    retry_after_seconds: int | None = None


class _Result(msgspec.Struct):
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None


class _Response(msgspec.Struct, rename="camel"):
    uid: str | None = None
    # Absent is a refusal.
    allowed: bool | None = None
    status: _Result | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    response: _Response | None = None


_review_decoder = msgspec.json.Decoder(_Review)


class Answer(msgspec.Struct, frozen=True):
    """What a webhook said. `refusal` is None if it allows the write; `patch` is the operations, or nothing."""

    refusal: status.StatusError | None
    patch: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def read_answer(webhook: configurations.Webhook, body: bytes, uid: str, *, mutating: bool) -> Answer:
    """What the body of an answer says; raises `CallFailed` if it is none."""
    # 1. an AdmissionReview, not too large
    if bounds.values(body, MAX_VALUES) > MAX_VALUES:
        raise CallFailed(f"failed to call webhook: the answer has more than {MAX_VALUES} values")
    try:
        review = _review_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Without the decoder's words: they may quote the body, which may quote the object.
        raise CallFailed("failed to call webhook: the answer is not the JSON of an AdmissionReview") from None
    if (review.api_version, review.kind) != (API_VERSION, "AdmissionReview"):
        said = ", Kind=".join((review.api_version or "", review.kind or ""))[:200]
        raise _invalid(f"expected webhook response of {API_VERSION}, Kind=AdmissionReview, got {said}")
    response = review.response
    if response is None:
        raise _invalid("webhook response was absent")
    # 2. for this request
    if response.uid != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{(response.uid or "")[:64]}"')
    # 3. with a patch only where one may be
    operations = _operations(response) if mutating else _no_patch(response)
    return Answer(
        None if response.allowed else _denial(webhook.name, response.status or _Result()),
        operations,
        tuple(filter(None, response.warnings or ()))[:MAX_WARNINGS],
        tuple(_annotations(webhook.name, response.audit_annotations or {})),
    )


def _invalid(why: str) -> CallFailed:
    return CallFailed(f"received invalid webhook response: {why}")


def _no_patch(response: _Response) -> tuple[Any, ...]:
    if response.patch:
        raise _invalid("validating webhook may not return response.patch")
    if response.patch_type is not None:
        raise _invalid("validating webhook may not return response.patchType")
    return ()


def _operations(response: _Response) -> tuple[Any, ...]:
    if response.patch and response.patch_type is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if not response.patch:
        if response.patch_type is not None:
            raise _invalid("webhook returned response.patchType but not response.patch")
        return ()
    if response.patch_type != "JSONPatch":
        raise CallFailed(f'unsupported patch type "{str(response.patch_type)[:64]}"')
    if bounds.values(response.patch, MAX_VALUES) > MAX_VALUES:
        raise CallFailed(f"received a patch with more than {MAX_VALUES} values in webhook response")
    try:
        operations = msgspec.json.decode(response.patch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        operations = None
    if not isinstance(operations, list):
        raise CallFailed("received undecodable patch in webhook response: it is not the JSON of a list of operations")
    return tuple(operations)


def _annotations(name: str, annotations: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    left = MAX_ANNOTATION_CHARACTERS
    for key, value in annotations.items():
        left -= len(key) + len(value)
        if left < 0:
            return
        yield f"{name}/{key}", value


# --- refusals


def _denial(name: str, result: _Result) -> status.StatusError:
    """The refusal in Kubernetes' words, with what the webhook gave as code, reason and details."""
    said = result.message or result.reason
    text = f'admission webhook "{name}" denied the request' + (f": {said}" if said else " without explanation")
    code = result.code or _DENIED_CODE
    if not 400 <= code <= 599:
        # No refusal may look like a success, and HTTP knows no others.
        code = 400
    details = result.details or _Details()
    causes = [
        status.Cause(cause.reason or "", cause.message or "", cause.field or "")
        for cause in (details.causes or ())[: status.MAX_CAUSES]
    ]
    return status.StatusError(
        result.reason or _REASONS.get(code, "InternalError" if code >= 500 else "BadRequest"),
        text,
        code=code,
        name=details.name or "",
        group=details.group or "",
        kind=details.kind or "",
        causes=causes,
        retry_after=max(0, details.retry_after_seconds or 0),
    )


def failure(name: str, why: str) -> status.StatusError:
    """The request ends because a webhook failed."""
    return _internal(f'failed calling webhook "{name}": {why}')


def dry_run_refused(name: str) -> status.StatusError:
    return status.bad_request(f'admission webhook "{name}" does not support dry run')


def _internal(why: str) -> status.StatusError:
    return status.StatusError("InternalError", f"Internal error occurred: {why}")


# --- patches


def patched(name: str, document: objects.Document | None, operations: Sequence[Any]) -> objects.Document:
    """The document after a webhook's patch; shares with the old one what was not touched. Raises `BadPatch`."""
    # 5. there is an object to change
    if document is None:
        raise _internal(
            f'admission webhook "{name}" attempted to modify the object, which is not supported for this operation'
        )
    # 4. the patch applies
    try:
        after = patch.apply_json_patch(document, list(operations))
    except status.StatusError as error:
        raise BadPatch(f"received a patch that does not apply: {error.message}") from None
    # 5. the object stays what it is
    path = changed_identity(document, after)
    if path:
        raise _internal(f'admission webhook "{name}" attempted to change {path}, which is not supported')
    return with_server_set(document, after)


def changed_identity(before: objects.Document, after: objects.Document) -> str:
    """Which part of what an object is was changed; nothing for none."""
    changed = (path for path in _IDENTITY if jsonpath.at(after, *path) != jsonpath.at(before, *path))
    return ".".join(next(changed, ()))


def with_server_set(before: objects.Document, after: objects.Document) -> objects.Document:
    """The changed object, with what only the server sets as it was."""
    old, new = before.get("metadata"), after.get("metadata")
    if not isinstance(old, dict) or old is new:
        return after
    kept = {key: value for key, value in jsonpath.mapping(after, "metadata").items() if key not in objects.SERVER_SET}
    return {**after, "metadata": kept | {key: old[key] for key in objects.SERVER_SET if key in old}}
