# SPDX-License-Identifier: Apache-2.0
"""The destination service, put together: one process with several doors, which see the same cluster. What is said there is in its own modules.

It runs until it is cancelled and then drains. It handles no signals and configures no log: whoever runs it does.

1. Each door is a gRPC server of its own, with an address of its own: `doors` has them all, and a new one is a row there.
2. In plaintext on loopback only, and elsewhere with TLS. A door that is to know who calls has TLS on loopback, too.
3. It is ready when the API server answers, forbids nothing that is followed, everything was listed once, and there is a certificate where
   one is shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import structlog

from handfast.client import api, cache, connection, events, followed_files, hearing, transport
from handfast.mesh import cluster as cluster_module
from handfast.mesh import own_certificate
from handfast.mesh import policies as policies_module
from handfast.mesh.agents import announcement, watching, workloads
from handfast.mesh.destination import discovery, publishers, withheld
from handfast.mesh.policy import inbound, outbound
from handfast.rules.mesh import control_plane
from handfast.runtime import addresses, collector, descriptors, files, loop_time, tasks
from handfast.runtime import clock as clocks
from handfast.serving import admin
from handfast.telemetry import health, metrics
from handfast.wire import mesh_messages, policy_messages, server, server_tls

DESTINATION_FLAG = "--destination-listen"
POLICY_FLAG = "--policy-listen"
AGENTS_FLAG = "--agents-listen"
_log = structlog.get_logger("handfast.mesh.destination")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where it listens, how it reaches the API, and where the control plane of the mesh is."""

    kubeconfig: str
    listen: addresses.Address
    policy_listen: addresses.Address
    agents_listen: addresses.Address
    admin_listen: addresses.Address
    # In a Pod: the proxy there asks on loopback, in plaintext.
    beside_loopback: bool = False
    namespace: str = control_plane.NAMESPACE


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """One gRPC server: what it is called in the log, where it listens, and what it offers."""

    name: str
    flag: str
    listen: addresses.Address
    services: server.Services
    always_tls: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it speaks plaintext (2)."""
        return addresses.is_loopback(self.listen.host) and not self.always_tls


class Parts:
    """What the doors are made of: the cluster, who is revoked, and what each of them answers."""

    def __init__(self, client: api.Client, clock: clocks.Clock, namespace: str) -> None:
        self.informers = cache.Informers(client, clock)
        self.cluster = cluster_module.Cluster(self.informers, namespace)
        self.own = own_certificate.OwnCertificate(client, self.informers, control_plane.CONTROLLER, namespace, clock)
        recorder = events.Recorder(client, clock, control_plane.CONTROLLER)
        self.reports = withheld.Reports(recorder, clock)
        self.publishers = publishers.Publishers(self.cluster, self.informers, self.reports, clock)
        self.discovery = discovery.Discovery(self.cluster, self.publishers)
        self.policies = policies_module.Policies(self.informers, self.cluster)
        self.inbound = inbound.Inbound(self.cluster, self.policies)
        self.outbound = outbound.Outbound(self.cluster)
        self.announcement = announcement.Announcement(self.informers, self.cluster, clock)
        self.workloads = workloads.Workloads(client, clock)
        self.watching = watching.Watching(
            announcement=self.announcement,
            policies=self.policies,
            cluster=self.cluster,
            workloads=self.workloads,
            clock=clock,
        )

    def start(self, group: tasks.Group) -> None:
        """What goes on in the background."""
        self.informers.start(group)
        group.start(self.publishers.run(), name="publishers")
        group.start(self.reports.run(), name="reports")
        group.start(self.announcement.run(), name="deny-list")
        group.start(self.workloads.run(), name="workloads")
        group.start(self.watching.run(), name="agents")

    def close(self) -> None:
        """End every stream."""
        self.publishers.close()
        self.inbound.close()
        self.outbound.close()
        self.watching.close()


def doors(options: Options, parts: Parts) -> tuple[Door, ...]:
    """All doors of the process (1)."""
    return (
        Door(
            name="destination",
            flag=DESTINATION_FLAG,
            listen=options.listen,
            services={mesh_messages.DESTINATION_SERVICE: parts.discovery.methods()},
        ),
        Door(
            name="policy",
            flag=POLICY_FLAG,
            listen=options.policy_listen,
            services={
                policy_messages.INBOUND_SERVICE: parts.inbound.methods(),
                policy_messages.OUTBOUND_SERVICE: parts.outbound.methods(),
            },
        ),
        Door(
            name="agents",
            flag=AGENTS_FLAG,
            listen=options.agents_listen,
            services=parts.watching.services(),
            # 2. it has to know who calls
            always_tls=True,
        ),
    )


async def run(options: Options, clock: clocks.Clock) -> None:
    """Answer until cancelled. Credentials that change are taken up while it runs."""
    # Through TLS, each connection takes three.
    descriptors.allow_many()
    credentials = followed_files.Credentials(options.kubeconfig, clock)
    with files.otherwise("name another kubeconfig with --kubeconfig"):
        place = connection.load(options.kubeconfig)
    link = transport.Transport(place, clock=clock)
    parts = Parts(api.Client(link), clock, options.namespace)
    rows = doors(options, parts)
    # Where the agents' door alone has TLS, the others do not wait for it.
    waits = not all(door.is_plain or door.always_tls for door in rows)
    admin_door = admin.Admin(_health(link, parts, waits=waits))
    try:
        with addresses.listen(options.admin_listen, "--destination-admin-listen") as listener:
            await admin_door.start(listener)
            collector.calm()
            async with (
                tasks.Group("destination") as group,
                followed_files.followed(credentials, link, (), lambda: None, clock),
            ):
                parts.start(group)
                group.start(parts.own.run(), name="own-certificate")
                group.start(hearing.keep_asking(link, clock), name="apiserver")
                # By the machine's own clock, whichever the service has: it is about this process.
                lateness = metrics.process_lateness().observe
                group.start(loop_time.lateness(clocks.SystemClock(), lateness), name="loop-lateness")
                tls = server_tls.ServerTLS(parts.own.current, parts.own.anchors)
                async with _open(rows, tls, clock, beside_loopback=options.beside_loopback) as bound:
                    own = addresses.bound(listener, options.admin_listen)
                    _log.info("the destination service listens", **bound, admin=str(own))
                    try:
                        await group.wait()
                    finally:
                        parts.close()
    finally:
        await admin_door.stop()
        await link.close()


@contextlib.asynccontextmanager
async def _open(
    rows: Sequence[Door], tls: server_tls.ServerTLS, clock: clocks.Clock, *, beside_loopback: bool
) -> AsyncIterator[dict[str, str]]:
    """All of them open while the block runs; it is handed the address of each by its name."""
    bound: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as stack:
        for door in rows:
            serving = server.Server(
                door.services,
                clock=clock,
                tls=None if door.is_plain else tls,
                flag=door.flag,
                beside_loopback=beside_loopback and not door.always_tls,
            )
            bound[door.name] = str(await stack.enter_async_context(serving.on(door.listen)))
        yield bound


def _health(link: transport.Transport, parts: Parts, *, waits: bool) -> health.Health:
    # 3. the API server, the rights, everything listed, and a certificate where one is shown
    return health.Health(
        ready={
            "apiserver": lambda: hearing.unheard(link),
            "rights": parts.informers.missing_rights,
            "discovery": parts.discovery.why_not,
            "policies": lambda: parts.policies.why_not or None,
            "agents": lambda: parts.announcement.why_not or None,
            **({"certificate": parts.own.why_not} if waits else {}),
        }
    )
