# SPDX-License-Identifier: Apache-2.0
"""Connections to the workload, as Envoy is told of them: a listener and clusters for each port. Explicit mode: each port is bound on its own.

What the resources say is `rules.envoy`'s; which certificate there is, is told to it. The routes, and with them who may call, are `judgements`'.

1. From the first moment there are listeners: plaintext is forwarded, TLS with the own name is refused. Without an identity all is forwarded.
2. A listener is put when something in it changes, and never for a renewal: a changed one drains the connections of the chains that changed.
3. Who may call changes the routes alone, which reach open connections; whether bytes without a name are passed on is the listener's, and asked for
   (`tcp`) whenever that may have changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import structlog

from handfast.rules.envoy import application, durations, inbound, ports, resources, tls
from handfast.wire import ads

_log = structlog.get_logger("handfast.proxy")


class Inbound:
    """The listeners of a workload's ports; `identity` is empty for a plain proxy."""

    def __init__(
        self,
        sent: ads.Ads,
        host: str,
        served: Sequence[ports.Port],
        *,
        identity: str,
        tcp: Callable[[int], bool],
    ) -> None:
        self._ads = sent
        self._identity = identity
        self._tcp = tcp
        self._state = inbound.State.REFUSE if identity else inbound.State.PLAIN
        self._facts = {
            port.number: inbound.Facts(host=host, port=port, identity=identity, longest=durations.FIRST)
            for port in served
        }
        self._listening: dict[int, resources.Document] = {}

    def begin(self) -> None:
        """Put everything for the first time."""
        for facts in self._facts.values():
            for cluster in application.clusters(facts.port):
                self._ads.put(resources.Kind.CLUSTER, cluster["name"], cluster)
        # 1. from the first moment
        self.judge()

    def show(self, *, certified: bool, longest: int) -> None:
        """Serve TLS with the own name, or refuse it; connections last so many seconds."""
        if self._identity:
            self._state = inbound.State.TLS if certified else inbound.State.REFUSE
            self._change({number: dataclasses.replace(row, longest=longest) for number, row in self._facts.items()})

    def judge(self) -> None:
        """Who may call may have changed."""
        # 3. whether bytes are passed on
        rows = {number: dataclasses.replace(row, tcp=self._tcp(number)) for number, row in self._facts.items()}
        self._change(rows)

    def _change(self, rows: dict[int, inbound.Facts]) -> None:
        self._facts |= rows
        self._listen()

    def _listen(self) -> None:
        for number, facts in self._facts.items():
            document = inbound.listener(facts, self._state)
            # 2. only what has changed
            if self._listening.get(number) != document:
                self._ads.put(resources.Kind.LISTENER, facts.port.listener, document)
                self._listening[number] = document
                _log.info("inbound", port=number, tls=self._state.value, tcp=facts.tcp)

    def _serves_tls(self, facts: inbound.Facts) -> bool:
        return self._state is inbound.State.TLS and not facts.port.opaque

    def keys(self) -> Sequence[ads.Key]:
        """What Envoy has to have acknowledged, in this state."""
        return tuple(self._keys())

    def _keys(self) -> Iterator[ads.Key]:
        for facts in self._facts.values():
            yield resources.Kind.LISTENER, facts.port.listener
            if self._serves_tls(facts):
                yield resources.Kind.SECRET, tls.IDENTITY
                yield resources.Kind.SECRET, tls.ANCHORS

    async def run(self) -> None:
        """Nothing goes on by itself here."""
