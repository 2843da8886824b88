# SPDX-License-Identifier: Apache-2.0
"""Handfast's controllers, commands and agent on an API server that they did not start: its own, and a stock kube-apiserver.

Proves that the same code works on both, from `init --kubeconfig` to a certificate, and that the controllers need no right
beyond those of the manifest that they print: they run as its service account, and the audit log shows what they were
refused. Where there is no kube-apiserver its half is not proven: see `clusters`.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from handfast import errors
from handfast.api import machine_kinds
from handfast.bootstrap import cluster_info, jws, kubeconfig, tokens
from handfast.pki import authority, keys, names, pairs
from handfast.rules import controller_rights
from handfast.rules.diagnoses import judged, one_node, standing
from handfast.rules.machines import bootstrapper
from tests.interop import clusters, running, tools

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRUST = ",".join(controller_rights.RIGHTS)
INFO = ("get", "configmap", "cluster-info", "--namespace", "kube-public")
SERVERS = {"handfast": clusters.handfast_server, "kube-apiserver": clusters.kube_apiserver}


@pytest.fixture(scope="module", params=list(SERVERS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        found.handfast("init", "--token", "")
        yield found


@pytest.fixture(scope="module")
def kubectl(
    cluster: clusters.Cluster, kubectl_found: tuple[str, tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> running.Kubectl:
    binary, version = kubectl_found
    return running.Kubectl(binary, tmp_path_factory.mktemp("home"), cluster.kubeconfig, version)


@pytest.fixture(scope="module")
def controllers(cluster: clusters.Cluster, kubectl: running.Kubectl) -> Iterator[pathlib.Path]:
    """Those of the manifest, as its account; the log of them."""
    manifest = tools.Tool(tools.HANDFAST)("serve", "controllers", "--print-manifest", "--controllers", TRUST).stdout
    documents = list(yaml.safe_load_all(manifest))
    if not cluster.stock:
        # Its own server has the kind.
        documents = [each for each in documents if each["kind"] != "CustomResourceDefinition"]
    kubectl("apply", "--filename", "-", stdin=yaml.safe_dump_all(documents))
    if cluster.stock:
        kubectl("wait", "--for", "condition=Established", "crd/issuancelogs.handfast.dev")
    have_machines(kubectl)
    token = kubectl(
        "create", "token", controller_rights.ACCOUNT, "--namespace", controller_rights.NAMESPACE
    ).out.strip()
    place = account_kubeconfig(cluster, cluster.directory.parent / "account.conf", token)
    log = cluster.directory.parent / "controllers.log"
    words: list[object] = [*tools.HANDFAST, "serve", "controllers", "--dir", cluster.directory.parent / "none"]
    words += ["--kubeconfig", place, "--controllers", TRUST, "--leader-elect"]
    words += ["--advertise", cluster.address, "--admin-listen", "127.0.0.1:0"]
    words += [
        "--cluster-signing-cert-file",
        cluster.pki / "ca.crt",
        "--cluster-signing-key-file",
        cluster.pki / "ca.key",
    ]
    client_cas = client_ca_file(cluster)
    client_cas.write_bytes((cluster.pki / "ca.crt").read_bytes())
    words += ["--client-ca-file-out", client_cas]
    with running.process(words, log) as started:
        running.eventually(lambda: "controllers started" in log.read_text(), f"controllers: {log}")
        yield log
        assert started.poll() is None, log.read_text()
    # Whatever the tests had them do, the manifest was enough for it, but for what they do without.
    assert [line for line in cluster.refused() if not line.startswith("list /api/v1/secrets?")] == []


def have_machines(kubectl: running.Kubectl) -> None:
    """The kinds of fleets, the namespace of Machines, and the account that machines come in with."""
    kubectl("apply", "--server-side", "--filename", "-", stdin=yaml.safe_dump_all(machine_kinds.definitions()))
    kubectl("wait", "--for", "condition=Established", "crd/machines.machine.openshift.io")
    for namespace in (machine_kinds.NAMESPACE, bootstrapper.NAMESPACE):
        # The manifest may have made it.
        kubectl("create", "namespace", namespace, code=None)
    account = f"{bootstrapper.NAMESPACE}:{bootstrapper.ACCOUNT}"
    role = ("--clusterrole=system:node-bootstrapper", f"--serviceaccount={account}")
    kubectl("create", "clusterrolebinding", "system-bootstrap-node-bootstrapper", *role)


def client_ca_file(cluster: clusters.Cluster) -> pathlib.Path:
    """The file that a kube-apiserver would read its client CAs from."""
    return cluster.directory.parent / "client-ca.crt"


def account_kubeconfig(cluster: clusters.Cluster, place: pathlib.Path, token: str) -> pathlib.Path:
    """With the token in a file beside it."""
    file = place.with_suffix(".token")
    file.touch(mode=0o600)
    file.write_text(token)
    found = kubeconfig.Cluster(
        name="c", server=f"https://{cluster.address}", certificate_authority=str(cluster.pki / "ca.crt")
    )
    user = kubeconfig.User(name="u", token_file=file.name)
    place.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="account", cluster=found, user=user)))
    return place


def signature(kubectl: running.Kubectl, token: tokens.Token, content: str = "") -> str:
    """A good one, of this content; a text that was just written may have those of the one before."""
    found: dict[str, Any] = kubectl.json(*INFO)["data"]
    text = found.get(f"{cluster_info.SIGNATURE_PREFIX}{token.id}", "")
    if not text or content not in {"", found["kubeconfig"]}:
        return ""
    try:
        jws.verify(text, found["kubeconfig"].encode(), token)
    except errors.Refused:
        return ""
    return str(text)


def is_gone(kubectl: running.Kubectl, token: tokens.Token) -> bool:
    return f"{cluster_info.SIGNATURE_PREFIX}{token.id}" not in kubectl.json(*INFO)["data"]


def create(cluster: clusters.Cluster, *arguments: object) -> tokens.Token:
    return tokens.parse(cluster.handfast("token", "create", *arguments).stdout.strip())


def secret(token: tokens.Token) -> tuple[str, ...]:
    return "secret", f"bootstrap-token-{token.id}", "--namespace", "kube-system"


def is_deleted(kubectl: running.Kubectl, token: tokens.Token) -> bool:
    return "NotFound" in kubectl("get", *secret(token), code=None).err


def expire(kubectl: running.Kubectl, token: tokens.Token) -> None:
    kubectl("patch", *secret(token), "--patch", json.dumps({"stringData": {"expiration": "2020-01-01T00:00:00Z"}}))


class TestInit:
    def test_asked_twice_it_changes_nothing(self, cluster: clusters.Cluster) -> None:
        done = cluster.handfast("init", "-o", "json")
        found = json.loads(done.stdout)
        assert {row["outcome"] for row in found["objects"]} == {"kept"}
        assert found["servers"] == [f"https://{cluster.address}"]

    def test_what_is_missing_is_made(self, cluster: clusters.Cluster, kubectl: running.Kubectl) -> None:
        kubectl("delete", "clusterrolebinding", "kubeadm:kubelet-bootstrap")
        done = cluster.handfast("init", "-o", "json")
        made = [row["object"] for row in json.loads(done.stdout)["objects"] if row["outcome"] == "created"]
        assert made == ["ClusterRoleBinding kubeadm:kubelet-bootstrap"]


def test_a_credential_that_is_none(cluster: clusters.Cluster, tmp_path: pathlib.Path) -> None:
    """Who waits for a turn that never comes says why, in its log and when it is asked."""
    place, log = account_kubeconfig(cluster, tmp_path / "bad.conf", "nobody"), tmp_path / "log"
    [port] = running.free_ports(1)
    words: list[object] = [*tools.HANDFAST, "serve", "controllers", "--dir", tmp_path / "none", "--kubeconfig", place]
    words += ["--controllers", "tokencleaner", "--leader-elect", "--admin-listen", f"127.0.0.1:{port}"]
    with running.process(words, log):
        running.eventually(lambda: "the lease cannot be taken" in log.read_text(), f"a warning: {log}")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10)
        with caught.value:
            assert caught.value.code == 500
            assert "the lease cannot be taken: Unauthorized" in caught.value.read().decode()
    assert '"reason":"Unauthorized"' in log.read_text()


@pytest.mark.usefixtures("controllers")
class TestTokens:
    def test_signed_and_when_deleted_not(self, cluster: clusters.Cluster, kubectl: running.Kubectl) -> None:
        token = create(cluster)
        running.eventually(lambda: signature(kubectl, token), "the signature")
        cluster.handfast("token", "delete", token.id)
        running.eventually(lambda: is_gone(kubectl, token), "that the signature goes")

    def test_a_token_that_expires_loses_its_signature_and_is_deleted(
        self, cluster: clusters.Cluster, kubectl: running.Kubectl
    ) -> None:
        token = create(cluster)
        running.eventually(lambda: signature(kubectl, token), "the signature")
        expire(kubectl, token)
        running.eventually(lambda: is_gone(kubectl, token), "that the signature goes")
        running.eventually(lambda: is_deleted(kubectl, token), "that the cleaner deletes it")

    def test_the_published_text_is_kept_and_signed_anew(
        self, cluster: clusters.Cluster, kubectl: running.Kubectl
    ) -> None:
        token = create(cluster)
        running.eventually(lambda: signature(kubectl, token), "the signature")
        before = kubectl.json(*INFO)["data"]["kubeconfig"]
        other = before.replace(cluster.address, "192.0.2.1:6443")
        assert other != before
        kubectl("patch", *INFO[1:], "--patch", json.dumps({"data": {"kubeconfig": other}}))
        running.eventually(lambda: signature(kubectl, token, before), "the text as it was, signed")

    def test_a_secret_that_is_no_token_is_told_of(self, kubectl: running.Kubectl) -> None:
        kubectl("create", "secret", "generic", "bootstrap-token-oddity", "--namespace", "kube-system")
        shown = ("get", "events", "--namespace", "kube-system", "--field-selector", "involvedObject.kind=Secret")
        running.eventually(lambda: "WrongSecretType" in kubectl(*shown).out, "the Warning event")

    def test_limits_that_this_server_does_not_know(self, cluster: clusters.Cluster) -> None:
        done = cluster.handfast("token", "create", "--max-uses", "1")
        assert ("does not enforce" in done.stderr) is cluster.stock


@pytest.mark.usefixtures("controllers")
class TestWorkerCredential:
    """Nobody keeps tokens in Secrets there, so that the tests fill them in: as kube-controller-manager with an RSA key, the same again."""

    THERE = ("--namespace", bootstrapper.NAMESPACE)
    SECRET = ("secret", bootstrapper.TOKEN_SECRET, *THERE)
    ACCOUNT = ("serviceaccount", bootstrapper.ACCOUNT, *THERE)

    def _uid(self, kubectl: running.Kubectl, *what: str) -> str:
        return kubectl("get", *what, "--output", "jsonpath={.metadata.uid}", code=None).out

    def _other(self, kubectl: running.Kubectl, what: tuple[str, ...], before: str = "") -> str:
        """The UID of an object, once it is another."""
        running.eventually(lambda: self._uid(kubectl, *what) not in {"", before}, f"another {what}")
        return self._uid(kubectl, *what)

    def _fill(self, kubectl: running.Kubectl, token: str) -> None:
        kubectl("patch", *self.SECRET, "--patch", json.dumps({"stringData": {"token": token}}))

    def test_a_revoked_token_that_returns_ends_with_its_account(self, kubectl: running.Kubectl) -> None:
        secret, account = self._other(kubectl, self.SECRET), self._other(kubectl, self.ACCOUNT)
        self._fill(kubectl, "not.a.secret")
        running.eventually(lambda: secret in kubectl("get", *self.ACCOUNT, "--output", "yaml").out, "its memory")
        kubectl("delete", *self.SECRET)
        again = self._other(kubectl, self.SECRET, secret)
        assert self._uid(kubectl, *self.ACCOUNT) == account
        self._fill(kubectl, "not.a.secret")
        self._other(kubectl, self.ACCOUNT, account)
        self._other(kubectl, self.SECRET, again)
        assert "RevokedTokenReturned" in kubectl("get", "events", *self.THERE).out


@pytest.mark.usefixtures("controllers")
class TestClientCAs:
    NAMES = ("configmap", bootstrapper.CONFIG_MAP)

    def test_the_file_follows_the_config_map(
        self, cluster: clusters.Cluster, kubectl: running.Kubectl, tmp_path: pathlib.Path
    ) -> None:
        now = datetime.datetime.now(datetime.UTC)
        subject = names.Subject(common_name=bootstrapper.SIGNER)
        signer = authority.self_signed_ca(subject, keys.generate(), now).pem
        (tmp_path / "ca-bundle.crt").write_bytes(signer)
        path, own = client_ca_file(cluster), (cluster.pki / "ca.crt").read_bytes()
        there = ("--namespace", bootstrapper.CONFIG_NAMESPACE)
        kubectl("create", *self.NAMES, "--from-file", str(tmp_path / "ca-bundle.crt"), *there)
        running.eventually(lambda: path.read_bytes().endswith(own + signer), "the CA in the file")
        kubectl("create", *self.NAMES, "--from-file", str(tmp_path / "ca-bundle.crt"), "--namespace", "default")
        kubectl("delete", *self.NAMES, *there)
        running.eventually(lambda: path.read_bytes().endswith(own), "the file without it")
        assert signer not in path.read_bytes()


@pytest.mark.usefixtures("controllers")
class TestJoining:
    @pytest.fixture
    def machine(self, tmp_path: pathlib.Path) -> tuple[object, ...]:
        return "--kubeconfig", tmp_path / "kubelet.conf", "--cert-dir", tmp_path / "pki"

    @pytest.fixture
    def command(self, cluster: clusters.Cluster, tmp_path: pathlib.Path, machine: tuple[object, ...]) -> list[object]:
        """To be typed on the machine."""
        made = cluster.handfast("token", "create", "--print-join-command").stdout.split()
        return [*made[1:], *machine, "--bootstrap-kubeconfig", tmp_path / "bootstrap.conf", "--node-name", "joins"]

    def test_to_the_certificate_and_on(
        self,
        cluster: clusters.Cluster,
        kubectl: running.Kubectl,
        tmp_path: pathlib.Path,
        machine: tuple[object, ...],
        command: list[object],
    ) -> None:
        tools.Tool(tools.HANDFAST)(*command, "--timeout", "60s")
        pair = pairs.read((tmp_path / "pki" / "kubelet-client-current.pem").read_bytes())
        assert str(pair.leaf.subject) == "CN=system:node:joins,O=system:nodes"
        assert pair.leaf.serial in cluster.handfast("ledger", "list", "-o", "json").stdout
        cluster.handfast("ledger", "verify")
        # The machine-approver judges what it serves as: the agent asks for the host name of the machine, too.
        dns = ("--dns", "joins", "--dns", socket.gethostname())
        cluster.handfast("machine", "create", "joins", *dns, "--ip", "192.0.2.7")
        log = tmp_path / "agent.log"
        words = [*tools.HANDFAST, "node", "run", *machine, "--node-name", "joins", "--listen", "127.0.0.1:0"]
        words += ["--node-ip", "192.0.2.7"]
        with running.process([*words, "--rotate-certificates", "--rotate-server-certificates"], log):
            running.eventually(lambda: kubectl("get", "node", "joins", code=None).code == 0, f"the Node: {log}")
            lease = ("get", "lease", "joins", "--namespace", "kube-node-lease")
            running.eventually(lambda: kubectl(*lease, code=None).code == 0, f"its Lease: {log}")
            serving = tmp_path / "pki" / "kubelet-server-current.pem"
            running.eventually(serving.exists, f"its serving certificate: {log}")
            self._is_seen(cluster)
            # Nobody else is that node meanwhile, whether or not its Node can be seen to be ready.
            places = (
                "--kubeconfig",
                tmp_path / "k",
                "--cert-dir",
                tmp_path / "p",
                "--bootstrap-kubeconfig",
                tmp_path / "b",
            )
            done = tools.Tool(tools.HANDFAST)(*command, *places, "--timeout", "10s", code=1)
            assert done.stderr.splitlines()[-1] == "reason: NodeIsAlive"

    def _is_seen(self, cluster: clusters.Cluster) -> None:
        """By the three commands of an operator, each of which reads all of this server."""
        checks = json.loads(cluster.handfast("check", "-o", "json", code=None).stdout)["checks"]
        rows = {row["name"]: row for row in checks}
        assert [name for name in rows if not name.startswith("mesh")] == [*judged.WAY, *judged.INSIDE]
        # What other tests leave behind, such as a Secret that is no token, is not looked at here.
        calm = {*judged.WAY, "store", "controllers", "webhooks", "cas", "cluster-info", "node-serving", "machine-pools"}
        # Elsewhere the account of the manifest is asked for; on Handfast's own server nobody uses it.
        calm |= {"rights"} if cluster.stock else set()
        assert {name: rows[name] for name in calm if rows[name]["verdict"] != "ok"} == {}
        assert "of joins, ends at" in rows["node-serving"]["message"]
        # The ledger is there, and who has no Revocations has nobody revoked: nothing is hidden.
        assert rows["nodes"]["verdict"] != "unknown"
        one = json.loads(cluster.handfast("check", "--node", "joins", "-o", "json").stdout)
        assert {row["name"]: row["verdict"] for row in one["checks"]} == dict.fromkeys(
            (*judged.WAY, *one_node.NAMES, "node-serving"), "ok"
        )
        topics = json.loads(cluster.handfast("status", "-o", "json", code=None).stdout)["topics"]
        assert [row["topic"] for row in topics] == [*standing.TOPICS]
        listed = json.loads(cluster.handfast("node", "list", "-o", "json").stdout)["nodes"]
        assert ("joins", "good") in {(row["node"], row["state"]) for row in listed}

    def test_a_machine_joins_by_inventory(
        self, cluster: clusters.Cluster, kubectl: running.Kubectl, tmp_path: pathlib.Path, machine: tuple[object, ...]
    ) -> None:
        """With the account of the workers, and the controllers at work with the rights of their manifest."""
        account = ("token", bootstrapper.ACCOUNT, "--namespace", bootstrapper.NAMESPACE)
        running.eventually(lambda: kubectl("create", *account, code=None).code == 0, "the account")
        token = kubectl("create", *account).out.strip()
        credential = account_kubeconfig(cluster, tmp_path / "bootstrap.conf", token)
        cluster.handfast("machine", "create", "w1", "--dns", "w1.example", "--ip", "192.0.2.8")
        log = tmp_path / "agent.log"
        words = [*tools.HANDFAST, "node", "run", *machine, "--bootstrap-kubeconfig", credential]
        words += ["--node-name", "w1.example", "--node-ip", "192.0.2.8", "--listen", "127.0.0.1:0"]
        with running.process(words, log):
            linked = (
                "get",
                "machine",
                "w1",
                "--namespace",
                machine_kinds.NAMESPACE,
                "-o",
                "jsonpath={.status.nodeRef.name}",
            )
            running.eventually(lambda: kubectl(*linked).out == "w1.example", f"a Machine with its Node: {log}")
        said = json.loads(cluster.handfast("machine", "explain", "w1", "-o", "json").stdout)
        judged = next(row for row in said["stages"] if row["stage"] == "judged")
        assert judged["seen"].startswith("approved (NodeCSRApprove)")

    def test_nobody_approves(self, cluster: clusters.Cluster, kubectl: running.Kubectl, command: list[object]) -> None:
        """Whoever waits is told for what."""
        kubectl("delete", "clusterrolebinding", "kubeadm:node-autoapprove-bootstrap")
        try:
            # Under a name of its own: another's may be alive.
            done = tools.Tool(tools.HANDFAST)(*command, "--node-name", "waits", "--timeout", "10s", code=3)
        finally:
            cluster.handfast("init", "--token", "")
        assert re.search(r'csr "node-csr-\S+" was not approved within [\d.]+ seconds', done.stderr)
        assert done.stderr.splitlines()[-1] == "reason: BootstrapTimeout"

    def test_an_expired_token(
        self, cluster: clusters.Cluster, kubectl: running.Kubectl, tmp_path: pathlib.Path, command: list[object]
    ) -> None:
        """Its signature goes with it; that of another says that somebody signs."""
        other = create(cluster)
        running.eventually(lambda: signature(kubectl, other), "another signature")
        token = tokens.parse(str(command[command.index("--token") + 1]))
        running.eventually(lambda: signature(kubectl, token), "the signature")
        expire(kubectl, token)
        running.eventually(lambda: is_gone(kubectl, token), "that the signature goes")
        running.eventually(lambda: is_deleted(kubectl, token), "that the cleaner deletes it")
        done = tools.Tool(tools.HANDFAST)(*command, "--timeout", "12s", code=1)
        assert done.stderr.splitlines()[-1] == "reason: UnknownTokenID"
        assert not (tmp_path / "bootstrap.conf").exists()
