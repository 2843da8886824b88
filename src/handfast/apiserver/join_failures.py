# SPDX-License-Identifier: Apache-2.0
"""Joins that were refused, counted in memory and written out as Events. It refuses nobody, and no request waits for it.

Which refusals are one row, and how many there are, is decided in `rules.tokens.failed_joins`, which has the table of attackers.

1. A bootstrap token that authentication refuses is a join that failed. So is a certificate that names the account node-bootstrapper, and a token of that account
   with our signature. So is a request for a certificate with a good one of these that the authorizers or admission refuse. A request over its rate is
   not looked at, and so is none.
2. The answer does not change: it is made of the refusal, which nothing here touches.
3. At most `failed_joins.AT_ONCE` Events are written every `PAUSE` seconds. They are found by name, so that servers on one store count on
   the same ones. The controllers delete them an hour after they last happened.
4. An Event that cannot be written is tried again after `failed_joins.PERIOD`. What is only in memory is lost with the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from handfast import errors
from handfast.api import objects, resources, signing_requests, status
from handfast.api.defaulting import defaults
from handfast.apiserver import calls, identity
from handfast.apiserver.access import authz, bootstrap_credentials
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import storage
from handfast.apiserver.strategy import strategies
from handfast.rules import access
from handfast.rules.certificates import kubelet
from handfast.rules.nodes import join_failures as words
from handfast.rules.tokens import failed_joins
from handfast.runtime import clock as clocks
from handfast.store import protocol

PAUSE: Final = 1.0
_SYSTEM: Final = identity.User("system:apiserver", (access.MASTERS,))
_log = structlog.get_logger("handfast.join_failures")


class JoinFailures:
    """The failed joins of one server."""

    def __init__(self, store: storage.Storage, clock: clocks.Clock, count: Callable[[str], None]) -> None:
        self._storage = store
        self._clock = clock
        self._count = count
        self._failures = failed_joins.Failures()
        self._some = asyncio.Event()

    def refused(self, call: calls.Call, error: status.StatusError) -> None:
        """Count a refusal, if it is one of a join."""
        failure = _failure(call, error)
        if failure is None:
            return
        self._count(failure.reason)
        self._failures.note(failure, self._clock.now())
        self._some.set()

    async def run(self) -> None:
        """Write Events for ever; the caller runs it as a task."""
        while True:
            await self._some.wait()
            await self.write()
            if not self._failures.unwritten():
                self._some.clear()
            # 3. at most so many at once
            await self._clock.sleep(PAUSE)

    async def write(self) -> None:
        """Write out what is due."""
        for row in self._failures.due(self._clock.now()):
            count = row.fresh
            # 4. whatever comes of it, the next try is later
            row.written = self._clock.now()
            try:
                await self._write(row)
            except (errors.HandfastError, protocol.Mismatch) as error:
                _log.info("failed joins were not written down", count=count, error=str(error))
            else:
                row.fresh -= count

    async def _write(self, row: failed_joins.Row) -> None:
        kind = resources.EVENTS
        event = failed_joins.event(row, words.sentence(row))
        metadata = event["metadata"]
        item = await self._storage.find(kind, metadata["namespace"], metadata["name"])
        if item is not None:
            await self._storage.replace(kind, failed_joins.counted(event, item.document()), item)
            return
        strategies.prepare_create(kind, event, metadata["namespace"], _SYSTEM, self._clock.now())
        defaults.apply(kind, event)
        await self._storage.create(kind, event)


def _failure(call: calls.Call, error: status.StatusError) -> failed_joins.Failure | None:
    """The join that a refusal ended; None: it was about something else (1)."""
    if isinstance(error, identity.Unauthorized):
        bearer = error.bearer
        return None if bearer is None else _of_bearer(bearer, call.source, error.why)
    bearer = bootstrap_credentials.bearer(call.user)
    if bearer is None or error.code != 403 or not _asks_for_certificate(call):
        return None
    if isinstance(error, plugin.Refusal):
        return _of_bearer(bearer, call.source, error.why, _node(error.written))
    # The words of a webhook must not become labels.
    reason = error.why if isinstance(error, authz.Refusal) else "Forbidden"
    return _of_bearer(bearer, call.source, reason)


def _of_bearer(bearer: identity.Bearer, source: str, reason: str, node: str = "") -> failed_joins.Failure:
    shown = failed_joins.Shown.SECRET if bearer.holds_secret else failed_joins.Shown.ID
    if not bearer.known:
        shown = failed_joins.Shown.NOTHING
    return failed_joins.Failure(shown=shown, token=bearer.token, source=source, reason=reason, node=node)


def _asks_for_certificate(call: calls.Call) -> bool:
    info = call.info
    asked = (info.verb, info.group, info.plural, info.subresource)
    return asked == ("create", signing_requests.GROUP, "certificatesigningrequests", "")


def _node(document: objects.Document | None) -> str:
    """The name that a request asks for; whether a node can have it is asked later."""
    try:
        return kubelet.read(document).node_name
    except errors.Refused:
        return ""
