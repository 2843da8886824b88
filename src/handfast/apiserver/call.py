# SPDX-License-Identifier: Apache-2.0
"""One request on its way through the stations: what is known of it so far. It does nothing."""

from __future__ import annotations

import msgspec
from aiohttp import web

from handfast.api import kinds
from handfast.apiserver import identity, request


class Call(msgspec.Struct):
    """Filled in station by station."""

    http: web.BaseRequest
    id: str
    info: request.RequestInfo
    source: str = ""
    user: identity.User = identity.ANONYMOUS
    # Who really asks, when the request is made in somebody else's name.
    impersonator: identity.User | None = None
    kind: kinds.Kind | None = None
    decision: str = ""
    # When the caller was last judged, and how much had been taken from callers by then: see `standing`.
    judged: float = 0.0
    losses: int = -1
    # What the operator should know of this request and the caller should not: it goes to the audit line.
    noted: str = ""
    # What webhooks want said there, by key; and the name of an object that got it only here.
    annotations: dict[str, str] = {}
    created: str = ""
    warnings: list[str] = []

    @property
    def users(self) -> tuple[identity.User, ...]:
        """In whose name it is, and who really asks, where that is somebody else."""
        return (self.user,) if self.impersonator is None else (self.user, self.impersonator)

    def header(self, name: str) -> str:
        return self.http.headers.get(name, "")
