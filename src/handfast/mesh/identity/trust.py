# SPDX-License-Identifier: Apache-2.0
"""The settings, the issuer and the anchors of the moment: what is stored is judged first, and used only when it is good.

Where they are stored, `sources` knows, and `watchdog` looks whether a change was missed. `rules.mesh.settings` and `rules.mesh.issuer` judge. It signs nothing, and writes nothing but Events.

1. Settings, issuer and anchors change together: what is used is always one whole that was judged as one.
2. What is not good changes nothing: what was used before stays in use, a Warning says what is wrong, and so does the log.
3. What was never good leaves nothing to use: nothing is signed (`why_not` says why).
4. Where identity is switched off, nothing is signed either.
"""

from __future__ import annotations

from typing import Final

import msgspec
import prometheus_client
import structlog

from handfast import errors
from handfast.client import events
from handfast.mesh.identity import sources
from handfast.rules.mesh import issuer, names, settings
from handfast.runtime import clock as clocks

UPDATED: Final = "IssuerUpdated"
SKIPPED: Final = "IssuerUpdateSkipped"
_log = structlog.get_logger("handfast.mesh.identity")

TTL = prometheus_client.Gauge(
    "handfast_mesh_seconds_left", "Until the issuer, or the first trust anchor to end, is over.", ["certificate"]
)


class Trust(msgspec.Struct, frozen=True):
    """One whole: what certificates are signed by."""

    settings: settings.Settings
    mesh: names.Mesh
    issuer: issuer.Issuer

    @property
    def facts(self) -> tuple[object, ...]:
        """What it is told apart by."""
        return self.settings, self.mesh, self.issuer.chain, self.issuer.anchors


class Followed:
    """Follows the installation, and holds the last whole that was good."""

    def __init__(self, source: sources.Source, recorder: events.Recorder, clock: clocks.Clock) -> None:
        self._source = source
        self._recorder = recorder
        self._clock = clock
        self._current: Trust | None = None
        # Why what is stored is not used; empty where it is.
        self.skipped = ""
        self.why_not = "nothing was read yet"
        TTL.labels("issuer").set_function(lambda: self._left("issuer"))
        TTL.labels("anchor").set_function(lambda: self._left("anchor"))

    @property
    def current(self) -> Trust | None:
        """What is used now; None where nothing was good yet, or identity is switched off (3, 4)."""
        trust = self._current
        return trust if trust is not None and trust.settings.enabled else None

    async def run(self) -> None:
        """Take up what changes, until cancelled."""
        await self._source.installed.wait_answered()
        while True:
            self._source.changed.clear()
            await self._look()
            await self._source.changed.wait()

    def uses_what_is_stored(self) -> bool:
        """Whether what is used is what is stored, read off both."""
        trust = self._current
        try:
            return (
                trust is not None
                and trust.settings == self._source.settings()
                and issuer.is_of(trust.issuer, self._source.material())
            )
        except (errors.Refused, errors.Unavailable):
            return False

    async def _look(self) -> None:
        try:
            trust = self._judge()
        except (errors.Refused, errors.Unavailable) as refused:
            # 2. what was used before stays
            await self._skip(refused)
            return
        # 1. one whole, judged as one
        if self._current is None or self._current.facts != trust.facts:
            await self._use(trust)
        self.skipped, self.why_not = "", "" if trust.settings.enabled else "identity is switched off in linkerd-config"

    def _judge(self) -> Trust:
        chosen = self._source.settings()
        mesh = chosen.mesh(self._source.namespace)
        return Trust(chosen, mesh, issuer.load(self._source.material(), mesh, self._clock.now()))

    async def _use(self, trust: Trust) -> None:
        first, self._current = self._current is None, trust
        certificate = trust.issuer.certificate
        until = f"{trust.issuer.ends:%Y-%m-%dT%H:%M:%SZ}"
        _log.info("certificates are signed by this issuer", issuer=certificate.fingerprint, until=until)
        for sentence in issuer.warnings(trust.issuer, self._clock.now()):
            _log.warning("the issuer or an anchor needs care", what=sentence)
        if not first:
            await self._record(UPDATED, f"signing with issuer {certificate.fingerprint[:16]} until {until}")

    async def _skip(self, refused: errors.HandfastError) -> None:
        kept = "nothing is signed" if self._current is None else "the one before stays in use"
        text = f"{refused.message}; {kept}"
        if self._current is None:
            self.why_not = refused.message
        if text == self.skipped:
            return
        self.skipped = text
        _log.warning("the stored issuer is not used", reason=refused.reason, error=text)
        await self._record(SKIPPED, f"{refused.reason}: {text}", severity=events.WARNING)

    async def _record(self, reason: str, text: str, severity: str = events.NORMAL) -> None:
        await self._recorder.record(self._source.about, reason, text, severity=severity)

    def _left(self, which: str) -> float:
        if self._current is None:
            return 0.0
        ends = [self._current.issuer.ends]
        if which == "anchor":
            ends = [anchor.not_after for anchor in self._current.issuer.anchors.anchors]
        return (min(ends) - self._clock.now()).total_seconds()
