# SPDX-License-Identifier: Apache-2.0
"""The node agent, put together: its identity, its Node and Lease, its Pods, its endpoint, and what it says of itself.

It runs until it is cancelled, or until it can do no more for its node; whoever supervises it starts it again. It handles
no signals and configures no log. What each part does is in its own module.

1. Static Pods are observed, and health is answered, from the first moment: before there is a certificate, and while
   the API server cannot be reached.
2. Then the certificate is waited for, at most `PATIENCE_SECONDS`; after that the agent ends with an error. Until it is
   there nothing but certificate requests is sent.
3. Then the parts that talk to the API start. None of them keeps a credential: all ask the same client.
4. A certificate that has been of no use for `GRACE` seconds, though the API server is up, ends the agent: starting
   anew reads both kubeconfigs again, and one of them may have been replaced.
5. Another server or CA in the kubeconfig, be it from the hourly refresh or from a person, counts within a minute, for
   the clients of the endpoint, too.
6. The machine's configuration is followed where that is asked for, once the Node is there. Its trouble is reported, and ends nothing.
"""

from __future__ import annotations

import os
import pathlib
import random as randomness
import socket
from collections.abc import Callable
from typing import Final

import msgspec
import prometheus_client
import structlog
from prometheus_client import core

from handfast import errors
from handfast.api import objects
from handfast.client import api, cluster_cache, discovery
from handfast.node import (
    certificate_metrics,
    certificate_store,
    certificates,
    configuration,
    configuration_metrics,
    configuration_state,
    endpoint,
    identity,
    lease,
    machine,
    pods,
    registration,
    report,
    serving,
    static_pods,
)
from handfast.pki import names
from handfast.rules import networks
from handfast.runtime import clock as clocks
from handfast.runtime import proxied as proxied_module
from handfast.runtime import tasks
from handfast.serving import server_tls
from handfast.telemetry import health, proxy_refusals

GRACE: Final = 300.0
_LOOK: Final = 10.0
# How long the first report on the Node waits for the Pods, so that it need not be corrected at once.
_FIRST_LIST: Final = 5.0
# A certificate with less of its life left than this is about to fail its node: the SLO of KEP-266.
_SCARCE: Final = 0.05
_REFRESH_SECONDS: Final = 60.0
_RUNNING: Final = "running"

_log = structlog.get_logger("handfast.node")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is told."""

    places: identity.Places
    node_ip: tuple[str, ...] = ()
    rotate_server: bool = False
    static_pods: pathlib.Path | None = None
    patience: float = identity.PATIENCE_SECONDS
    # Balancers in front of its endpoint.
    proxied: networks.Networks = proxied_module.NOBODY
    # None: the machine's configuration is not followed.
    machine: configuration_state.Machine | None = None
    machine_config_server: str = ""


class Agent:
    """One node's agent; `listener` is the bound socket of its endpoint."""

    def __init__(
        self,
        options: Options,
        listener: socket.socket,
        *,
        clock: clocks.Clock,
        chance: Callable[[], float] = randomness.random,
    ) -> None:
        self._options = options
        self._clock = clock
        self._listener = listener
        self._proxied = proxied_module.Proxied(options.proxied)
        self._phase = "waiting for a certificate"
        self._useless_since: float | None = None
        self._refused = ""
        places = options.places
        self.identity = identity.Identity(places, clock=clock, chance=chance)
        self.static_pods = static_pods.StaticPods(options.static_pods, places.node, clock)
        found = machine.addresses(options.node_ip, self.identity.connection().server)
        self._machine = machine.this_machine(places.node, found, int(listener.getsockname()[1]))
        self.serving = self._serving_keeper(chance)
        self._self_signed = serving.SelfSigned(places.directory, self._hosts(), clock)
        current = self._self_signed.current if self.serving is None else self.serving.current
        self._secure = server_tls.ServerTLS(current, clock, self.identity.connection().ca_pem)
        client = self.identity.client
        self.pods = pods.Pods(client, places.node, clock)
        self.registration = registration.Registration(client, self._machine, clock, self._not_ready)
        self.lease: lease.NodeLease | None = None
        self.configuration = self._configuration(client)
        self.health = health.Health(live={}, ready=self._checks())
        self.metrics = self._registry()
        self._reporter = report.Reporter(places.directory, self.report, self._renew, clock)

    def _serving_keeper(self, chance: Callable[[], float]) -> certificates.CertificateKeeper | None:
        if not self._options.rotate_server:
            return None
        store = certificate_store.CertificateStore(
            self._options.places.directory, certificate_store.SERVER, self._clock
        )
        here = self._machine
        wanted = serving.wanted(here.name, here.hostname, here.addresses)
        keeper = certificates.CertificateKeeper(
            store, lambda: wanted, lambda: self.identity.client, clock=self._clock, chance=chance
        )
        keeper.load()
        return keeper

    def _configuration(self, client: api.Client) -> configuration.Configuration | None:
        machine_state, places = self._options.machine, self._options.places
        if machine_state is None:
            return None
        own = [name for path in (places.kubeconfig, places.directory) for name in machine_state.root.inside(path)]
        return configuration.Configuration(
            client,
            places.node,
            machine_state,
            self.identity.connection,
            self._clock,
            server=self._options.machine_config_server,
            own=tuple(own),
        )

    def _registry(self) -> core.CollectorRegistry:
        registry = core.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        client = certificate_metrics.CertificateMetrics(self.identity.keeper, certificate_metrics.CLIENT, self._clock)
        registry.register(client)
        registry.register(proxy_refusals.ProxyRefusals(lambda: self._proxied.refused))
        if self.configuration is not None:
            registry.register(configuration_metrics.ConfigurationMetrics(self.configuration))
        if self.serving is not None:
            registry.register(
                certificate_metrics.CertificateMetrics(self.serving, certificate_metrics.SERVER, self._clock)
            )
        return registry

    def _hosts(self) -> names.Sans:
        return serving.sans(self._machine.hostname, self._machine.addresses)

    async def run(self) -> None:
        """Until cancelled; an error says why there is no point in going on."""
        doors = endpoint.Endpoint(self.health, self.metrics, self._clock, self._proxied)
        await doors.start(self._listener, self._secure)
        try:
            async with tasks.Group("node") as group:
                # 1. from the first moment
                group.start(self.static_pods.run(), name="static-pods")
                group.start(self._reporter.run(), name="report")
                # What fails meanwhile ends the wait.
                group.start(self._then(group), name="identity")
                await group.wait()
        finally:
            self._reporter.remove()
            await doors.stop()
            await self.identity.close()

    async def _then(self, group: tasks.Group) -> None:
        # 2. the certificate first
        await self.identity.ensure(self._options.patience)
        self._phase = _RUNNING
        _log.info("this node has its identity", node=self._options.places.node)
        # 3. what talks to the API
        group.start(self.identity.keeper.run(), name="certificate")
        group.start(self._watch_over(), name="watch-over")
        group.start(self.pods.run(), name="pods")
        await tasks.within(self.pods.wait_synced(), self._clock, _FIRST_LIST)
        group.start(self.pods.wait_synced(), name="pods-synced")
        group.start(self.registration.run(), name="registration")
        if self.identity.wrote_kubeconfig():
            search = discovery.Discovery(self._clock, timeout=_REFRESH_SECONDS)
            fresh = cluster_cache.keep_fresh(self._options.places.kubeconfig, search, self._clock)
            group.start(fresh, name="cluster")
        # 5. another server or CA counts
        group.start(self.identity.follow(lambda cluster: self._secure.trust(cluster.ca_pem)), name="kubeconfig")
        await self.registration.registered.wait()
        self.lease = lease.NodeLease(
            self.identity.client, self._options.places.node, self._clock, self.registration.uid
        )
        group.start(self.lease.run(), name="lease")
        if self.configuration is not None:
            # 6. the machine's configuration
            group.start(self.configuration.run(), name="configuration")
        if self.serving is not None:
            # Whoever approves compares the names with the Node's addresses.
            group.start(self.serving.run(), name="serving-certificate")

    def _holds(self) -> bool:
        """Whether there is a credential in force; a kubeconfig with a token has no certificate."""
        keeper = self.identity.keeper
        token_only = self._phase == _RUNNING and keeper.current() is None and not keeper.rotate
        return token_only or keeper.usable()

    async def _watch_over(self) -> None:
        """Ends the agent when its certificate has been of no use for too long (4)."""
        while True:
            await self._clock.sleep(_LOOK)
            keeper = self.identity.keeper
            if self._holds():
                self._useless_since = None
                continue
            now = self._clock.monotonic()
            self._useless_since = now if self._useless_since is None else self._useless_since
            if now - self._useless_since >= GRACE and keeper.server_healthy:
                last = keeper.last_error
                raise errors.Unavailable(
                    f"this node has had no certificate in force for {now - self._useless_since:.0f} s, and the API "
                    f"server is up{f'; the last error: {last.message}' if last else ''}",
                    reason="CertificateExpired",
                    hint="start it again: it reads both kubeconfigs anew; `handfast node recover` says more",
                )

    def _renew(self) -> None:
        try:
            self.identity.keeper.renew_now()
            self._refused = ""
        except errors.Refused as refused:
            self._refused = refused.message
            _log.warning("the certificate is not renewed", reason=refused.reason, error=refused.message)

    # What is wrong, and with whom.

    def _checks(self) -> dict[str, health.Check]:
        followed = {} if self.configuration is None else {"configuration": self.configuration.problem}
        return {
            "certificate": self._certificate,
            "node": self.registration.problem,
            "lease": lambda: "the node is not registered yet" if self.lease is None else self.lease.problem(),
            "pods": self.pods.problem,
            "serving-certificate": self._serving,
            "static-pods": self.static_pods.problem,
            **followed,
        }

    def _certificate(self) -> str | None:
        keeper = self.identity.keeper
        pair, last = keeper.current(), keeper.last_error
        why = f": {last.message}" if last else ""
        if not self._holds():
            word = "there is no certificate yet" if pair is None else f"it expired at {pair.leaf.not_after}"
            return f"{word}{why}"
        if pair is None:
            return None
        leaf = pair.leaf
        left = (leaf.not_after - self._clock.now()) / (leaf.not_after - leaf.not_before)
        return f"it expires at {leaf.not_after} and was not renewed{why}" if left < _SCARCE else None

    def _serving(self) -> str | None:
        if self.serving is None or self.serving.usable():
            return None
        last = self.serving.last_error
        return f"there is none in force{f': {last.message}' if last else ''}"

    def _not_ready(self) -> str | None:
        """What a control plane should know; whatever keeps the Node from being written cannot be written there."""
        for name, problem in (("certificate", self._certificate()), ("pods", self.pods.problem())):
            if problem is not None:
                return f"{name}: {problem}"
        return None

    def report(self) -> report.Report:
        """One look at this agent."""
        keeper, places = self.identity.keeper, self._options.places
        last, pair = keeper.last_error, keeper.current()
        serves = self.serving.current() if self.serving is not None else None
        problems = {name: wrong for name, check in self.health.ready.items() if (wrong := check()) is not None}
        return report.Report(
            node=places.node,
            pid=os.getpid(),
            phase=self._phase,
            server=self.identity.server(),
            kubeconfig=str(places.kubeconfig),
            endpoint=_url(self._listener),
            rotation=keeper.rotate,
            server_rotation=self.serving is not None,
            certificate="" if pair is None else pair.leaf.serial,
            next_renewal="" if keeper.next_renewal is None else objects.timestamp(keeper.next_renewal),
            last_error=self._refused or ("" if last is None else f"{last.reason}: {last.message}"),
            serving_not_after="" if serves is None else objects.timestamp(serves.leaf.not_after),
            problems=problems,
            static_pods=tuple(f"{pod.namespace}/{pod.name}" for pod in self.static_pods.pods),
            pods=len(self.pods.informer),
        )


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"https://[{host}]:{port}" if ":" in str(host) else f"https://{host}:{port}"
