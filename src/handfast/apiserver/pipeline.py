# SPDX-License-Identifier: Apache-2.0
"""The whole path of a request, in order, on one page.

    connection                  listener              gate, TLS
    HTTP                        connection            one request after another
    around all of it            audit                 writes down every outcome
    1 rate limit                flows                 no credential, or a bad one: per source
    2 authenticate              access.authn          who is asking
    3 impersonate               access.impersonation  in whose name
    4 rate limit                flows                 everyone else: per user; joins and nodes also pay for bytes, at 7 and 13
    5 authorise                 access.authz          may they
    6 resource                  verbs.resources       which kind, which verb …
    7 decode                    bodies                … what they sent
    8 complete                  strategy.strategies   … what the server fills in, and defaults
    9 mutating admission        admission.station     … how may this object be written
    10 validation               verbs.write_steps     … is it what the rules of its kind ask for
    11 validating admission     admission.station     … may it be written
    12 the caller still stands  access.standing       … after all the waiting
    13 store                    state.storage         … write it
    14 encode                   verbs.encode          … answer in the shape they asked for

A name with a dot is a module of a sub-room: `access.authn` is `access/authn.py`. `listener` and `connection` are the door,
in front of this room. From 6 on, `verbs.resources` leads the way. 8 to 13 are for writes only: `verbs.writes` has them step by
step under the same names, with what each refuses with.
HTTP older than 1.0 is refused between 1 and 2, so that it counts for the rate of its source. There, too, a server that shares
its store waits until its copy has all that was acknowledged elsewhere: whatever was revoked, at whichever server, counts for
the next request at every one. Health is told without: a probe must not fail for want of a store.

A caller who waited is judged again (`access.standing`): 2, 3 and 5 are repeated when the body has arrived, in 7, and in 12.
Every error becomes a Status here, by one mapping (`status.from_error`), and nowhere else. All of it is timed step by step, and
whoever holds the event loop is named (`loop_holds`).
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import cast

import aiohttp
import msgspec
from aiohttp import web

from handfast import errors
from handfast.api import kinds, status
from handfast.apiserver import audit, calls, flows, identity, loop_holds, request
from handfast.apiserver import limits as limits_module
from handfast.apiserver import nonresources as nonresources_module
from handfast.apiserver.access import authn, authz, bootstrap_presence, impersonation
from handfast.apiserver.access import standing as standing_module
from handfast.apiserver.verbs import resources as resources_module
from handfast.rules import access, flow
from handfast.rules.machines import bootstrapper
from handfast.runtime import clock as clocks
from handfast.runtime import loop_time
from handfast.serving import answers
from handfast.serving import connection as connection_module

_encode = msgspec.json.Encoder().encode
# Characters of one warning, and of all of an answer: clients refuse long headers.
_WARNING_LENGTH = 1024
_WARNINGS_TOTAL = 4096
# Some clients read at most 100 header lines.
_WARNINGS = 64
_READS = frozenset({"get", "list", "watch"})
_STRANGER_TEXT = "too many requests without a good credential from this address"


class Pipeline:
    """Takes HTTP requests, gives HTTP answers."""

    def __init__(
        self,
        *,
        authenticator: authn.Authenticator,
        authorizers: access.Authorizers,
        standing: standing_module.Standing,
        resources: resources_module.Resources,
        nonresources: nonresources_module.NonResources,
        auditor: audit.Audit,
        holds: loop_holds.LoopHolds,
        limits: limits_module.Limits,
        clock: clocks.Clock,
    ) -> None:
        # Waits for what other servers have written; None where there are none.
        self.fresh: Callable[[], Awaitable[None]] | None = None
        self._authenticator = authenticator
        self._authorizers = authorizers
        self._standing = standing
        self._resources = resources
        self._nonresources = nonresources
        self._audit = auditor
        self._holds = holds
        self._limits = limits
        self._clock = clock
        self._flows = flows.Flows(limits)
        self.share = self._flows.share
        self.presence = bootstrap_presence.BootstrapPresence()
        self._ids = itertools.count(1)
        self._boot = secrets.token_hex(4)

    def handle(self, http: web.BaseRequest) -> Awaitable[answers.Response]:
        """Answer one request, and tell where a step of it holds the event loop for too long."""
        connection = cast("connection_module.Connection", http.protocol)
        call = calls.Call(
            http,
            f"{self._boot}-{next(self._ids):x}",
            request.RequestInfo(http.method.lower(), ""),
            connection.peer.address,
            received=self._clock.monotonic(),
        )
        work = self._answer(call, connection)
        return loop_time.timed(work, self._clock.monotonic, loop_holds.STEP_SECONDS, self._holds.step, call)

    async def _answer(self, call: calls.Call, connection: connection_module.Connection) -> answers.Response:
        refusal: status.StatusError | None = None
        try:
            response = await self._stations(call, connection)
        except status.StatusError as error:
            self._audit.refused(call, error)
            refusal = error
            response = error_response(error)
        except ConnectionError:
            # The client went away in the middle of an answer; there is nobody to tell.
            self._audit.abandoned(call, self._clock.monotonic() - call.received)
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the caller gets a Status and the log the rest
            refusal = status.from_error(error)
            if refusal.code == 500:
                self._audit.failed(call, error)
            response = error_response(refusal)
        self._audit.answered(call, response.status, self._clock.monotonic() - call.received, refusal)
        # Its traceback holds this frame, and with it the request. Only the garbage collector would free such a cycle.
        refusal = None
        if isinstance(response, answers.Answer):
            response.add("Audit-Id", call.id)
            if call.warnings:
                for warning in warning_headers(call.warnings):
                    response.add("Warning", warning)
        return response

    async def _stations(self, call: calls.Call, connection: connection_module.Connection) -> answers.Response:
        http, peer, received = call.http, connection.peer, call.received
        authorization = http.headers.get("Authorization")
        # 1 rate limit: no credential, or too many bad ones
        if not peer.chain and authorization is None:
            _require_within_rate(self._flows.wait_of_stranger(peer.address, http.raw_path, received), _STRANGER_TEXT)
        elif (
            authorization is not None
            and not self._limits.lifted
            and not self._authenticator.remembers(peer, authorization)
        ):
            # After too many guesses from an address, no new token is looked at; one that was good before still is. A
            # certificate that passed TLS is no guess: nodes must not suffer from others behind the same address.
            _require_within_rate(self._flows.wait_of_refused_source(peer.address, received), _STRANGER_TEXT)
        # HTTP older than 1.0: behind 1, so that it counts for the rate of its source
        if http.version < aiohttp.HttpVersion10:
            raise status.bad_request("HTTP/1.0 or HTTP/1.1 is wanted")
        # Judged by what other servers know, too
        if self.fresh is not None and flow.of_path(flow.ANONYMOUS, http.raw_path) != flow.HEALTH:
            call.came_whole = http.content.is_eof()
            await self.fresh()
        # 2 authenticate
        self._authenticate(call, connection, authorization)
        # 3 impersonate
        if impersonation.named(http.headers):
            self._impersonate(call)
        # 4 rate limit: everyone else. Strangers have paid at 1; whoever acts as others pays for it.
        payer = call.impersonator or call.user
        connection.user = payer.name
        if payer is not identity.ANONYMOUS:
            _require_within_rate(
                self._flows.wait_of_user(payer, call.info, peer.address, received), "too many requests of this user"
            )
            if call.info.verb not in _READS:
                call.charge = self._flows.charge(payer, call.info, peer.address, received)
        # 5 authorise
        attributes = authz.attributes(call.user, call.info)
        call.decision = authz.require(self._authorizers, attributes).sentence
        self._standing.judged(call, received)
        # 6 to 14: the rest is the verb's
        if call.info.verb == "watch":
            call.on_started = self._started
        if not call.info.is_resource:
            return await self._nonresources.answer(call)
        if call.info.verb in _READS or call.info.group in kinds.REVIEW_GROUPS:
            # Bounded by how fast the answer is read, a watch by its own time; a review waits for its body only.
            return await self._resources.answer(call)
        return await self._in_time(self._resources.answer(call))

    def _authenticate(
        self, call: calls.Call, connection: connection_module.Connection, authorization: str | None
    ) -> None:
        """Find out who is asking. Only the path is read before: to parse a query costs time, and nobody is known yet."""
        http, peer = call.http, connection.peer
        path, question, _ = http.raw_path.partition("?")
        call.info = request.parse(http.method, path)
        try:
            call.user = self._authenticator.authenticate(peer, authorization, self._clock.now(), call.info)
        except identity.Unauthorized:
            # Bad credentials cost more than none: they are counted like requests without one.
            if peer.chain or authorization is not None:
                _require_within_rate(self._flows.wait_after_refusal(peer.address, call.received), _STRANGER_TEXT)
            raise
        if connection.on_proved is not None and call.user is not identity.ANONYMOUS:
            # The connections of those who are known are not what a source's rate is for: see `gate`.
            connection.proved(call.user.name)
        if call.user.name == bootstrapper.USER:
            self.presence.note(connection, call.user)
        if question:
            call.info = request.parse(http.method, http.raw_path)

    def _impersonate(self, call: calls.Call) -> None:
        other = impersonation.apply(call.user, call.http.headers, self._authorizers)
        if other is not None:
            call.impersonator, call.user = call.user, other
            self._authenticator.require_not_denied(other, self._clock.now())

    def _started(self, call: calls.Call) -> None:
        self._audit.started(call, 200, self._clock.monotonic() - call.received)

    async def _in_time(self, work: Awaitable[answers.Response]) -> answers.Response:
        """504 if a write takes too long, whatever it waits for. It may have been carried out all the same."""
        task = asyncio.current_task()
        if task is None:
            raise errors.Misuse("a request is answered inside a task")
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            task.cancel()

        # By hand, because every write pays for it: 2.5 µs, and 4.5 to 5 with `asyncio.timeout`.
        timer = asyncio.get_running_loop().call_later(self._limits.request_seconds, expire)
        try:
            return await work
        except asyncio.CancelledError:
            if not expired or task.uncancel() > 0:
                raise
            raise status.StatusError(
                "Timeout", "Timeout: request did not complete within the allotted timeout", code=504
            ) from None
        finally:
            timer.cancel()


def _require_within_rate(seconds: float, message: str) -> None:
    """Go on, or 429 with the time after which it is worth trying again."""
    if seconds > 0.0:
        raise status.StatusError(
            "TooManyRequests", f"{message}, please try again later", retry_after=max(1, math.ceil(seconds))
        )


def warning_headers(warnings: Sequence[str]) -> Iterator[str]:
    """Warnings as header values. They quote what the client sent, so they are made printable and bounded."""
    left = _WARNINGS_TOTAL
    for warning in warnings[:_WARNINGS]:
        shown = "".join(character if character.isprintable() else " " for character in warning[:_WARNING_LENGTH])
        left -= len(shown)
        if left < 0:
            return
        text = shown.replace("\\", "\\\\").replace('"', '\\"')
        yield f'299 - "{text}"'


def error_response(error: status.StatusError) -> answers.Answer:
    """A Status as an HTTP answer."""
    answer = answers.Answer(_encode(error.document()) + b"\n", status=error.code)
    if error.retry_after:
        answer.add("Retry-After", str(error.retry_after))
    if isinstance(error, identity.Unauthorized) and error.public_reason:
        # RFC 6750, 3.1. The body stays the same for every 401.
        answer.add("WWW-Authenticate", f'Bearer error="invalid_token", error_description="{error.public_reason}"')
    return answer


def protocol_error(code: int, message: str) -> answers.Answer:
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
