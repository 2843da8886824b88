# SPDX-License-Identifier: Apache-2.0
"""Every field that a stranger can write and a page might show, with markup and a change of direction in it.

Strangers are: whoever has a token, or a certificate whose names somebody else chose; a node, with its own Node and Lease; an agent of the mesh, with its report; whoever may
write Events, Leases, Machines or tokens. What the API server has no form for is not written: a node's name, a label or an account cannot have such characters.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import ssl
from typing import Any

from handfast.api import handfast_kinds, machine_config_kinds
from handfast.bootstrap import token_limits
from handfast.client import ledger as ledger_writer
from handfast.datadir import layout
from handfast.pki import names
from handfast.rules import server_leases
from handfast.rules.machine_config import names as config_names
from handfast.rules.machines import inventory
from handfast.rules.nodes import liveness
from handfast.runtime import clock as clocks
from tests.scenarios import console_nodes, test_console_mesh, up_world
from tests.scenarios.test_console_people import request_document
from tests.unit.console.pages import mesh_objects
from tests.unit.console.pages.test_machines import MACHINES, POOLS, machine
from tests.world import kubeconfigs

TEXT = "<img src=x onerror=alert(1)>\u202egnp"
# As far as it fits where forty characters do.
SHORT = TEXT[:40]
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
NODES = "/api/v1/nodes"
_SECRETS = "/api/v1/namespaces/kube-system/secrets"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces"
# Nodes of the roll-out that have an agent.
FOLLOWERS = ("edge-002", "edge-003", "edge-004")
_MERGE = "application/merge-patch+json"


class Stranger:
    """Somebody whose certificate, and whose program, are called so. They may write what an administrator may."""

    def __init__(self, plane: up_world.Up, directory: pathlib.Path) -> None:
        place, now = layout.Layout.at(plane.directory), clocks.SystemClock().now()
        subject = names.Subject(common_name=TEXT, organizations=("system:masters", TEXT))
        path = kubeconfigs.of_subject(place, plane.facts["apiserver"], subject, directory / "stranger.conf", now)
        self._plane = plane
        self._context: ssl.SSLContext = up_world.context_of(path)

    def send(self, method: str, path: str, document: object) -> dict[str, Any]:
        """Written, or the test fails."""
        content_type = _MERGE if method == "PATCH" else "application/json"
        headers: dict[str, Any] = {"Content-Type": content_type, "User-Agent": TEXT.encode()}
        with contextlib.closing(self._plane.connection(self._context)) as connection:
            connection.request(method, path, json.dumps(document), headers)
            reply = connection.getresponse()
            answer: dict[str, Any] = json.loads(reply.read())
        assert reply.status in {200, 201}, answer
        return answer


def renew(plane: up_world.Up, directory: pathlib.Path) -> None:
    """The nodes of the roll-out are heard of again: of one that is silent nothing else is said."""
    stranger, now = Stranger(plane, directory), clocks.SystemClock().now()
    for name in FOLLOWERS:
        lease = {"spec": console_nodes.lease(name, now, seen=True)["spec"]}
        stranger.send("PATCH", f"{_LEASES}/{liveness.NAMESPACE}/leases/{name}", lease)
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        stranger.send("PATCH", f"{NODES}/{name}/status", ready)


def write(plane: up_world.Up, directory: pathlib.Path) -> None:
    """All of it, on a control plane with the fleet of `console_nodes`, machines and the mesh of `test_console_mesh`."""
    stranger = Stranger(plane, directory)
    _requests_and_tokens(stranger)
    _machines(stranger)
    _leases(stranger)
    _mesh(plane, stranger)
    _ledger(plane)
    kind = handfast_kinds.REVOCATION
    revocation = {"metadata": {"name": "node-edge-001"}, "spec": {"node": "edge-001", "reason": TEXT}}
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    stranger.send("POST", f"/apis/{kind.api_version}/revocations", {**head, **revocation})


def _requests_and_tokens(stranger: Stranger) -> None:
    stranger.send("POST", CSRS, request_document("evil", cn=f"system:node:{TEXT}"))
    about = {"kind": "CertificateSigningRequest", "name": "evil", "apiVersion": "certificates.k8s.io/v1"}
    uid = stranger.send("PATCH", f"{CSRS}/evil", {"metadata": {"annotations": {"note": TEXT}}})["metadata"]["uid"]
    event = {
        "metadata": {"name": "told", "namespace": "default", "annotations": {"note": TEXT}},
        "involvedObject": {**about, "uid": uid, "fieldPath": TEXT},
        "reason": TEXT,
        "message": TEXT,
        "source": {"component": TEXT, "host": TEXT},
        "type": "Warning",
    }
    stranger.send("POST", "/api/v1/namespaces/default/events", event)
    # As if it were one of the API server's about a join that failed.
    joined = {f"joins.handfast.dev/{name}": TEXT for name in ("token-id", "credential", "source", "reason", "node")}
    forged = {**event, "metadata": {"name": "forged", "namespace": "kube-system", "annotations": joined}}
    forged |= {"reason": "JoinRefused", "involvedObject": {"kind": "Secret", "namespace": "kube-system", "name": "x"}}
    stranger.send("POST", "/api/v1/namespaces/kube-system/events", forged)
    limited = {token_limits.NODES_KEY: TEXT, token_limits.CIDRS_KEY: TEXT, token_limits.USES_KEY: TEXT}
    for name, notes in (("evilid", {}), ("evilnd", limited)):
        data = {
            "token-id": name,
            "token-secret": "0123456789abcdef",
            "description": TEXT,
            "usage-bootstrap-signing": "true",
        }
        meta = {"name": f"bootstrap-token-{name}", "annotations": notes}
        secret = {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "stringData": data}
        stranger.send("POST", _SECRETS, secret)


def _machines(stranger: Stranger) -> None:
    """Two that wait, and a roll-out: one has it, one is at work, one failed with a reason of its own, and one has no agent."""
    for name in ("m-1", "m-2"):
        stranger.send("POST", MACHINES, machine(name))
    hardware = {inventory.MAC: TEXT, inventory.SERIAL: TEXT, inventory.APPROVED_KEY: TEXT}
    there = stranger.send("PATCH", f"{MACHINES}/m-2", {"metadata": {"annotations": hardware}})
    addresses = [{"type": "InternalDNS", "address": "m-2.example"}, {"type": "Hostname", "address": TEXT}]
    stranger.send("PUT", f"{MACHINES}/m-2/status", {**there, "status": {"addresses": addresses, "errorMessage": TEXT}})
    rendering = ""

    def rendered() -> bool:
        nonlocal rendering
        pool = stranger.send("PATCH", f"{POOLS}/worker", {"metadata": {"annotations": {"note": "looked at"}}})
        rendering = ((pool.get("spec") or {}).get("configuration") or {}).get("name", "")
        return bool(rendering)

    up_world.until(rendered, 60, "the rendering of the workers")
    follows = {config_names.AGENT: config_names.AGENT_VERSION}
    old = {**follows, config_names.CURRENT: "rendered-worker-old", config_names.DESIRED: rendering}
    nodes = {
        "edge-002": {**follows, config_names.CURRENT: rendering, config_names.STATE: config_names.DONE},
        "edge-003": {**old, config_names.STATE: config_names.WORKING},
        "edge-004": {**old, config_names.STATE: config_names.DEGRADED, config_names.REASON: TEXT},
        "edge-005": {"note": TEXT},
    }
    labels = {f"{machine_config_kinds.NODE_ROLE_LABEL}/worker": ""}
    for name, notes in nodes.items():
        stranger.send("PATCH", f"{NODES}/{name}", {"metadata": {"labels": labels, "annotations": notes}})


def _leases(stranger: Stranger) -> None:
    note = {"metadata": {"annotations": {"note": TEXT}}, "spec": {"holderIdentity": TEXT}}
    stranger.send("PATCH", f"{_LEASES}/{liveness.NAMESPACE}/leases/edge-000", note)
    numbers = (server_leases.APPLIED, server_leases.LAG, server_leases.UNCERTAIN)
    notes = dict.fromkeys((server_leases.VERSION, server_leases.FORMS, server_leases.COMPACTED, *numbers), TEXT)
    lease = {
        "metadata": {
            # Not called as those of servers are: such a Lease is removed when nobody has renewed it for an hour.
            "name": "odd-server",
            "labels": {"apiserver.kubernetes.io/identity": "x"},
            "annotations": notes,
        },
        "spec": {**console_nodes.lease("x", clocks.SystemClock().now(), seen=False)["spec"], "holderIdentity": TEXT},
    }
    stranger.send("POST", f"{_LEASES}/kube-system/leases", lease)


def _mesh(plane: up_world.Up, stranger: Stranger) -> None:
    edges = (
        mesh_objects.edge("inbound", TEXT, refused=SHORT),
        mesh_objects.edge("inbound", mesh_objects.identity("web"), wouldBeRefused=SHORT),
        mesh_objects.edge("outbound", destination=TEXT, unsecured=SHORT),
    )
    test_console_mesh.run(plane, "shop/evil", *edges)
    path = f"{mesh_objects.GROUP}/namespaces/shop/meshworkloads/evil-7f9"
    told = {"identity": TEXT, "anchors": [SHORT], "certificate": {"serial": SHORT, "sha256": SHORT}}
    stranger.send("PATCH", f"{path}/status", {"status": told})


def _ledger(plane: up_world.Up) -> None:
    now = clocks.SystemClock().now()
    entry = console_nodes.entry(
        "strange", now, names=(f"CN=system:node:{TEXT}",), requester=TEXT, request=TEXT, rule=TEXT, token_id=TEXT
    )
    console_nodes.run(
        plane.directory / "admin.conf",
        lambda client: ledger_writer.Ledger(client, clocks.SystemClock()).append(entry),
    )
