# SPDX-License-Identifier: Apache-2.0
"""Connections to the workload that the kernel redirects to the proxy, as Envoy is told of them: one listener for every port. Transparent mode.

What the resources say is `rules.envoy.transparent`'s; which certificate there is, and who may call, is told to it. Explicit mode is `inbound`'s.

1. From the first moment there is a listener: plaintext is forwarded, TLS with the own name is refused. Without an identity all is forwarded.
2. The listener is put when something in it changes, and never for a renewal: a changed one drains the connections of the chains that changed.
3. Who may call is the routes', which are not put here (`judgements`); whether bytes without a name are passed on is the listener's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import structlog

from handfast.rules.envoy import inbound, judging, ports, resources, tls, transparent
from handfast.wire import ads

_log = structlog.get_logger("handfast.proxy")


class Inbound:
    """The listener of a workload's ports; an empty identity in its facts makes a plain proxy."""

    def __init__(
        self,
        sent: ads.Ads,
        redirected: transparent.Redirected,
        rows: Callable[[], Sequence[judging.PortJudgement]],
    ) -> None:
        self._ads = sent
        self._redirected = redirected
        self._rows = rows
        self._state = inbound.State.REFUSE if redirected.facts.identity else inbound.State.PLAIN
        self._listening: resources.Document | None = None

    def begin(self) -> None:
        """Put everything for the first time."""
        for cluster in transparent.application():
            self._ads.put(resources.Kind.CLUSTER, cluster["name"], cluster)
        # 1. from the first moment
        self.judge()

    def show(self, *, certified: bool, longest: int) -> None:
        """Serve TLS with the own name, or refuse it; connections last so many seconds."""
        if self._redirected.facts.identity:
            self._state = inbound.State.TLS if certified else inbound.State.REFUSE
            facts = dataclasses.replace(self._redirected.facts, longest=longest)
            self._change(facts, self._redirected.others)

    def judge(self) -> None:
        """Who may call may have changed."""
        rows = {row.port: row.tcp for row in self._rows()}
        rest = rows[judging.OTHER_PORTS]
        # 3. whether bytes are passed on
        others = tuple(sorted(port for port, tcp in rows.items() if tcp != rest))
        self._change(dataclasses.replace(self._redirected.facts, tcp=rest), others)

    def _change(self, facts: inbound.Facts, others: tuple[int, ...]) -> None:
        self._redirected = dataclasses.replace(self._redirected, facts=facts, others=others)
        self._listen()

    def _listen(self) -> None:
        document = transparent.listener(self._redirected, self._state)
        # 2. only what has changed
        if document != self._listening:
            self._ads.put(resources.Kind.LISTENER, ports.EVERY.listener, document)
            self._listening = document
            _log.info("inbound", tls=self._state.value, tcp=self._redirected.facts.tcp)

    def keys(self) -> Sequence[ads.Key]:
        """What Envoy has to have acknowledged, in this state."""
        keys = [(resources.Kind.LISTENER, ports.EVERY.listener)]
        if self._state is inbound.State.TLS:
            keys += [(resources.Kind.SECRET, tls.IDENTITY), (resources.Kind.SECRET, tls.ANCHORS)]
        return keys

    async def run(self) -> None:
        """Nothing goes on by itself here."""
