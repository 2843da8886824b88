# SPDX-License-Identifier: Apache-2.0
"""The Status object: every refusal of the API in Kubernetes' own words, and the one mapping from errors to it.

Constructors here return `StatusError`s whose texts are those of kube-apiserver, because stock clients match on
reason and code and people search for the messages. It does not decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handfast import errors

# Causes that are shown. A refusal should not outgrow the request, and nobody reads more.
MAX_CAUSES = 100

# Characters of a message, and of what it names: texts quote what a client sent, which may be as long as a body.
_MESSAGE_LENGTH = 32 << 10
_TEXT_LENGTH = 2 << 10

# reason -> HTTP code, as in k8s.io/apimachinery/pkg/apis/meta/v1
CODES = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "NotAcceptable": 406,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Gone": 410,
    "Expired": 410,
    "RequestEntityTooLarge": 413,
    "UnsupportedMediaType": 415,
    "Invalid": 422,
    "TooManyRequests": 429,
    "InternalError": 500,
    "ServerTimeout": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
}


# These always have `details`, be they empty: clients of Kubernetes look into them without asking whether they are there.
_ALWAYS_DETAILED = frozenset({"NotFound", "MethodNotAllowed", "NotAcceptable"})


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong, and where: `field` is a dotted path such as `spec.ports[0].port`."""

    reason: str
    message: str
    field: str = ""

    def document(self) -> dict[str, Any]:
        document = {"reason": self.reason, "message": _cut(self.message, _TEXT_LENGTH)}
        if self.field:
            document["field"] = _cut(self.field, _TEXT_LENGTH)
        return document


class StatusError(errors.Refused):
    """A refusal with everything a Status says."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        code: int | None = None,
        name: str = "",
        group: str = "",
        kind: str = "",
        causes: Sequence[Cause] = (),
        retry_after: int = 0,
        continue_token: str = "",
    ) -> None:
        super().__init__(message, reason=reason)
        self.code = CODES[reason] if code is None else code
        self.name = name
        self.group = group
        self.kind = kind
        self.causes = tuple(causes)
        self.retry_after = retry_after
        self.continue_token = continue_token

    def document(self) -> dict[str, Any]:
        """The Status as a JSON document."""
        named = {"name": self.name, "group": self.group, "kind": self.kind}
        details: dict[str, Any] = {key: _cut(value, _TEXT_LENGTH) for key, value in named.items() if value}
        if self.causes:
            details["causes"] = [cause.document() for cause in self.causes]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": _cut(self.message, _MESSAGE_LENGTH),
            "reason": self.reason,
        }
        if details or self.reason in _ALWAYS_DETAILED:
            status["details"] = details
        status["code"] = self.code
        return status


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + "…"


def qualified(plural: str, group: str) -> str:
    """`secrets`, `deployments.apps`: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> StatusError:
    return StatusError(
        "NotFound", f'{qualified(plural, group)} "{name}" not found', name=name, group=group, kind=plural
    )


def no_such_path() -> StatusError:
    """Nothing is served there at all."""
    return StatusError("NotFound", "the server could not find the requested resource")


def method_not_allowed(why: str = "") -> StatusError:
    """Something is served there, and not this way."""
    text = "the server does not allow this method on the requested resource"
    return StatusError("MethodNotAllowed", f"{text}: {why}" if why else text)


def already_exists(plural: str, group: str, name: str) -> StatusError:
    return StatusError(
        "AlreadyExists", f'{qualified(plural, group)} "{name}" already exists', name=name, group=group, kind=plural
    )


def conflict(plural: str, group: str, name: str, why: str = "") -> StatusError:
    why = why or ("the object has been modified; please apply your changes to the latest version and try again")
    return StatusError(
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}',
        name=name,
        group=group,
        kind=plural,
    )


def forbidden(plural: str, group: str, name: str, why: str) -> StatusError:
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return StatusError("Forbidden", f"{subject} is forbidden: {why}", name=name, group=group, kind=plural)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """422 with the first `MAX_CAUSES` causes; `kind` is the Kind, as Kubernetes has it for this reason only."""
    shown = causes[:MAX_CAUSES]
    texts = [
        f"{_cut(cause.field, _TEXT_LENGTH)}: {_cut(cause.message, _TEXT_LENGTH)}"
        if cause.field
        else _cut(cause.message, _TEXT_LENGTH)
        for cause in shown
    ]
    if len(causes) > MAX_CAUSES:
        texts.append(f"and more: only the first {MAX_CAUSES} are shown")
    body = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    return StatusError(
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {body}',
        name=name,
        group=group,
        kind=kind,
        causes=shown,
    )


def bad_request(message: str) -> StatusError:
    return StatusError("BadRequest", message)


def expired(message: str, continue_token: str = "") -> StatusError:
    return StatusError("Expired", message, continue_token=continue_token)


def too_large_resource_version(version: int, current: int) -> StatusError:
    return StatusError(
        "Timeout",
        f"Too large resource version: {version}, current: {current}",
        causes=[Cause("ResourceVersionTooLarge", "Too large resource version")],
        retry_after=1,
    )


def from_error(error: BaseException) -> StatusError:
    """The one mapping from any error to a Status. An error that is not known is a 500 that gives nothing away."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, errors.Unavailable):
        return StatusError("ServiceUnavailable", error.message, retry_after=1)
    if isinstance(error, errors.Refused):
        return bad_request(error.message)
    return StatusError("InternalError", "Internal error occurred: see the server log for this request id")
