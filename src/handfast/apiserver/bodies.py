# SPDX-License-Identifier: Apache-2.0
"""Station: decode. The body of a request -> a document of the kind the URL names, with its fields checked.

1. The body is at most `limits.body_bytes` long, or what the kind allows (413), not compressed (415), and arrives within
   `limits.body_seconds`. Whoever has a budget in bytes pays before it is read, if its length is known by then (429).
2. Its content type is one we read (415), it parses, and it is an object (400): `api.codec.decode`.
3. Its apiVersion and kind are those of the URL; absent ones are filled in (400).
4. Fields have the types of the schema (400).
5. Unknown fields are dropped, and of duplicate ones the last is taken. `fieldValidation` says whether that is done with a
   warning (Warn, the default), in silence (Ignore), or refused (Strict: 400).

Whether the values make sense is validated later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp
from aiohttp import web

from handfast.api import kinds, objects, status
from handfast.api.codec import decode
from handfast.api.custom import structural
from handfast.api.schema import structs
from handfast.apiserver import flows, request
from handfast.apiserver import limits as limits_module
from handfast.serving import aiohttp_parts

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"


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
    # 1. not too long, and paid for
    if http.content_length is not None:
        _require_size(http.content_length, limit, largest[1], charge)
    if (broken := http.content.exception()) is not None:
        raise _unreadable(broken)
    if not http.can_read_body:
        return b""
    coding = http.headers.get("Content-Encoding", "identity")
    # 1. not compressed
    if coding.lower() != "identity":
        raise status.StatusError(
            "UnsupportedMediaType", f'the body has the content encoding "{coding}": send it as it is, without one'
        )
    if http.content.is_eof():
        # It arrived with the head, as small bodies do: no need to wait, nor for a timer.
        body = aiohttp_parts.arrived(http.content)
        _require_size(len(body), limit, largest[1], charge)
        return body
    if "Expect" in http.headers:
        await _invite(http)
    parts: list[bytes] = []
    size = 0
    taken = 0
    # 1. in time
    try:
        async with asyncio.timeout(limits.body_seconds):
            while part := await http.content.readany():
                size += len(part)
                _require_size(size, limit, largest[1], charge)
                memory.take(user, len(part))
                taken += len(part)
                parts.append(part)
    except TimeoutError:
        raise status.StatusError(
            "Timeout", f"the body did not arrive within {limits.body_seconds:g} seconds", code=408
        ) from None
    except web.RequestPayloadError as error:
        raise _unreadable(error) from None
    finally:
        memory.give_back(user, taken)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _invite(http: web.BaseRequest) -> None:
    """Tell a client that waits to be asked for the body (RFC 9110, section 10.1.1) to go on."""
    expectation = http.headers["Expect"]
    if expectation.lower() != "100-continue":
        raise status.StatusError("BadRequest", f'the expectation "{expectation}" cannot be met', code=417)
    if http.version >= aiohttp.HttpVersion11:
        await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # What the answer itself writes is counted from here.
        http.writer.output_size = 0


def _unreadable(error: BaseException) -> status.StatusError:
    return status.bad_request(f"the body cannot be read: {error}")


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


def check_fields(document: objects.Document, message: str, mode: str, repeated: Sequence[str] = ()) -> list[str]:
    """The warnings to send. Wrong types are refused (4), and so are odd fields in Strict mode (5).

    Afterwards `document` has no field that the message does not have.
    """
    # Of a custom object only the metadata is known here; its odd fields are pruned, and told of, by its strategy.
    name, judged = (message, document) if message else (structural.OBJECT_META, document.get("metadata", {}))
    findings = structs.check(name, judged)
    # 4. of the types of the schema
    if findings.type_error is not None:
        raise status.bad_request(findings.type_error)
    structs.settle_nulls(findings)
    # 5. unknown fields are dropped; warned of, or refused
    if message:
        structs.drop_unknown(findings)
    if mode == IGNORE:
        return []
    problems = [f'unknown field "{path}"' for path in findings.unknown if message]
    problems += [f'duplicate field "{path}"' for path in repeated]
    if problems and mode == STRICT:
        raise status.bad_request("strict decoding error: " + ", ".join(problems))
    return problems


def for_kind(body: bytes, content_type: str, kind: kinds.Kind, mode: str) -> tuple[objects.Document, list[str]]:
    """A whole object of `kind` from a request body, and the warnings."""
    repeated: Sequence[str] = ()
    # 2. it can be read, and is an object
    if mode == IGNORE:
        document = decode.document(body, content_type)
    else:
        # Before anything is filled in: the search for repeated keys compares the document with the body.
        document, repeated = decode.document_and_duplicates(body, content_type)
    # 3. of the kind of the URL
    require_type(document, kind.kind, kind.api_version)
    try:
        return document, check_fields(document, kind.message, mode, repeated)
    except status.StatusError as error:
        why = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error.message}'
        raise status.bad_request(why) from None
