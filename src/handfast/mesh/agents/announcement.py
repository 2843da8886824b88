# SPDX-License-Identifier: Apache-2.0
"""What every agent is told: anchors and deny list, computed once for all, under one version. It sends nothing.

1. It is computed again when a Revocation comes, changes, goes or ends, when a certificate is issued for somebody who is revoked, and when anchors
   or settings change. Changes that come together are one.
2. A version that says the same as the one before does not come to be. Nor does one that differs only by what has expired.
3. Nothing is told before Revocations, ledger and anchors are known: an empty deny list would be believed. What was known stays, where one of
   them may not be read later.
4. Anchors that are not good change nothing: those before stay.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Final

import prometheus_client
import structlog

from handfast import errors
from handfast.client import cache
from handfast.client import revoked as revoked_module
from handfast.mesh import cluster as cluster_module
from handfast.mesh.agents import issuance as issuance_module
from handfast.rules import decision
from handfast.rules.mesh import control_plane, deny_list, installation, issued, issuer, reports
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from handfast.wire import agent_messages

# Between two versions: what comes in a burst is one change, and is still told well within a second.
_APART_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 60.0
_log = structlog.get_logger("handfast.mesh.agents")

DENIED = prometheus_client.Gauge("handfast_mesh_denied", "Names and certificates on the deny list.", ["what"])


class Announcement:
    """The newest; `version` is 0 until there is one."""

    def __init__(self, informers: cache.Informers, cluster: cluster_module.Cluster, clock: clocks.Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._dirty = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._said = ""
        self.revoked = revoked_module.follow(informers, self._dirty.set)
        self.issuance = issuance_module.Issuance(informers, clock, self._issued)
        cluster.subscribe(self._changed)
        self.version = 0
        self.anchors = ""
        # Who is to have signed, while the root is replaced.
        self._signer = ""
        # The SHA-256 of each.
        self.roots: tuple[str, ...] = ()
        self.denied = deny_list.EMPTY
        # Encoded, for all.
        self.octets = b""

    def subscribe(self, notify: Callable[[], None]) -> None:
        """Call `notify` when there is a newer version."""
        self._listeners.append(notify)

    @property
    def why_not(self) -> str:
        """Why agents are told nothing; empty where they are (3)."""
        if self.version:
            return ""
        if not self.revoked.known:
            return "the Revocations are not known"
        return self.issuance.why_not or self._said or "nothing was computed"

    async def run(self) -> None:
        """Keep it up to date, until cancelled."""
        is_news, end = True, None
        while True:
            self._dirty.clear()
            now = self._clock.now()
            # 1. a Revocation that ends is news, too. All by one instant: an end between two of them would be told to nobody.
            self._compute(now, is_news=is_news or (end is not None and end <= now))
            end = deny_list.next_end(self.revoked.index, now)
            # A timer may be a moment early: it is not asked whether it was the end that woke this.
            is_news = await tasks.wait_for_event(self._dirty, self._clock, self._until(end))
            await self._clock.sleep(_APART_SECONDS)

    def _until(self, end: datetime.datetime | None) -> float:
        seconds = _LOOK_SECONDS if self.version else _APART_SECONDS
        return seconds if end is None else min(seconds, (end - self._clock.now()).total_seconds())

    def _compute(self, now: datetime.datetime, *, is_news: bool) -> None:
        # 3. nothing by half
        if not self.version and (not self.revoked.known or self.issuance.why_not or not self._cluster.synced):
            return
        self.issuance.index.forget(now)
        anchors = self._read_anchors()
        if not anchors:
            return
        signer = self._read_signer()
        denied = deny_list.compute(self.revoked.index, self.issuance.index, self._cluster.mesh, now)
        # 2. what says the same is no other version
        same = (anchors, signer) == (self.anchors, self._signer)
        if self.version and same and self._says_nothing_new(denied, is_news=is_news):
            return
        self.anchors, self._signer, self.denied = anchors, signer, denied
        self.roots = tuple(anchor.fingerprint for anchor in issuer.read_anchors(anchors.encode()).anchors)
        self.version = reports.next_version(self.version, now)
        self.octets = agent_messages.Update(
            anchors=anchors,
            signer=signer,
            deny={
                "names": sorted(denied.names),
                "certificates": [bytes.fromhex(text) for text in sorted(denied.certificates)],
            },
        ).SerializeToString()
        DENIED.labels("names").set(len(denied.names))
        DENIED.labels("certificates").set(len(denied.certificates))
        _log.info(
            "agents are told", version=self.version, names=len(denied.names), certificates=len(denied.certificates)
        )
        for notify in self._listeners:
            notify()

    def _says_nothing_new(self, denied: deny_list.DenyList, *, is_news: bool) -> bool:
        if denied == self.denied:
            return True
        fewer = denied.names <= self.denied.names and denied.certificates <= self.denied.certificates
        return fewer and not is_news

    def _read_anchors(self) -> str:
        """The anchors as they are stored; 4. those before where they are not good."""
        try:
            text = (self._cluster.installed.need(control_plane.TRUST_ANCHOR).data or {}).get(
                control_plane.ANCHORS_KEY, ""
            )
            issuer.read_anchors(text.encode())
        except errors.Refused as refused:
            if refused.message != self._said:
                _log.warning("the trust anchors are not told to agents", reason=refused.reason, error=refused.message)
            self._said = refused.message
            return self.anchors
        self._said = ""
        return text

    def _read_signer(self) -> str:
        document = self._cluster.installed.find(control_plane.TRUST_ANCHOR)
        annotations = (document.metadata.annotations or {}) if document is not None else {}
        return annotations.get(installation.SIGNER, "")

    def _issued(self, certificate: issued.Certificate) -> None:
        holder = certificate.holder
        verdict = self.revoked.index.judge(
            certificate.requester,
            certificate.serial,
            certificate.key_fingerprint,
            holder.node,
            self._clock.now(),
            holder.revocable,
        )
        # 1. a certificate of somebody who is revoked
        if isinstance(verdict, decision.Deny):
            self._dirty.set()

    def _changed(self, change: cluster_module.Change) -> None:
        if change.resource == cluster_module.INSTALLATION:
            self._dirty.set()
