# SPDX-License-Identifier: Apache-2.0
"""The console, put together: its socket, its doors, what it follows as the operator, and its pages. What it answers is in `console.handler`.

It runs until it is cancelled, or until a part of it fails (`Running.wait`): pages that nobody renews would look as if all were well. It handles no signals
and configures no log: whoever runs it does.

1. Without TLS it listens on loopback only. Elsewhere it has a pair of its own, and networks that were named.
2. A kubeconfig that changes is taken up while it runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from handfast import errors
from handfast.api import jsonpath, kinds
from handfast.client import api, connection, followed_files, hearing, transport
from handfast.console import doors, explaining, handler, known, looking, opening
from handfast.console.pages import table
from handfast.pki import certificates, pairs, pem
from handfast.rules import networks
from handfast.rules.diagnoses import facts
from handfast.rules.mesh import control_plane
from handfast.runtime import addresses, backoff, files, tasks
from handfast.runtime import clock as clocks
from handfast.serving import limits, server_tls, service

_SELF: Final = kinds.row("selfsubjectreviews", "authentication.k8s.io")
_SHOWN_CA: Final = 12
# Everybody is a stranger until a cookie is seen, and a page takes a dozen files at once.
LIMITS: Final = limits.Limits(
    connections=512,
    connections_per_source=256,
    anonymous_idle_seconds=60.0,
    connections_per_second=500.0,
    connections_burst=1000,
)
_log = structlog.get_logger("handfast.console")
# Looks a control plane up, as `handfast check` does: with a client, what it was made from, and who is told how far it is.
Look = Callable[[api.Client, connection.Connection, looking.Tell], Awaitable[facts.Facts]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which cluster, where it listens, and how it is opened."""

    kubeconfigs: Sequence[str]
    listen: addresses.Address
    key: bytes = field(repr=False)
    reopen: str
    pair: tuple[str, str] | None = None
    networks: networks.Networks | None = None
    mesh_namespace: str = control_plane.NAMESPACE

    @property
    def base(self) -> str:
        """Its address, without a code."""
        return self.listen.url("http" if self.pair is None else "https")


@dataclass(frozen=True, slots=True)
class Running:
    """A console that runs."""

    _codes: opening.Opening
    _group: tasks.Group

    def code(self) -> str:
        """A new one, which opens it."""
        return self._codes.code()

    async def wait(self) -> None:
        """Until a part of it fails; its error is raised."""
        await self._group.wait()


def require_safe(options: Options) -> None:
    """Return if it may listen there (1)."""
    if addresses.is_loopback(options.listen.host):
        return
    if options.pair is None or options.networks is None:
        raise errors.Refused(
            f"the console does not listen on {options.listen} without TLS of its own and networks that may reach it",
            reason="ConsoleNotPrivate",
            hint="give --tls-cert-file, --tls-private-key-file and --networks; or leave it on loopback and reach it through `ssh -L`",
        )


@contextlib.asynccontextmanager
async def served(options: Options, sock: socket.socket, look: Look, clock: clocks.Clock) -> AsyncIterator[Running]:
    """The console, while the block runs."""
    require_safe(options)
    used = _connection(options)
    tls, names = _tls(options, clock)
    listen = dataclasses.replace(options.listen, port=int(sock.getsockname()[1]))
    explain = explaining.Explaining(" and ".join(options.kubeconfigs))
    link = transport.Transport(used, clock=clock, explain=explain)
    client = api.Client(link)
    looker = looking.Looking(lambda tell: look(client, used, tell), clock)
    everything = known.Known(client, used, looker, clock)
    everything.explaining = explain
    everything.cluster = _cluster(used)
    everything.mesh_namespace = options.mesh_namespace
    codes = opening.Opening(options.key, clock)
    console = handler.Handler(
        everything,
        doors.Doors("http" if tls is None else "https", doors.hosts_of(listen, names), options.networks),
        codes,
        opening.Sessions(clock, secure=tls is not None, port=listen.port),
        clock,
        reopen=options.reopen,
    )
    serving = service.Service(console.answer, tls=tls, clock=clock, limits=LIMITS)
    try:
        async with serving.on(sock), tasks.Group("console") as group, _followed(options, link, clock):
            everything.start(group, table.NEEDS)
            group.start(looker.run(), name="look")
            group.start(console.hub.run(), name="live")
            group.start(hearing.keep_asking(link, clock), name="apiserver")
            group.start(_introduce(everything, clock), name="who")
            yield Running(codes, group)
    finally:
        await link.close()


def _connection(options: Options) -> connection.Connection:
    with files.otherwise("name another file with --kubeconfig"):
        several = options.kubeconfigs
        return connection.load(several[0]) if len(several) == 1 else connection.load_merged(several)


@contextlib.asynccontextmanager
async def _followed(options: Options, link: transport.Transport, clock: clocks.Clock) -> AsyncIterator[None]:
    # 2. one file is followed; several are read once
    if len(options.kubeconfigs) > 1:
        yield
        return
    credentials = followed_files.Credentials(options.kubeconfigs[0], clock)
    async with followed_files.followed(credentials, link, (), lambda: None, clock):
        yield


def _tls(options: Options, clock: clocks.Clock) -> tuple[server_tls.ServerTLS | None, tuple[str, ...]]:
    """Its side of TLS, and the names in its certificate, by which it is called."""
    if options.pair is None:
        return None, ()
    certificate, key = (pathlib.Path(each) for each in options.pair)
    with files.otherwise("name others with --tls-cert-file and --tls-private-key-file"):
        pair = server_tls.PairFiles(certificate, key, clock)
    return server_tls.ServerTLS(pair.current, clock), _names(pair.current())


def _names(pair: pairs.Pair) -> tuple[str, ...]:
    sans = pair.leaf.sans
    return (*sans.dns, *map(str, sans.ip))


def _cluster(used: connection.Connection) -> known.Cluster:
    """What is known of the cluster before anybody was asked."""
    ca = ""
    if used.ca_pem:
        digest = certificates.fingerprint(pem.certificates_from_pem(used.ca_pem)[0])[:_SHOWN_CA]
        ca = " ".join(digest[at : at + 4] for at in range(0, len(digest), 4))
    return known.Cluster(server=used.server, ca=ca)


async def _introduce(everything: known.Known, clock: clocks.Clock) -> None:
    """Learn who the operator is to the API server. It is asked until it answers."""
    pauses = backoff.Backoff(backoff.Schedule(initial=1.0, cap=60.0))
    while True:
        try:
            answer = await everything.client.create(
                _SELF, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            )
        except (errors.Refused, errors.Unavailable) as error:
            _log.debug("the server does not say who we are", reason=error.reason, error=error.message)
            await clock.sleep(next(pauses))
            continue
        user = jsonpath.text(answer, "status", "userInfo", "username")
        everything.cluster = dataclasses.replace(everything.cluster, user=user)
        return
