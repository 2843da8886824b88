# SPDX-License-Identifier: Apache-2.0
"""Asks the store how it is, every half minute, for the metrics. What they are called is `telemetry.store_figures`'.

A store that does not answer leaves what was known of it, and a lag that is not a number. Its members are asked one by one: those of
an etcd that has lost its quorum are shown as they are.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from handfast import errors
from handfast.api import objects
from handfast.apiserver.state import replica as replica_module
from handfast.runtime import clock as clocks
from handfast.store import epochs, protocol, transfer
from handfast.telemetry import store_figures

INTERVAL: Final = 30.0
_log = structlog.get_logger("handfast.store")


class Look:
    """Keeps `figures`; `backup_at` says when this server's own files know of a backup, in seconds since 1970."""

    def __init__(
        self, store: protocol.Store, replica: replica_module.Replica, backup_at: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._store = store
        self._replica = replica
        self._backup_at = backup_at
        self.figures = store_figures.StoreFigures()

    async def run(self, clock: clocks.Clock) -> None:
        """Ask for ever; the caller runs it as a task."""
        while True:
            try:
                await self.ask()
            except errors.Unavailable as error:
                self.figures = msgspec.structs.replace(self.figures, lag=math.nan)
                _log.info("the store did not say how it is", reason=error.reason, error=error.message)
            await clock.sleep(INTERVAL)

    async def ask(self) -> None:
        stats = await self._store.stats()
        members = [store_figures.StoreMember(member.address, member.answers, member.leads) for member in stats.members]
        # Before anything that needs a quorum.
        self.figures = msgspec.structs.replace(
            self.figures, engine=stats.engine, identity=self._store.identity, members=members
        )
        revision, offset = await self._store.current_revision(), self._store.epoch_offset
        raised = epochs.all_of(await self._store.note(epochs.NOTE), await self._store.note(epochs.SERVER_NOTE))
        noted = backup_time(await self._store.note(transfer.LAST_BACKUP))
        self.figures = store_figures.StoreFigures(
            engine=stats.engine,
            identity=self._store.identity,
            size_bytes=math.nan if stats.size_bytes is None else stats.size_bytes,
            objects=self._replica.count(),
            revision=revision,
            floor=stats.floor,
            lag=max(0, revision + offset - self._replica.version),
            epoch_offset=offset,
            backup_at=max(noted, self._backup_at()),
            sealed=self._replica.sealed(),
            members=members,
            epochs=[store_figures.StoreEpoch(each.offset, each.why, _seconds(each.at)) for each in raised],
        )


def backup_time(note: str | None) -> float:
    """When the backup was taken of which a note of the store tells, in seconds since 1970; 0 if it tells of none."""
    try:
        return _seconds(str(msgspec.json.decode(note or "{}", type=dict[str, object]).get("takenAt")))
    except msgspec.MsgspecError:
        return 0.0


def _seconds(timestamp: str) -> float:
    """Since 1970; 0 for what is no instant."""
    try:
        return objects.parse_timestamp(timestamp).astimezone(datetime.UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0
