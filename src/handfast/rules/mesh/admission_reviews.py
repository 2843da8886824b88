# SPDX-License-Identifier: Apache-2.0
"""AdmissionReviews as the injector gets them, and its answers to them. What is answered is decided in `admission`.

A body is a review only if all of this holds. Else it is refused, and the API server goes by its failure policy:

1. It has at most `MAX_BYTES` bytes and `MAX_VALUES` values.
2. It is the JSON of an AdmissionReview of admission.k8s.io, v1 or v1beta1. The answer is of the same version.
3. It has a request, and the request a uid, by which the API server knows the answer.
4. A Pod or a Service that is to be created comes with a namespace and an object, which is of that kind. What is no such request needs none.
5. What makes the object counts only where its name could be one: it is told of, and kept for a while.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_admission_reviews.py |
|---|---|---|---|---|
| whoever reaches the port | nothing | have megabytes of `{}` decoded | 1 | test_a_body_with_too_many_values_is_refused |
| … | a namespace or an owner with a name of megabytes | fill memory and log with it | 4, 5 | test_names_that_are_none_are_not_kept |
| … | a review of another kind | have a Secret answered as if it were a Pod | 4 | test_what_is_no_review_is_refused_with_its_reason |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.api.codec import bounds

KIND: Final = "AdmissionReview"
GROUP: Final = "admission.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
# An object of the largest size that the API server stores, and what is around it.
MAX_BYTES: Final = 4 << 20
# A Pod with a hundred containers has some 5,000. So many take some tens of milliseconds, in which nobody else is answered.
MAX_VALUES: Final = 8000
_MAX_UID: Final = 253
_MAX_NAME: Final = 253
_OWNER: Final = ("apiVersion", "kind", "name", "uid")
_DENIED: Final = 403
POD: Final = "Pod"
SERVICE: Final = "Service"
_CREATE: Final = "CREATE"


class BadReview(errors.Refused):
    """The body is no review that can be answered (1 to 4)."""

    reason = "InvalidAdmissionReview"


class _Kind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str = ""
    kind: _Kind | None = None
    namespace: str = ""
    operation: str = ""
    sub_resource: str = ""
    object: Any = None
    dry_run: bool | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


_decoder: Final = msgspec.json.Decoder(_Review)


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the API server. `kind` is Pod or Service, or empty where nothing is to be done for it."""

    api_version: str
    uid: str
    namespace: str
    kind: str
    document: objects.Document
    dry_run: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Yes, with a patch or without, or no with a reason."""

    allowed: bool = True
    operations: Sequence[dict[str, Any]] = ()
    warnings: Sequence[str] = ()
    reason: str = ""
    message: str = ""


def read(body: bytes) -> Review:
    """The review in a body; BadReview where there is none."""
    # 1. not too much
    if len(body) > MAX_BYTES:
        raise _bad("TooLarge", f"it has {len(body)} bytes; at most {MAX_BYTES} are allowed")
    # A value has two bytes at least: what is short is not counted.
    if len(body) > 2 * MAX_VALUES and bounds.values(body, MAX_VALUES) > MAX_VALUES:
        raise _bad("TooLarge", f"it has more than {MAX_VALUES} values")
    # 2. JSON of this kind
    try:
        review = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Without the decoder's words: they may quote the body.
        raise _bad("NotJSON", "it is not the JSON of an AdmissionReview") from None
    if review.kind != KIND or review.api_version not in VERSIONS:
        raise _bad(
            "WrongKind", f"it is {review.api_version[:80]!r} {review.kind[:80]!r}, not {' or '.join(VERSIONS)} {KIND}"
        )
    # 3. a request with a uid
    request = review.request
    if request is None:
        raise _bad("NoRequest", "it has no request")
    if not 0 < len(request.uid) <= _MAX_UID:
        raise _bad("NoUid", f"request.uid must have 1 to {_MAX_UID} characters")
    kind = _kind(request)
    return Review(
        api_version=review.api_version,
        uid=request.uid,
        namespace=request.namespace if kind else "",
        kind=kind,
        document=_document(request, kind) if kind else {},
        dry_run=bool(request.dry_run),
    )


def _kind(request: _Request) -> str:
    kind = request.kind or _Kind()
    ours = not kind.group and kind.kind in {POD, SERVICE} and request.operation == _CREATE and not request.sub_resource
    return kind.kind if ours else ""


def _document(request: _Request, kind: str) -> objects.Document:
    # 4. the object of that kind, in a namespace
    document = request.object
    if not isinstance(document, dict):
        raise _bad("NoObject", "request.object must be an object")
    if objects.dns_label(request.namespace) is not None or not isinstance(document.get("metadata"), dict):
        raise _bad("NoObject", "request.namespace and request.object.metadata must be there")
    # The API server leaves them out in some versions: the request says which they are.
    whole = {"apiVersion": "v1", "kind": kind, **document}
    if (whole["apiVersion"], whole["kind"]) != ("v1", kind):
        raise _bad("NoObject", f"request.object must be a v1 {kind}, as request.kind says")
    return whole


def written(review: Review, answer: Answer) -> bytes:
    """The body of an answer."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": answer.allowed}
    if not answer.allowed:
        response["status"] = {"code": _DENIED, "message": answer.message, "reason": answer.reason}
    if answer.operations:
        response["patchType"] = "JSONPatch"
        # As base64: that is how bytes are written in JSON here.
        response["patch"] = msgspec.json.encode(answer.operations)
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    return msgspec.json.encode({"apiVersion": review.api_version, "kind": KIND, "response": response})


def owner(document: objects.Document) -> dict[str, Any]:
    """What makes an object, as it says itself; empty where it says nothing."""
    rows = jsonpath.mappings(document, "metadata", "ownerReferences")
    row = next((row for row in rows if row.get("controller") is True), {})
    # 5. as long as names are
    return row if all(len(jsonpath.text(row, key)) <= _MAX_NAME for key in _OWNER) else {}


def _bad(reason: str, what: str) -> BadReview:
    return BadReview(f"invalid admission review request: {what}", reason=reason)
