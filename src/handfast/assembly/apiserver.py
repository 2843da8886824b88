# SPDX-License-Identifier: Apache-2.0
"""The API server, put together: store, copy in memory, stations, listener. Names concrete classes and decides nothing."""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import ipaddress
import pathlib
import resource
import socket
from dataclasses import dataclass, field

import structlog

from handfast import errors
from handfast.api import kinds
from handfast.apiserver import (
    audit,
    authn,
    compaction,
    customs,
    deletes,
    discovery,
    envelope,
    first_objects,
    limits,
    listener,
    nonresources,
    patches,
    pipeline,
    reads,
    replica,
    resources,
    storage,
    watch,
    workloads,
    writes,
)
from handfast.assembly import layout
from handfast.pki import bundles, seal
from handfast.runtime import clock as clock_module
from handfast.runtime import files, tasks
from handfast.store import protocol, sqlite
from handfast.telemetry import health as health_module
from handfast.telemetry import metrics as metrics_module

_log = structlog.get_logger("handfast.apiserver")
# Seconds that requests in flight get to end when the server stops; the supervisor allows nine altogether.
GRACE = 3.0
_FILE_BYTES = 1 << 20
# Whose values are sealed at rest.
SEALED = ("core/secrets/",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerOptions:
    """What `serve apiserver` was told. Exactly one of `listen` and `listen_fd` is given."""

    directory: str
    listen: tuple[str, int] | None = None
    listen_fd: int | None = None
    advertise: tuple[str, ...] = ()
    store: str = ""
    limits: limits.Limits = field(default_factory=limits.Limits)


class ApiServer:
    """One running server; `start` serves, `stop` drains."""

    def __init__(
        self,
        *,
        place: layout.Layout,
        store: protocol.Store,
        sock: socket.socket,
        advertise: tuple[str, ...],
        limits_: limits.Limits,
        clock: clock_module.Clock,
    ) -> None:
        sealer = seal.Sealer.from_text(files.read_private(place.encryption_key, limit=_FILE_BYTES).decode())
        envelopes = envelope.Envelopes(sealer, SEALED)
        client_cas = files.read(place.ca_certificate, limit=_FILE_BYTES)
        self._clock = clock
        self._store = store
        self._advertise = advertise
        self._group = tasks.Group("apiserver")
        self._stopping = False
        self.replica = replica.Replica(store, envelopes)
        self.storage = storage.Storage(store, envelopes, self.replica)
        self.table = kinds.Table(kinds.builtin())
        self.discovery = discovery.Discovery(self.table)
        self.hub = watch.Hub(self.replica, clock, limits_.watch_buffer_bytes, limits_.write_seconds)
        self.customs = customs.Customs(self.table, self.storage, self.discovery, clock)
        self.authenticator = authn.Authenticator(bundles.TrustBundle.from_pem(client_cas))
        # Whoever watches with a certificate of a CA that is gone must not go on watching.
        self.authenticator.changed.append(self.hub.end_all)
        self.metrics = metrics_module.ApiServerMetrics()
        self.health = self._checks()
        self.pipeline = self._pipeline(limits_)
        context = listener.server_context(
            str(place.apiserver_certificate), str(place.apiserver_key), client_cas.decode()
        )
        self.listener = listener.Listener(sock, context, self.pipeline.handle, pipeline.protocol_error, limits_, clock)
        self.address: tuple[str, int] = sock.getsockname()[:2]
        self._gauges()

    def _pipeline(self, limits_: limits.Limits) -> pipeline.Pipeline:
        reader = reads.Reader(self.storage, self._clock, limits_.write_seconds)
        writer = writes.Writer(self.storage, self._clock)
        deleter = deletes.Deleter(self.storage, self._clock)
        version = discovery.version_document(importlib.metadata.version("handfast"))
        return pipeline.Pipeline(
            authenticator=self.authenticator,
            resources_=resources.Resources(
                definitions_=self.customs,
                reader=reader,
                writer=writer,
                patcher=patches.Patcher(writer, self._clock),
                deleter=deleter,
                actions=workloads.Workloads(reader, writer, deleter, self._clock),
                hub=self.hub,
                limits_=limits_,
                clock=self._clock,
            ),
            nonresources_=nonresources.NonResources(self.discovery, self.health, self.metrics, version),
            auditor=audit.Audit(self.metrics),
            limits_=limits_,
            clock=self._clock,
        )

    def _checks(self) -> health_module.Health:
        return health_module.Health(
            live={"replica": lambda: None if self.replica.failed is None else "the copy of the store has stopped"},
            ready={
                "store": lambda: self.storage.trouble,
                "shutdown": lambda: "the server is stopping" if self._stopping else None,
            },
        )

    def _gauges(self) -> None:
        self.metrics.gauge("apiserver_current_connections", "Open connections.", lambda: self.listener.connections)
        self.metrics.gauge("apiserver_longrunning_requests", "Open watches.", lambda: len(self.hub))
        self.metrics.gauge("handfast_watchers_dropped", "Watchers dropped for being slow.", lambda: self.hub.dropped)
        self.metrics.gauge(
            "handfast_connections_refused", "Connections over the limits.", lambda: self.listener.refused
        )
        self.metrics.gauge("handfast_resource_version", "The newest applied version.", lambda: self.replica.version)

    async def start(self) -> None:
        """Load, make what a new cluster starts with, then accept."""
        await self.replica.load()
        self.customs.load()
        self._group.start(self.replica.follow(), name="replica")
        self._group.start(self.hub.bookmarks(), name="bookmarks")
        self._group.start(self.customs.run(), name="customs")
        self._group.start(compaction.run(self.storage, self._clock), name="compaction")
        await first_objects.ensure(self.storage, self._clock, self._addresses(), self.address[1])
        self.listener.start()

    async def wait(self) -> None:
        """Until something essential fails."""
        await self._group.wait()

    async def stop(self) -> None:
        """End watches, let requests finish, close the store."""
        self._stopping = True
        self.hub.close()
        await self.listener.stop(GRACE)
        await self._group.stop(timeout=2.0)
        await self._store.close()

    def _addresses(self) -> list[str]:
        """The advertised addresses that are IP addresses: endpoints cannot hold names."""
        found = []
        for given in (*self._advertise, self.address[0]):
            host = given.rpartition(":")[0].strip("[]") if ":" in given and not _is_ip(given) else given
            # Endpoints may not be loopback addresses in Kubernetes' validation, but on one machine that is the truth.
            if _is_ip(host) and not ipaddress.ip_address(host).is_unspecified:
                found.append(host)
        return list(dict.fromkeys(found))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _socket(options: ApiServerOptions) -> socket.socket:
    if options.listen_fd is not None:
        return socket.socket(fileno=options.listen_fd)
    if options.listen is None:
        raise errors.Misuse("one of listen and listen_fd must be given")
    return socket.create_server(options.listen, backlog=1024)


async def open_server(
    options: ApiServerOptions, clock: clock_module.Clock, store: protocol.Store | None = None
) -> ApiServer:
    """A server that is not serving yet. `store` replaces the one the options name."""
    place = layout.Layout(pathlib.Path(options.directory))
    opened = store if store is not None else await sqlite.open_store(options.store or str(place.store("store.db")))
    return ApiServer(
        place=place,
        store=opened,
        sock=_socket(options),
        advertise=options.advertise,
        limits_=options.limits,
        clock=clock,
    )


def _allow_many_files() -> None:
    """Connections are files, and the usual soft limit is 1024 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _calm_the_collector() -> None:
    """What start-up made stays for good: cycles are looked for among newer objects only, and less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


async def run(options: ApiServerOptions) -> None:
    """Serve until cancelled, then drain."""
    _allow_many_files()
    server = await open_server(options, clock_module.SystemClock())
    await server.start()
    _calm_the_collector()
    _log.info("serving", address=f"{server.address[0]}:{server.address[1]}")
    try:
        await server.wait()
    finally:
        await asyncio.shield(server.stop())
        _log.info("stopped")
