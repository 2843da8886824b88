# SPDX-License-Identifier: Apache-2.0
"""Joins that fail are seen without the audit log, and a machine that was reset joins again: on a real `handfast up`.

Proves: what each refused machine showed, from where and why, is in `handfast join failures`, in Events that kubectl shows, and in a metric;
no answer and no Event tells more than before. `node reset` removes what the agent wrote and nothing else, and can be repeated.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import pathlib
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from handfast.bootstrap import first_objects
from handfast.pki import keys, names, pem, pins, requests
from handfast.rules.machines import bootstrapper
from handfast.rules.tokens import failed_joins
from tests.interop import running
from tests.scenarios import up_world
from tests.unit.pki import making

pytestmark = [pytest.mark.slow, pytest.mark.kubectl, pytest.mark.timeout(300)]

SECRET = "0123456789abcdef"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
# By which requests with a token are approved, as `up` makes it.
APPROVES = next(each.document for each in first_objects.access() if each.name == "kubeadm:node-autoapprove-bootstrap")


def request_of(node: str) -> dict[str, Any]:
    """A request for the certificate of a node."""
    subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
    request = requests.build(subject, names.Sans(), keys.generate(keys.Kind.P256))
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "node-csr-"},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }


class Story:
    """A control plane, and machines that ask it, all on this one."""

    def __init__(self, plane: up_world.Up, directory: pathlib.Path) -> None:
        self.plane, self.directory = plane, directory
        self.admin = plane.directory / "admin.conf"

    def run(self, *words: object, code: int = 0) -> str:
        """As the operator: what was printed."""
        done = up_world.run(*words)
        assert done.returncode == code, done.stderr
        return done.stdout

    def token(self, identifier: str, *flags: object) -> str:
        self.run("token", "create", f"{identifier}.{SECRET}", "--kubeconfig", self.admin, *flags)
        return f"{identifier}.{SECRET}"

    def bears(self, token: str, method: str = "GET", body: object = None) -> tuple[int, dict[str, str], bytes]:
        """The answer to who shows a token and asks for requests for certificates."""
        context = ssl.create_default_context(cafile=str(self.plane.directory / "pki" / "ca.crt"))
        with contextlib.closing(self.plane.connection(context)) as connection:
            path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            told = {name: value for name, value in answer.getheaders() if name not in {"Date", "Audit-Id"}}
            return answer.status, told, answer.read()

    def places(self, name: str) -> list[str]:
        own = self.directory / name
        return ["--kubeconfig", str(own / "kubelet.conf"), "--cert-dir", str(own / "pki")]

    def join(self, name: str, token: str, *flags: object) -> subprocess.CompletedProcess[str]:
        server = self.plane.facts["apiserver"]
        own = self.directory / name
        # The CA is vouched for by the file, so that a token that signs nothing is tried, too.
        info = self.plane.directory.parent / "cluster-info.yaml"
        if not info.exists():
            document = self.plane.call("GET", "/api/v1/namespaces/kube-public/configmaps/cluster-info")[1]
            info.write_text(document["data"]["kubeconfig"])
        return up_world.run(
            *("join", server, "--discovery-file", info, "--tls-bootstrap-token", token, "--node-name", name),
            *("--bootstrap-kubeconfig", own / "bootstrap.conf", *self.places(name), *flags),
            seconds=120,
        )

    def failures(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self.run("join", "failures", "--kubeconfig", self.admin, "-o", "json")
        )["failures"]
        return found

    def metric(self, reason: str) -> float:
        with contextlib.closing(self.plane.connection(self.plane.context())) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        start = f'handfast_joins_refused_total{{reason="{reason}"}} '
        return sum(float(line.removeprefix(start)) for line in text.splitlines() if line.startswith(start))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("joins")
    with up_world.Up(directory / "data") as plane:
        yield Story(plane.ready(), directory)


def test_each_refused_join_is_listed_with_what_would_let_it_in(story: Story) -> None:
    once = story.token("onceaa", "--max-uses", "1")
    named = story.token("namedx", "--node", "rack-*")
    elsewhere = story.token("farawy", "--cidr", "192.0.2.0/24")
    signing = story.token("signsx", "--usages", "signing")
    assert story.join("first", once).returncode == 0
    refused = story.join("second", once, "--timeout", "5s")
    assert refused.returncode == 1, refused.stderr
    assert story.bears(named, "POST", request_of("second"))[0] == 403
    for token in (elsewhere, signing, f"nosuch.{SECRET}", f"nosuc2.{SECRET}"):
        assert story.bears(token)[0] == 401
    # Somebody who has mistyped the secret half: their machine does not believe the server, and the operator sees why.
    pin = pins.of_certificate(pem.certificates_from_pem((story.plane.directory / "pki/ca.crt").read_bytes())[0])
    typed = ("--token", f"onceaa.{'x' * 16}", "--discovery-token-ca-cert-hash", str(pin), "--timeout", "3s")
    mistyped = up_world.run(
        *("join", story.plane.facts["apiserver"], *typed, "--node-name", "third", *story.places("third"))
    )
    assert (mistyped.returncode, "reason: SignatureMismatch" in mistyped.stderr) == (1, True)
    assert "compare its secret half" in mistyped.stderr
    wanted = {
        ("onceaa", "TokenUsedUp", "second"),
        ("namedx", "TokenNotForThisNode", "second"),
        ("farawy", "TokenNotFromHere", None),
        ("signsx", "NotForAuthentication", None),
        ("onceaa", "WrongTokenSecret", None),
    }
    seen: list[dict[str, Any]] = []

    def all_told() -> bool:
        # A command each time, which costs a second of a processor: asked once for all.
        seen[:] = story.failures()
        told = {(each["tokenID"], each["reason"], each["node"]) for each in seen}
        return wanted <= told and any(each["tokenKnown"] is False for each in seen)

    up_world.until(all_told, 60, f"all of {wanted}, and the unknown one")
    failures = {(each["tokenID"], each["reason"]): each for each in seen if not each["request"]}
    assert {each["source"] for each in failures.values()} == {"127.0.0.1"}
    # Ids that no token has are one line, however many there were.
    assert [each["reason"] for each in seen if each["tokenKnown"] is False] == ["UnknownToken"]
    create = "handfast token create --print-join-command"
    assert failures["namedx", "TokenNotForThisNode"]["smallestChange"] == f"{create} --node second"
    assert failures["farawy", "TokenNotFromHere"]["smallestChange"] == f"{create} --cidr 127.0.0.1/32"
    assert failures["signsx", "NotForAuthentication"]["smallestChange"] == "handfast token explain signsx"
    assert story.metric("TokenUsedUp") >= 1
    assert story.metric("UnknownToken") >= 2
    # The same for people.
    text = story.run("join", "failures", "--kubeconfig", story.admin)
    assert "unknown (" in text
    assert "TokenNotForThisNode" in text


def test_the_credentials_of_a_fleet_that_do_not_count_are_listed_too(story: Story) -> None:
    """A certificate in the name of the account that is over, and tokens of the account: without rights, and when it is gone."""
    subject = names.to_name(names.Subject(common_name=bootstrapper.USER, organizations=bootstrapper.GROUPS))
    pki = story.plane.directory / "pki"
    key = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
    ca = making.Made(x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes()), key)
    end = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    begin = end - datetime.timedelta(hours=1)
    usage = x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH
    own = making.leaf(ca, usage, subject=subject, not_before=begin, not_after=end)
    file = story.directory / "master.pem"
    file.write_bytes(own.pem + own.key_pem)
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(file)
    with contextlib.closing(story.plane.connection(context)) as connection:
        connection.request("GET", "/api")
        answer = connection.getresponse()
        # No more than anybody else is told.
        assert (answer.status, json.loads(answer.read())["message"]) == (401, "Unauthorized")
    place = f"/api/v1/namespaces/{bootstrapper.NAMESPACE}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bootstrapper.NAMESPACE}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": bootstrapper.ACCOUNT}}
    assert story.plane.call("POST", "/api/v1/namespaces", namespace)[0] in {201, 409}
    assert story.plane.call("POST", f"{place}/serviceaccounts", account)[0] == 201
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"{place}/serviceaccounts/{bootstrapper.ACCOUNT}"
    code, made = story.plane.call("POST", f"{path}/token", wanted)
    assert code == 201, made
    assert story.bears(made["status"]["token"], "POST", request_of("rack-1"))[0] == 403
    assert story.plane.call("DELETE", path)[0] == 200
    assert story.bears(made["status"]["token"])[0] == 401
    seen: list[dict[str, Any]] = []

    def all_told() -> bool:
        seen[:] = [each for each in story.failures() if each["credential"] in failed_joins.SHARED]
        return len(seen) == 3

    up_world.until(all_told, 60, "three of them")
    rows = {(each["credential"], each["reason"]): each for each in seen}
    assert ("certificate", "Expired") in rows
    assert ("account", "NoRuleAllows") in rows
    assert {(each["source"], each["tokenID"], each["count"]) for each in seen} == {("127.0.0.1", None, 1)}
    assert story.metric("Expired") == 1


def test_kubectl_shows_the_events_and_no_secret_is_in_them(story: Story) -> None:
    assert story.bears(f"eventx.{SECRET}")[0] == 401
    assert story.bears(f"sample.{SECRET}")[0] == 401
    kubectl, _ = running.find_kubectl()
    words = (kubectl, "--kubeconfig", str(story.admin), "--namespace", "kube-system", "get", "events")
    selected = (*words, "--field-selector", "reason=JoinRefused", "--output")

    def shown(form: str) -> str:
        return subprocess.run((*selected, form), capture_output=True, text=True, check=True, timeout=60).stdout

    up_world.until(lambda: "UnknownToken" in shown("wide"), 60, "the Event")
    everything = shown("json")
    assert SECRET not in everything
    [about] = {
        each["involvedObject"]["name"] for each in json.loads(everything)["items"] if "UnknownToken" in each["message"]
    }
    assert about == "kube-system"


def test_the_answer_tells_nobody_which_ids_exist(story: Story) -> None:
    story.token("exists", "--ttl", "1h")
    there, not_there = (story.bears(f"{identifier}.{'y' * 16}") for identifier in ("exists", "absent"))
    assert there == not_there
    assert there[0] == 401


def test_a_request_that_waits_is_listed_with_its_explanation(story: Story) -> None:
    token = story.token("waiter")
    story.plane.call("DELETE", f"{BINDINGS}/{APPROVES['metadata']['name']}")
    try:
        assert story.bears(token, "POST", request_of("patient"))[0] == 201
        up_world.until(lambda: any(each["node"] == "patient" for each in story.failures()), 60, "the request")
        [line] = [each for each in story.failures() if each["node"] == "patient"]
        assert (line["reason"], line["tokenID"]) == ("Waiting", "waiter")
        assert line["smallestChange"] == f"handfast csr explain {line['request']}"
        story.run("csr", "deny", line["request"], "--kubeconfig", story.admin)
        assert [each["reason"] for each in story.failures() if each["node"] == "patient"] == ["Denied"]
    finally:
        story.plane.call("POST", BINDINGS, APPROVES)


def test_a_machine_that_was_reset_joins_again(story: Story) -> None:
    token = story.token("resetx")
    joined = story.join("again", token)
    assert joined.returncode == 0, joined.stderr
    own = story.directory / "again"
    foreign = own / "pki" / "notes.txt"
    foreign.write_text("mine")
    story.plane.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "again"}})
    words = ("node", "reset", *story.places("again"), "--bootstrap-kubeconfig", own / "bootstrap.conf")
    words = (*words, "--systemd-dir", own / "units")
    # Nothing is changed without a word for it.
    refused = up_world.run(*words)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (2, "reason: NotConfirmed")
    dry = json.loads(story.run(*words, "--dry-run", "-o", "json"))
    assert (dry["node"], dry["done"]) == ("again", False)
    assert all(pathlib.Path(path).is_symlink() or pathlib.Path(path).exists() for path in dry["removed"])
    certificate = (own / "pki" / "kubelet-client-current.pem").read_bytes()
    told = ("--remove", "--revoke", "--admin-kubeconfig", story.admin, "--yes")
    done = json.loads(story.run(*words, *told, "-o", "json"))
    assert done["removed"] == dry["removed"]
    assert [path.name for path in own.rglob("*") if path.is_file() or path.is_symlink()] == ["notes.txt"]
    assert story.plane.call("GET", "/api/v1/nodes/again")[0] == 404
    # Whoever kept a copy of the certificate is refused.
    copy = own / "copy.pem"
    copy.write_bytes(certificate)
    copy.chmod(0o600)
    context = ssl.create_default_context(cafile=str(story.plane.directory / "pki" / "ca.crt"))
    context.load_cert_chain(copy)
    with contextlib.closing(story.plane.connection(context)) as connection:
        connection.request("GET", "/api/v1/nodes/again")
        assert connection.getresponse().status == 401
    # Nobody waits for it.
    listed = json.loads(story.run("node", "list", "--kubeconfig", story.admin, "-o", "json"))["nodes"]
    assert [row["state"] for row in listed if row["node"] == "again"] == ["revoked"]
    # A second time there is nothing, and that is well.
    assert "nothing to reset" in story.run(*words, *told)
    again = story.join("again", token)
    assert again.returncode == 0, again.stderr
