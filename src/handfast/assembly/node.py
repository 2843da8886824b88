# SPDX-License-Identifier: Apache-2.0
"""The node agent as a process: its directory, its socket, its options; and obtaining a certificate without an agent.

It handles no signals and configures no log: whoever runs it does. What the agent does is in `node.agent`.

1. The certificate directory belongs to one process of this program at a time: an agent, a join or a recovery.
"""

from __future__ import annotations

import contextlib
import datetime
import pathlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import msgspec
import structlog

from handfast import errors
from handfast.api import jsonpath, objects, resources, status
from handfast.assembly import node_config
from handfast.client import api, refusals, requests
from handfast.client import connection as connections
from handfast.client import transport as transports
from handfast.node import agent, certificate_store, configuration_state, machine, root_files
from handfast.node import identity as identities
from handfast.pki import bundles, certificates, chains, pairs, pem, pins
from handfast.rules import networks
from handfast.rules.certificates import wishes
from handfast.rules.nodes import claim
from handfast.runtime import addresses, backoff, files
from handfast.runtime import clock as clocks

T = TypeVar("T")

_RETRY = backoff.Schedule(initial=1.0, cap=16.0)
_log = structlog.get_logger("handfast.node")


@contextlib.contextmanager
def owned(directory: pathlib.Path) -> Iterator[None]:
    """The directory is this process's while it lasts (1)."""
    with files.otherwise("name another directory with --cert-dir"):
        files.create_directory(directory, mode=0o755)
        lock = files.lock_directory(directory)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def machine_below(configuration: node_config.NodeConfiguration) -> Iterator[configuration_state.Machine | None]:
    """The machine whose configuration is followed, None where none is; refused where its root cannot be written."""
    if not configuration.machine_config:
        yield None
        return
    with files.otherwise("name another directory with --root"):
        root = root_files.Root(configuration.root)
    try:
        machine_state = configuration_state.Machine(root)
        with files.otherwise("name another directory with --root"):
            machine_state.prepare()
        yield machine_state
    finally:
        root.close()


def places_of(configuration: node_config.NodeConfiguration) -> identities.Places:
    """Who the node is and where its credentials lie."""
    return identities.Places(
        node=configuration.node_name or machine.node_name(),
        kubeconfig=configuration.kubeconfig,
        bootstrap_kubeconfig=configuration.bootstrap_kubeconfig,
        directory=configuration.cert_dir,
        rotate=configuration.rotate_certificates,
    )


async def run(configuration: node_config.NodeConfiguration, *, clock: clocks.Clock) -> None:
    """Run the agent until cancelled."""
    for text in configuration.warnings:
        _log.warning(text)
    places = places_of(configuration)
    with (
        owned(configuration.cert_dir),
        addresses.listen(configuration.listen, "--listen") as listener,
        machine_below(configuration) as machine_state,
    ):
        node_agent = agent.Agent(
            agent.Options(
                places=places,
                node_ip=configuration.node_ip,
                rotate_server=configuration.rotate_server_certificates,
                static_pods=configuration.static_pods_dir,
                proxied=networks.Networks.parse(configuration.proxy_protocol_from),
                machine=machine_state,
                machine_config_server=configuration.machine_config_server,
            ),
            listener,
            clock=clock,
        )
        _log.info(
            "the node agent starts", node=places.node, endpoint=str(addresses.bound(listener, configuration.listen))
        )
        await node_agent.run()


class Obtained(msgspec.Struct, frozen=True):
    """A certificate in force; `is_new`: it was not there before; `node_existed`: there is a Node of that name already."""

    pair: pairs.Pair
    is_new: bool
    node_existed: bool


async def obtain(
    places: identities.Places,
    seconds: float,
    *,
    clock: clocks.Clock,
    on_waiting: requests.OnWaiting = requests.keep_waiting,
) -> Obtained:
    """A certificate in force, in the directory, and a kubeconfig that leads to it; it was used once, and accepted.

    `on_waiting` is told that a living node has this name: before anything is asked for, where that can be seen from its Node, and
    else by what the approver says of the request.
    """
    with owned(places.directory):
        identity = identities.Identity(places, clock=clock)
        end = clock.monotonic() + seconds
        is_new = not identity.keeper.usable()
        identity.keeper.on_waiting = on_waiting
        try:
            if is_new:
                _report_living_node(await identity.find_node_of_this_name(), on_waiting)
            await identity.ensure(seconds, patient=False)
            pair = identity.keeper.current()
            if pair is None:
                raise errors.Refused(
                    f"{places.kubeconfig} logs in with a token, and no certificate was asked for",
                    reason="NoCertificate",
                    hint="name another file with --kubeconfig",
                )
            node_existed = await _use_once(identity, places, pair, is_new=is_new, clock=clock, end=end)
        finally:
            await identity.close()
    return Obtained(pair, is_new, node_existed)


async def rehearse(
    places: identities.Places,
    connection: connections.Connection,
    *,
    clock: clocks.Clock,
    on_waiting: requests.OnWaiting = requests.keep_waiting,
) -> bool:
    """Would the cluster take this machine's request? Else an error; nothing is written here, and nothing is kept there.

    False: a certificate in force is here, and none would be asked for. `on_waiting` is told of a living node of this name where its
    Node can be seen: no approver looks at a request that is not kept.
    """
    store = certificate_store.CertificateStore(places.directory, certificate_store.CLIENT, clock)
    wanted = wishes.node_client(places.node)
    pair = store.find().pair
    if pair is not None and pair.leaf.subject == wanted.subject and certificate_store.unexpired(pair, clock.now()):
        return False
    link = transports.Transport(connection, clock=clock)
    try:
        client = api.Client(link)
        _report_living_node(await identities.find_node_of_this_name(client, places.node), on_waiting)
        await requests.rehearse(client, store.rehearsal_key(), wanted)
    finally:
        await link.close()
    return True


def _report_living_node(node: objects.Document | None, on_waiting: requests.OnWaiting) -> None:
    since = claim.seems_alive(node)
    if since is not None:
        name = jsonpath.text(node, "metadata", "name")
        on_waiting(claim.NODE_IS_ALIVE, f'there is a Node "{name}" already, and it is Ready since {since}')


async def _patiently(ask: Callable[[], Awaitable[T]], clock: clocks.Clock, end: float, believed: float) -> T:
    """Ask until there is an answer or the time is up.

    A busy or unreachable server is asked again. So is one that refuses, until `believed`; after that the refusal counts.
    """
    waits = backoff.Backoff(_RETRY)
    while True:
        wait = next(waits)
        try:
            return await ask()
        except status.StatusError as error:
            wait = max(wait, float(error.retry_after))
            until = {429: end, 401: min(believed, end), 403: min(believed, end)}.get(error.code, 0.0)
            if clock.monotonic() + wait >= until:
                raise
        except errors.Unavailable as error:
            if error.reason not in transports.NO_ANSWER or clock.monotonic() + wait >= end:
                raise
        await clock.sleep(wait)


async def _use_once(
    identity: identities.Identity,
    places: identities.Places,
    pair: pairs.Pair,
    *,
    is_new: bool,
    clock: clocks.Clock,
    end: float,
) -> bool:
    """Use the certificate once, to ask for the Node of this name, the only one that it may read; whether there is one."""
    signer = _wrong_signer(pair, identity.connection().ca_pem, clock.now())
    # That of another CA is never accepted; one of the cluster's may be refused by a server that has just started.
    believed = clock.monotonic() + (0.0 if signer else refusals.BELIEVED_SECONDS)

    async def ask() -> bool:
        return await identity.client.find(resources.NODES, places.node) is not None

    try:
        return await _patiently(ask, clock, end, believed)
    except status.StatusError as error:
        if error.reason not in {"Unauthorized", "Forbidden"}:
            raise
        old = "" if is_new else f"; the certificate in {places.directory} was there before and may be another cluster's"
        raise errors.Refused(
            f"the cluster does not accept the certificate {pair.leaf.subject}: {error.message}{signer}{old}",
            reason="CertificateRefused",
            hint=f"remove {places.kubeconfig} and {identity.store.current}, with what it leads to, and join again"
            if not is_new
            else "have certificates signed by the CA that the API server trusts for clients (--cluster-signing-cert-file of "
            "the controllers), or have it trust the one that signs; then delete what was issued, and join again",
        ) from None


def _wrong_signer(pair: pairs.Pair, ca_pem: bytes | None, now: datetime.datetime) -> str:
    """Which CA signed a certificate, and which it should have been: nothing where that is the cluster's own."""
    if ca_pem is None:
        return f"; it was signed by {pair.leaf.issuer}"
    try:
        chains.verify(pair.chain, bundles.TrustBundle.from_pem(ca_pem), chains.Client(), now)
    except errors.Refused:
        ders = pem.certificates_from_pem(ca_pem)
        wanted = [f"{certificates.read(der).subject} ({pins.of_certificate(der)})" for der in ders]
        return f"; it was signed by {pair.leaf.issuer}, and should have been by the cluster's CA, {', '.join(wanted)}"
    return ""
