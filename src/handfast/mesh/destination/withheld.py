# SPDX-License-Identifier: Apache-2.0
"""Tells of endpoints that are withheld: one line in the log, one Event on the Service, and a figure. It withholds nothing itself.

1. Only what lasts is told: for a moment every Pod that starts is in a slice before it is known itself.
2. Of one Service and one reason there is one Event at a time, with a few of its endpoints, and again after minutes if it still holds.
3. So many things are told in a minute, and no more: who can make Pods cannot fill the log or the store. What was left out is counted.
4. The figure has all of them, at once. Only what somebody asks for is looked at: a Service that nobody calls is not in it.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Hashable, Sequence
from typing import Final

import msgspec
import prometheus_client
import structlog

from handfast.client import events
from handfast.rules.mesh import endpoints, meshed
from handfast.runtime import clock as clocks

EVENT: Final = "EndpointWithheld"
LASTS_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 600.0
MOST_A_MINUTE: Final = 30
_SHOWN: Final = 3
_log = structlog.get_logger("handfast.mesh.destination")

WITHHELD = prometheus_client.Gauge(
    "handfast_mesh_withheld_endpoints", "Endpoints that should have an identity and have none, by reason.", ["reason"]
)
LEFT_OUT = prometheus_client.Counter(
    "handfast_mesh_withheld_reports_dropped", "Reports of withheld endpoints that were over the rate of reports."
)


class _Case(msgspec.Struct):
    """What one subject withholds for one reason, since when, and when it was told last."""

    about: events.Regarding | None
    rows: Sequence[endpoints.Withheld]
    since: float
    said: float | None = None


class Reports:
    """What is withheld now, and what was told of it; `run` tells."""

    def __init__(self, recorder: events.Recorder, clock: clocks.Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._cases: dict[tuple[Hashable, meshed.Reason], _Case] = {}
        self._counts: collections.Counter[meshed.Reason] = collections.Counter()
        self._told: collections.deque[float] = collections.deque()
        self._work = asyncio.Event()
        for reason in meshed.Reason:
            WITHHELD.labels(reason.value).set(0)

    def note(self, subject: Hashable, about: events.Regarding | None, rows: Sequence[endpoints.Withheld]) -> None:
        """What a subject withholds now."""
        for reason in meshed.Reason:
            ours = [row for row in rows if row.why is reason]
            key = (subject, reason)
            case = self._cases.get(key)
            self._count(reason, len(ours) - (0 if case is None else len(case.rows)))
            if not ours:
                self._cases.pop(key, None)
            elif case is None:
                self._cases[key] = _Case(about, ours, self._clock.monotonic())
                self._work.set()
            else:
                case.about, case.rows = about, ours

    def forget(self, subject: Hashable) -> None:
        """Nobody asks for it any more."""
        self.note(subject, None, ())

    def _count(self, reason: meshed.Reason, difference: int) -> None:
        if difference:
            self._counts[reason] += difference
            # 4. all of them, at once
            WITHHELD.labels(reason.value).set(self._counts[reason])

    async def run(self) -> None:
        """Tell what lasts, until cancelled."""
        while True:
            await self._work.wait()
            for key in tuple(self._cases):
                await self._tell(key)
            if not self._cases:
                self._work.clear()
            else:
                await self._clock.sleep(LASTS_SECONDS)

    async def _tell(self, key: tuple[Hashable, meshed.Reason]) -> None:
        case, now = self._cases.get(key), self._clock.monotonic()
        # 1. only what lasts
        if case is None or now - case.since < LASTS_SECONDS:
            return
        # 2. again after minutes
        if case.said is not None and now - case.said < AGAIN_SECONDS:
            return
        # 3. so many a minute
        if not self._may_tell(now):
            LEFT_OUT.inc()
            return
        case.said = now
        text = _text(case.rows)
        about = "" if case.about is None else f"{case.about.namespace}/{case.about.name}"
        _log.warning("endpoints are withheld", reason=key[1].value, about=about, count=len(case.rows), what=text)
        if case.about is not None:
            await self._recorder.record(case.about, EVENT, f"{key[1].value}: {text}", severity=events.WARNING)

    def _may_tell(self, now: float) -> bool:
        while self._told and now - self._told[0] >= 60.0:
            self._told.popleft()
        if len(self._told) >= MOST_A_MINUTE:
            return False
        self._told.append(now)
        return True


def _text(rows: Sequence[endpoints.Withheld]) -> str:
    shown = "; ".join(f"{row.address} ({row.text})" for row in rows[:_SHOWN])
    more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"{shown}{more}"
