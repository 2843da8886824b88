# SPDX-License-Identifier: Apache-2.0
"""The injector, put together: one process that answers the API server's reviews. What it answers is in `mesh.injector`.

It runs until it is cancelled and then drains. It handles no signals and configures no log: whoever runs it does.

It is ready when it could inject a Pod: it has settings and anchors, knows the namespaces, API servers believe its certificate, the one that it
follows answers, and forbids nothing that is followed. It serves before that, too: who asks is told to ask again.
"""

from __future__ import annotations

import importlib.metadata
import ssl

import msgspec
import prometheus_client
import structlog

from handfast.client import api, cache, connection, events, followed_files, hearing, transport
from handfast.mesh.injector import handler, reports, surroundings
from handfast.mesh.injector import own_pair as own_pair_module
from handfast.rules.mesh import control_plane
from handfast.runtime import addresses, collector, files, loop_time, tasks
from handfast.runtime import clock as clocks
from handfast.serving import admin, server_tls, service
from handfast.telemetry import health, metrics

FLAG = "--injector-listen"
_log = structlog.get_logger("handfast.mesh.injector")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where it listens, how it reaches the API, and where the control plane of the mesh is."""

    kubeconfig: str
    listen: addresses.Address
    admin_listen: addresses.Address
    namespace: str = control_plane.NAMESPACE


class _Parts:
    """What the process is made of, for one API server."""

    def __init__(self, options: Options, link: transport.Transport, clock: clocks.Clock) -> None:
        client = api.Client(link)
        self.link = link
        self.informers = cache.Informers(client, clock)
        version = importlib.metadata.version("handfast")
        self.around = surroundings.Surroundings(
            client, self.informers, options.namespace, f"handfast/proxy-injector {version}"
        )
        self.pair = own_pair_module.OwnPair(client, self.informers, options.namespace, self.around.settings, clock)
        recorder = events.Recorder(client, clock, control_plane.INJECTOR)
        self.reports = reports.Reports(recorder, self.around.knows, clock)
        # As Linkerd's own: nothing older than 1.3.
        tls = server_tls.ServerTLS(self.pair.current, clock, minimum=ssl.TLSVersion.TLSv1_3)
        self.service = service.Service(handler.Handler(self.around, self.reports).answer, tls=tls, clock=clock)

    def start(self, group: tasks.Group, clock: clocks.Clock) -> None:
        """Begin everything that goes on beside the answers."""
        self.informers.start(group)
        group.start(self.pair.run(), name="own-pair")
        group.start(self.reports.run(), name="events")
        group.start(hearing.keep_asking(self.link, clock), name="apiserver")
        # By the machine's own clock, whichever the service has: it is about this process.
        lateness = metrics.process_lateness().observe
        group.start(loop_time.lateness(clocks.SystemClock(), lateness), name="loop-lateness")

    def health(self) -> health.Health:
        return health.Health(
            ready={
                "apiserver": lambda: hearing.unheard(self.link),
                "rights": self.informers.missing_rights,
                "settings": self.around.not_ready,
                "certificate": self.pair.not_ready,
            }
        )


async def run(options: Options, clock: clocks.Clock) -> None:
    """Answer reviews until cancelled. Credentials that change are taken up while it runs."""
    credentials = followed_files.Credentials(options.kubeconfig, clock)
    with files.otherwise("name another kubeconfig with --kubeconfig"):
        place = connection.load(options.kubeconfig)
    link = transport.Transport(place, clock=clock)
    parts = _Parts(options, link, clock)
    figures = service.ServiceMetrics("injector", parts.service)
    doors = admin.Admin(parts.health())
    prometheus_client.REGISTRY.register(figures)
    try:
        with (
            addresses.listen(options.listen, FLAG) as listener,
            addresses.listen(options.admin_listen, "--injector-admin-listen") as probing,
        ):
            await doors.start(probing)
            collector.calm()
            async with (
                parts.service.on(listener),
                tasks.Group("injector") as group,
                followed_files.followed(credentials, link, (), lambda: None, clock),
            ):
                parts.start(group, clock)
                bound = addresses.bound(listener, options.listen)
                own = addresses.bound(probing, options.admin_listen)
                _log.info("the injector listens", address=str(bound), admin=str(own))
                await group.wait()
    finally:
        prometheus_client.REGISTRY.unregister(figures)
        await doors.stop()
        await link.close()
