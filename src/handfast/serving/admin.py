# SPDX-License-Identifier: Apache-2.0
"""Health and metrics of a role that has no other HTTP port: a small server meant for loopback, without TLS.

What it answers is in `probes`. Behind a balancer it is told whose connections they are by `runtime.proxied`, which refuses
PROXY headers from anybody else. It checks nothing itself: roles bring their checks.
"""

from __future__ import annotations

import socket
from typing import Final

import prometheus_client
from prometheus_client import core

from handfast.runtime import clock as clocks
from handfast.runtime import proxied as proxied_module
from handfast.serving import answers, limits, probes, service
from handfast.telemetry import health as health_module
from handfast.telemetry import proxy_refusals

_GRACE: Final = 1.0
# Whoever scrapes keeps its connection from one time to the next. Everybody here is a stranger on loopback, so that a rate would
# let one of them silence the probes of all: the number of connections is bounded instead, and the oldest gives way.
LIMITS: Final = limits.Limits(
    connections=1024,
    connections_per_source=1024,
    anonymous_idle_seconds=120.0,
    connections_per_second=20_000.0,
    connections_burst=20_000,
)


class Admin:
    """Answers for one process."""

    def __init__(
        self,
        health: health_module.Health,
        proxied: proxied_module.Proxied | None = None,
        clock: clocks.Clock | None = None,
    ) -> None:
        named = proxied or proxied_module.Proxied()
        # Its own, beside those of the process.
        own = core.CollectorRegistry()
        own.register(proxy_refusals.ProxyRefusals(lambda: named.refused))
        self._probes = probes.Probes(
            health, lambda: prometheus_client.generate_latest() + prometheus_client.generate_latest(own)
        )
        self.service = service.Service(
            self._answer, tls=None, clock=clock or clocks.SystemClock(), limits=LIMITS, proxied=named
        )

    async def start(self, listener: socket.socket) -> None:
        """Serve on a socket that is bound already."""
        self.service.start(listener)

    async def stop(self) -> None:
        await self.service.stop(_GRACE)

    async def _answer(self, http: service.Request) -> answers.Answer:
        return self._probes.answer(http)
