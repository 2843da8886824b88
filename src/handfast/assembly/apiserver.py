# SPDX-License-Identifier: Apache-2.0
"""The API server, put together: store, copy in memory, stations, listener. Names concrete classes and decides nothing.

Files that change while it runs are taken up within seconds, without a connection being dropped: see `served_files`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import math
import pathlib
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
import structlog

from handfast import errors
from handfast.api import handfast_kinds, kinds, objects
from handfast.apiserver import (
    announcement,
    audit,
    audit_log,
    computed,
    discovery,
    first_objects,
    join_failures,
    loop_holds,
    nonresources,
    openapi_pages,
    peers,
    pipeline,
)
from handfast.apiserver import limits as limits_module
from handfast.apiserver.access import bonds, bootstrap_presence
from handfast.apiserver.state import compaction, envelope, lineage, replica, storage, store_figures
from handfast.apiserver.verbs import (
    actions,
    definitions,
    deletes,
    evictions,
    patches,
    reads,
    resources,
    reviews,
    watch,
    writes,
)
from handfast.assembly import guard as guard_module
from handfast.assembly import stores
from handfast.datadir import layout, renewal, served_files
from handfast.pki import seal
from handfast.rules import networks
from handfast.runtime import addresses, aside, collector, descriptors, files, loop_time, proxied, tasks
from handfast.runtime import clock as clocks
from handfast.serving import listener
from handfast.store import protocol
from handfast.store.sqlite import space
from handfast.telemetry import health as health_module
from handfast.telemetry import metrics as metrics_module
from handfast.telemetry import proxy_refusals, rotating
from handfast.telemetry import store_figures as store_metrics
from handfast.wire import etcd_access

_log = structlog.get_logger("handfast.apiserver")
# Seconds that requests in flight get to end when the server stops; the supervisor allows nine altogether.
GRACE = 3.0
_FILE_BYTES = 1 << 20
# Whose values are sealed at rest.
SEALED = ("core/secrets/",)


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the audit log goes, and how much of it is kept. `path` "-" is standard output."""

    path: str
    max_mib: int = 100
    max_files: int = 10
    max_days: int = 30


class ApiServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `serve apiserver` was told. Exactly one of `listen` and `listen_fd` is given."""

    directory: str
    listen: tuple[str, int] | None = None
    listen_fd: int | None = None
    advertise: tuple[str, ...] = ()
    store: str = ""
    etcd: etcd_access.Access | None = None
    limits: limits_module.Limits = msgspec.field(default_factory=limits_module.Limits)
    guard: guard_module.GuardOptions = msgspec.field(default_factory=guard_module.GuardOptions)
    audit: AuditOptions | None = None
    # Certificate and key files that are served instead of the directory's own pair.
    tls_files: tuple[str, str] | None = None
    # Networks of balancers, as an operator writes them.
    proxy_protocol_from: str = "none"
    forms: Mapping[int, envelope.Form] = msgspec.field(default_factory=lambda: envelope.FORMS)  # of stored values


class ApiServer:
    """One running server; `start` serves, `stop` drains."""

    def __init__(
        self,
        *,
        place: layout.Layout,
        store: protocol.Store,
        sock: socket.socket,
        options: ApiServerOptions,
        clock: clocks.Clock,
        shared: bool = False,
    ) -> None:
        limits = options.limits
        sealer = seal.Sealer.from_text(files.read_private(place.encryption_key, limit=_FILE_BYTES).decode())
        envelopes = envelope.Envelopes(sealer, SEALED, options.forms)
        # First, so that a file that changes from here on is one that has changed.
        self._files = served_files.ServedFiles(place, clock, options.tls_files)
        client_cas = self._files.client_cas()
        self._clock, self._store, self._sealer = clock, store, sealer
        self._advertise = options.advertise
        self._group = tasks.Group("apiserver")
        self._place, self._stopping = place, False
        # Whether other servers serve the same store; then they are known from `start` on.
        self._shared = shared
        self.peers: peers.Peers | None = None
        self.lineage = lineage.Lineage(store, place.store_seen, sealer)
        self.replica = replica.Replica(store, envelopes, shared=shared)
        self.storage = storage.Storage(store, envelopes, self.replica)
        self.look = store_figures.Look(store, self.replica, self._files.last_backup)
        self.announcer = announcement.of_server(store, self.storage, clock, envelopes, self._lease_annotations)
        self.table = kinds.Table((*kinds.builtin(), *handfast_kinds.rows()))
        self.discovery = discovery.Discovery(self.table)
        self.hub = watch.Hub(self.replica, clock, limits.watch_buffer_bytes, limits.write_seconds)
        self.customs = definitions.Customs(self.table, self.storage, self.discovery, clock)
        context = self._files.server_context(client_cas)
        signing_key, token_keys = self._files.token_keys()
        self.guard = guard_module.Guard(
            options.guard,
            self.storage,
            clock,
            initial_cas=client_cas,
            signing_key=signing_key,
            token_keys=token_keys,
            admit_cas=self._admit_cas,
            table=self.table,
            count=lambda name, outcome: self.metrics.webhooks.labels(name, outcome).inc(),
        )
        self._aside = self.guard.aside
        self._end_watches_of_refused()
        self.bonds = bonds.Bonds(self.replica, self.hub.end_bound_to)
        self.metrics = metrics_module.ApiServerMetrics()
        self.joins = join_failures.JoinFailures(self.storage, clock, self.metrics.join_refused)
        self.audit = _audit_log(options.audit, clock)
        self.holds = loop_holds.LoopHolds(self.metrics, clock)
        self.health = self._checks()
        self.pipeline = self._pipeline(limits)
        named = proxied.Proxied(networks.Networks.parse(options.proxy_protocol_from))
        self.listener = listener.Listener(
            sock, context, self.pipeline.handle, pipeline.protocol_error, limits, clock, named
        )
        self.address: tuple[str, int] = sock.getsockname()[:2]
        self._gauges()

    def _end_watches_of_refused(self) -> None:
        """Whoever watches with a certificate of a CA that is gone, or was revoked, must not go on watching."""
        judges = self.guard.authenticator
        judges.changed.append(self.hub.end_all)
        judges.bootstrap_cas_changed.append(lambda: self.hub.judge(judges.require_no_bootstrap_credential))
        self.guard.revocations.changed.append(lambda: self.hub.judge(self.guard.require_not_denied))

    def _admit_cas(self, pem: str) -> None:
        self.listener.trust(pem)

    def _pipeline(self, limits: limits_module.Limits) -> pipeline.Pipeline:
        guard, clock = self.guard, self._clock
        # Where the store is shared, the pipeline has waited before it judged the caller: once is enough for a read.
        reader = reads.Reader(self.storage, clock, limits.write_seconds, _nothing if self._shared else None)
        writer = writes.Writer(self.storage, clock, guard.admitter, guard.authorizers, guard.standing)
        deleter = deletes.Deleter(self.storage, clock, guard.admitter, guard.standing)
        verbs = resources.Verbs(
            reader=reader,
            writer=writer,
            patcher=patches.Patcher(writer, clock),
            deleter=deleter,
            actions=actions.Actions(
                reader,
                writer,
                deleter,
                guard.admitter,
                guard.tokens,
                guard.standing,
                evictions.Evictions(self.storage, clock),
                clock,
            ),
            reviews=reviews.Reviews(guard.authenticator, guard.authorizers, guard.policy.policy, clock),
            computed=computed.Computed(self.table, limits, self.storage, clock.now()),
            hub=self.hub,
        )
        version = discovery.version_document(importlib.metadata.version("handfast"))
        return pipeline.Pipeline(
            authenticator=guard.authenticator,
            authorizers=guard.authorizers,
            standing=guard.standing,
            resources=resources.Resources(
                customs=self.customs,
                verbs=verbs,
                standing=guard.standing,
                limits=limits,
                aside=self._aside,
                clock=clock,
            ),
            nonresources=nonresources.NonResources(
                self.discovery,
                openapi_pages.Pages(self.table, self._aside),
                self.health,
                self.metrics,
                guard.openid,
                version,
            ),
            auditor=audit.Audit(self.metrics, self.audit, self.joins),
            holds=self.holds,
            limits=limits,
            clock=clock,
        )

    def _checks(self) -> health_module.Health:
        health = health_module.Health(
            live={"replica": lambda: None if self.replica.failed is None else "the copy of the store has stopped"},
            ready={
                "store": lambda: self.storage.trouble,
                "shutdown": lambda: "the server is stopping" if self._stopping else None,
            },
            notes={"store": lambda: room.note if (room := self._store.room()).full else None},
        )
        if self.audit is not None:
            writer = self.audit.writer
            # Requests never wait for the audit log, so that it is never a reason to send them elsewhere.
            health.ready["audit"] = lambda: None
            health.notes["audit"] = lambda: (
                None if writer.trouble is None else f"lines wait in memory: {writer.trouble}"
            )
        return health

    def _bootstrap_watches(self, kind: str) -> int:
        return self.hub.count(lambda user: bootstrap_presence.kind_of(user) == kind)

    def _bootstrap_gauges(self) -> None:
        self.metrics.gauges(
            "handfast_bootstrap_connections",
            "Open connections on which a machine's bootstrap credential was shown, by kind of credential.",
            "kind",
            {kind: functools.partial(self.pipeline.presence.connections, kind) for kind in bootstrap_presence.KINDS},
        )
        self.metrics.gauges(
            "handfast_bootstrap_watches",
            "Open watches of machines' bootstrap credentials, by kind of credential.",
            "kind",
            {kind: functools.partial(self._bootstrap_watches, kind) for kind in bootstrap_presence.KINDS},
        )

    def _store_gauges(self) -> None:
        self.metrics.gauge(
            "handfast_store_free_bytes",
            "Free space of the store's file system, where the store tells it.",
            lambda: math.nan if (free := self._store.room().free_bytes) is None else free,
        )
        self.metrics.gauge(
            "handfast_store_reserve_bytes",
            "Space kept for deletes on a full disk.",
            lambda: self._store.room().reserve_bytes,
        )
        self.metrics.gauge(
            "handfast_store_full",
            "1 while writes that add something find no space.",
            lambda: float(self._store.room().full),
        )
        self.metrics.counter(
            "handfast_store_writes_refused",
            "Writes refused because the store is full.",
            lambda: self._store.room().refused,
        )
        self.metrics.counter(
            "handfast_store_writes_uncertain",
            "Writes whose answer the store did not give; each was read again.",
            lambda: self.storage.uncertain,
        )
        self.metrics.counter(
            "handfast_store_writes_unknown",
            "Writes answered with 504: whether they were done is not known.",
            lambda: self.storage.unknown,
        )

    def _servers(self) -> float:
        return 1 if self.peers is None else self.peers.count

    def _gauges(self) -> None:
        self._bootstrap_gauges()
        self.metrics.gauge("handfast_apiservers", "API servers that share this store's budgets.", self._servers)
        self._store_gauges()
        self.metrics.gauge("apiserver_current_connections", "Open connections.", lambda: self.listener.connections)
        self.metrics.gauge("apiserver_longrunning_requests", "Open watches.", lambda: len(self.hub))
        self.metrics.gauge("handfast_watchers_dropped", "Watchers dropped for being slow.", lambda: self.hub.dropped)
        self.metrics.gauge(
            "handfast_connections_refused", "Connections over the limits.", lambda: self.listener.refused
        )
        unread = self.listener.unread
        self.metrics.gauge("handfast_unread_answer_bytes", "Held for answers not read yet.", unread.held)
        self.metrics.counter(
            "handfast_unread_answers_given_up",
            "Connections reset because their answers were not read.",
            lambda: unread.given_up,
        )
        self.metrics.registry.register(proxy_refusals.ProxyRefusals(lambda: self.listener.headers_refused))
        # Not a matter of readiness: the last good bundle goes on being used.
        self.metrics.gauge(
            "handfast_client_ca_unreadable",
            "1 while the client-CA bundle in its ConfigMap cannot be read.",
            lambda: float(any(each.trouble for each in (self.guard.client_cas, self.guard.bootstrap_cas))),
        )
        self._operation_gauges()
        self.metrics.gauge("handfast_resource_version", "The newest applied version.", lambda: self.replica.version)

    def _operation_gauges(self) -> None:
        self.metrics.gauge(
            "handfast_store_form",
            "The form in which values are stored by this server.",
            lambda: self.announcer.form,
        )
        self.metrics.gauge(
            "handfast_store_compacted_timestamp_seconds",
            "When this server last compacted the store's history; 0: not yet.",
            lambda: 0.0 if self.storage.compacted_at is None else self.storage.compacted_at.timestamp(),
        )
        self.metrics.registry.register(store_metrics.StoreMetrics(lambda: self.look.figures))

    async def start(self) -> None:
        """Load, make what a new cluster starts with, then accept."""
        await self.announcer.require_known()
        await self.lineage.begin()
        await self.replica.load()
        self.customs.load()
        self.guard.load()
        self.bonds.load()
        self._group.start(self.replica.follow(), name="replica")
        self._group.start(self.hub.bookmarks(), name="bookmarks")
        self._group.start(self.customs.run(), name="customs")
        self._group.start(compaction.run(self.storage, self._clock), name="compaction")
        self._group.start(self.lineage.keep(self._clock), name="lineage")
        self._group.start(self.look.run(self._clock), name="store-figures")
        # Endpoints cannot hold names. Kubernetes' validation forbids loopback addresses, but on one machine that is the truth.
        hosts = addresses.ip_hosts((*self._advertise, self.address[0]))
        server = first_objects.Server(tuple(hosts), self.address[1])
        if self._shared:
            self.pipeline.fresh = self.replica.fresh
            self._group.start(self.storage.probe(self._clock), name="probe")
            await self._join_peers(server)
        else:
            await first_objects.ensure(self.storage, self._clock, [server])
            await self.announcer.try_to()
            self._group.start(self.announcer.keep(), name="announcement")
        await self.guard.ensure()
        self._group.start(self.guard.client_cas.run(), name="client-cas")
        self._group.start(self.guard.token_use.run(), name="token-use")
        self._group.start(self.joins.run(), name="join-failures")
        self._group.start(self._files.follow(self._consumers_of_files()), name="served-files")
        self.listener.start()

    async def _join_peers(self, server: first_objects.Server) -> None:
        """Be one of the servers of this store: make what a new cluster starts with, and take a share of budgets."""
        place = str(self._place.root.resolve())
        self.peers = peers.Peers(
            self.storage, self._clock, self._sealer, self.announcer, place=place, server=server, on_count=self._share
        )
        self.peers.load()
        await self.peers.publish()
        await self.peers.begin()
        await self.peers.publish()
        self._group.start(self.peers.run(), name="peers")

    def _share(self, servers: int) -> None:
        self.pipeline.share(servers)
        self.listener.share(servers)

    def _lease_annotations(self) -> dict[str, str]:
        compacted = self.storage.compacted_at
        lost = {announcement.UNCERTAIN: str(self.storage.uncertain)}
        return lost if compacted is None else lost | {announcement.COMPACTED: objects.timestamp(compacted)}

    def _consumers_of_files(self) -> served_files.Consumers:
        return served_files.Consumers(
            renew=self.listener.renew,
            trust=self.guard.client_cas.begin_with,
            sign_with=self.guard.sign_with,
            end_watches=self.hub.end_all,
        )

    def also(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Do `work` for as long as the server runs."""
        self._group.start(work, name=name)

    async def wait(self) -> None:
        """Until something essential fails."""
        await self._group.wait()

    async def stop(self) -> None:
        """End watches, let requests finish, close the store."""
        self._stopping = True
        self.hub.close()
        await self.listener.stop(GRACE)
        if self.peers is not None:
            await self.peers.end()
        with contextlib.suppress(errors.Unavailable, protocol.Mismatch):
            await self.announcer.end()
        await self._group.stop(timeout=2.0)
        await self.guard.webhooks.close()
        self._aside.close()
        if self.audit is not None:
            await asyncio.to_thread(self.audit.writer.close)
        try:
            await self.lineage.seen(await self._store.current_revision())
        except errors.Unavailable as error:
            await self.lineage.ended(error)
        await self._store.close()


async def _nothing() -> None:
    return None


def _audit_log(wanted: AuditOptions | None, clock: clocks.Clock) -> audit_log.AuditLog | None:
    if wanted is None:
        return None
    rotation = rotating.Rotation(wanted.max_mib << 20, wanted.max_files, float(wanted.max_days or math.inf))
    return audit_log.AuditLog(rotating.LineWriter(rotating.open_sink(wanted.path, clock, rotation)), clock)


def _socket(options: ApiServerOptions) -> socket.socket:
    if options.listen_fd is not None:
        return socket.socket(fileno=options.listen_fd)
    if options.listen is None:
        raise errors.Misuse("one of listen and listen_fd must be given")
    return socket.create_server(options.listen, backlog=1024)


async def open_server(
    options: ApiServerOptions,
    clock: clocks.Clock,
    store: protocol.Store | None = None,
    *,
    reserve: int = 0,
    shared: bool = False,
) -> ApiServer:
    """A server that is not serving yet. `store` replaces the one the options name; `reserve` is kept for removals.

    `shared` says that other servers have the same store; one that is not a file may have others at any time.
    """
    place = layout.Layout(pathlib.Path(options.directory))
    if store is None:
        named = options.store or stores.named(place, "store.db")
        store = await stores.opened(named, options.etcd, reserve=reserve, clock=clock)
    return ApiServer(
        place=place,
        store=store,
        sock=_socket(options),
        options=options,
        clock=clock,
        shared=shared or "://" in options.store,
    )


async def run(options: ApiServerOptions, renew: Callable[[], float] | None = None) -> None:
    """Serve until cancelled, then drain.

    `renew` looks after the directory's certificates and says in how many seconds to do so again; where a supervisor does
    that, there is none.
    """
    descriptors.allow_many()
    clock = clocks.SystemClock()
    server = await open_server(options, clock, reserve=space.RESERVE)
    await server.start()
    if renew is not None:
        server.also(renewal.keep_renewed(renew, clock), name="renewal")
    server.also(loop_time.lateness(clock, server.holds.late), name="loop-lateness")
    collector.calm()
    aside.share_the_interpreter()
    _log.info("API server started", address=f"{server.address[0]}:{server.address[1]}")
    try:
        await server.wait()
    finally:
        await asyncio.shield(server.stop())
        _log.info("stopped")
