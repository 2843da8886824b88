# SPDX-License-Identifier: Apache-2.0
"""The machine-config server, put together: its socket, its pair, what it follows, and its health.

It runs until it is cancelled. It handles no signals and configures no log: whoever runs it does. What it answers is in `machines.handler`.

1. Pair, client CAs and kubeconfig are read again when their files change. If what is there cannot be used, nothing changes.
2. It is ready when it could answer: everything that decides is listed, and the API server answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec
import prometheus_client
import structlog

from handfast.client import api, connection, followed_files, hearing, transport
from handfast.datadir import machine_credentials
from handfast.machines import answered, audit, callers, cluster, directory, handler, offers
from handfast.rules import networks
from handfast.runtime import addresses, collector, files, loop_time, proxied, tasks
from handfast.runtime import clock as clocks
from handfast.serving import admin, server_tls, service
from handfast.telemetry import health, metrics, rotating

_MAX_BYTES: Final = 1 << 20
_log = structlog.get_logger("handfast.machine_config")


class Doors(msgspec.Struct, frozen=True, kw_only=True):
    """With which pair it serves, whose client certificates and which networks count, and where its health is."""

    certificate: pathlib.Path
    key: pathlib.Path
    # None: the CA of the kubeconfig.
    client_ca: pathlib.Path | None
    networks: networks.Networks
    admin_listen: addresses.Address
    proxy_protocol_from: str = "none"


class AuditFile(msgspec.Struct, frozen=True, kw_only=True):
    """Where every request is written down, and when that file is full."""

    path: str
    rotation: rotating.Rotation


class _Trust:
    """The client CAs of the moment, for TLS, for callers, and for the kubelets of new machines (1)."""

    def __init__(
        self, source: followed_files.Material, tls: server_tls.ServerTLS, all_callers: callers.Callers
    ) -> None:
        self._source = source
        self._tls = tls
        self._callers = all_callers
        self.pem = b""

    def take(self) -> None:
        pem = followed_files.content(self._source)
        self._callers.trust(pem or None)
        self._tls.trust(pem or None)
        self.pem = pem or b""


async def run(
    kubeconfig: str, doors: Doors, sock: socket.socket, audit_file: AuditFile | None, clock: clocks.Clock
) -> None:
    """Serve the configurations of the cluster that a kubeconfig names, until cancelled."""
    credentials = followed_files.Credentials(kubeconfig, clock)
    with files.otherwise("name another kubeconfig with --kubeconfig"):
        place = connection.load(kubeconfig)
    link = transport.Transport(place, clock=clock)
    all_callers, tls = callers.Callers(), _tls(doors, clock)
    trust = _Trust(doors.client_ca or place.ca_pem, tls, all_callers)
    trust.take()
    source = cluster.Cluster(
        api.Client(link),
        clock,
        networks=doors.networks,
        kubelet_ca=lambda: trust.pem,
        unheard=lambda: hearing.unheard(link),
    )
    checks = health.Health(ready={"configurations": source.not_ready}, notes={"configurations": source.note})
    try:
        async with (
            _served(source, all_callers, tls, doors, sock, audit_file, checks, clock),
            tasks.Group("machine-config") as group,
            followed_files.followed(credentials, link, (doors.client_ca,), trust.take, clock),
        ):
            source.start(group)
            group.start(hearing.keep_asking(link, clock), name="apiserver")
            await group.wait()
    finally:
        await link.close()


async def run_before_the_cluster(
    bootstrap_dir: pathlib.Path, doors: Doors, sock: socket.socket, audit_file: AuditFile | None, clock: clocks.Clock
) -> None:
    """Serve the masters' configuration from a directory, until cancelled. No API server is asked for anything."""
    all_callers, tls = callers.Callers(), _tls(doors, clock)
    kubelet_ca = b"" if doors.client_ca is None else files.read(doors.client_ca, limit=_MAX_BYTES)
    source = directory.Directory(
        bootstrap_dir,
        machine_credentials.KUBECONFIG_FILE,
        networks=doors.networks,
        kubelet_ca=lambda: kubelet_ca,
    )
    async with _served(source, all_callers, tls, doors, sock, audit_file, health.Health(), clock):
        await asyncio.Event().wait()


def _tls(doors: Doors, clock: clocks.Clock) -> server_tls.ServerTLS:
    with files.otherwise("name others with --tls-cert-file and --tls-private-key-file"):
        pair = server_tls.PairFiles(doors.certificate, doors.key, clock)
    return server_tls.ServerTLS(pair.current, clock)


@contextlib.asynccontextmanager
async def _served(
    source: offers.Source,
    all_callers: callers.Callers,
    tls: server_tls.ServerTLS,
    doors: Doors,
    sock: socket.socket,
    audit_file: AuditFile | None,
    checks: health.Health,
    clock: clocks.Clock,
) -> AsyncIterator[None]:
    """The port of configurations, and that of health, while the block runs."""
    balancers = proxied.Proxied(networks.Networks.parse(doors.proxy_protocol_from))
    # A text that nobody can know stands for a machine's name in answers that are kept.
    kept = answered.Kept(f"name-{secrets.token_hex(16)}")
    with _written(audit_file, clock) as writer:
        door = handler.Handler(source, all_callers, kept, audit.Audit(clock, writer), clock)
        served = service.Service(door.answer, tls=tls, clock=clock, proxied=balancers)
        figures = service.ServiceMetrics("machine-config", served)
        probes = admin.Admin(checks, balancers)
        prometheus_client.REGISTRY.register(figures)
        try:
            with addresses.listen(doors.admin_listen, "--machine-config-admin-listen") as probing:
                await probes.start(probing)
                collector.calm()
                async with served.on(sock), tasks.Group("beside") as beside:
                    # By the machine's own clock, whichever the server has: it is about this process.
                    late = loop_time.lateness(clocks.SystemClock(), metrics.process_lateness().observe)
                    beside.start(late, name="loop-lateness")
                    host, port = sock.getsockname()[:2]
                    _log.info("configurations are served", address=str(addresses.Address(str(host), int(port))))
                    yield
        finally:
            prometheus_client.REGISTRY.unregister(figures)
            await probes.stop()


@contextlib.contextmanager
def _written(audit_file: AuditFile | None, clock: clocks.Clock) -> Iterator[rotating.LineWriter | None]:
    """The audit log, while the block runs; None: there is none."""
    if audit_file is None:
        yield None
        return
    writer = rotating.LineWriter(rotating.open_sink(audit_file.path, clock, audit_file.rotation))
    try:
        yield writer
    finally:
        writer.close()
