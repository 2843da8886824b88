# SPDX-License-Identifier: Apache-2.0
"""The identity service, put together: one process that answers Certify. What it checks is in its own modules.

It runs until it is cancelled and then drains. It handles no signals and configures no log: whoever runs it does.

It is ready when it has an issuer, the API server answers, and forbids nothing that is followed; behind TLS also its own certificate. It
serves before that, too: who asks is told that the issuer is not ready.
"""

from __future__ import annotations

import msgspec
import structlog

from handfast.client import api, cache, connection, events, followed_files, hearing, ledger, revoked, transport
from handfast.mesh.identity import certifier, reviews, sources, watchdog
from handfast.mesh.identity import own_pair as own_pair_module
from handfast.mesh.identity import telling as telling_module
from handfast.mesh.identity import trust as trust_module
from handfast.rules.ledger import segments
from handfast.rules.mesh import control_plane
from handfast.runtime import addresses, collector, descriptors, files, loop_time, tasks
from handfast.runtime import clock as clocks
from handfast.serving import admin
from handfast.telemetry import health, metrics
from handfast.wire import mesh_messages, server, server_tls

FLAG = "--identity-listen"
# In a rush of 32 at a time, three times fewer writes of the ledger.
_GATHER_SECONDS = 0.02
_log = structlog.get_logger("handfast.mesh.identity")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where it listens, how it reaches the API, and where the control plane of the mesh is."""

    kubeconfig: str
    listen: addresses.Address
    admin_listen: addresses.Address
    # In a Pod: the proxy there asks on loopback, in plaintext.
    beside_loopback: bool = False
    namespace: str = control_plane.NAMESPACE
    # The issuer and the anchors in files; None: in the Secret and the ConfigMap of the installation.
    paths: sources.Paths | None = None


async def run(options: Options, clock: clocks.Clock) -> None:
    """Answer Certify until cancelled. Credentials that change are taken up while it runs."""
    # Through TLS, each connection takes three.
    descriptors.allow_many()
    credentials = followed_files.Credentials(options.kubeconfig, clock)
    with files.otherwise("name another kubeconfig with --kubeconfig"):
        place = connection.load(options.kubeconfig)
    link = transport.Transport(place, clock=clock)
    parts = _Parts(link, options, clock)
    doors = admin.Admin(parts.health())
    try:
        with addresses.listen(options.admin_listen, "--identity-admin-listen") as listener:
            await doors.start(listener)
            collector.calm()
            async with (
                tasks.Group("identity") as group,
                followed_files.followed(credentials, link, (), lambda: None, clock),
            ):
                parts.start(group)
                # By the machine's own clock, whichever the service has: it is about this process.
                lateness = metrics.process_lateness().observe
                group.start(loop_time.lateness(clocks.SystemClock(), lateness), name="loop-lateness")
                services = {mesh_messages.IDENTITY_SERVICE: parts.service.methods()}
                beside = options.beside_loopback
                serving = server.Server(services, clock=clock, tls=parts.tls, flag=FLAG, beside_loopback=beside)
                async with serving.on(options.listen) as bound:
                    own = addresses.bound(listener, options.admin_listen)
                    _log.info("the identity service listens", address=str(bound), admin=str(own))
                    await group.wait()
    finally:
        await doors.stop()
        await link.close()


class _Parts:
    """What the service is made of."""

    def __init__(self, link: transport.Transport, options: Options, clock: clocks.Clock) -> None:
        self._link = link
        self._clock = clock
        client = api.Client(link)
        self._informers = cache.Informers(client, clock)
        recorder = events.Recorder(client, clock, control_plane.IDENTITY)
        self._source = sources.Source(client, self._informers, options.namespace, clock, options.paths)
        self._trust = trust_module.Followed(self._source, recorder, clock)
        self._telling = telling_module.Telling(recorder, self._source.about, clock)
        self._watchdog = watchdog.Watchdog(self._source, self._trust, recorder, clock)
        chain = ledger.Ledger(client, clock, segments.MESH, gather_seconds=_GATHER_SECONDS)
        self.service = certifier.Certifier(
            trust=self._trust,
            reviews=reviews.Reviews(client),
            revocations=revoked.follow(self._informers),
            ledger=chain,
            telling=self._telling,
            clock=clock,
        )
        self._own_pair = own_pair_module.OwnPair(client, self._trust, chain, options.namespace, clock)
        # In plaintext on loopback only.
        is_local = addresses.is_loopback(options.listen.host)
        self.tls = None if is_local else server_tls.ServerTLS(self._own_pair.current, self._own_pair.anchors)

    def start(self, group: tasks.Group) -> None:
        """Have everything at work that goes on beside the calls."""
        self._informers.start(group)
        group.start(self._source.run(), name="source")
        group.start(self._trust.run(), name="trust")
        group.start(self._watchdog.run(), name="watchdog")
        group.start(self._telling.run(), name="events")
        if self.tls is not None:
            group.start(self._own_pair.run(), name="own-pair")
        group.start(hearing.keep_asking(self._link, self._clock), name="apiserver")

    def health(self) -> health.Health:
        checks = {
            "apiserver": lambda: hearing.unheard(self._link),
            "rights": self._informers.missing_rights,
            "issuer": self._issuer,
        }
        if self.tls is not None:
            # Before that every handshake fails.
            checks["own-certificate"] = self._own_certificate
        return health.Health(ready=checks, notes={"issuer": self._watchdog.note})

    def _issuer(self) -> str | None:
        return None if self._trust.current is not None else (self._trust.why_not or "there is none")

    def _own_certificate(self) -> str | None:
        return "the service has no certificate of its own" if self._own_pair.current() is None else None
