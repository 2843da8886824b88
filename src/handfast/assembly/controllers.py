# SPDX-License-Identifier: Apache-2.0
"""The controllers role, put together: which controllers there are, and one process of them.

It runs until it is cancelled and then drains. It handles no signals and configures no log: whoever runs it does. What
each controller does is in its own module.

It is ready when every controller has seen what there is, the API server answers, and forbids nothing that is followed. One that hangs leaves its connections
open, and a watch that is quiet may be quiet for minutes, so that it is also asked for nothing but an answer from time to time.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import prometheus_client
import structlog

from handfast import errors
from handfast.assembly import controller_files, controller_names
from handfast.client import api, cache, connection, transport
from handfast.controllers import leader, loop
from handfast.controllers.certificates import (
    approver,
    cleaner,
    ledger_retention,
    requests,
)
from handfast.controllers.certificates import (
    authorities as signing_authorities,
)
from handfast.controllers.certificates import (
    signer as csr_signer,
)
from handfast.controllers.cluster import (
    endpoint_slices,
    event_ttl,
    garbage_collector,
    namespace,
    node_lifecycle,
    role_aggregation,
    root_ca,
    service_account_tokens,
    service_accounts,
)
from handfast.controllers.cluster import endpoints as classic_endpoints
from handfast.controllers.joining import bootstrap_signer, cluster_info, token_cleaner
from handfast.datadir import endpoints
from handfast.pki import jwt, keys
from handfast.rules import controller_rights, networks
from handfast.runtime import clock as clocks
from handfast.runtime import collector, files, loop_time, proxied, tasks
from handfast.serving import admin
from handfast.telemetry import health, metrics

Build = Callable[[loop.Context], loop.Controller[Any]]

_log = structlog.get_logger("handfast.controllers")

_DRAIN_SECONDS = 5.0
# How often the API server is asked whether it is there, and how long an answer may take: after both together at the
# latest, one that is silent is known to be.
_ASK_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_LATENESS = metrics.loop_lateness(prometheus_client.REGISTRY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """With which files each signer signs certificates, for how long at most, and how long the ledger of them is kept."""

    files: Mapping[str, signing_authorities.Files]
    longest: datetime.timedelta = csr_signer.DURATION
    ledger_days: int = ledger_retention.DAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which controllers run; and whether names of nodes that are alive are kept from everybody else."""

    names: Sequence[str] = ("*",)
    protect_living_nodes: bool = True


def known(
    root_ca_pem: bytes,
    signer: jwt.Signer | None = None,
    servers: Sequence[str] = (),
    *,
    authorities: signing_authorities.SigningAuthorities | None = None,
    longest: datetime.timedelta = csr_signer.DURATION,
    ledger_days: int = ledger_retention.DAYS,
    protect_living_nodes: bool = True,
) -> Mapping[str, Build]:
    """Every controller by the name that `--controllers` takes; all names are in `controller_names`.

    Without a key to sign with there are no tokens; without addresses and a CA nothing is said of where the cluster is;
    without a CA to sign with no certificates are signed.
    """
    able: dict[str, Build] = {}
    feed = requests.Feed()
    if authorities is not None:
        able[csr_signer.NAME] = functools.partial(csr_signer.build, feed=feed, authorities=authorities, longest=longest)
        # Whoever signs writes the ledger, and sees to it that it does not grow for ever.
        able[ledger_retention.NAME] = functools.partial(ledger_retention.build, days=ledger_days)
    if signer is not None:
        able[service_account_tokens.NAME] = functools.partial(
            service_account_tokens.build, signer=signer, root_ca_pem=root_ca_pem
        )
    if servers and root_ca_pem:
        able[cluster_info.NAME] = functools.partial(cluster_info.build, servers=servers, ca=root_ca_pem)
    return {
        namespace.NAME: namespace.build,
        garbage_collector.NAME: garbage_collector.build,
        service_accounts.NAME: service_accounts.build,
        root_ca.NAME: functools.partial(root_ca.build, root_ca_pem=root_ca_pem),
        endpoint_slices.NAME: endpoint_slices.build,
        classic_endpoints.NAME: classic_endpoints.build,
        event_ttl.NAME: event_ttl.build,
        role_aggregation.NAME: role_aggregation.build,
        approver.NAME: functools.partial(approver.build, feed=feed, protect=protect_living_nodes),
        cleaner.NAME: functools.partial(cleaner.build, feed=feed),
        **able,
        bootstrap_signer.NAME: bootstrap_signer.build,
        token_cleaner.NAME: token_cleaner.build,
        node_lifecycle.NAME: node_lifecycle.build,
    }


class _Role:
    """One process of controllers; started anew for each term of leadership, and when what they are made from changes."""

    def __init__(self, client: api.Client, clock: clocks.Clock, builds: Callable[[], Sequence[Build]]) -> None:
        self._client = client
        self._clock = clock
        self._builds = builds
        self._controllers: Sequence[loop.Controller[Any]] = ()
        self._informers: cache.Informers | None = None
        self.lock: leader.Lock | None = None
        self._group: tasks.Group | None = None
        self._anew = False

    def remake(self) -> None:
        """Make the controllers anew; what they are made from must be readable, else this raises and they stay."""
        self._builds()
        if self._group is not None:
            self._anew = True
            self._group.end()

    async def work(self) -> None:
        """Run every controller until cancelled; a watch left over from an earlier term would only cost memory."""
        self._anew = True
        while self._anew:
            self._anew = False
            await self._term()

    async def _term(self) -> None:
        informers = cache.Informers(self._client, self._clock)
        context = loop.Context(client=self._client, informers=informers, clock=self._clock)
        controllers = [build(context) for build in self._builds()]
        self._controllers, self._informers = controllers, informers
        try:
            async with tasks.Group("controllers") as group:
                self._group = group
                informers.start(group)
                for controller in controllers:
                    group.start(controller.run(), name=controller.name)
                _log.info("controllers started", count=len(controllers))
                _log.debug("these controllers run", controllers=[controller.name for controller in controllers])
                await group.wait()
        finally:
            self._controllers, self._informers, self._group = (), None, None

    def not_ready(self) -> str | None:
        """What keeps the role from being ready; one that waits for its turn is ready."""
        if self.lock is not None and not self.lock.leading:
            trouble = self.lock.trouble
            return None if trouble is None else f"the lease cannot be taken: {trouble.reason}: {trouble.message}"
        waiting = [controller.name for controller in self._controllers if not controller.ready]
        found = [f"not synced: {', '.join(waiting)}"] if waiting else []
        if self._informers is None:
            found = ["not synced: nothing has started"]
        elif refusals := self._informers.refusals():
            found.append(f"a right is missing: {', '.join(refusals)}")
        return "; ".join(found) or None


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """Where health and metrics are served, and the balancers in front of it, as an operator names them."""

    listen: tuple[str, int]
    proxy_protocol_from: str = "none"


async def run(
    *,
    kubeconfig_path: str,
    selection: Selection | None = None,
    admin_options: AdminOptions,
    leader_elect: bool,
    root_ca_pem: controller_files.Given,
    service_account_key: controller_files.Given = None,
    servers: Sequence[str] = (),
    signing: Signing | None = None,
    clock: clocks.Clock,
) -> None:
    """Run the selected controllers until cancelled; `*` where nothing is selected. Without `root_ca_pem` the kubeconfig's own CA is published.

    `servers` are the URLs that newcomers are told; without any, the ConfigMap that tells them is left to others. Without
    `signing` nothing is signed. Credentials and files that change are taken up while it runs.
    """
    selected = selection or Selection()
    credentials = controller_files.Credentials(kubeconfig_path, clock)
    with files.otherwise("name another kubeconfig with --kubeconfig"):
        place = connection.load(kubeconfig_path)
    given = (root_ca_pem, service_account_key)
    # It follows its files itself, so that a new CA counts from the next certificate on.
    signed_by = None if signing is None else signing_authorities.SigningAuthorities(signing.files, clock)

    def made() -> Mapping[str, Build]:
        key = controller_files.content(service_account_key, private=True)
        signer = None if key is None else jwt.Signer(keys.private_from_pem(key))
        return known(
            controller_files.content(root_ca_pem) or place.ca_pem or b"",
            signer,
            servers,
            authorities=signed_by,
            longest=csr_signer.DURATION if signing is None else signing.longest,
            ledger_days=ledger_retention.DAYS if signing is None else signing.ledger_days,
            protect_living_nodes=selected.protect_living_nodes,
        )

    wanted = controller_names.chosen(selected.names, tuple(made()))
    if not (controller_files.content(root_ca_pem) or place.ca_pem):
        _log.warning("no CA is known, so none is published", controller=root_ca.NAME)
        wanted = [name for name in wanted if name != root_ca.NAME]
    link = transport.Transport(place, clock=clock)
    client = api.Client(link)
    role = _Role(client, clock, lambda: [build for name, build in made().items() if name in wanted])
    doors = admin.Admin(
        health.Health(ready={"apiserver": lambda: _unheard(link), "controllers": role.not_ready}),
        proxied.Proxied(networks.Networks.parse(admin_options.proxy_protocol_from)),
    )
    try:
        with endpoints.listen(endpoints.Address(*admin_options.listen), "--admin-listen") as listener:
            await doors.start(listener)
            collector.calm()
            async with (
                tasks.Group("role") as beside,
                controller_files.followed(credentials, link, given, role.remake, clock),
            ):
                # By the machine's own clock, whichever the controllers have: it is about this process.
                beside.start(loop_time.lateness(clocks.SystemClock(), _LATENESS.observe), name="loop-lateness")
                beside.start(_keep_asking(link, clock), name="apiserver")
                if leader_elect:
                    await _take_turns(role, client, clock)
                else:
                    await role.work()
    finally:
        await doors.stop()
        await link.close()


async def _keep_asking(link: transport.Transport, clock: clocks.Clock) -> None:
    """Never returns. Whatever the answer is, the transport remembers that there was one, or why not."""
    while True:
        await clock.sleep(_ASK_SECONDS)
        with contextlib.suppress(errors.Refused, errors.Unavailable):
            await link.request("GET", "/livez", seconds=_ANSWER_SECONDS)


def _unheard(link: transport.Transport) -> str | None:
    return None if link.unheard is None else f"the API server does not answer: {link.unheard}"


async def _take_turns(role: _Role, client: api.Client, clock: clocks.Clock) -> None:
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    lock = leader.Lock(client, clock, name=controller_rights.LEASE, identity=identity)
    role.lock = lock
    try:
        await lock.run(role.work)
    finally:
        async with tasks.deadline(_DRAIN_SECONDS):
            await lock.release()
