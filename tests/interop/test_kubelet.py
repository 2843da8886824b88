# SPDX-License-Identifier: Apache-2.0
"""A stock kubelet against `handfast up`: from the bootstrap kubeconfig to a certificate, with rotation off and on.

Proves that its request is approved and signed without anybody's help, that it writes the pair and the kubeconfig which it
writes in a cluster of its own, that it takes both again at its next start, also when rotation was switched in between,
that it renews them in time, and that it and the node agent can follow one another in one directory. With a container
runtime, pretended or not, also that it registers its Node, keeps its Lease and gets a serving certificate, and that the
whole of `kubeadm join` ends well. Without a kubelet nothing is proven: see `kubelets`.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import itertools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from handfast.api import signer_names
from handfast.bootstrap import kubeconfig
from handfast.node import certificate_store
from handfast.pki import authority, keys, names, pairs, pem, pins, profiles
from handfast.pki import requests as pkcs10
from handfast.rules import user_names
from handfast.rules.certificates import wishes
from handfast.runtime import clock
from tests.interop import kubelets, running, tools
from tests.interop.kubelets import Asked, Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REQUESTS = "certificatesigningrequests"
APPROVED = "Auto approving kubelet client certificate after SubjectAccessReview."
APPROVED_SELF = "Auto approving self kubelet client certificate after SubjectAccessReview."
# Kinds of newer kubelets that this API does not have; they go on without.
NOT_SERVED = {"podcertificaterequests", "resourceslices"}

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def binary() -> str:
    return kubelets.find()


@pytest.fixture
def plane(binary: str, control_plane: running.ControlPlane) -> running.ControlPlane:
    """A control plane, if there is a kubelet for it."""
    return control_plane


@pytest.fixture
def token(plane: running.ControlPlane) -> str:
    return tools.handfast_token(plane)("create", "--ttl", "1h").stdout.strip()


def pin_of(plane: running.ControlPlane) -> str:
    return str(pins.of_certificate(pem.certificates_from_pem((plane.pki / "ca.crt").read_bytes())[0]))


@pytest.fixture
def machine(binary: str, plane: running.ControlPlane, token: str, tmp_path: pathlib.Path) -> Machine:
    """A machine that has found its cluster and knows a token, and nothing more."""
    found = Machine(binary, tmp_path, f"kubelet-{next(_numbers)}")
    endpoint = plane.server.removeprefix("https://")
    words = (
        "--discovery-token-ca-cert-hash",
        pin_of(plane),
        "--bootstrap-kubeconfig",
        found.bootstrap,
        "--discovery-only",
    )
    tools.Tool(tools.HANDFAST)("join", endpoint, "--token", token, *words)
    return found


@pytest.fixture
def signing(api: client.ApiClient) -> Any:
    return client.CertificatesV1Api(api)


def requests_of(signing: Any, node: str) -> list[Any]:
    """The requests in whose certificate this node is named, oldest first."""
    subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
    found = [
        item
        for item in signing.list_certificate_signing_request().items
        if pkcs10.parse(base64.b64decode(item.spec.request)).subject == subject
    ]
    return sorted(found, key=lambda item: item.metadata.creation_timestamp)


def own(plane: running.ControlPlane, *users: str) -> list[Asked]:
    return [row for row in kubelets.asked(plane) if row.user in users]


@pytest.mark.parametrize("rotate", [False, True], ids=["rotation off", "rotation on"])
def test_a_kubelet_gets_its_certificate_with_a_token(
    rotate: bool, machine: Machine, plane: running.ControlPlane, signing: Any, token: str
) -> None:
    machine.configure(rotateCertificates=rotate)
    with machine.awaiting_runtime():
        pair = machine.wait_for_pair()

    assert str(pair.leaf.subject) == f"CN=system:node:{machine.node},O=system:nodes"
    (request,) = requests_of(signing, machine.node)
    assert request.spec.signer_name == signer_names.KUBELET_CLIENT
    assert request.spec.username == f"system:bootstrap:{token[:6]}"
    assert request.spec.usages == ["digital signature", "client auth"]
    (condition,) = request.status.conditions
    assert (condition.type, condition.reason, condition.message) == ("Approved", "AutoApproved", APPROVED)
    assert base64.b64decode(request.status.certificate) == pair.certificate_pem
    wanted = wishes.node_client(machine.node)
    if rotate:
        assert request.metadata.name.startswith("csr-")
    else:
        assert request.metadata.name == wishes.name_of(pair.key.public, wanted)

    written = kubeconfig.parse(machine.kubeconfig.read_text())
    current = str(machine.pki / "kubelet-client-current.pem")
    assert written.user is not None
    assert (written.user.client_certificate, written.user.client_key) == (current, current)
    assert written.cluster.server == plane.server

    user, selector = request.spec.username, f"fieldSelector=metadata.name%3D{request.metadata.name}"
    # The log of requests is written a little later than they are answered.
    assert running.eventually(lambda: len(rows := own(plane, user)) > 2 and rows, "three requests in the log") == [
        Asked(user, "create", REQUESTS, 201),
        Asked(user, "list", REQUESTS, 200, selector),
        Asked(user, "watch", REQUESTS, 200, selector),
    ]


def test_one_that_lost_its_certificate(machine: Machine, api: client.ApiClient, signing: Any) -> None:
    """Its name is its own as soon as the Lease of its former self has ended; until then it waits, and goes on."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease: Any = {"metadata": {"name": machine.node}, "spec": {"renewTime": now, "leaseDurationSeconds": 40}}
    client.CoordinationV1Api(api).create_namespaced_lease("kube-node-lease", lease)
    # Without rotation it waits for its certificate before it looks for a runtime, and ends without one.
    machine.configure(rotateCertificates=False)

    def reasons() -> list[str]:
        return [row.reason for request in requests_of(signing, machine.node) for row in request.status.conditions or ()]

    with machine.awaiting_runtime():
        machine.eventually(lambda: reasons() == ["NodeIsAlive"], "a request that waits")
        running.eventually(machine.pair, "a certificate after the Lease has ended", 90)
    assert reasons() == ["AutoApproved"]


def ended(machine: Machine) -> None:
    """Start the kubelet and let it end by itself: it has its certificate, and finds no container runtime."""
    with machine.running() as process:
        assert process.wait(2 * running.DEADLINE) == 1, machine.said()
    assert "validate CRI v1 runtime API" in machine.said(), machine.said()


@pytest.mark.parametrize(("first", "then"), [(False, True), (True, False)], ids=["switched on", "switched off"])
def test_rotation_switched(first: bool, then: bool, machine: Machine, signing: Any) -> None:
    """The pair of the first start serves the second; nothing is asked for again."""
    machine.configure(rotateCertificates=first)
    with machine.awaiting_runtime():
        pair = machine.wait_for_pair()
    stored = machine.stored()
    machine.configure(rotateCertificates=then)
    ended(machine)
    assert machine.pair() == pair
    assert machine.stored() == stored
    assert len(requests_of(signing, machine.node)) == 1


@pytest.mark.parametrize("rotate", [False, True], ids=["rotation off", "rotation on"])
def test_nearly_ended(rotate: bool, machine: Machine, plane: running.ControlPlane, signing: Any) -> None:
    """More than nine tenths of the lifetime are over: it asks for the next certificate with this one, if it rotates."""
    old = nearly_ended(machine, plane)
    store(machine).save(old)
    current = str(machine.pki / "kubelet-client-current.pem")
    cluster = kubeconfig.parse(machine.bootstrap.read_text()).cluster
    user = kubeconfig.User(name="u", client_certificate=current, client_key=current)
    machine.kubeconfig.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="c", cluster=cluster, user=user)))
    machine.bootstrap.unlink()
    machine.configure(rotateCertificates=rotate)
    if not rotate:
        ended(machine)
        assert machine.pair() == old
        assert requests_of(signing, machine.node) == []
        return
    with machine.awaiting_runtime():
        machine.eventually(lambda: machine.pair() not in {None, old}, "the next certificate")
    (request,) = requests_of(signing, machine.node)
    assert request.spec.username == f"system:node:{machine.node}"
    (condition,) = request.status.conditions
    assert (condition.reason, condition.message) == ("AutoApproved", APPROVED_SELF)


def nearly_ended(machine: Machine, plane: running.ControlPlane) -> pairs.Pair:
    """A pair of this cluster's CA that is ten hours old and has ten minutes to go."""
    ca = authority.Authority(
        pem.certificates_from_pem((plane.pki / "ca.crt").read_bytes())[0],
        keys.private_from_pem((plane.pki / "ca.key").read_bytes()),
    )
    profile = dataclasses.replace(profiles.KUBELET_CLIENT, backdate=datetime.timedelta(hours=10))
    key, subject, now = keys.generate(), user_names.node_subject(machine.node), clock.SystemClock().now()
    issued = ca.issue(key.public, subject, names.Sans(), profile, now, datetime.timedelta(minutes=10))
    return pairs.join(issued.pem, key)


@pytest.mark.parametrize("rotate", [False, True], ids=["rotation off", "rotation on"])
def test_a_kubelet_with_an_expired_certificate_gets_another_with_a_token(
    rotate: bool, machine: Machine, signing: Any
) -> None:
    """A machine that was off for too long, and has a token again."""
    yesterday = clock.SystemClock().now() - datetime.timedelta(days=1)
    ca = authority.self_signed_ca(names.Subject(common_name="ca"), keys.generate(), yesterday)
    key, subject = keys.generate(), user_names.node_subject(machine.node)
    hour = datetime.timedelta(hours=1)
    issued = ca.issue(key.public, subject, names.Sans(), profiles.KUBELET_CLIENT, yesterday, hour)
    old = pairs.join(issued.pem, key)
    store(machine).save(old)
    machine.configure(rotateCertificates=rotate)
    with machine.awaiting_runtime():
        machine.eventually(lambda: machine.pair() not in {None, old}, "another certificate")
    assert len(requests_of(signing, machine.node)) == 1


def store(machine: Machine) -> certificate_store.CertificateStore:
    """What the node agent would make of this machine's directory."""
    return certificate_store.CertificateStore(machine.pki, certificate_store.CLIENT, clock.SystemClock())


def test_the_agent_after_the_kubelet(machine: Machine) -> None:
    machine.configure(rotateCertificates=True)
    with machine.awaiting_runtime():
        pair = machine.wait_for_pair()
    found = store(machine).find()
    assert (found.pair, found.linked, found.problems) == (pair, True, ())


def test_the_kubelet_after_the_agent(machine: Machine, plane: running.ControlPlane, signing: Any, token: str) -> None:
    """`handfast join` leaves what a kubelet starts from, without a bootstrap kubeconfig."""
    machine.bootstrap.unlink()
    known = ("--token", token, "--discovery-token-ca-cert-hash", pin_of(plane), "--node-name", machine.node)
    places = (
        "--kubeconfig",
        machine.kubeconfig,
        "--cert-dir",
        machine.pki,
        "--bootstrap-kubeconfig",
        machine.bootstrap,
    )
    tools.Tool(tools.HANDFAST)("join", plane.server.removeprefix("https://"), *known, *places)
    pair, stored = machine.pair(), machine.stored()
    assert pair is not None
    machine.configure(rotateCertificates=True)
    ended(machine)
    assert (machine.pair(), machine.stored()) == (pair, stored)
    assert len(requests_of(signing, machine.node)) == 1


class TestWithARuntime:
    """A kubelet that goes on: its Node, its Lease and its serving certificate."""

    @pytest.fixture
    def runtime(self, binary: str) -> str:
        return kubelets.find_runtime()

    @pytest.fixture
    def invited(self, rules: Any, core: Any, unique: str) -> Iterator[None]:
        """Nodes may have serving certificates for the addresses that they report, and no other does."""
        for node in core.list_node().items:
            core.delete_node(node.metadata.name)
        group = {"apiGroup": "rbac.authorization.k8s.io"}
        role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeserver"
        body = {
            "metadata": {"name": unique},
            "roleRef": {**group, "kind": "ClusterRole", "name": role},
            "subjects": [{**group, "kind": "Group", "name": "system:nodes"}],
        }
        rules.create_cluster_role_binding(body)
        yield
        rules.delete_cluster_role_binding(unique)

    @pytest.mark.usefixtures("invited")
    def test_a_kubelet_registers_its_node_and_gets_a_serving_certificate(
        self, runtime: str, machine: Machine, plane: running.ControlPlane, core: Any, coordination: Any, signing: Any
    ) -> None:
        machine.configure(rotateCertificates=True, serverTLSBootstrap=True)
        with kubelets.container_runtime(runtime, machine), machine.running():
            node = machine.eventually(lambda: _named(core.list_node().items, machine.node), "the Node")
            leases = "kube-node-lease"
            machine.eventually(
                lambda: _named(coordination.list_namespaced_lease(leases).items, machine.node), "the Lease"
            )
            machine.eventually(lambda: _is_ready(core.read_node(machine.node)), "a Node that is ready")
            machine.eventually((machine.pki / "kubelet-server-current.pem").exists, "a serving certificate")
        assert node.metadata.labels["kubernetes.io/hostname"] == machine.node
        logged_in, serving = requests_of(signing, machine.node)
        assert (logged_in.spec.signer_name, serving.spec.signer_name) == (
            signer_names.KUBELET_CLIENT,
            signer_names.KUBELET_SERVING,
        )
        assert serving.spec.username == f"system:node:{machine.node}"
        pair = pairs.read((machine.pki / "kubelet-server-current.pem").read_bytes())
        addresses = {address.address for address in core.read_node(machine.node).status.addresses}
        assert set(pair.leaf.sans.dns) | set(map(str, pair.leaf.sans.ip)) <= addresses
        refused = {row.what for row in own(plane, f"system:node:{machine.node}") if row.code in {401, 403}}
        assert refused <= NOT_SERVED

    def test_kubeadm_join(
        self, runtime: str, machine: Machine, plane: running.ControlPlane, core: Any, signing: Any, token: str
    ) -> None:
        """The whole of `kubeadm join`, with nothing between it and the kubelet but what it writes."""
        kubeadm = tools.find_kubeadm(machine.home).words[0]
        patches = machine.home / "patches"
        patches.mkdir()
        patch = {**kubelets.modest(), "healthzPort": running.free_ports(1)[0]}
        (patches / "kubeletconfiguration.yaml").write_text(json.dumps(patch))
        known = ("--token", token, "--discovery-token-ca-cert-hash", pin_of(plane), "--node-name", machine.node)
        places = ("--cri-socket", f"unix://{machine.socket}", "--patches", patches, "--ignore-preflight-errors=all")
        words = (kubeadm, "join", plane.server.removeprefix("https://"), *known, *places)
        with kubelets.container_runtime(runtime, machine), kubelets.joining(machine, *words) as printed:
            machine.eventually(
                lambda: "This node has joined the cluster" in printed.read_text(), "kubeadm's last words"
            )
            machine.eventually(lambda: _named(core.list_node().items, machine.node), "the Node")
        assert [request.spec.signer_name for request in requests_of(signing, machine.node)] == [
            signer_names.KUBELET_CLIENT
        ]
        written = machine.home / "over"
        pair = pairs.read(next((written / "var/lib/kubelet/pki").glob("kubelet-client-2*.pem")).read_bytes())
        assert str(pair.leaf.subject) == f"CN=system:node:{machine.node},O=system:nodes"
        # kubeadm deletes the token's file once it has served.
        assert {path.name for path in (written / "etc/kubernetes").iterdir()} >= {"kubelet.conf", "pki"}
        assert not (written / "etc/kubernetes/bootstrap-kubelet.conf").exists()


def _is_ready(node: Any) -> bool:
    return any((row.type, row.status) == ("Ready", "True") for row in node.status.conditions or [])


def _named(items: list[Any], name: str) -> Any:
    return next((item for item in items if item.metadata.name == name), None)
