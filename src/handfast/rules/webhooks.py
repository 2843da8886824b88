# SPDX-License-Identifier: Apache-2.0
"""Which admission webhooks a write concerns, in which order, and what their answers mean.

It calls nobody and reads no time: the dispatcher (`apiserver.webhooks`) does what is decided here.

Whether a webhook is asked (`matched`, then `selects`; all must hold):

1. The write is not one to a webhook configuration or an admission policy: nobody may lock these against repair.
2. One of the rules covers operation, group, version, resource (with its subresource) and scope; under the match policy
   Equivalent, the same object under another of its names will do, and is then sent under that name.
3. The namespace selector selects the labels of the object's namespace (its own, for a Namespace); it is not applied
   to other objects without a namespace.
4. The object selector selects the new or the old object.

`matchConditions` are CEL, which is not evaluated: a webhook that has some is asked about every write that the rest of
it selects. It sees more than it wants to, never less.

What an answer must be (`read_answer`), or it is a failure of the webhook and its failure policy decides:

5. An AdmissionReview of admission.k8s.io/v1 with a response, and JSON types where they belong.
6. The response names the uid of the request.
7. A mutating webhook gives a patch and its type or neither, the type is JSONPatch and the patch the JSON of a list; a
   validating one gives neither.

And whatever the failure policy is, the request ends with an error (`BadPatch` for the first) if

8. the patch does not apply to the document as it was sent;
9. the patch changes what the object is: apiVersion, kind, name, namespace or uid; or there is no object to change.

Metadata that only the server sets is put back silently after a patch, as it is for clients.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from handfast import errors
from handfast.api import jsonpath, kinds, objects, patch, selectors, status

API_VERSION = "admission.k8s.io/v1"
_GROUP = "admissionregistration.k8s.io"
_EXEMPT = frozenset(
    (_GROUP, plural)
    for plural in (
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    )
)
NAMESPACES = ("", "namespaces")
_DEFAULT_SECONDS = 10
_DEFAULT_PORT = 443
# Of a refusal that names no code.
_DENIED_CODE = 403
# Sent as headers; whatever bounds those must not be asked to look at a million empty ones.
MAX_WARNINGS = 64
MAX_ANNOTATION_CHARACTERS = 16 << 10
_IDENTITY = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"))
_SERVER_SET = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
)
_REASONS = {code: reason for reason, code in reversed(status.CODES.items())} | {409: "Conflict", 410: "Expired"}


class CallFailed(errors.Unavailable):
    """A webhook could not be asked, or what it said is no answer: its failure policy decides."""

    reason = "WebhookFailed"


class BadPatch(errors.Unavailable):
    """A webhook answered, and what it wants done cannot be done: as in Kubernetes, no failure policy excuses that."""

    reason = "WebhookPatchFailed"


# --- configurations


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Writes that a webhook wants to see; `*` stands for everything, an empty subresource for the object itself."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Service of the cluster, as where to call."""

    namespace: str
    name: str
    path: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One webhook of a configuration. `wrong` says why it cannot be used at all; then every call of it fails."""

    configuration: str
    index: int
    name: str
    url: str
    service: Service | None
    ca_bundle: bytes | None
    rules: tuple[Rule, ...]
    fails_open: bool
    exact: bool
    namespace_selector: selectors.LabelSelector
    object_selector: selectors.LabelSelector
    dry_run: bool
    seconds: int
    reinvoked: bool
    conditional: bool
    wrong: str = ""

    @property
    def key(self) -> tuple[str, int]:
        return self.configuration, self.index


def parse(document: objects.Document) -> tuple[Webhook, ...]:
    """The webhooks of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration, in their order."""
    configuration = jsonpath.text(document, "metadata", "name")
    found = jsonpath.mappings(document, "webhooks")
    return tuple(_webhook(configuration, index, webhook) for index, webhook in enumerate(found))


def ordered(configurations: Mapping[str, Iterable[Webhook]]) -> tuple[Webhook, ...]:
    """All webhooks as they are asked: configurations by name, then as listed."""
    return tuple(webhook for name in sorted(configurations) for webhook in configurations[name])


def _webhook(configuration: str, index: int, document: dict[str, Any]) -> Webhook:
    config = jsonpath.mapping(document, "clientConfig")
    wrong: list[str] = []
    if "v1" not in jsonpath.texts(document, "admissionReviewVersions"):
        wrong.append("webhook does not accept v1 AdmissionReview")
    seconds = jsonpath.number(document, "timeoutSeconds")
    return Webhook(
        configuration=configuration,
        index=index,
        name=jsonpath.text(document, "name"),
        url=jsonpath.text(config, "url"),
        service=_service(config),
        ca_bundle=_ca_bundle(config, wrong),
        rules=tuple(_rule(rule) for rule in jsonpath.mappings(document, "rules")),
        fails_open=document.get("failurePolicy") == "Ignore",
        exact=document.get("matchPolicy") == "Exact",
        namespace_selector=_selector(document, "namespaceSelector", wrong),
        object_selector=_selector(document, "objectSelector", wrong),
        dry_run=document.get("sideEffects") in {"None", "NoneOnDryRun"},
        seconds=seconds if 1 <= seconds <= 30 else _DEFAULT_SECONDS,
        reinvoked=document.get("reinvocationPolicy") == "IfNeeded",
        conditional=bool(jsonpath.sequence(document, "matchConditions")),
        wrong="; ".join(wrong),
    )


def _rule(document: dict[str, Any]) -> Rule:
    resources = []
    for resource in jsonpath.texts(document, "resources"):
        plural, _, subresource = resource.partition("/")
        resources.append((plural, subresource))
    return Rule(
        operations=frozenset(jsonpath.texts(document, "operations")),
        groups=frozenset(jsonpath.texts(document, "apiGroups")),
        versions=frozenset(jsonpath.texts(document, "apiVersions")),
        resources=tuple(resources),
        scope=jsonpath.text(document, "scope") or "*",
    )


def _service(config: dict[str, Any]) -> Service | None:
    service = config.get("service")
    if not isinstance(service, dict):
        return None
    return Service(
        namespace=jsonpath.text(service, "namespace"),
        name=jsonpath.text(service, "name"),
        path=jsonpath.text(service, "path") or "/",
        port=jsonpath.number(service, "port") or _DEFAULT_PORT,
    )


def _ca_bundle(config: dict[str, Any], wrong: list[str]) -> bytes | None:
    text = jsonpath.text(config, "caBundle")
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        wrong.append("clientConfig.caBundle is not base64")
        return b""


def _selector(document: dict[str, Any], key: str, wrong: list[str]) -> selectors.LabelSelector:
    try:
        return selectors.from_label_selector(document.get(key) or {})
    except status.StatusError as error:
        # Selects everything, so that the call fails where it might have been wanted.
        wrong.append(f"{key}: {error.message}")
        return selectors.EVERYTHING


# --- which are asked


def matched(webhook: Webhook, operation: str, names: Sequence[kinds.Kind], subresource: str) -> kinds.Kind | None:
    """The name under which the webhook is to see the object; None: not at all.

    `names` are the kind that the request names, and after it other kinds that show the same objects.
    """
    # 1.
    if names[0].resource in _EXEMPT:
        return None
    # 2.
    for kind in names[:1] if webhook.exact else names:
        if any(_covers(rule, operation, kind, subresource) for rule in webhook.rules):
            return kind
    return None


def _covers(rule: Rule, operation: str, kind: kinds.Kind, subresource: str) -> bool:
    if rule.scope not in {"*", "Namespaced" if kind.namespaced else "Cluster"}:
        return False
    for allowed, asked in ((rule.operations, operation), (rule.groups, kind.group), (rule.versions, kind.version)):
        if asked not in allowed and "*" not in allowed:
            return False
    return any(plural in {"*", kind.plural} and named in {subresource, "*"} for plural, named in rule.resources)


def selects(
    webhook: Webhook,
    namespace: Mapping[str, str] | None,
    documents: Iterable[objects.Document | None],
) -> bool:
    """`namespace` is its labels, None for an object that is in none; `documents` are the new object and the old."""
    # 3.
    if namespace is not None and not webhook.namespace_selector.match(namespace):
        return False
    # 4.
    selector = webhook.object_selector
    return selector.empty or any(selector.match(found) for found in map(labels, documents) if found is not None)


def labels(document: objects.Document | None) -> dict[str, str] | None:
    """The labels of what can have labels; what has no metadata cannot."""
    if not isinstance(jsonpath.at(document, "metadata"), dict):
        return None
    return {key: str(value) for key, value in jsonpath.mapping(document, "metadata", "labels").items()}


class Rounds:
    """Which webhooks the second round asks: those with reinvocationPolicy IfNeeded after which something changed."""

    def __init__(self) -> None:
        self._asked: set[tuple[str, int]] = set()
        self._again: set[tuple[str, int]] = set()

    def answered(self, webhook: Webhook, *, changed: bool) -> None:
        if changed:
            self.changed_by_others()
        if webhook.reinvoked:
            self._asked.add(webhook.key)

    def changed_by_others(self) -> None:
        """The object is no longer what those asked so far have seen."""
        self._again |= self._asked

    def again(self, webhook: Webhook) -> bool:
        return webhook.key in self._again


# --- what they answer


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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a webhook said. `refusal` is None if it allows the write; `patch` is the operations, or nothing."""

    refusal: status.StatusError | None
    patch: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


def read_answer(webhook: Webhook, body: bytes, uid: str, *, mutating: bool) -> Answer:
    """What the body of an answer says; raises `CallFailed` if it is none."""
    # 5.
    try:
        found = _review_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Without the decoder's words: they may quote the body, which may quote the object.
        raise CallFailed("failed to call webhook: the answer is not the JSON of an AdmissionReview") from None
    if (found.api_version, found.kind) != (API_VERSION, "AdmissionReview"):
        said = ", Kind=".join((found.api_version or "", found.kind or ""))[:200]
        raise _invalid(f"expected webhook response of {API_VERSION}, Kind=AdmissionReview, got {said}")
    response = found.response
    if response is None:
        raise _invalid("webhook response was absent")
    # 6.
    if response.uid != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{(response.uid or "")[:64]}"')
    # 7.
    operations = _operations(response) if mutating else _no_patch(response)
    return Answer(
        None if response.allowed else denial(webhook.name, response.status or _Result()),
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
    try:
        operations = msgspec.json.decode(response.patch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        operations = None
    if not isinstance(operations, list):
        raise CallFailed("received undecodable patch in webhook response: it is not the JSON of a list of operations")
    return tuple(operations)


def _annotations(name: str, found: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    left = MAX_ANNOTATION_CHARACTERS
    for key, value in found.items():
        left -= len(key) + len(value)
        if left < 0:
            return
        yield f"{name}/{key}", value


def denial(name: str, result: _Result) -> status.StatusError:
    """The refusal in Kubernetes' words, with what the webhook gave as code, reason and details."""
    said = result.message or result.reason
    text = f'admission webhook "{name}" denied the request' + (f": {said}" if said else " without explanation")
    code = result.code or _DENIED_CODE
    if not 400 <= code <= 599:
        # No refusal may look like a success, and HTTP knows no others.
        code = 400
    details = result.details or _Details()
    causes = [
        status.Cause(cause.reason or "", cause.message or "", cause.field or "") for cause in details.causes or ()
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


def patched(name: str, document: objects.Document | None, operations: Sequence[Any]) -> objects.Document:
    """The document after a webhook's patch; shares with the old one what was not touched. Raises `BadPatch`."""
    # 9, first for what is not there to be changed.
    if document is None:
        raise _internal(
            f'admission webhook "{name}" attempted to modify the object, which is not supported for this operation'
        )
    # 8.
    try:
        after = patch.apply_json_patch(document, list(operations))
    except status.StatusError as error:
        raise BadPatch(f"received a patch that does not apply: {error.message}") from None
    # 9.
    for path in _IDENTITY:
        if jsonpath.at(after, *path) != jsonpath.at(document, *path):
            raise _internal(f'admission webhook "{name}" attempted to change {".".join(path)}, which is not supported')
    return _with_server_set(document, after)


def _with_server_set(before: objects.Document, after: objects.Document) -> objects.Document:
    old, new = before.get("metadata"), after.get("metadata")
    if not isinstance(old, dict) or old is new:
        return after
    kept = {key: value for key, value in jsonpath.mapping(after, "metadata").items() if key not in _SERVER_SET}
    return {**after, "metadata": kept | {key: old[key] for key in _SERVER_SET if key in old}}


def _internal(why: str) -> status.StatusError:
    return status.StatusError("InternalError", f"Internal error occurred: {why}")
