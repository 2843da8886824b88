# SPDX-License-Identifier: Apache-2.0
"""Compares what the identity service uses with what is stored, and tells early what will end. It takes nothing up: `trust` does.

A watch that has gone silent, or a file whose change nobody noticed, would let a service sign with yesterday's issuer until everything it
signed is refused. So, once a minute:

1. What is stored is read anew, whatever was noticed. `trust` then takes up what it has missed.
2. What is stored and not used at two looks in a row is told: a line in the log, a metric, a note at `/readyz`, and an Event once an hour. It
   stays ready: the issuer before is good.
3. An issuer, or an anchor, whose end is near is told at each step (`rules.mesh.expiry`), and again: once a day, and once an hour in its last
   week.
4. Where it cannot be read, nothing is known, and nothing changes. That is told once.
"""

from __future__ import annotations

import datetime
from typing import Final

import prometheus_client
import structlog

from handfast import errors
from handfast.client import events
from handfast.mesh.identity import sources
from handfast.mesh.identity import trust as trust_module
from handfast.rules.mesh import expiry, issuer
from handfast.runtime import clock as clocks

DIFFERS: Final = "IssuerNotInUse"
EXPIRING: Final = "IssuerExpiring"
LOOK_SECONDS: Final = 60.0
_HOUR: Final = datetime.timedelta(hours=1)
_DAY: Final = datetime.timedelta(days=1)
# 3. how often each step is told
_AGAIN: Final = {expiry.Stage.SOON: _DAY, expiry.Stage.URGENT: _HOUR, expiry.Stage.OVER: _HOUR}
_log = structlog.get_logger("handfast.mesh.identity")

NOT_IN_USE = prometheus_client.Gauge(
    "handfast_mesh_issuer_not_in_use", "1 while the stored issuer, anchors or settings are not those in use."
)


class Watchdog:
    """Looks once a minute."""

    def __init__(
        self,
        source: sources.Source,
        trust: trust_module.Followed,
        recorder: events.Recorder,
        clock: clocks.Clock,
    ) -> None:
        self._source = source
        self._trust = trust
        self._recorder = recorder
        self._clock = clock
        # Since when they differ; whether they did at two looks; when that was told last.
        self._since: datetime.datetime | None = None
        self._is_sure = False
        self._told_at: datetime.datetime | None = None
        # By the title and the end of a certificate: the step that was told, and when.
        self._told: dict[tuple[str, datetime.datetime], tuple[expiry.Stage, datetime.datetime]] = {}
        self._unread = ""
        NOT_IN_USE.set_function(lambda: float(self._is_sure))

    def note(self) -> str | None:
        """What `/readyz` says beside the issuer; None while what is stored is what is used."""
        if self._since is None or not self._is_sure:
            return None
        why = self._trust.skipped or "it was not noticed"
        return f"what is stored is not used since {self._since:%Y-%m-%dT%H:%M:%SZ}: {why}"

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        # 2. compared before it is read anew: a change that came with this reading has not been judged
        await self._compare()
        # 1. read anew
        try:
            await self._source.reread()
        except (errors.Refused, errors.Unavailable) as error:
            # 4. nothing is known
            if error.message != self._unread:
                self._unread = error.message
                _log.warning("what is stored cannot be read anew", reason=error.reason, error=error.message)
        else:
            self._unread = ""
        await self._tell_endings()

    async def _compare(self) -> None:
        now = self._clock.now()
        if self._trust.current is None or self._trust.uses_what_is_stored():
            self._since, self._is_sure, self._told_at = None, False, None
            return
        # 2. at two looks in a row
        if self._since is None:
            self._since = now
            return
        self._is_sure = True
        if self._told_at is None or now - self._told_at >= _HOUR:
            self._told_at = now
            text = str(self.note())
            _log.warning("what is stored is not used", why=text)
            await self._recorder.record(self._source.about, DIFFERS, text, severity=events.WARNING, topic="not in use")

    async def _tell_endings(self) -> None:
        current, now = self._trust.current, self._clock.now()
        endings = () if current is None else issuer.endings(current.issuer, now)
        keys = {(ending.title, ending.ends) for ending in endings}
        self._told = {key: row for key, row in self._told.items() if key in keys}
        for ending in endings:
            key = (ending.title, ending.ends)
            stage, at = self._told.get(key, (expiry.Stage.FAR, now))
            # 3. at each step, and again
            if ending.stage > stage or now - at >= _AGAIN[ending.stage]:
                self._told[key] = (ending.stage, now)
                _log.warning("the issuer or an anchor needs care", what=ending.sentence)
                await self._recorder.record(self._source.about, EXPIRING, ending.sentence, severity=events.WARNING)
