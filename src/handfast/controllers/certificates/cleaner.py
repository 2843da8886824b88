# SPDX-License-Identifier: Apache-2.0
"""Deletes certificate requests that have had their time, each by a timer of its own.

`rules.certificates.request_age` says when that is. Nothing is polled and nothing is read again: of each request its identity, its
version and its instant are remembered. It does not touch certificates: they live on without their request.

A request is deleted only as it was seen, by UID and version; where somebody changed it meanwhile, the watch tells of
it.
"""

from __future__ import annotations

import datetime

import msgspec
import prometheus_client

from handfast.api import resources, signing_requests
from handfast.client import api
from handfast.controllers import loop
from handfast.controllers.certificates import requests as certificate_requests
from handfast.rules.certificates import request_age
from handfast.runtime import clock as clocks

NAME = "certificatesigningrequest-cleaner-controller"

DELETED = prometheus_client.Counter("handfast_csr_cleaner_deleted", "Requests deleted, by rule.", ["rule"])


class _Timed(msgspec.Struct, frozen=True):
    """A request that will be deleted."""

    uid: str
    version: str
    at: datetime.datetime
    rule: str


class CsrCleaner:
    """Handles one request, by name."""

    def __init__(self, client: api.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock
        self._timed: dict[str, _Timed] = {}

    def __len__(self) -> int:
        return len(self._timed)

    def see(self, item: signing_requests.Request) -> datetime.datetime | None:
        """Remember when a request is due; returns the instant at which it is to be looked at, None for never."""
        meta = item.metadata
        due = request_age.due(item, self._clock.now())
        if due.at is None or meta.deletion_timestamp is not None:
            self._timed.pop(meta.name, None)
            return None
        self._timed[meta.name] = _Timed(meta.uid, meta.resource_version, due.at, due.rule)
        return due.at

    def forget(self, name: str) -> None:
        """The request was deleted."""
        self._timed.pop(name, None)

    async def reconcile(self, name: str) -> datetime.datetime | None:
        timed = self._timed.get(name)
        if timed is None:
            return None
        if timed.at > self._clock.now():
            return timed.at
        with api.MISSING_OK:
            await self._client.delete(resources.SIGNING_REQUESTS, name, uid=timed.uid, resource_version=timed.version)
            DELETED.labels(timed.rule).inc()
        if self._timed.get(name) is timed:
            del self._timed[name]
        return None


def build(context: loop.Context, *, feed: certificate_requests.Feed) -> loop.Controller[str]:
    requests = feed.of(context)
    handler = CsrCleaner(context.client, context.clock)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock, workers=2)

    def changed(item: signing_requests.Request) -> None:
        due = handler.see(item)
        if due is not None:
            controller.queue.add_at(item.metadata.name, due)

    requests.subscribe(changed, handler.forget)
    controller.needs(requests)
    return controller
