# SPDX-License-Identifier: Apache-2.0
"""Deletes the oldest segments of the issuance ledger, so long after the last of their certificates has expired.

Each of the two chains is shortened by itself: whole segments only, oldest first; the API server lets no other go. The segment that is then the oldest names the hash of
the last that was deleted, so that the chain can still be verified from there on. It writes no entries (`ledger`).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from handfast.api import handfast_kinds
from handfast.client import api
from handfast.controllers import loop
from handfast.rules.ledger import segments
from handfast.runtime import clock as clocks

NAME = "issuance-log-cleaner-controller"
KEY: Final = "ledger"
LOGS: Final = handfast_kinds.ISSUANCE_LOG
# How long after their certificates have expired segments are kept; longer than a node may take to recover.
DAYS: Final = 90
# Those of the mesh live for a day, and nobody comes back with one.
MESH_DAYS: Final = 7
_LOOK_AGAIN_SECONDS: Final = 3600.0


class Retention:
    """Handles the ledger as a whole; `days` 0: it is kept for ever."""

    def __init__(self, client: api.Client, clock: clocks.Clock, days: int) -> None:
        self._client = client
        self._clock = clock
        self._keep = {
            segments.ORDINARY: datetime.timedelta(days=days),
            segments.MESH: datetime.timedelta(days=min(days, MESH_DAYS)),
        }

    async def reconcile(self, _key: str) -> loop.Again:
        """Delete what is due of each chain. Returns when the next segment is due, where that is known."""
        if not self._keep[segments.ORDINARY]:
            return None
        names: list[str] = []
        # Another API server may have no ledger.
        with api.MISSING_OK:
            names = sorted(item["metadata"]["name"] for item in await self._client.list(LOGS, metadata=True))
        due = [await self._shorten(chain, names) for chain in segments.CHAINS]
        return min((instant for instant in due if instant is not None), default=None) or _LOOK_AGAIN_SECONDS

    async def _shorten(self, chain: str, listed: Sequence[str]) -> datetime.datetime | None:
        """Delete what is due of a chain; its newest is never looked at."""
        names = [name for name in listed if name.startswith(segments.prefix(chain))]
        for name in names[:-1]:
            document = await self._client.find(LOGS, name)
            if document is None:
                continue
            until = segments.newest_expiry(segments.read(document))
            if until is None:
                break
            if (kept_until := until + self._keep[chain]) >= self._clock.now():
                # Of what is sealed nothing changes until then.
                return kept_until + datetime.datetime.resolution
            meta = document["metadata"]
            with api.MISSING_OK:
                await self._client.delete(LOGS, name, uid=meta["uid"], resource_version=meta["resourceVersion"])
        return None


def build(context: loop.Context, *, days: int = DAYS) -> loop.Controller[str]:
    handler = Retention(context.client, context.clock, days)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    controller.queue.add(KEY)
    return controller
