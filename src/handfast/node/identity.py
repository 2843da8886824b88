# SPDX-License-Identifier: Apache-2.0
"""The boot sequence of a node's identity: from what lies on disk to a client with a certificate.

It neither renews (`certificates`) nor registers the node: whoever starts it holds an `Identity` and asks it for the
client. Before there is a certificate nothing but certificate requests is sent, and on demand one look at the Node of this name
(`find_node_of_this_name`). Only this module knows which cluster it is: the rest of the agent asks, or is notified (`follow`).

Where the pair comes from, first to last:

1. the certificate directory;
2. the kubeconfig: certificate and key as data or as files. With rotation off it comes before 1. Of both, a pair that has not
   expired comes before one that has;
3. a request made with the bootstrap kubeconfig, if the kubeconfig is not there, cannot be loaded or has expired. If there is
   an expired pair as well, requests are made with the two in turns. If there is only the expired pair, requests are made
   with it: a server that allows recovery answers them.

Afterwards a kubeconfig that was missing or of no use is written, pointing at `kubelet-client-current.pem`.

A kubeconfig with a token and no certificate is used as it is while rotation is off.

The bootstrap kubeconfig is read anew before each request that is made with it: one that was replaced meanwhile counts at once, and one
that cannot be read any more changes nothing.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random as randomness
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from handfast import errors
from handfast.api import objects, resources
from handfast.client import api
from handfast.client import connection as connections
from handfast.client import transport as transports
from handfast.node import certificate_store, certificates, kubeconfig_file
from handfast.pki import pairs
from handfast.rules.certificates import wishes
from handfast.runtime import clock as clocks

DEFAULT_DIRECTORY = pathlib.Path("/var/lib/kubelet/pki")
# How long a start waits for its certificate before it gives up, so that a supervisor starts it again.
PATIENCE_SECONDS = 300.0
# How soon another server or CA in the kubeconfig counts.
FOLLOW_SECONDS = 60.0

_log = structlog.get_logger("handfast.node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Who the node is and where its credentials lie."""

    node: str
    kubeconfig: pathlib.Path
    bootstrap_kubeconfig: pathlib.Path | None = None
    directory: pathlib.Path = DEFAULT_DIRECTORY
    rotate: bool = False
    expiration_seconds: int | None = None


async def find_node_of_this_name(client: api.Client, node: str) -> objects.Document | None:
    """The Node that has a name already, as far as the client may see; None: none is seen."""
    try:
        return await client.find(resources.NODES, node)
    except (errors.Refused, errors.Unavailable) as error:
        _log.debug("the Node of this name cannot be looked at", reason=error.reason, error=error.message)
        return None


class Identity:
    """A node's client certificate in use: the keeper that renews it, and a client that always has the current one."""

    # The kubeconfig, or why it cannot be loaded.
    _kubeconfig: connections.Connection | None
    _trouble: errors.Refused | None

    def __init__(self, places: Places, *, clock: clocks.Clock, chance: Callable[[], float] = randomness.random) -> None:
        self._places = places
        self._clock = clock
        self.store = certificate_store.CertificateStore(places.directory, certificate_store.CLIENT, clock)
        wanted = wishes.node_client(places.node, places.expiration_seconds)
        self.keeper = certificates.CertificateKeeper(
            self.store, lambda: wanted, self._client_for_request, clock=clock, chance=chance, rotate=places.rotate
        )
        # 1. the directory, and 2. the kubeconfig: the keeper calls `_load_kubeconfig`, which sets `_kubeconfig`
        pair = self.keeper.load(self._load_kubeconfig)
        own = self._kubeconfig
        self._token_only = own is not None and pair is None and kubeconfig_file.has_token(own) and not places.rotate
        # 3. the bootstrap kubeconfig
        self._bootstrap, self._cluster = self._load_bootstrap(own)
        expired = not (self.keeper.usable() or self._token_only)
        # With the kubeconfig's own token nothing is wrong with the kubeconfig.
        self._rewrites_kubeconfig = own is None or (expired and self._bootstrap is not own)
        self._transport = transports.Transport(self.connection(), clock=clock)
        self.client = api.Client(self._transport)
        self._opened_bootstrap_client: api.Client | None = None
        # Of a bootstrap kubeconfig that was replaced.
        self._retired_bootstrap_clients: list[api.Client] = []
        self._attempts = 0
        self.keeper.subscribe(self._switch)

    def connection(self) -> connections.Connection:
        """The server, and the credentials of this instant."""
        pair = self.keeper.current()
        if pair is None:
            return self._cluster if self._token_only else kubeconfig_file.bare(self._cluster)
        return dataclasses.replace(
            kubeconfig_file.bare(self._cluster), cert_pem=pair.certificate_pem, key_pem=pair.key_pem
        )

    def server(self) -> str:
        """The server that is asked now: another than the kubeconfig's first, while that one does not answer."""
        return self._transport.server

    async def follow(self, notify: Callable[[connections.Connection], None]) -> None:
        """Never returns: go on with the server and CA that the kubeconfig names from now on, and the same credentials.

        What cannot be read or used changes nothing. `notify` gets each connection that is new.
        """
        known = self._cluster_of_kubeconfig()
        while True:
            await self._clock.sleep(FOLLOW_SECONDS)
            cluster = self._cluster_of_kubeconfig()
            if cluster is None or cluster == known:
                continue
            known = cluster
            if await self._move_to(cluster):
                notify(cluster)

    def _cluster_of_kubeconfig(self) -> connections.Connection | None:
        try:
            return kubeconfig_file.bare(connections.load(str(self._places.kubeconfig)))
        except (errors.Refused, errors.Unavailable) as error:
            _log.warning("the kubeconfig cannot be read", reason=error.reason, error=error.message)
            return None

    async def _move_to(self, cluster: connections.Connection) -> bool:
        before = self._cluster
        self._cluster = dataclasses.replace(
            before,
            server=cluster.server,
            others=cluster.others,
            cluster_id=cluster.cluster_id,
            ca_pem=cluster.ca_pem,
            tls_server_name=cluster.tls_server_name,
        )
        try:
            await self._transport.use(self.connection())
        except errors.Refused as refused:
            self._cluster = before
            _log.warning("the kubeconfig's server or CA cannot be used", reason=refused.reason, error=refused.message)
            return False
        _log.info("the kubeconfig names another server or CA", server=cluster.server)
        return True

    def wrote_kubeconfig(self) -> bool:
        """Whether the kubeconfig is one that a join wrote; another's is not to be rewritten."""
        return kubeconfig_file.leads_to(self._places.kubeconfig, self.store.current)

    async def ensure(self, seconds: float = PATIENCE_SECONDS, *, patient: bool = True) -> None:
        """Until there is a certificate, and a kubeconfig that leads to it; Unavailable (BootstrapTimeout) after that.

        An agent is patient: an administrator may change the answer. A person who waits for a join is told at once.
        """
        if self._token_only:
            return
        await self.keeper.ensure(seconds, patient=patient)
        if self._rewrites_kubeconfig:
            self._write_kubeconfig()
        await self._close_bootstrap_client()

    async def close(self) -> None:
        await self._close_bootstrap_client()
        await self._transport.close()

    async def _switch(self, pair: pairs.Pair) -> None:
        await self._transport.use(self.connection())
        _log.info("connections with the previous certificate are closed", serial=pair.leaf.serial)

    async def find_node_of_this_name(self) -> objects.Document | None:
        """The Node that has this name already, as far as who asks for its certificate may see; None: none is seen."""
        return await find_node_of_this_name(
            self.client if self._bootstrap is None else self._bootstrap_client(self._bootstrap), self._places.node
        )

    def _bootstrap_client(self, bootstrap: connections.Connection) -> api.Client:
        if self._opened_bootstrap_client is None:
            self._opened_bootstrap_client = api.Client(transports.Transport(bootstrap, clock=self._clock))
        return self._opened_bootstrap_client

    def _client_for_request(self) -> api.Client:
        """A client for a certificate request: with the current pair or, while that cannot be used, what there is (3)."""
        if self.keeper.usable():
            return self.client
        self._read_bootstrap_anew()
        if self._bootstrap is None:
            return self.client
        # A bootstrap token may have expired where an expired certificate is still let in for recovery, or vice versa.
        self._attempts += 1
        if self._attempts % 2 == 0 and self.keeper.current() is not None:
            return self.client
        return self._bootstrap_client(self._bootstrap)

    def _read_bootstrap_anew(self) -> None:
        path = self._places.bootstrap_kubeconfig
        if path is None:
            return
        try:
            latest, _ = kubeconfig_file.loaded(path)
        except (errors.Refused, errors.Unavailable) as error:
            _log.warning("the bootstrap kubeconfig cannot be read", reason=error.reason, error=error.message)
            return
        if latest is None or latest == self._bootstrap:
            return
        _log.info("the bootstrap kubeconfig has changed", path=str(path), server=latest.server)
        self._bootstrap = latest
        if self._opened_bootstrap_client is not None:
            self._retired_bootstrap_clients.append(self._opened_bootstrap_client)
            self._opened_bootstrap_client = None

    async def _close_bootstrap_client(self) -> None:
        clients = self._retired_bootstrap_clients
        clients += [] if self._opened_bootstrap_client is None else [self._opened_bootstrap_client]
        self._opened_bootstrap_client, self._retired_bootstrap_clients = None, []
        for client in clients:
            await client.transport.close()

    def _load_kubeconfig(self) -> pairs.Pair | None:
        self._kubeconfig, self._trouble = kubeconfig_file.loaded(self._places.kubeconfig)
        return None if self._kubeconfig is None else kubeconfig_file.pair_of(self._kubeconfig)

    def _load_bootstrap(
        self, own: connections.Connection | None
    ) -> tuple[connections.Connection | None, connections.Connection]:
        """The bootstrap kubeconfig, required only where nothing else will do (LoadClientConfig); and the server to use."""
        path = self._places.bootstrap_kubeconfig
        found, trouble = (None, None) if path is None else kubeconfig_file.loaded(path)
        if found is not None:
            return found, own or found
        if own is None or not (self.keeper.current() or kubeconfig_file.has_token(own)):
            raise self._no_credentials() if trouble is None else self._no_bootstrap(trouble)
        if trouble is not None and not (self.keeper.usable() or kubeconfig_file.has_token(own)):
            # Where upstream gives up, a server that allows recovery may still answer.
            _log.warning("the expired certificate is tried", error=self._no_bootstrap(trouble).message)
        return (own if kubeconfig_file.has_token(own) else None), own

    def _no_bootstrap(self, trouble: errors.Refused) -> errors.Refused:
        path = self._places.bootstrap_kubeconfig
        why = f"stat {path}: no such file or directory" if trouble.reason == "FileNotFound" else trouble.message
        return errors.Refused(
            f"unable to load bootstrap kubeconfig: {why}",
            reason="NoBootstrapKubeconfig",
            hint=f"{self._no_credentials().message}; write a bootstrap kubeconfig to {path} with: handfast join",
        )

    def _no_credentials(self) -> errors.Refused:
        """Why what is on disk does not identify this node."""
        if self._trouble is not None:
            return errors.Refused(
                f"there are no credentials for node {self._places.node}: {self._trouble.message}",
                reason="NoCredentials",
                hint="join this machine with: handfast join",
            )
        return errors.Refused(
            f"the kubeconfig {self._places.kubeconfig} has no certificate and no token that can be used",
            reason="NoCredentials",
            hint="join this machine with: handfast join",
        )

    def _write_kubeconfig(self) -> None:
        path = self._places.kubeconfig
        kubeconfig_file.write(path, self._bootstrap or self._cluster, self.store.current)
        self._rewrites_kubeconfig = False
        _log.info("kubeconfig written", path=str(path))
