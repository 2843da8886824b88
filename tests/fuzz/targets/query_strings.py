# SPDX-License-Identifier: Apache-2.0
"""The target of a request, path and query, and what a list or a watch makes of it. The first byte picks method and kind."""

from __future__ import annotations

from handfast.api import kinds
from handfast.apiserver import bodies, request
from handfast.apiserver.verbs import options
from tests.fuzz import promises

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "TRACE")
_KINDS = (kinds.row("pods"), kinds.row("events"), kinds.row("secrets"), kinds.row("nodes"))


def _read(data: bytes) -> None:
    first = data[0] if data else 0
    # What the HTTP parser lets through: a line in Latin-1.
    target = "/" + data[1:].decode("latin-1")
    info = request.parse(_METHODS[first % len(_METHODS)], target)
    kind = _KINDS[first // len(_METHODS) % len(_KINDS)]
    for name in info.query:
        info.flag(name)
    chosen = options.parse(kind, info, watch=bool(first & 0x80))
    promises.require(chosen.limit >= 0 and chosen.timeout >= 0, "a number below zero")
    bodies.validation_mode(info)


run = promises.refusing(_read)
