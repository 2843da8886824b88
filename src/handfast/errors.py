# SPDX-License-Identifier: Apache-2.0
"""The three families of errors, by whose fault they are.

    HandfastError
    ├── Misuse        a bug or a wrong call inside this program; never shown as the peer's fault
    ├── Refused       what the peer or the user asked for is wrong or not allowed; trying again does not help
    │   └── api.status.StatusError        … as a Kubernetes Status (code, reason, details)
    └── Unavailable   the environment is not ready (store, disk, network); trying again may help

Each carries a `reason` (a stable CamelCase word for machines), a message for people and, where there is one,
a `hint`: what to do next. Nothing here maps errors to HTTP: that is `api.status.from_error`, the only place.
"""

from __future__ import annotations


class HandfastError(Exception):
    """What every error of this program has: a message, a stable reason and perhaps a next step."""

    reason: str = "Error"
    hint: str | None = None

    def __init__(self, message: str, *, reason: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if reason is not None:
            self.reason = reason
        if hint is not None:
            self.hint = hint


class Misuse(HandfastError):
    """The program called itself wrongly."""

    reason = "InternalError"


class Refused(HandfastError):
    """The peer's request or the user's input is refused."""

    reason = "Refused"


class Unavailable(HandfastError):
    """Something this program needs is not there now."""

    reason = "ServiceUnavailable"
