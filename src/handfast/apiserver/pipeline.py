# SPDX-License-Identifier: Apache-2.0
"""The whole path of a request, in order, on one page.

    connection   listener     gate, TLS, HTTP
    1 rate limit limits       requests without a credential, per source
    2 authenticate authn      who is asking
    3 audit      audit        counts every outcome, writes down refusals (wraps the rest)
    4 authorise  authz        may they
    5 resource   resources    which kind, which verb …
    6 decode     bodies         … what they sent
    7 strategy   strategies     … what the server fills in, and defaults
    8 admission  admission      … may this object be written
    9 store      storage        … write it
    10 encode    encode         … answer in the shape they asked for

Every error becomes a Status here, through the one mapping (`status.from_error`), and nowhere else.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Iterator, Sequence
from typing import cast

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict

from handfast.api import status
from handfast.apiserver import audit, authn, authz, call, limits, listener, nonresources, request, resources
from handfast.runtime import clock as clock_module

_encode = msgspec.json.Encoder().encode
# Characters of one warning, and of all of an answer: clients refuse long headers.
_WARNING_LENGTH = 1024
_WARNINGS_TOTAL = 4096


class Pipeline:
    """Takes HTTP requests, gives HTTP answers."""

    def __init__(
        self,
        *,
        authenticator: authn.Authenticator,
        resources_: resources.Resources,
        nonresources_: nonresources.NonResources,
        auditor: audit.Audit,
        limits_: limits.Limits,
        clock: clock_module.Clock,
    ) -> None:
        self._authenticator = authenticator
        self._resources = resources_
        self._nonresources = nonresources_
        self._audit = auditor
        self._limits = limits_
        self._clock = clock
        self._anonymous = limits.Buckets(limits_.anonymous_per_second, limits_.anonymous_burst)
        self._ids = itertools.count(1)
        self._boot = secrets.token_hex(4)

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        started = self._clock.monotonic()
        connection = cast("listener.Connection", http.protocol)
        asked = call.Call(
            http,
            f"{self._boot}-{next(self._ids):x}",
            request.RequestInfo(http.method.lower(), ""),
            connection.peer.address,
        )
        try:
            response = await self._stations(asked, connection)
        except status.StatusError as error:
            self._audit.refused(asked, error)
            response = error_response(error)
        except ConnectionError:
            # The client went away in the middle of an answer; there is nobody to tell.
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the caller gets a Status and the log the rest
            mapped = status.from_error(error)
            if mapped.code == 500:
                self._audit.failed(asked, error)
            response = error_response(mapped)
        self._audit.answered(asked, response.status, self._clock.monotonic() - started)
        if not response.prepared:
            response.headers["Audit-Id"] = asked.id
            if asked.warnings:
                for warning in warning_headers(asked.warnings):
                    response.headers.add("Warning", warning)
        return response

    async def _stations(self, asked: call.Call, connection: listener.Connection) -> web.StreamResponse:
        http = asked.http
        authorization = http.headers.get("Authorization")
        # 1 rate limit
        if not connection.peer.chain and not self._limits.lifted:
            self._limit(connection.peer.address)
        if http.version < aiohttp.HttpVersion10:
            raise status.bad_request("HTTP/1.0 or HTTP/1.1 is wanted")
        asked.info = request.parse(http.method, http._message.path)
        # 2 authenticate
        try:
            asked.user = self._authenticator.authenticate(connection.peer, authorization, self._clock.now())
        except authn.Unauthorized:
            # Bad credentials cost more than none: they are counted like requests without one.
            if connection.peer.chain and not self._limits.lifted:
                self._limit(connection.peer.address)
            raise
        _refuse_impersonation(asked)
        # 4 authorise
        asked.decision = authz.authorise(asked.user, asked.info).reason
        # 5 to 10
        if asked.info.is_resource:
            return await self._resources.answer(asked)
        return self._nonresources.answer(asked)

    def _limit(self, source: str) -> None:
        seconds = self._anonymous.wait(source, self._clock.monotonic())
        if seconds > 0.0:
            raise status.StatusError(
                "TooManyRequests",
                "too many requests without a credential from this address, please try again later",
                retry_after=max(1, math.ceil(seconds)),
            )


def warning_headers(warnings: Sequence[str]) -> Iterator[str]:
    """Warnings as header values. They quote what the client sent, so they are made printable and bounded."""
    left = _WARNINGS_TOTAL
    for warning in warnings:
        shown = "".join(character if character.isprintable() else " " for character in warning[:_WARNING_LENGTH])
        left -= len(shown)
        if left < 0:
            return
        text = shown.replace("\\", "\\\\").replace('"', '\\"')
        yield f'299 - "{text}"'


def _refuse_impersonation(asked: call.Call) -> None:
    """Acting as somebody else is not offered yet; carrying the request out as the caller would be worse than a refusal."""
    headers = asked.http.headers
    for name in ("Impersonate-User", "Impersonate-Group", "Impersonate-Uid"):
        if name in headers:
            why = f'User "{asked.user.name}" cannot impersonate: this server does not support impersonation yet'
            raise status.forbidden("users", "", headers[name] if name == "Impersonate-User" else "", why)


def error_response(error: status.StatusError) -> web.Response:
    """A Status as an HTTP answer."""
    headers = CIMultiDict({"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    if error.retry_after:
        headers["Retry-After"] = str(error.retry_after)
    return web.Response(status=error.code, body=_encode(error.document()) + b"\n", headers=headers)


def protocol_error(code: int, message: str) -> web.StreamResponse:
    """The answer to what is not HTTP, or what escaped everything else."""
    if code == 431:
        error = status.StatusError("BadRequest", "request header fields too large", code=431)
    elif code < 500:
        # The first line names the fault; what follows quotes the bytes.
        fault = message.partition("\n")[0].rstrip(": ")[:200]
        error = status.StatusError("BadRequest", fault or "malformed HTTP request")
    else:
        error = status.StatusError("InternalError", "Internal error occurred")
    return error_response(error)
