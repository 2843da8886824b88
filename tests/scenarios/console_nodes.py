# SPDX-License-Identifier: Apache-2.0
"""A fleet for the console to show: Nodes, Leases and entries of the ledger in every state, written over the API as others write them.

Certificates that are late or over cannot be had by waiting. So entries are appended to the ledger, by the signers' own writer, for certificates that nobody has.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import pathlib
from concurrent import futures
from typing import Any

from handfast.api import handfast_kinds, objects, resources, signer_names
from handfast.client import api, connection, transport
from handfast.client import ledger as ledger_writer
from handfast.datadir import layout
from handfast.pki import names
from handfast.rules import user_names
from handfast.rules.ledger import entries
from handfast.rules.nodes import liveness
from handfast.runtime import clock as clocks
from tests.world import kubeconfigs

HOUR = datetime.timedelta(hours=1)
# Name -> age of the certificate in hours, of 24; whether it has a Node, and is seen.
FLEET = {
    "edge-expired": (26.0, True, False),
    "edge-late": (23.0, True, True),
    "edge-due": (19.0, True, True),
    "edge-silent": (6.0, True, False),
    "edge-unregistered": (2.0, False, False),
    "edge-revoked": (5.0, True, True),
    **{f"edge-{number:03d}": (number % 16 + 0.5, True, True) for number in range(40)},
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def entry(node: str, issued: datetime.datetime, hours: float = 24.0, **more: Any) -> entries.Entry:
    values: dict[str, Any] = {
        "issued_at": issued.replace(microsecond=0),
        "not_after": (issued + hours * HOUR).replace(microsecond=0),
        "signer": signer_names.KUBELET_CLIENT,
        "requester": "system:bootstrap:abcdef",
        "authenticated_by": "bootstrap-token",
        "token_id": "abcdef",
        "key_fingerprint": digest(f"key {node}"),
        "serial": digest(f"serial {node} {issued}")[:32],
        "names": entries.names_of(user_names.node_subject(node), names.Sans()),
        "rule": entries.JOIN,
        "request": f"node-csr-{digest(node)[:12]}",
        "certificate": digest(f"certificate {node} {issued}"),
        "token_maker": "night-shift",
    }
    return entries.Entry(**{**values, **more})


def lease(node: str, now: datetime.datetime, *, seen: bool) -> objects.Document:
    renewed = now if seen else now - HOUR
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": liveness.NAMESPACE},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": 300,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


def node_document(node: str, number: int = 0) -> objects.Document:
    labels = {"kubernetes.io/hostname": node, "kubernetes.io/os": "linux", "zone": f"zone-{number % 3}"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}


def kubeconfig_of_node(directory: pathlib.Path, server: str, node: str, path: pathlib.Path) -> pathlib.Path:
    """A file with which somebody is this node, by a certificate of the control plane's CA."""
    place, now = layout.Layout.at(directory), clocks.SystemClock().now()
    return kubeconfigs.of_subject(place, server, user_names.node_subject(node), path, now)


async def write(client: api.Client, now: datetime.datetime) -> None:
    """The fleet, over the API."""
    ledger = ledger_writer.Ledger(client, clocks.SystemClock())
    for number, (name, (age, registered, seen)) in enumerate(FLEET.items()):
        await ledger.append(entry(name, now - age * HOUR))
        if registered:
            await client.create(resources.NODES, node_document(name, number))
            await client.create(resources.LEASES, lease(name, now, seen=seen), namespace=liveness.NAMESPACE)
    revocation = {"metadata": {"name": "node-edge-revoked"}, "spec": {"node": "edge-revoked", "reason": "stolen"}}
    kind = handfast_kinds.REVOCATION
    await client.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **revocation})


def run(kubeconfig: pathlib.Path, work: Any) -> Any:
    """Do something with a client of this kubeconfig, in a loop of its own."""

    async def inside() -> Any:
        link = transport.Transport(connection.load(str(kubeconfig)), clock=clocks.SystemClock())
        try:
            return await work(api.Client(link))
        finally:
            await link.close()

    # In a thread: playwright has a loop in this one.
    with futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(inside())).result(60)


def seed(kubeconfig: pathlib.Path) -> None:
    """The fleet, once for a control plane."""
    run(kubeconfig, lambda client: write(client, clocks.SystemClock().now()))
