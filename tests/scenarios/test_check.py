# SPDX-License-Identifier: Apache-2.0
"""`handfast check` and `handfast status` on a control plane in order, and on the same one broken in a dozen ways, one after the other.

One `handfast up`, with machines, mesh and console, is broken and mended in turn, through its API and its processes. After the last it is in order again. Which
story breaks which check is in SHOWN. The store is broken in stories of its own: on a full disk, and by the death of an etcd
(`tests/scenarios/test_store_backup.py::test_a_plane_comes_back_on_etcd_and_leaves_it_again`).
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import io
import json
import os
import pathlib
import signal
import socket
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from handfast.bootstrap import kubeconfig
from handfast.check import look, reads
from handfast.cli import main, output
from handfast.client import probes, way
from handfast.pki import keys, names, requests
from handfast.rules import user_names
from handfast.rules.diagnoses import judged, one_node
from handfast.rules.mesh import control_plane, installation, issuer
from handfast.runtime import clock
from tests.scenarios import mesh_world, test_disk_full, up_world
from tests.unit.pki import making

pytestmark = [pytest.mark.slow, pytest.mark.measured, pytest.mark.timeout(300)]

INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
BUNDLE = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:kube-controller-manager"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ANCHORS = f"/api/v1/namespaces/linkerd/configmaps/{control_plane.TRUST_ANCHOR}"
ISSUER = f"/api/v1/namespaces/linkerd/secrets/{control_plane.SIGNING}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
MACHINES = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines"
POOLS = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
MANAGED = "/api/v1/namespaces/openshift-config-managed/configmaps"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_world.Up]:
    parts = ("--machines", "--mesh", *mesh_world.FREE, "--console", "--console-listen", "127.0.0.1:0")
    with up_world.Up(tmp_path_factory.mktemp("check") / "data", *parts) as running:
        running.ready()
        up_world.until(lambda: told(running, "--fail-on-warning")[0] == 0, 90, f"all of it: {told(running)[1]}")
        yield running


def told(
    up: up_world.Up, *more: object, kubeconfig: pathlib.Path | None = None
) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and every check by its name."""
    how = ("--kubeconfig", kubeconfig, "--dir", up.directory.parent) if kubeconfig else ("--dir", up.directory)
    code, text = said("check", *how, "-o", "json", *more)
    return code, {row["name"]: row for row in json.loads(text)["checks"]}


def said(*words: object) -> tuple[int, str]:
    """A command in this process, which saves its start: the exit code, and what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = output.run(main.command, [str(word) for word in words])
    return code, printed.getvalue()


def status(up: up_world.Up) -> tuple[int, dict[str, Any]]:
    code, text = said("status", "--dir", up.directory, "-o", "json")
    return code, json.loads(text)


def not_well(rows: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: row["reason"] for name, row in rows.items() if row["verdict"] in {"warning", "failed"}}


def call(up: up_world.Up, method: str, path: str, body: object = None) -> dict[str, Any]:
    code, answer = up.call(method, path, body)
    assert code in {200, 201}, answer
    return answer


@contextlib.contextmanager
def changed(up: up_world.Up, path: str, key: str, value: Any) -> Iterator[None]:
    """One field of an object is another one for a while."""
    before = call(up, "GET", path)
    call(up, "PUT", path, {**before, key: value})
    try:
        yield
    finally:
        now = call(up, "GET", path)
        call(up, "PUT", path, {**now, key: before[key]})


@contextlib.contextmanager
def stopped(up: up_world.Up, role: str) -> Iterator[None]:
    """A process stands still."""
    pid = up.pids()[role]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_control_plane_in_order_passes_every_check_and_needs_nobody(up):
    code, rows = told(up, "--fail-on-warning")
    assert {name: row for name, row in rows.items() if row["verdict"] != "ok"} == {}
    assert code == 0
    assert status(up)[0] == 0
    _, shown = said("status", "--dir", up.directory)
    # A head, nine topics, and the next step.
    assert len(shown.splitlines()) == 11
    assert shown.splitlines()[-1] == "next: nothing needs you"


def test_controllers_that_stand_still_are_found_and_the_rest_is_told_all_the_same(up):
    with stopped(up, "controllers"):
        code, rows = told(up)
        assert (code, not_well(rows)) == (1, {"controllers": "ControllersNotReady"})
        assert rows["tokens"]["verdict"] == "ok"
    up_world.until(lambda: up.readiness()[0] == 200, 60, "the controllers")


def test_a_cluster_info_without_its_signatures_or_itself_is_found(up):
    # The control plane may just have started.
    up_world.until(lambda: not not_well(told(up)[1]), 60, "cluster-info")
    # Who signs and publishes stands still: else it would be mended before it is seen.
    with stopped(up, "controllers"):
        before = call(up, "GET", INFO)
        data = before["data"]
        (signature,) = (key for key in data if key.startswith("jws-"))
        for broken, reason in (
            ({"kubeconfig": data["kubeconfig"]}, "SignatureMissing"),
            ({**data, signature: data[signature][:-2] + "AA"}, "SignatureMismatch"),
        ):
            with changed(up, INFO, "data", broken):
                code, rows = told(up, kubeconfig=up.directory / "admin.conf")
                assert (code, rows["signatures"]["reason"]) == (1, reason)
        call(up, "DELETE", INFO)
        code, rows = told(up, kubeconfig=up.directory / "admin.conf")
        assert (code, rows["cluster-info"]["reason"]) == (1, "NoClusterInfo")
    up_world.until(lambda: not not_well(told(up)[1]), 60, "cluster-info")


def test_rights_that_a_controller_lacks_are_named(up):
    rules = call(up, "GET", ROLE)["rules"]
    fewer = [rule for rule in rules if "signers" not in rule.get("resources", ())]
    assert len(fewer) < len(rules)
    with changed(up, ROLE, "rules", fewer):
        code, rows = told(up)
        assert code == 1
        assert rows["rights"]["reason"] == "ControllerRightsMissing"
        assert "approve signers.certificates.k8s.io" in rows["rights"]["message"]


def test_a_webhook_that_does_not_answer_is_named(up):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    hook = {
        "name": "silent.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/judge"},
        "rules": [{"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    call(up, "POST", WEBHOOKS, {**kind, "metadata": {"name": "silent"}, "webhooks": [hook]})
    try:
        code, rows = told(up)
        assert (code, not_well(rows)) == (1, {"webhooks": "WebhookNotAnswering"})
        assert "silent.example.com" in rows["webhooks"]["message"]
    finally:
        call(up, "DELETE", f"{WEBHOOKS}/silent")


def test_a_request_that_waits_is_a_warning_and_the_step_of_its_node_that_fails(up):
    pem = requests.build(user_names.node_subject("w1"), names.Sans(), keys.generate())
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "w1"}}
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        # The approver takes no other usages than those of nodes.
        "usages": ["digital signature", "client auth", "server auth"],
    }
    call(up, "POST", REQUESTS, {**kind, "spec": spec})
    try:
        code, rows = told(up)
        assert (code, not_well(rows)) == (0, {"requests": "RequestsWait", "nodes": "NodeWaits"})
        assert "usages" in rows["requests"]["message"]
        code, rows = told(up, "--node", "w1")
        assert (code, not_well(rows)) == (1, {"approved": "NotApproved"})
        assert rows["created"]["message"] == "kubernetes-admin asked by w1"
        assert status(up)[0] == 1
    finally:
        call(up, "DELETE", f"{REQUESTS}/w1")
    code, rows = told(up, "--node", "nobody")
    assert (code, rows["created"]["reason"], rows["used"]["verdict"]) == (1, "NoRequest", "unknown")


def shifted(monkeypatch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """The clock of the machine that checks is wrong."""
    right = clock.SystemClock.now
    monkeypatch.setattr(clock.SystemClock, "now", lambda self: right(self) + by)


def test_a_clock_that_is_wrong_here_is_told_apart_from_what_is_wrong_there(up, monkeypatch):
    shifted(monkeypatch, datetime.timedelta(minutes=-20))
    code, rows = told(up)
    assert (code, rows["clock"]["verdict"], rows["clock"]["reason"]) == (1, "failed", "ClockSkew")
    assert "behind the server" in rows["clock"]["message"]


def issue(up: up_world.Up, name: str, signer: str, usage: str, sans: names.Sans) -> None:
    """A certificate of w2 for an hour, approved by hand."""
    pem = requests.build(user_names.node_subject("w2"), sans, keys.generate())
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}}
    usages = ["digital signature", usage]
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": usages}
    call(up, "POST", REQUESTS, {**kind, "spec": {**spec, "expirationSeconds": 3600}})
    approved = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "known"}

    def approve() -> bool:
        # The approver may write beside us.
        made = call(up, "GET", f"{REQUESTS}/{name}")
        code, _ = up.call("PUT", f"{REQUESTS}/{name}/approval", {**made, "status": {"conditions": [approved]}})
        return bool(code == 200)

    up_world.until(approve, 60, "the approval")
    up_world.until(lambda: "certificate" in call(up, "GET", f"{REQUESTS}/{name}")["status"], 60, "its certificate")


@contextlib.contextmanager
def registered(up: up_world.Up) -> Iterator[None]:
    """The node w2 is there, with a certificate to log in and one to serve with. What is left of it would be in the way of other stories."""
    try:
        issue(up, "w2", "kubernetes.io/kube-apiserver-client-kubelet", "client auth", names.Sans())
        issue(up, "w2-serving", "kubernetes.io/kubelet-serving", "server auth", names.Sans(dns=("w2",)))
        call(up, "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w2"}})
        yield
    finally:
        for path in ("/api/v1/nodes/w2", f"{REQUESTS}/w2", f"{REQUESTS}/w2-serving"):
            up.call("DELETE", path)


def test_a_node_whose_certificate_is_over_fails_and_one_that_is_revoked_needs_nobody(up, monkeypatch):
    with registered(up):
        # The ledger is written before the certificate; the node has no Lease, so that it is not seen.
        rows = told(up)[1]
        assert (rows["nodes"]["reason"], rows["node-serving"]["verdict"]) == ("NodeSilent", "ok")
        assert rows["node-serving"]["message"].startswith("1 of this cluster; the first, of w2, ends at ")
        with monkeypatch.context() as later:
            shifted(later, datetime.timedelta(minutes=57))
            code, rows = told(up)
            assert (code, rows["nodes"]["reason"]) == (1, "RenewalLate")
            assert (rows["node-serving"]["verdict"], rows["node-serving"]["reason"]) == ("failed", "ServingRenewalLate")
            # How much is left is told to the second.
            alone = {**told(up, "--node", "w2")[1]["node-serving"], "message": rows["node-serving"]["message"]}
            assert alone == rows["node-serving"]
        with monkeypatch.context() as later:
            shifted(later, datetime.timedelta(hours=2))
            code, rows = told(up)
            assert (code, rows["nodes"]["reason"]) == (1, "CertificateExpired")
            assert "w2" in rows["nodes"]["message"]
            # It asks for no other: it may have one of its own by now.
            assert (rows["node-serving"]["verdict"], rows["node-serving"]["reason"]) == ("warning", "ServingLeftOver")
        revocation = {"apiVersion": "handfast.dev/v1alpha1", "kind": "Revocation", "metadata": {"name": "w2"}}
        call(up, "POST", "/apis/handfast.dev/v1alpha1/revocations", {**revocation, "spec": {"node": "w2"}})
        code, rows = told(up)
        assert (code, rows["nodes"]["verdict"]) == (0, "ok")
        assert rows["nodes"]["message"] in {"1 revoked", "2 revoked"}
        assert rows["node-serving"]["message"] == "no node has a serving certificate of this cluster"


def test_a_ca_that_is_over_and_was_forgotten_in_the_bundle_is_a_warning(up):
    old = making.ca("forgotten", not_before=making.NOW - 900 * making.DAY, not_after=making.NOW - 500 * making.DAY)
    data = call(up, "GET", BUNDLE)["data"]
    with changed(up, BUNDLE, "data", {**data, "client-ca-file": data["client-ca-file"] + old.pem.decode()}):
        code, rows = told(up)
        assert (code, not_well(rows)) == (0, {"client-cas": "CAExpired"})
        code, shown = status(up)
        assert (code, shown["needsSomebody"]) == (1, True)
        assert told(up, "--fail-on-warning")[0] == 1


def test_rights_of_all_nodes_are_a_warning(up):
    kind = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "too-much"},
    }
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    call(up, "POST", BINDINGS, {**kind, "roleRef": role, "subjects": [group]})
    try:
        assert not_well(told(up)[1]) == {"node-rights": "NodesMayMore"}
    finally:
        call(up, "DELETE", f"{BINDINGS}/too-much")


def conf(up: up_world.Up, path: pathlib.Path, *, token: str, **cluster: str) -> pathlib.Path:
    """A kubeconfig of the same cluster with another credential, or of another cluster."""
    config = kubeconfig.parse((up.directory / "admin.conf").read_text()).cluster
    ca = base64.b64encode(config.certificate_authority_data or b"").decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [
            {"name": "c", "cluster": {"server": config.server, "certificate-authority-data": ca, **cluster}},
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    return path


def test_each_way_of_not_getting_in_is_told_apart(up, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    another = {"certificate-authority-data": base64.b64encode(making.ca("another").pem).decode()}
    every = {name for name in told(up)[1] if not name.startswith("mesh-")} | {"mesh"}
    for cluster, check, reason, code in (
        ({"server": f"https://127.0.0.1:{port}"}, "tcp", "ConnectionRefused", 3),
        ({"server": f"https://no-such-host.invalid:{port}"}, "dns", "NameNotFound", 3),
        (another, "tls", "TLSInterception", 1),
        ({}, "api", "Unauthorized", 1),
    ):
        ended, rows = told(up, kubeconfig=conf(up, tmp_path / "other.conf", token="nobody", **cluster))
        assert (ended, rows[check]["reason"]) == (code, reason)
        # A report is whole, and what was not asked is not taken for good.
        assert set(rows) == every
        assert rows["nodes"]["verdict"] == "unknown"


def test_what_a_credential_may_not_read_is_unknown(up, tmp_path):
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = call(up, "POST", "/api/v1/namespaces/default/serviceaccounts/default/token", body)
    path = conf(up, tmp_path / "poor.conf", token=token["status"]["token"])
    code, rows = told(up, kubeconfig=path)
    assert code == 0
    unknown = {name for name, row in rows.items() if row["verdict"] == "unknown"}
    assert {"tokens", "nodes", "requests", "rights", "client-cas", "webhooks"} <= unknown
    assert "forbidden" in rows["tokens"]["message"]
    assert told(up, "--fail-on-warning", kubeconfig=path)[0] == 1


def test_the_forms_for_ci_and_for_a_terminal(up):
    code, text = said("check", "--dir", up.directory, "-o", "junit")
    assert (code, ElementTree.fromstring(text).get("failures")) == (0, "0")
    words = [*up_world.COMMAND, "check", "--dir", str(up.directory)]
    with up_world.Terminal(words, up_world.environment()) as terminal:
        shown = terminal.shows("mesh-workload-certificates")
    assert "looking at the way in" in shown


def test_what_ends_fails_before_it_is_over(up, monkeypatch):
    for days, broken, reason in (
        (350, ("credential", "tls", "roles"), "CertificateEndsSoon"),
        (3640, ("cas", "client-cas"), "CAEndsSoon"),
        (3640, ("mesh-issuer",), "IssuerExpired"),
    ):
        with monkeypatch.context() as later:
            shifted(later, datetime.timedelta(days=days))
            code, rows = told(up)
            assert (code, {rows[name]["reason"] for name in broken}) == (1, {reason})


def test_an_issuer_of_the_mesh_with_eleven_days_left_fails_the_check(up):
    root = making.ca("root", not_before=making.NOW - 400 * making.DAY, not_after=making.NOW + 3000 * making.DAY)
    begun = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    made = making.ca("issuer", root, not_before=begun - 300 * making.DAY, not_after=begun + 11 * making.DAY)
    anchors, signing = installation.trust("linkerd", issuer.Material(made.pem, made.key_pem, root.pem), generated=False)
    with changed(up, ANCHORS, "data", anchors.document["data"]), changed(up, ISSUER, "data", signing.document["data"]):
        code, rows = told(up)
        assert (code, rows["mesh-issuer"]["reason"]) == (1, "IssuerEndsSoon")
        assert rows["mesh-issuer"]["page"] == "docs/mesh.md#check"
        assert status(up)[1]["next"].startswith("mesh-issuer: ")


def test_roles_that_stand_still_are_found(up, monkeypatch):
    monkeypatch.setattr(probes, "_SECONDS", 1.0)
    names = ("machine-config", "identity", "destination", "injector", "console")
    with contextlib.ExitStack() as still:
        for name in names:
            still.enter_context(stopped(up, name))
        code, rows = told(up)
    assert (code, rows["roles"]["reason"]) == (1, "RoleNotReady")
    for word in ("machineConfig", "identity", "destination", "injector", "console"):
        assert f"{word} at http://" in rows["roles"]["message"]
    up_world.until(lambda: told(up)[1]["roles"]["verdict"] == "ok", 60, "the roles")


def test_a_leader_that_is_gone_and_a_token_that_cannot_be_read_are_found(up):
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "handfast-controllers"}}
    spec = {"holderIdentity": "gone", "renewTime": "2020-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}
    call(up, "POST", LEASES, {**kind, "spec": spec})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bootstrap-token-broken"}}
    call(up, "POST", SECRETS, {**secret, "type": "bootstrap.kubernetes.io/token", "stringData": {"token-id": "other1"}})
    try:
        code, rows = told(up)
        assert (code, not_well(rows)) == (1, {"controllers": "NoLeader", "tokens": "TokenUnreadable"})
    finally:
        call(up, "DELETE", f"{LEASES}/handfast-controllers")
        call(up, "DELETE", f"{SECRETS}/bootstrap-token-broken")


def test_a_signer_whose_ca_is_not_trusted_is_found_without_any_request(up, tmp_path):
    # The directory of the same control plane, with another CA to sign by.
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_bytes(making.ca("another").pem)
    (tmp_path / "endpoints.json").write_bytes((up.directory / "endpoints.json").read_bytes())
    code, text = said("check", "--kubeconfig", up.directory / "admin.conf", "--dir", tmp_path, "-o", "json")
    rows = {row["name"]: row for row in json.loads(text)["checks"]}
    assert (code, not_well(rows)) == (1, {"client-cas": "SignerNotTrusted"})
    assert "the CA that signs here" in rows["client-cas"]["message"]


def test_a_fleet_that_needs_somebody_is_found(up):
    kind = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": {"name": "nameless"}}
    call(up, "POST", MACHINES, {**kind, "spec": {}})
    signer = making.ca(
        "kubelet-bootstrap-kubeconfig-signer",
        not_before=making.NOW - 900 * making.DAY,
        not_after=making.NOW - 500 * making.DAY,
    )
    source = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubelet-bootstrap-kubeconfig"}}
    call(up, "POST", MANAGED, {**source, "data": {"ca-bundle.crt": signer.pem.decode()}})
    pools = call(up, "GET", POOLS)["items"]
    pool = f"{POOLS}/{pools[0]['metadata']['name']}"
    with stopped(up, "controllers"):
        degraded = {
            "type": "Degraded",
            "status": "True",
            "reason": "RenderDegraded",
            "message": "no",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        before = call(up, "GET", pool)
        call(up, "PUT", f"{pool}/status", {**before, "status": {**before["status"], "conditions": [degraded]}})
        code, rows = told(up)
        assert code == 1
        assert rows["machines"]["reason"] == "MachineNeedsSomebody"
        assert rows["bootstrap-credentials"]["reason"] == "CAExpired"
        assert rows["machine-pools"]["reason"] == "PoolDegraded"
        now = call(up, "GET", pool)
        call(up, "PUT", f"{pool}/status", {**now, "status": before["status"]})
    for path in (f"{MACHINES}/nameless", f"{MANAGED}/kubelet-bootstrap-kubeconfig"):
        call(up, "DELETE", path)
    up_world.until(lambda: not not_well(told(up)[1]), 60, "the fleet")


def test_a_request_that_nobody_acts_on_and_each_step_of_its_node_are_told(up, monkeypatch):
    pem = requests.build(user_names.node_subject("w3"), names.Sans(), keys.generate())
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    # Only one is explained: that of the node that is asked for.
    monkeypatch.setattr(reads, "_EXPLAINED", 1)
    with stopped(up, "controllers"):
        other = {**spec, "usages": ["digital signature", "client auth", "server auth"]}
        call(up, "POST", REQUESTS, {**kind, "metadata": {"name": "a-first"}, "spec": other})
        call(up, "POST", REQUESTS, {**kind, "metadata": {"name": "w3"}, "spec": spec})
        call(up, "DELETE", f"{REQUESTS}/a-first")
        with monkeypatch.context() as later:
            shifted(later, datetime.timedelta(minutes=2))
            code, rows = told(up)
            assert (code, rows["requests"]["reason"]) == (1, "RequestsNotActedOn")
        approved = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "known"}
        made = call(up, "GET", f"{REQUESTS}/w3")
        call(up, "PUT", f"{REQUESTS}/w3/approval", {**made, "status": {"conditions": [approved]}})
        code, rows = told(up, "--node", "w3")
        assert (code, not_well(rows)) == (1, {"signed": "NotSigned"})
    up_world.until(lambda: "certificate" in call(up, "GET", f"{REQUESTS}/w3")["status"], 60, "its certificate")
    code, rows = told(up, "--node", "w3")
    assert (code, not_well(rows)) == (1, {"used": "NodeSilent"})
    revocation = {"apiVersion": "handfast.dev/v1alpha1", "kind": "Revocation", "metadata": {"name": "w3"}}
    call(up, "POST", "/apis/handfast.dev/v1alpha1/revocations", {**revocation, "spec": {"node": "w3"}})
    call(up, "DELETE", f"{REQUESTS}/w3")


def test_silent_webhooks_are_asked_side_by_side_and_each_is_named(up, monkeypatch):
    monkeypatch.setattr(way, "SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hooks = [
            {
                "name": f"silent{number}.example.com",
                "clientConfig": {"url": f"https://127.0.0.1:{silent.getsockname()[1]}/judge"},
                "rules": [
                    {"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for number in range(5)
        ]
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        call(up, "POST", WEBHOOKS, {**kind, "metadata": {"name": "silent"}, "webhooks": hooks})
        try:
            _, rows = told(up)
        finally:
            call(up, "DELETE", f"{WEBHOOKS}/silent")
    assert rows["webhooks"]["reason"] == "WebhookNotAnswering"
    for hook in hooks:
        assert str(hook["name"]) in rows["webhooks"]["message"]


def test_a_server_that_stands_still_is_not_reached(up, monkeypatch):
    monkeypatch.setattr(way, "SECONDS", 1.0)
    with stopped(up, "apiserver"):
        code, rows = told(up)
    assert (code, rows["tls"]["reason"]) == (3, "Timeout")
    up_world.until(lambda: told(up)[0] == 0, 60, "the API server")


def test_a_server_that_goes_away_while_it_is_asked_fails_what_was_not_answered(up, monkeypatch):
    asking = reads.Reads.tokens

    async def killed_before(self: reads.Reads) -> Any:
        os.kill(up.pids()["apiserver"], signal.SIGKILL)
        return await asking(self)

    monkeypatch.setattr(reads.Reads, "tokens", killed_before)
    monkeypatch.setattr(look, "ROWS", [look.Row(row.name, 2.0, row.read) for row in look.ROWS])
    # Who would start it again stands still.
    with stopped(up, "supervisor"):
        code, rows = told(up)
    monkeypatch.undo()
    assert code in {1, 3}
    assert rows["tokens"]["verdict"] == "failed"
    assert rows["tokens"]["reason"] in {"ConnectionRefused", "Unreachable", "Timeout"}
    up_world.until(lambda: told(up)[0] == 0, 90, "the API server")


# Each check -> the story that breaks it.
SHOWN = {
    "credential": test_what_ends_fails_before_it_is_over,
    "dns": test_each_way_of_not_getting_in_is_told_apart,
    "tcp": test_each_way_of_not_getting_in_is_told_apart,
    "tls": test_what_ends_fails_before_it_is_over,
    "clock": test_a_clock_that_is_wrong_here_is_told_apart_from_what_is_wrong_there,
    "api": test_each_way_of_not_getting_in_is_told_apart,
    "store": test_disk_full.test_a_control_plane_on_a_full_disk_survives_the_death_of_its_api_server,
    "controllers": test_a_leader_that_is_gone_and_a_token_that_cannot_be_read_are_found,
    "roles": test_roles_that_stand_still_are_found,
    "rights": test_rights_that_a_controller_lacks_are_named,
    "webhooks": test_silent_webhooks_are_asked_side_by_side_and_each_is_named,
    "cas": test_what_ends_fails_before_it_is_over,
    "client-cas": test_a_signer_whose_ca_is_not_trusted_is_found_without_any_request,
    "cluster-info": test_a_cluster_info_without_its_signatures_or_itself_is_found,
    "signatures": test_a_cluster_info_without_its_signatures_or_itself_is_found,
    "tokens": test_a_leader_that_is_gone_and_a_token_that_cannot_be_read_are_found,
    "requests": test_a_request_that_nobody_acts_on_and_each_step_of_its_node_are_told,
    "nodes": test_a_node_whose_certificate_is_over_fails_and_one_that_is_revoked_needs_nobody,
    "node-serving": test_a_node_whose_certificate_is_over_fails_and_one_that_is_revoked_needs_nobody,
    "node-rights": test_rights_of_all_nodes_are_a_warning,
    "machines": test_a_fleet_that_needs_somebody_is_found,
    "machine-pools": test_a_fleet_that_needs_somebody_is_found,
    "bootstrap-credentials": test_a_fleet_that_needs_somebody_is_found,
    "mesh": test_an_issuer_of_the_mesh_with_eleven_days_left_fails_the_check,
    "created": test_a_request_that_waits_is_a_warning_and_the_step_of_its_node_that_fails,
    "approved": test_a_request_that_waits_is_a_warning_and_the_step_of_its_node_that_fails,
    "signed": test_a_request_that_nobody_acts_on_and_each_step_of_its_node_are_told,
    "used": test_a_request_that_nobody_acts_on_and_each_step_of_its_node_are_told,
}


def test_every_check_is_shown_broken():
    assert [*SHOWN] == [*judged.WAY, *judged.INSIDE, judged.MESH, *one_node.NAMES]


def test_it_is_in_order_again(up):
    up_world.until(lambda: not not_well(told(up)[1]), 60, "all of it")
