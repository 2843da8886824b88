# SPDX-License-Identifier: Apache-2.0
"""What Envoy is to do beside a workload, put together of parts, each of which puts its own resources: who may call (`judgements`), connections to the workload
(`inbound`, or `transparent`), and those that it opens (`outbound`).

It starts no Envoy (`envoy` does), asks for no certificate (`credentials` does), and knows no listener: the parts do. What they have in common is
the certificate, and that is told to them here:

1. Every part begins before there is a certificate: what is forwarded without one is forwarded from the first moment.
2. With a certificate that may be shown, the secret goes first, then who names it.
3. The next certificate changes the secret alone: open connections stay. Connections last a tenth of its lifetime at most (`durations`).
4. At the end of a certificate every part is told so at once: an acknowledgement that is awaited holds up nothing.
5. Ready is what Envoy has acknowledged, of every part, on the connection of this moment, once it is known who may call (`judgements`). What it
   rejects is logged, counted, told by `why_not_ready`, and sent again (`rejections`).
6. Other anchors change their secret alone, too: open connections stay, and whoever comes is judged by them.

| who | holding | tries | stopped by | shown in tests/scenarios/test_mesh_proxy_run.py |
|---|---|---|---|---|
| a client | the name of a workload that has no certificate | have its TLS forwarded to the application | 1 | test_before_it_is_certified_its_own_name_is_refused_then_served |
| … | the name of a workload whose certificate is over | be served with it | 4 | test_at_the_end_of_its_certificate_it_refuses_and_recovers |
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

from handfast.pki import bundles
from handfast.proxy import credentials, rejections
from handfast.proxy import trust as trust_module
from handfast.rules.envoy import durations, resources, tls
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from handfast.wire import ads


class Part(Protocol):
    """Some of what Envoy does."""

    def begin(self) -> None:
        """Put everything for the first time: there is no certificate."""

    def show(self, *, certified: bool, longest: int) -> None:
        """The own certificate is in force, or is not; connections of TLS last so many seconds."""

    def keys(self) -> Sequence[ads.Key]:
        """What Envoy has to have acknowledged for it to be ready."""

    async def run(self) -> None:
        """What goes on by itself, until cancelled."""


class Agent:
    """Keeps one Envoy in the state that the certificate allows; without credentials it is a plain proxy.

    `why_not` is what else is not known, without which it is not ready.
    """

    def __init__(
        self,
        sent: ads.Ads,
        parts: Sequence[Part],
        own: credentials.Credentials | None,
        trust: trust_module.Trust | None,
        clock: clocks.Clock,
        *,
        why_not: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._ads = sent
        self._why_not = why_not
        self._parts = parts
        self._own = own
        self._trust = trust
        self._believed: bundles.TrustBundle | None = None
        self._clock = clock
        self._shown = credentials.Standing(credentials.State.NOT_CERTIFIED)
        self._longest = durations.FIRST

    async def run(self) -> None:
        """Until cancelled."""
        self._begin()
        async with tasks.Group("agent") as group:
            group.start(rejections.retry(self._ads, self._clock), name="rejections")
            for part in self._parts:
                group.start(part.run(), name=type(part).__name__.lower())
            if self._own is not None:
                group.start(self._follow(self._own), name="certificate")
            if self._trust is not None:
                group.start(self._follow_anchors(self._trust), name="anchors")
            await group.wait()

    def _begin(self) -> None:
        if self._trust is not None:
            self._believe(self._trust.current)
        # 1. from the first moment
        for part in self._parts:
            part.begin()

    async def _follow(self, own: credentials.Credentials) -> None:
        async for standing in own.follow():
            # 4. at once
            self._show(standing)

    async def _follow_anchors(self, trust: trust_module.Trust) -> None:
        async for anchors in trust.follow():
            self._believe(anchors)

    def _believe(self, anchors: bundles.TrustBundle) -> None:
        if anchors is not self._believed:
            # 6. the secret alone, as with a certificate
            self._believed = anchors
            self._ads.put(resources.Kind.SECRET, tls.ANCHORS, tls.anchors(anchors.to_pem()))

    def _show(self, standing: credentials.Standing) -> None:
        self._shown = standing
        pair, until = standing.pair, standing.until
        if pair is not None and until is not None:
            # 2. the secret first; 3. and alone, where nothing else changes
            secret = tls.identity(pair.certificate_pem, pair.key_pem)
            self._ads.put(resources.Kind.SECRET, tls.IDENTITY, secret)
            self._longest = durations.longest(until - pair.leaf.not_before, self._longest)
        for part in self._parts:
            part.show(certified=pair is not None, longest=self._longest)

    def why_not_ready(self) -> str | None:
        """Why the workload is not served as its certificate allows; None where it is."""
        if self._own is not None:
            standing = self._own.standing()
            if standing.state is not credentials.State.CERTIFIED:
                last = self._own.last_error
                return "there is no certificate that may be shown" + (f": {last.message}" if last else "")
            if standing.pair is not self._shown.pair:
                return "the certificate is not with Envoy"
        if not self._ads.connected:
            return "Envoy is not connected"
        # 5. acknowledged, on this connection
        if not self._ads.holds(itertools.chain.from_iterable(part.keys() for part in self._parts)):
            return "; ".join(self._ads.rejected().values()) or "Envoy has not acknowledged its configuration"
        # 5. and all is known that it has to be told
        return self._why_not()

    def why_not_live(self) -> str | None:
        """Why it should be started anew: its certificate is over."""
        if self._own is None or self._own.standing().state is not credentials.State.EXPIRED:
            return None
        return f"the certificate is over since {self._own.standing().until:%Y-%m-%dT%H:%M:%SZ}"
