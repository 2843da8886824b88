# SPDX-License-Identifier: Apache-2.0
"""Station: decode. The body of a request -> a document of the kind the URL names, with its fields checked.

1. The body is at most `limits.body_bytes` long, or what the kind allows (413), not compressed (415), and arrives within
   `limits.body_seconds`. Whoever has a budget in bytes pays before it is read, if its length is known by then (429).
2. Its content type is one we read (415), it parses, and it is an object (400): `api.codec.decode`.
3. Its apiVersion and kind are those of the URL; absent ones are filled in (400).
4. Fields have the types of the schema (400).
5. Unknown fields are dropped, and of duplicate ones the last is taken. `fieldValidation` says whether that is done with a
   warning (Warn, the default), in silence (Ignore), or refused (Strict: 400; of a patch 422, since it is the object behind it that
   would have them).
6. What is applied has no unknown fields, whatever `fieldValidation` says (400): nobody could own them.

Whether the values make sense is validated later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aiohttp import web

from handfast.api import kinds, objects, status
from handfast.api.codec import decode
from handfast.api.custom import structural
from handfast.api.schema import structs
from handfast.apiserver import flows, request
from handfast.apiserver import limits as limits_module
from handfast.serving import bodies

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"


class WrongType(status.StatusError):
    """A value is not of the type that the schema has (4)."""


class OddFields(status.StatusError):
    """There are unknown or duplicate fields, and they were to be refused (5)."""


class BodyMemory:
    """The memory that bodies take while they arrive: a share for each user, and a bound for all."""

    def __init__(self, limits: limits_module.Limits) -> None:
        self._limits = limits
        self._taken: dict[str, int] = {}
        self._total = 0

    def take(self, user: str, size: int) -> None:
        """One more part of a body of this user; 429 if there is no room for it."""
        mine = self._taken.get(user, 0) + size
        if not self._limits.lifted and (
            mine > self._limits.bodies_per_user_bytes or self._total + size > self._limits.bodies_bytes
        ):
            raise status.StatusError(
                "TooManyRequests", "too many large bodies are on their way, please try again later", retry_after=1
            )
        self._taken[user] = mine
        self._total += size

    def give_back(self, user: str, size: int) -> None:
        self._total -= size
        left = self._taken.get(user, 0) - size
        if left > 0:
            self._taken[user] = left
        else:
            self._taken.pop(user, None)


async def read(
    http: web.BaseRequest,
    limits: limits_module.Limits,
    memory: BodyMemory,
    user: str,
    *,
    largest: tuple[int, str] = (0, ""),
    charge: flows.Charge | None = None,
) -> bytes:
    """The whole body, or 413 as soon as it is known to be too long; `largest` is the kind's own limit, and its name."""
    limit = min(limits.body_bytes, largest[0] or limits.body_bytes)
    taken = 0

    def require(size: int) -> None:
        _require_size(size, limit, largest[1], charge)

    def take(size: int) -> None:
        nonlocal taken
        memory.take(user, size)
        taken += size

    # 1. not too long, and paid for; not compressed; in time
    try:
        return await bodies.read(http, limits.body_seconds, require, take)
    finally:
        if taken:
            memory.give_back(user, taken)


def _require_size(size: int, limit: int, kind: str, charge: flows.Charge | None) -> None:
    """So many bytes of a body, as far as is known by now, are within the limit, and paid for."""
    if size > limit:
        whose = f" for the kind {kind}" if kind else ""
        raise status.StatusError("RequestEntityTooLarge", f"Request entity too large: limit is {limit}{whose}")
    if charge is not None:
        charge.sends(size)


def validation_mode(info: request.RequestInfo) -> str:
    mode = info.query.get("fieldValidation", "") or WARN
    if mode not in {STRICT, WARN, IGNORE}:
        raise status.invalid(
            "CreateOptions",
            "meta.k8s.io",
            "",
            [
                status.Cause(
                    "FieldValueNotSupported",
                    f'Unsupported value: "{mode}": supported values: "{IGNORE}", "{WARN}", "{STRICT}"',
                    "fieldValidation",
                )
            ],
        )
    return mode


def for_kind(body: bytes, content_type: str, kind: kinds.Kind, mode: str) -> tuple[objects.Document, list[str]]:
    """A whole object of `kind` from a request body, and the warnings."""
    # 2. it can be read, and is an object; 3. of the kind of the URL
    document, repeated = _read_object(body, content_type, kind, mode)
    try:
        if not repeated:
            return document, check_fields(document, kind.message, mode)
        texts = _repeat_texts(repeated)
        if not kind.message and mode == STRICT:
            # It is refused for one already, and nothing else is done with it: its strategy would name the rest.
            check_fields(document, "", mode)
            raise _odd_fields([*texts, *_unknown_texts(structural.prune(kind.schema or structural.FREE, document))])
        if kind.message and not any(repeated.values()):
            return document, check_fields(document, kind.message, mode, after=texts)
        return document, check_fields(document, kind.message, mode, before=texts)
    except status.StatusError as error:
        why = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error.message}'
        raise status.bad_request(why) from None


def for_apply(body: bytes, kind: kinds.Kind, mode: str) -> tuple[objects.Document, list[str]]:
    """A configuration that is applied to an object of `kind`, and the warnings."""
    # 2. it can be read, and is an object; 3. of the kind of the URL
    document, repeated = _read_object(body, decode.YAML, kind, mode)
    # 4. of the types of the schema
    unknown: Sequence[str] = _settled(document, kind.message).unknown
    if not kind.message:
        unknown = structural.prune(kind.schema or structural.FREE, document)
    # 6. nothing is unknown
    if unknown:
        raise _undeclared(kind, document, unknown)
    # 5. nothing is given twice
    texts = _repeat_texts(repeated)
    if texts and mode == STRICT:
        raise OddFields("BadRequest", "error strict decoding YAML: " + _joined(texts))
    return document, texts


def _undeclared(kind: kinds.Kind, document: objects.Document, unknown: Sequence[str]) -> status.StatusError:
    """Fields that the schema does not have, in the words of Kubernetes' server-side apply."""
    metadata = document["metadata"]
    texts = [f".{path}: field not declared in schema" for path in unknown]
    which = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.group}/{kind.version}, Kind={kind.kind}"
    what = texts[0] if len(texts) == 1 else "\n  ".join(["errors:", *texts])
    return status.bad_request(f"failed to create typed patch object ({which}): {what}")


def _read_object(
    body: bytes, content_type: str, kind: kinds.Kind, mode: str
) -> tuple[objects.Document, decode.Duplicates]:
    if mode == IGNORE:
        document, repeated = decode.document(body, content_type), decode.NO_DUPLICATES
    else:
        # Before anything is filled in: the search for repeated keys compares the document with the body.
        document, repeated = decode.document_and_duplicates(body, content_type)
    require_type(document, kind.kind, kind.api_version)
    return document, repeated


def document(body: bytes, content_type: str, kind: str, api_version: str, message: str) -> objects.Document:
    """A document of that kind, whose fields have the types of the message."""
    # 2. it can be read, and is an object
    found = decode.document(body, content_type)
    # 3. of the kind of the URL
    require_type(found, kind, api_version)
    # 4. of the types of the schema
    check_fields(found, message, IGNORE)
    return found


def require_type(document: objects.Document, kind: str, api_version: str) -> None:
    """Return if apiVersion and kind are those wanted (3). Absent ones are filled in, and so is the metadata."""
    for field, wanted in (("apiVersion", api_version), ("kind", kind)):
        value = document.get(field)
        if value is None or value == "":
            document[field] = wanted
        elif value != wanted:
            raise _wrong_type(field, value, kind, api_version)
    metadata = document.get("metadata")
    if metadata is None:
        document["metadata"] = {}
    elif not isinstance(metadata, dict):
        raise status.bad_request(f"json: cannot unmarshal into Go struct field {kind}.metadata of type v1.ObjectMeta")


def _wrong_type(field: str, value: object, kind: str, api_version: str) -> status.StatusError:
    if field == "apiVersion":
        return status.bad_request(
            f"the API version in the data ({value}) does not match the expected API version ({api_version})"
        )
    return status.bad_request(f"the object provided is unrecognized (must be of type {kind}): found kind {value!r}")


def check_fields(
    document: objects.Document, message: str, mode: str, *, before: Sequence[str] = (), after: Sequence[str] = ()
) -> list[str]:
    """The warnings to send. Wrong types are refused (4), and so are odd fields in Strict mode (5).

    `before` and `after` are further texts about odd fields, and where they are told. Afterwards `document` has no field that
    the message does not have.
    """
    # 4. of the types of the schema
    findings = _settled(document, message)
    # 5. unknown fields are dropped; warned of, or refused
    if message:
        structs.drop_unknown(findings)
    unknown = findings.unknown if message else ()
    if mode == IGNORE or not (unknown or before or after):
        return []
    problems = [*before, *_unknown_texts(unknown), *after]
    if mode == STRICT:
        raise _odd_fields(problems)
    return problems


def check_patched(document: objects.Document, kind: kinds.Kind, mode: str, repeated: Sequence[str]) -> list[str]:
    """The warnings about an object that a patch gave; `repeated` are texts about the patch itself. What is refused is the patch."""
    if not kind.message and mode == STRICT:
        unknown = structural.prune(kind.schema or structural.FREE, document)
        repeated = [*repeated, *_unknown_texts(unknown)]
    try:
        return check_fields(document, kind.message, mode, before=repeated)
    except (WrongType, OddFields) as error:
        # Kubernetes quotes the whole object here. It may be a Secret.
        cause = status.Cause("FieldValueInvalid", f"Invalid value: {error.message}", "patch")
        raise status.invalid("", "", "", [cause]) from None


def _settled(document: objects.Document, message: str) -> structs.Findings:
    """What is wrong with a document, apart from its types (4)."""
    # Of a custom object only the metadata is known here; its odd fields are pruned, and told of, by its strategy.
    name, judged = (message, document) if message else (structural.OBJECT_META, document.get("metadata", {}))
    findings = structs.check(name, judged)
    if findings.type_error is not None:
        raise WrongType("BadRequest", findings.type_error)
    structs.settle_nulls(findings)
    return findings


# --- texts ------------------------------------------------------------------------------------------------------------


def _unknown_texts(paths: Iterable[str]) -> list[str]:
    return [f'unknown field "{path}"' for path in paths]


def _repeat_texts(repeated: decode.Duplicates) -> list[str]:
    """What is said of keys that are given twice: in JSON where they are, in YAML in which line."""
    return [
        f'duplicate field "{path}"' if repeat is None else f'line {repeat.line}: key "{repeat.key}" already set in map'
        for path, repeat in repeated.items()
    ]


def _odd_fields(texts: Sequence[str]) -> OddFields:
    return OddFields("BadRequest", strict_error(texts))


def strict_error(texts: Sequence[str]) -> str:
    """Why odd fields are refused."""
    return "strict decoding error: " + _joined(texts)


def _joined(texts: Sequence[str]) -> str:
    """All texts in one; those about lines of YAML together, as Kubernetes has them from its parser."""
    lines = [text for text in texts if text.startswith("line ")]
    others = [text for text in texts if not text.startswith("line ")]
    return ", ".join(["\n  ".join(["yaml: unmarshal errors:", *lines]), *others] if lines else others)
