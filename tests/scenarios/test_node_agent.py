# SPDX-License-Identifier: Apache-2.0
"""A machine joins `handfast up` to the end, and its agent runs: real processes, real files, a real API server.

Proves: join leaves a certificate and no token; the agent registers its Node, keeps its Lease, follows its Pods and asks
for nothing else; rotation can be turned on, off and on again as KEP-266's questionnaire has it; static Pods wait for
nobody.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import pathlib
import shlex
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from handfast.bootstrap import kubeconfig
from handfast.pki import authority, keys, names, pairs, pem, profiles
from tests.scenarios import up_world

pytestmark = pytest.mark.slow

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{name: c, image: i}]}\n"


class Agent:
    """`handfast node run` as a process."""

    def __init__(self, machine: Machine, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
        self.machine = machine
        self.process = process
        self._log = log

    def text(self) -> str:
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]

    def said(self, event: str) -> bool:
        return any(line["event"] == event for line in self.lines())

    def until_said(self, event: str) -> None:
        up_world.until(lambda: self.said(event), what=f"{event!r} in {self._log.read_text()}")

    def report(self) -> dict[str, Any]:
        path = self.machine.pki / "handfast-node.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def until_well(self, seconds: float = 20) -> None:
        up_world.until(
            lambda: self.report().get("phase") == "running" and not self.report()["problems"],
            seconds,
            what=f"a well agent: {self.report()}",
        )

    def ask(self, path: str) -> tuple[int, str, bytes]:
        """The endpoint's code, text and certificate."""
        up_world.until(lambda: bool(self.report().get("endpoint")), what="the endpoint")
        url = self.report()["endpoint"]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, port = url.removeprefix("https://").split(":")
        shown = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))
        try:
            with urllib.request.urlopen(url + path, context=context, timeout=10) as answer:
                return answer.status, answer.read().decode(), shown
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode(), shown


class Machine:
    """One machine: its directories, and the commands typed on it."""

    def __init__(self, plane: up_world.Up, directory: pathlib.Path, name: str) -> None:
        self.plane = plane
        self.directory = directory
        self.name = name
        self.pki = directory / "pki"
        self.kubeconfig = directory / "kubelet.conf"
        self.bootstrap = directory / "bootstrap.conf"

    @property
    def places(self) -> tuple[object, ...]:
        return ("--kubeconfig", self.kubeconfig, "--cert-dir", self.pki)

    def token(self, *more: object) -> list[str]:
        admin = self.plane.directory / "admin.conf"
        made = up_world.run("token", "create", "--print-join-command", "--kubeconfig", admin, *more)
        assert made.returncode == 0, made.stderr
        return made.stdout.split()[1:]

    def words(self, *more: object) -> tuple[object, ...]:
        named = ("--node-name", self.name, "--bootstrap-kubeconfig", self.bootstrap)
        return (*named, *self.places, "--timeout", "30s", *more)

    def join(self, *more: object) -> subprocess.CompletedProcess[str]:
        return up_world.run(*self.token(), *self.words(*more))

    def join_with(self, *more: object, groups: str) -> subprocess.CompletedProcess[str]:
        """With a token of another group."""
        return up_world.run(*self.token("--groups", groups), *self.words(*more))

    @contextlib.contextmanager
    def joining(self, *more: object) -> Iterator[subprocess.Popen[str]]:
        """A join that goes on while others do something."""
        words = [*up_world.COMMAND, *map(str, (*self.token(), *self.words(*more)))]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=up_world.environment()
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def joined(self) -> Machine:
        done = self.join()
        assert done.returncode == 0, done.stderr
        return self

    @contextlib.contextmanager
    def agent(self, *flags: object, places: tuple[object, ...] | None = None, code: int = 0) -> Iterator[Agent]:
        log = self.directory / f"agent-{len(list(self.directory.glob('agent-*')))}.log"
        words = ["node", "run", "--node-name", self.name, "--listen", "127.0.0.1:0"]
        words += [str(word) for word in (*(self.places if places is None else places), *flags)]
        with log.open("wb") as opened:
            process = subprocess.Popen([*up_world.COMMAND, *words], stderr=opened, env=up_world.environment())
        try:
            yield Agent(self, process, log)
            if code == 0:
                process.send_signal(signal.SIGTERM)
            assert process.wait(30) == code, log.read_text()
        finally:
            process.kill()
            process.wait(30)

    def current(self) -> pairs.Pair:
        return pairs.read((self.pki / "kubelet-client-current.pem").read_bytes())

    def requests(self) -> list[dict[str, Any]]:
        """The certificate requests for this node."""
        found = self.plane.call("GET", CSRS)[1]["items"]
        mine = f"system:node:{self.name}"
        return [item for item in found if mine in (item["spec"]["username"], _asked(item))]

    def node(self) -> dict[str, Any] | None:
        code, found = self.plane.call("GET", f"/api/v1/nodes/{self.name}")
        return found if code == 200 else None

    def static_kubeconfig(self) -> pathlib.Path:
        """What a node deployer provides: a certificate made by hand."""
        place = self.plane.directory / "pki"
        ca = authority.Authority(
            pem.certificates_from_pem((place / "ca.crt").read_bytes())[0],
            keys.private_from_pem((place / "ca.key").read_bytes()),
        )
        key = keys.generate()
        subject = names.Subject(common_name=f"system:node:{self.name}", organizations=("system:nodes",))
        now = datetime.datetime.now(datetime.UTC)
        issued = ca.issue(key.public, subject, names.Sans(), profiles.KUBELET_CLIENT, now)
        text = kubeconfig.build(
            cluster="c",
            server=self.plane.facts["apiserver"],
            ca=(place / "ca.crt").read_bytes(),
            user="u",
            client_certificate=issued.pem,
            client_key=key.to_pem(),
        )
        path = self.directory / "static.kubeconfig"
        path.write_text(text)
        path.chmod(0o600)
        return path

    def expired_pair(self) -> pairs.Pair:
        """Signed with the CA's key by somebody who asked nobody: this CA is too young to have issued it itself."""
        place = self.plane.directory / "pki"
        issuer = x509.load_pem_x509_certificate((place / "ca.crt").read_bytes())
        signing: Any = serialization.load_pem_private_key((place / "ca.key").read_bytes(), None)
        key = keys.generate()
        name = [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{self.name}"),
        ]
        now = datetime.datetime.now(datetime.UTC)
        purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        made = (
            x509.CertificateBuilder(issuer_name=issuer.subject, subject_name=x509.Name(name))
            .public_key(keys.for_certificate(key.public))
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=4))
            .not_valid_after(now - datetime.timedelta(seconds=10))
            .add_extension(purpose, critical=False)
            .sign(signing, hashes.SHA256())
        )
        return pairs.join(made.public_bytes(serialization.Encoding.PEM), key)


def _asked(item: dict[str, Any]) -> str:
    import base64

    from handfast.pki import requests

    return requests.parse(base64.b64decode(item["spec"]["request"])).subject.common_name


@pytest.fixture
def machine(plane: up_world.Up, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Machine:
    name = request.node.name.removeprefix("test_").replace("_", "-").split("[")[0][:40].strip("-")
    return Machine(plane, tmp_path, name)


def audited(plane: up_world.Up, user: str) -> list[dict[str, Any]]:
    lines = (plane.directory / "audit" / "audit.log").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line.get("user", {}).get("username") == user]


class TestJoin:
    def test_to_the_end(self, machine: Machine) -> None:
        done = machine.join("-o", "json")
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert (facts["joined"], facts["node"], facts["nodeExisted"]) == (True, machine.name, False)
        assert facts["certificate"]["subject"] == f"CN=system:node:{machine.name},O=system:nodes"
        # The token has done its work and is not left behind.
        assert not machine.bootstrap.exists()
        config = kubeconfig.parse(machine.kubeconfig.read_text())
        current = str(machine.pki / "kubelet-client-current.pem")
        assert config.user == kubeconfig.User(name="default-auth", client_certificate=current, client_key=current)
        assert machine.current().leaf.serial == facts["certificate"]["serial"]
        assert not (machine.pki / "kubelet-client.key.tmp").exists()

    def test_the_request_is_explained_afterwards(self, machine: Machine) -> None:
        machine.joined()
        (request,) = machine.requests()
        admin = ("--kubeconfig", machine.plane.directory / "admin.conf")
        done = up_world.run("csr", "explain", request["metadata"]["name"], *admin)
        assert done.returncode == 0, done.stderr
        lines = {line.partition("  ")[0]: line for line in done.stdout.splitlines()}
        assert " ok " in lines["permission"]
        assert "kubeadm:node-autoapprove-bootstrap" in lines["permission"], "the binding is named"
        assert "system:bootstrap:" in lines["asked by"]
        assert machine.current().leaf.serial in lines["serial"]
        assert ": NodeJoin, by bootstrap-token " in lines["ledger"]
        shown = up_world.run("ledger", "show", machine.current().leaf.serial, *admin)
        assert "NodeJoin\n" in shown.stdout

    def test_again_asks_for_nothing(self, machine: Machine) -> None:
        machine.joined()
        serial = machine.current().leaf.serial
        done = machine.join()
        assert done.returncode == 0, done.stderr
        assert "which was here already" in done.stdout
        assert "would ask for nothing" in machine.join("--dry-run").stdout
        assert machine.current().leaf.serial == serial
        assert len(machine.requests()) == 1

    def test_the_check_of_the_token_is_no_refusal(self, machine: Machine) -> None:
        words = machine.token()
        token = words[words.index("--token") + 1].partition(".")[0]
        done = up_world.run(
            *words, "--node-name", machine.name, "--bootstrap-kubeconfig", machine.bootstrap, *machine.places
        )
        assert done.returncode == 0, done.stderr
        found = audited(machine.plane, f"system:bootstrap:{token}")
        # That there is no Node of this name yet is an answer.
        assert [
            line for line in found if line["responseStatus"]["code"] >= 400 and line["responseStatus"]["code"] != 404
        ] == []
        assert "/version" in {line["requestURI"] for line in found}

    def test_a_dry_run_writes_and_asks_nothing(self, machine: Machine) -> None:
        done = machine.join("--dry-run", "--systemd", "--systemd-dir", machine.directory / "systemd")
        assert done.returncode == 0, done.stderr
        assert f"ask for a certificate as node {machine.name}" in done.stdout
        assert "The cluster would take the request" in done.stdout
        assert list(machine.directory.iterdir()) == []
        assert machine.requests() == []

    def test_the_unit_starts_what_was_joined(self, machine: Machine) -> None:
        done = machine.join("--systemd", "--systemd-dir", machine.directory / "systemd")
        assert done.returncode == 0, done.stderr
        unit = (machine.directory / "systemd" / "handfast-node.service").read_text()
        (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
        # For these words a shell reads quotes as systemd does.
        words = " ".join(shlex.split(start))
        assert f"node run --node-name {machine.name} --kubeconfig {machine.kubeconfig}" in words
        assert words.endswith("--rotate-certificates")
        assert "Restart=always" in unit
        assert "systemctl daemon-reload && systemctl enable --now handfast-node.service" in done.stdout


class TestAgent:
    def test_registers_and_lives(self, machine: Machine) -> None:
        with machine.joined().agent("--node-ip", "192.0.2.7,2001:db8::7", "--rotate-certificates") as agent:
            agent.until_well()
            node = machine.node()
            assert node is not None
            assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
            assert [row["address"] for row in node["status"]["addresses"]][:2] == ["192.0.2.7", "2001:db8::7"]
            (ready,) = node["status"]["conditions"]
            assert (ready["status"], ready["reason"]) == ("True", "AgentReady")
            lease = machine.plane.call("GET", f"{LEASES}/{machine.name}")[1]
            assert lease["spec"]["holderIdentity"] == machine.name
            assert lease["spec"]["leaseDurationSeconds"] == 40
            assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
            body = {
                "metadata": {"name": machine.name},
                "spec": {"nodeName": machine.name, "containers": [{"name": "c", "image": "i"}]},
            }
            code, answer = machine.plane.call("POST", "/api/v1/namespaces/default/pods", body)
            assert code == 201, answer
            up_world.until(lambda: agent.report()["pods"] == 1, what="the Pod")
            assert agent.ask("/readyz")[:2] == (200, "ok")
            metrics = agent.ask("/metrics")[1]
            for name in ("client_expiration_seconds", "client_ttl_seconds", "client_expiration_renew_errors"):
                assert f"\nkubelet_certificate_manager_{name} " in metrics
        # Nothing was asked for that a node may not have.
        found = audited(machine.plane, f"system:node:{machine.name}")
        assert [line["requestURI"] for line in found if line["responseStatus"]["code"] in {401, 403}] == []
        pods = [line["requestURI"] for line in found if line["requestURI"].startswith("/api/v1/pods")]
        assert pods
        assert all(
            f"fieldSelector=spec.nodeName%3D{machine.name}" in uri.replace("=spec.nodeName=", "=spec.nodeName%3D")
            for uri in pods
        )

    def test_status_and_rotate(self, machine: Machine) -> None:
        machine.joined()
        idle = up_world.run("node", "status", *machine.places, "-o", "json")
        assert (idle.returncode, json.loads(idle.stdout)["agent"]) == (0, None)
        nobody = up_world.run("node", "rotate", *machine.places)
        assert nobody.returncode == 3
        assert nobody.stderr.endswith("reason: AgentNotRunning\n")
        serial = machine.current().leaf.serial
        with machine.agent("--rotate-certificates", "-v=2") as agent:
            agent.until_well()
            found = json.loads(up_world.run("node", "status", *machine.places, "-o", "json").stdout)
            assert found["certificate"]["serial"] == serial
            assert found["agent"]["nextRenewal"] > found["certificate"]["notBefore"]
            assert abs(found["clockDifferenceSeconds"]) < 5
            done = up_world.run("node", "rotate", *machine.places)
            assert done.returncode == 0, done.stderr
            assert machine.current().leaf.serial != serial
            # All goes on under the new one.
            agent.until_said("connections with the previous certificate are closed")
            agent.until_well()
            more = {line["event"] for line in agent.lines() if line["level"] == "debug"}
        assert len(machine.requests()) == 2
        # What verbosity 2 adds: what the keeper decides, and each step of a request.
        assert more >= {
            "no certificate is due",
            "the key is on disk, and its request is sent or waited for",
            "the certificate is stored",
        }

    def test_rotation_off_is_said(self, machine: Machine) -> None:
        with machine.joined().agent() as agent:
            agent.until_well()
            assert [line for line in agent.lines() if line["level"] == "debug"] == []
            done = up_world.run("node", "rotate", *machine.places)
            assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "reason: RotationOff")

    def test_serving_certificate_of_the_cluster(self, machine: Machine) -> None:
        role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeserver"
        binding = {
            "metadata": {"name": "serving"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }
        code, answer = machine.plane.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        assert code == 201, answer
        # The nodes of other tests were on this machine, too: its name is theirs as long as they are there.
        for node in machine.plane.call("GET", "/api/v1/nodes")[1]["items"]:
            machine.plane.call("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")
        with machine.joined().agent("--rotate-server-certificates=true", "--node-ip", "192.0.2.77") as agent:
            agent.until_well()
            stored = pairs.read((machine.pki / "kubelet-server-current.pem").read_bytes())
            code, _, shown = agent.ask("/healthz")
            assert (code, shown) == (200, stored.chain[0])
            assert "IP:192.0.2.77" in stored.leaf.sans.texts()
            assert stored.leaf.usages == {"digital signature", "server auth"}

    def test_two_agents_do_not_share_a_directory(self, machine: Machine) -> None:
        with machine.joined().agent() as agent:
            agent.until_well()
            with machine.agent(code=1) as second:
                second.process.wait(30)
            assert f"error: the directory {machine.pki} is in use by process {agent.process.pid}\n" in second.text()
            assert second.text().endswith("reason: DirectoryInUse\n")
            # The first one was not disturbed.
            assert agent.report()["pid"] == agent.process.pid


class TestRolloutAndRollback:
    """KEP-266, "Were upgrade and rollback tested?", step by step on one node."""

    def test_off_on_off_on(self, machine: Machine) -> None:
        static, dynamic = machine.static_kubeconfig(), machine.directory / "dynamic.kubeconfig"
        # Started without the feature: it registers.
        with machine.agent(places=("--kubeconfig", static, "--cert-dir", machine.pki)) as agent:
            agent.until_well()
            assert machine.node() is not None
        assert machine.requests() == []
        assert not (machine.pki / "kubelet-client-current.pem").exists()
        # Restarted with it, and a kubeconfig that is not there: a CSR, the kubeconfig, the certificate.
        done = up_world.run(*machine.token(), "--discovery-only", "--bootstrap-kubeconfig", machine.bootstrap)
        assert done.returncode == 0, done.stderr
        on = ("--kubeconfig", dynamic, "--bootstrap-kubeconfig", machine.bootstrap, "--cert-dir", machine.pki)
        with machine.agent("--rotate-certificates=true", places=on) as agent:
            # Its name is free when the Lease of its former self has ended, or is gone (tests/scenarios/test_living_names.py).
            agent.until_said("the certificate request waits")
            assert machine.plane.call("DELETE", f"{LEASES}/{machine.name}")[0] == 200
            agent.until_well(30)
            assert len(machine.requests()) == 1
            assert kubeconfig.parse(dynamic.read_text()).user is not None
            first = machine.current().leaf.serial
            assert agent.report()["next_renewal"]
        # Restarted without it: the provided credential is used, and nothing is asked for.
        with machine.agent(places=("--kubeconfig", static, "--cert-dir", machine.pki)) as agent:
            agent.until_well()
            assert agent.report()["certificate"] != first
            assert agent.report()["next_renewal"] == ""
        assert len(machine.requests()) == 1
        # Enabled again: it goes on with what it had.
        with machine.agent("--rotate-certificates", places=on) as agent:
            agent.until_well()
            assert agent.report()["certificate"] == first
            assert up_world.run("node", "rotate", "--cert-dir", machine.pki).returncode == 0
        assert machine.current().leaf.serial != first

    def test_by_the_configuration_file(self, machine: Machine) -> None:
        config = machine.directory / "kubelet.yaml"
        config.write_text(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
            "rotateCertificates: true\ncgroupDriver: systemd\n"
        )
        with machine.joined().agent("--config", config) as agent:
            agent.until_well()
            assert agent.report()["rotation"] is True
            assert agent.said(f"{config}: ignored, since this agent has no use for them: cgroupDriver")
        gates = ("--feature-gates", "RotateKubeletClientCertificate=false")
        with machine.agent("--config", config, *gates) as agent:
            agent.until_well()
            assert agent.report()["rotation"] is False

    def test_a_node_without_permission_keeps_asking(self, machine: Machine) -> None:
        """How a rollout fails: nobody approves. The request waits, and its cause is to be seen."""
        admin = machine.plane.directory / "admin.conf"
        made = up_world.run("token", "create", "--groups", "system:bootstrappers:unapproved", "--kubeconfig", admin)
        grant = {
            "metadata": {"name": "unapproved"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:node-bootstrapper",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers:unapproved"}
            ],
        }
        assert machine.plane.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", grant)[0] == 201
        words = machine.token()
        words[words.index("--token") + 1] = made.stdout.strip()
        named = ("--node-name", machine.name, "--bootstrap-kubeconfig", machine.bootstrap)
        done = up_world.run(*words, *named, *machine.places, "--timeout", "5s")
        assert done.returncode == 3
        assert done.stderr.endswith("reason: BootstrapTimeout\n")
        assert "run the same command again" in done.stderr
        (request,) = machine.requests()
        # Approved by a person, the same command finishes, with the same request.
        approval = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "for a test"}
        request["status"] = {"conditions": [approval]}
        code, answer = machine.plane.call("PUT", f"{CSRS}/{request['metadata']['name']}/approval", request)
        assert code == 200, answer
        done = up_world.run(*words, *named, *machine.places, "--timeout", "20s")
        assert done.returncode == 0, done.stderr
        assert len(machine.requests()) == 1


def started_at(agent: Agent) -> float:
    """The moment that this process began; `changes()` of it is the count of restarts."""
    [line] = [line for line in agent.ask("/metrics")[1].splitlines() if line.startswith("process_start_time_seconds ")]
    return float(line.split()[1])


class TestStaticPods:
    def test_they_wait_for_no_certificate(self, machine: Machine) -> None:
        """The API server is not there, and may be one of the static Pods."""
        manifests = machine.directory / "manifests"
        manifests.mkdir()
        (manifests / "etcd.yaml").write_text(POD)
        (manifests / "wrong.yaml").write_text("kind: Nothing\n")
        text = kubeconfig.render(
            kubeconfig.Kubeconfig(
                context="c",
                cluster=kubeconfig.Cluster(name="c", server="https://127.0.0.1:1"),
                user=kubeconfig.User(name="u", token="abcdef.0123456789abcdef"),
            )
        )
        machine.bootstrap.write_text(text)
        flags = ("--bootstrap-kubeconfig", machine.bootstrap, "--static-pods-dir", manifests)
        with machine.agent(*flags) as agent:
            agent.until_said("static Pod found")
            up_world.until(lambda: bool(agent.report().get("static_pods")), what="the report")
            assert agent.report()["static_pods"] == [f"default/etcd-{machine.name}"]
            assert agent.report()["phase"] == "waiting for a certificate"
            code, why, _ = agent.ask("/readyz")
            assert code == 500
            assert "[-]certificate failed: there is no certificate yet" in why
            assert "[-]static-pods failed: wrong.yaml: apiVersion: None is not supported" in why
            assert agent.ask("/livez")[:2] == (200, "ok")
            started = started_at(agent)
        # Started again by its service manager, still without a certificate: whoever collects metrics can count that.
        with machine.agent(*flags) as agent:
            agent.until_said("static Pod found")
            assert started_at(agent) > started


class TestFinalRefusals:
    """What waiting does not mend is told at once, with its own word and exit code 1."""

    # Far longer than any of these takes: none of them may be waited out.
    PATIENT = ("--timeout", "10m")

    def limited(self, machine: Machine, *flags: object) -> list[str]:
        """The words of a join with a token of these limits."""
        admin = machine.plane.directory / "admin.conf"
        made = up_world.run("token", "create", "--print-join-command", "--kubeconfig", admin, *flags)
        assert made.returncode == 0, made.stderr
        named = ("--node-name", machine.name, "--bootstrap-kubeconfig", machine.bootstrap, *machine.places)
        return [*made.stdout.split()[1:], *map(str, named), *self.PATIENT]

    def refused(self, machine: Machine, words: list[str], reason: str) -> str:
        done = up_world.run(*words)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"reason: {reason}"), done.stderr
        assert machine.requests() == []
        return done.stderr

    def test_a_token_with_no_uses_left(self, machine: Machine) -> None:
        words = self.limited(machine, "--max-uses", "1")
        other = Machine(machine.plane, machine.directory / "other", f"{machine.name}-2")
        other.directory.mkdir()
        taken = ("--node-name", other.name, "--bootstrap-kubeconfig", other.bootstrap, *other.places)
        first = up_world.run(*words[: words.index("--node-name")], *taken)
        assert first.returncode == 0, first.stderr
        self.refused(machine, [*words, "--dry-run"], "TokenUsedUp")
        assert not machine.pki.exists()
        text = self.refused(machine, words, "TokenUsedUp")
        assert "was made for 1 use, and none is left" in text
        assert "hint: ask for another token" in text

    def test_a_token_for_another_node(self, machine: Machine) -> None:
        words = self.limited(machine, "--node", "other-*")
        self.refused(machine, [*words, "--dry-run"], "TokenNotForThisNode")
        text = self.refused(machine, words, "TokenNotForThisNode")
        assert "is for 'other-*'" in text

    def test_a_token_for_another_network(self, machine: Machine) -> None:
        text = self.refused(machine, self.limited(machine, "--cidr", "192.0.2.0/24"), "TokenNotFromHere")
        assert "is not accepted from this machine's address" in text

    def test_a_token_that_may_not_ask(self, machine: Machine) -> None:
        words = self.limited(machine, "--groups", "system:bootstrappers:nobody")
        # It has no word of ours, so that it is asked for again, here for less than half a minute.
        text = self.refused(machine, [*words, "--timeout", "4s"], "Forbidden")
        assert "hint: on a control plane, bind the ClusterRole system:node-bootstrapper" in text

    @pytest.mark.parametrize(("word", "reason"), [("NoThanks", "RequestDenied"), ("Revoked", "Revoked")])
    def test_a_denied_request(self, machine: Machine, word: str, reason: str) -> None:
        machine.name = f"{machine.name}-{word.lower()}"
        group = f"system:bootstrappers:denied-{word.lower()}"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
        grant = {"metadata": {"name": f"denied-{word.lower()}"}, "roleRef": role, "subjects": [subject]}
        assert machine.plane.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", grant)[0] == 201
        words = [*up_world.COMMAND, *self.limited(machine, "--groups", group)]
        joining = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=up_world.environment())
        try:
            up_world.until(machine.requests, 30, "a request")
            (request,) = machine.requests()
            condition = {"type": "Denied", "status": "True", "reason": word, "message": "not this one"}
            request["status"] = {"conditions": [condition]}
            path = f"{CSRS}/{request['metadata']['name']}/approval"
            assert machine.plane.call("PUT", path, request)[0] == 200
            _, text = joining.communicate(timeout=30)
        finally:
            joining.kill()
            joining.wait(30)
        assert (joining.returncode, text.splitlines()[-1]) == (1, f"reason: {reason}"), text
        assert f"is denied, reason: {word}, message: not this one" in text


class TestRefusals:
    def test_a_machine_of_another_cluster(self, machine: Machine) -> None:
        machine.static_kubeconfig()
        other = (machine.directory / "static.kubeconfig").read_text().replace("127.0.0.1", "192.0.2.99")
        machine.kubeconfig.write_text(other)
        done = machine.join()
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "reason: AlreadyJoined")
        assert machine.kubeconfig.read_text() == other
        assert not machine.bootstrap.exists()

    def test_nothing_to_start_with(self, machine: Machine) -> None:
        """The bootstrap kubeconfig is named, since the machine of the tests may have one in the place that is looked in."""
        words = (*machine.places, "--bootstrap-kubeconfig", machine.bootstrap, "--node-name", machine.name)
        done = up_world.run("node", "run", *words, "--listen", "127.0.0.1:0")
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "reason: NoBootstrapKubeconfig")

    def test_the_status_of_a_revoked_node(self, machine: Machine) -> None:
        machine.joined()
        assert up_world.run("node", "status", *machine.places).returncode == 0
        admin = ("--kubeconfig", machine.plane.directory / "admin.conf")
        assert up_world.run("node", "revoke", machine.name, *admin).returncode == 0
        shown = up_world.run("node", "status", *machine.places)
        assert (shown.returncode, ", REFUSED\n" in shown.stdout) == (1, True), shown.stdout
        assert "does not accept this certificate (401 Unauthorized): the node was revoked, or" in shown.stdout
        assert up_world.run("node", "revoke", machine.name, "--undo", *admin).returncode == 0
        assert up_world.run("node", "status", *machine.places).returncode == 0

    def test_nothing_to_recover(self, machine: Machine) -> None:
        done = up_world.run("node", "recover", *machine.places)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "reason: NoCertificate")
        machine.joined()
        done = up_world.run("node", "recover", *machine.places)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("nothing to recover")

    def test_an_expired_certificate_that_nobody_issued(self, machine: Machine) -> None:
        """Signed by the CA, and not in the ledger: it is not let back in, and the operator is told what to do."""
        machine.kubeconfig = machine.static_kubeconfig()
        machine.pki.mkdir()
        stored = machine.pki / "kubelet-client-2026-01-01-00-00-00.pem"
        stored.write_bytes(machine.expired_pair().pem)
        stored.chmod(0o600)
        shown = up_world.run("node", "status", *machine.places)
        assert (shown.returncode, "NOT in force" in shown.stdout) == (1, True)
        done = up_world.run("node", "recover", *machine.places)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "reason: NotRecoverable")
        assert f"--max-uses 1 --node {machine.name}; then run what it prints on this machine" in done.stderr
        assert machine.requests() == []
