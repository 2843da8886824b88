# SPDX-License-Identifier: Apache-2.0
"""The node's own HTTPS endpoint: health and metrics, to other machines as well.

What is answered is in `serving.probes`, and the door is that of every service (`serving.service`). Which certificate it
shows is in `serving`. It runs nothing and changes nothing: there is no way in by it.

1. Who comes from another machine without a certificate of the cluster learns whether all is well, and not why; it gets
   no metrics.
2. Handshakes have a deadline. Other machines have at most `MAX_CONNECTIONS` connections, and each of them at most
   `MAX_PER_SOURCE`, counted before TLS costs anything. This machine has `MAX_LOCAL` of its own. Who comes when all are
   taken gets the place of the connection that has been there longest without a certificate. More than a hundred of one
   source in a second wait. Behind a balancer that was named the client counts, and a PROXY header of anybody else is
   refused (`runtime.proxied`).
3. A connection on which no request arrives for `STRANGER_SECONDS`, with a certificate `CERTIFIED_SECONDS`, is ended. So is
   one that is slow to send its head, or does not read what it is answered, after `STRANGER_SECONDS`.

| who | holding | tries | stopped by | shown in tests/unit/node/test_endpoint.py |
|---|---|---|---|---|
| a stranger | many connections | sends nothing, before TLS or after it | 2, 3 | test_silence_ends |
| a stranger | one machine | takes every connection there is | 2 | test_one_machine_does_not_take_all |
| a stranger | a balancer on this machine | pass for this machine, and read the metrics | 1: by the client's address | test_behind_a_balancer_on_this_machine |
| strangers | many machines | keep this machine from asking itself | 2 | test_this_machine_has_its_own |
"""

from __future__ import annotations

import socket
from typing import Final

from prometheus_client import core

from handfast.node import certificate_metrics
from handfast.runtime import clock as clocks
from handfast.runtime import proxied as proxied_module
from handfast.serving import answers, limits, probes, server_tls, service
from handfast.serving import peer as peer_module
from handfast.telemetry import health as health_module

MAX_CONNECTIONS: Final = 100
MAX_PER_SOURCE: Final = 20
MAX_LOCAL: Final = 20
STRANGER_SECONDS: Final = 15.0
CERTIFIED_SECONDS: Final = 120.0
_HANDSHAKE_SECONDS: Final = 10.0
_SILENCE_SECONDS: Final = 3.0
_CLOSING_SECONDS: Final = 1.0


def _limits() -> limits.Limits:
    """How many connections there are (2), and for how long (3)."""
    return limits.Limits(
        connections=MAX_CONNECTIONS,
        connections_per_source=MAX_PER_SOURCE,
        local_connections=MAX_LOCAL,
        silence_seconds=_SILENCE_SECONDS,
        handshake_seconds=_HANDSHAKE_SECONDS,
        head_seconds=STRANGER_SECONDS,
        first_head_seconds=STRANGER_SECONDS,
        idle_seconds=CERTIFIED_SECONDS,
        anonymous_idle_seconds=STRANGER_SECONDS,
        write_seconds=STRANGER_SECONDS,
    )


class Endpoint:
    """Answers for one agent."""

    def __init__(
        self,
        health: health_module.Health,
        metrics: core.CollectorRegistry,
        clock: clocks.Clock,
        proxied: proxied_module.Proxied | None = None,
    ) -> None:
        self._proxied = proxied
        self._clock = clock
        self._probes = probes.Probes(health, lambda: certificate_metrics.exposed(metrics))
        self.service: service.Service | None = None

    async def start(self, listener: socket.socket, tls: server_tls.ServerTLS) -> None:
        """Serve on a socket that is bound already."""
        self.service = service.Service(self.answer, tls=tls, clock=self._clock, limits=_limits(), proxied=self._proxied)
        self.service.start(listener)

    async def stop(self) -> None:
        if self.service is not None:
            await self.service.stop(_CLOSING_SECONDS)

    async def answer(self, http: service.Request) -> answers.Answer:
        """One request."""
        peer = service.peer_of(http)
        if peer.chain:
            # 2. whoever has shown a certificate of the cluster makes room for nobody
            service.proved(http, peer.chain_hash.hex())
        return self._probes.answer(http, trusted=is_trusted(peer))


def is_trusted(peer: peer_module.Peer) -> bool:
    """1. By a certificate that TLS let pass, or because it is this machine.

    Not the transport's address: behind a balancer that is the balancer's, which may be on this machine.
    """
    return bool(peer.chain) or peer_module.is_loopback(peer.address)
