# SPDX-License-Identifier: Apache-2.0
"""One request on its way through the stations: what is known of it so far, and where its work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from handfast.api import kinds
from handfast.api.codec import bounds
from handfast.apiserver import flows, identity, request
from handfast.runtime import aside as aside_module

T = TypeVar("T")


class Call(msgspec.Struct):
    """Filled in station by station."""

    http: web.BaseRequest
    id: str
    info: request.RequestInfo
    source: str = ""
    user: identity.User = identity.ANONYMOUS
    # Who really asks, when the request is made in somebody else's name.
    impersonator: identity.User | None = None
    # What it pays in bytes, where its sender has such a budget.
    charge: flows.Charge | None = None
    kind: kinds.Kind | None = None
    decision: str = ""
    # When it came, by the monotonic clock.
    received: float = 0.0
    # Whether all of it, the body too, was here before the copy was brought up to date for it: then once is enough.
    came_whole: bool = False
    # When the caller was last judged, and how much had been taken from callers by then: see `standing`.
    judged: float = 0.0
    losses: int = -1
    # What the operator should know of this request and the caller should not: it goes to the audit line.
    noted: str = ""
    # What webhooks add to the audit line, by key.
    annotations: dict[str, str] = {}
    # The name of the object that was created. The path of a create does not have it, and the server may have generated it.
    created_name: str = ""
    warnings: list[str] = []
    # Who does the work once the body, or an object that it changes, is known to be heavy (`api.codec.bounds`).
    aside: aside_module.Aside | None = None
    is_heavy: bool = False
    # Gets this call when an answer begins that lasts, which is a watch's: it is in the audit log from then on.
    on_started: Callable[[Call], None] | None = None

    @property
    def users(self) -> tuple[identity.User, ...]:
        """In whose name it is, and who really asks, where that is somebody else."""
        return (self.user,) if self.impersonator is None else (self.user, self.impersonator)

    @property
    def own_source(self) -> str:
        """Where the user is; empty where somebody else asks in that name, whose connection it is."""
        return self.source if self.impersonator is None else ""

    def started(self) -> None:
        """The answer begins, and will last."""
        if self.on_started is not None:
            self.on_started(self)

    def header(self, name: str) -> str:
        return self.http.headers.get(name, "")

    def weigh(self, data: bytes) -> None:
        """From here on, work aside, if `data` is heavy."""
        self.is_heavy = self.is_heavy or not bounds.is_light(data)

    async def work(self, do: Callable[..., T], *arguments: Any) -> T:
        """Do what costs in proportion to a document: here, or aside where that is heavy.

        `do` may touch this call and its arguments, and nothing that others change.
        """
        if not self.is_heavy or self.aside is None:
            return do(*arguments)
        # Whoever acts as others pays for it.
        return await self.aside.run((self.impersonator or self.user).name, do, *arguments)

    async def work_with(self, weight: Callable[[], float], do: Callable[..., T], *arguments: Any) -> T:
        """The same, where something beside the document weighs as much as reading so many bytes. Of a heavy document it is not asked."""
        if self.aside is None or (not self.is_heavy and weight() <= bounds.LIGHT_BYTES):
            return do(*arguments)
        return await self.aside.run((self.impersonator or self.user).name, do, *arguments)
