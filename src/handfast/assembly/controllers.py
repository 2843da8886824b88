# SPDX-License-Identifier: Apache-2.0
"""The controllers role, put together: which controllers there are, and one process of them.

It runs until it is cancelled and then drains. It handles no signals and configures no log: whoever runs it does. What
each controller does is in its own module.
"""

from __future__ import annotations

import functools
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from handfast.assembly import controller_names, endpoints
from handfast.client import api, cache, connection, transport
from handfast.controllers import (
    bootstrap_signer,
    cluster_info,
    endpoint_slices,
    event_ttl,
    garbage_collector,
    leader,
    loop,
    namespace,
    role_aggregation,
    root_ca,
    service_account_tokens,
    service_accounts,
    token_cleaner,
)
from handfast.controllers import endpoints as classic_endpoints
from handfast.pki import jwt, keys
from handfast.runtime import clock as clocks
from handfast.runtime import files, tasks
from handfast.telemetry import admin, health

Build = Callable[[loop.Context], loop.Controller[Any]]

_log = structlog.get_logger("handfast.controllers")

_LEASE = "handfast-controllers"
_DRAIN_SECONDS = 5.0


def known(root_ca_pem: bytes, signer: jwt.Signer | None = None, servers: Sequence[str] = ()) -> Mapping[str, Build]:
    """Every controller by the name that `--controllers` takes; all names are in `controller_names`.

    Without a key to sign with there are no tokens; without addresses and a CA nothing is said of where the cluster is.
    """
    able: dict[str, Build] = {}
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
        **able,
        bootstrap_signer.NAME: bootstrap_signer.build,
        token_cleaner.NAME: token_cleaner.build,
    }


class _Role:
    """One process of controllers; started anew for each term of leadership."""

    def __init__(self, client: api.Client, clock: clocks.Clock, builds: Sequence[Build]) -> None:
        self._client = client
        self._clock = clock
        self._builds = builds
        self._controllers: Sequence[loop.Controller[Any]] = ()
        self.lock: leader.Lock | None = None

    async def work(self) -> None:
        """Run every controller until cancelled; a watch left over from an earlier term would only cost memory."""
        informers = cache.Informers(self._client, self._clock)
        context = loop.Context(client=self._client, informers=informers, clock=self._clock)
        controllers = [build(context) for build in self._builds]
        self._controllers = controllers
        try:
            async with tasks.Group("controllers") as group:
                informers.start(group)
                for controller in controllers:
                    group.start(controller.run(), name=controller.name)
                _log.info("controllers started", controllers=[controller.name for controller in controllers])
                await group.wait()
        finally:
            self._controllers = ()

    def not_ready(self) -> str | None:
        """What keeps the role from being ready; one that waits for its turn is ready."""
        if self.lock is not None and not self.lock.leading:
            return None
        waiting = [controller.name for controller in self._controllers if not controller.ready]
        if waiting or not self._controllers:
            return f"not synced: {', '.join(waiting) or 'nothing has started'}"
        return None


async def run(
    *,
    kubeconfig_path: str,
    selection: Sequence[str] = ("*",),
    admin_listen: tuple[str, int],
    leader_elect: bool,
    root_ca_pem: bytes | None,
    service_account_key: bytes | None = None,
    servers: Sequence[str] = (),
    clock: clocks.Clock,
) -> None:
    """Run the selected controllers until cancelled. Without `root_ca_pem` the kubeconfig's own CA is published.

    `servers` are the URLs that newcomers are told; without any, the ConfigMap that tells them is left to others.
    """
    with files.otherwise("name another kubeconfig with --kubeconfig"):
        place = connection.load(kubeconfig_path)
    signer = None if service_account_key is None else jwt.Signer(keys.private_from_pem(service_account_key))
    builds = known(root_ca_pem or place.ca_pem or b"", signer, servers)
    wanted = controller_names.chosen(selection, tuple(builds))
    if not (root_ca_pem or place.ca_pem):
        _log.warning("no CA is known, so none is published", controller=root_ca.NAME)
        wanted = [name for name in wanted if name != root_ca.NAME]
    link = transport.Transport(place, clock=clock)
    client = api.Client(link)
    role = _Role(client, clock, [builds[name] for name in wanted])
    doors = admin.Admin(health.Health(ready={"controllers": role.not_ready}))
    try:
        with endpoints.listen(endpoints.Address(*admin_listen), "--admin-listen") as listener:
            await doors.start(listener)
            if leader_elect:
                await _take_turns(role, client, clock)
            else:
                await role.work()
    finally:
        await doors.stop()
        await link.close()


async def _take_turns(role: _Role, client: api.Client, clock: clocks.Clock) -> None:
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    lock = leader.Lock(client, clock, name=_LEASE, identity=identity)
    role.lock = lock
    try:
        await lock.run(role.work)
    finally:
        async with tasks.deadline(_DRAIN_SECONDS):
            await lock.release()
