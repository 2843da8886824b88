# SPDX-License-Identifier: Apache-2.0
"""One request on its way through the stations: what is known of it so far. It does nothing."""

from __future__ import annotations

import msgspec
from aiohttp import web

from handfast.api import kinds
from handfast.apiserver import authn, request


class Call(msgspec.Struct):
    """Filled in station by station."""

    http: web.BaseRequest
    id: str
    info: request.RequestInfo
    source: str = ""
    user: authn.User = authn.ANONYMOUS
    kind: kinds.Kind | None = None
    decision: str = ""
    warnings: list[str] = []

    def header(self, name: str) -> str:
        return self.http.headers.get(name, "")
