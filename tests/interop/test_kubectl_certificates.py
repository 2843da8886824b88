# SPDX-License-Identifier: Apache-2.0
"""kubectl with client certificates, `handfast node revoke` against them, and kubectl certificate approve and deny.

Certificates to log in with are made with the CA of the data directory; those of requests by the signer that `up` runs.
"""

from __future__ import annotations

import base64
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from handfast.pki import certificates, keys, names, pem, profiles, requests
from tests.interop import manifests, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

_401 = "error: You must be logged in to the server (Unauthorized)"
Present = Callable[..., running.Kubectl]
_CLIENT = "kubernetes.io/kube-apiserver-client"


@pytest.fixture
def presenting(kubectl: running.Kubectl, control_plane: running.ControlPlane, tmp_path: pathlib.Path) -> Present:
    """kubectl with a certificate of its own, and no kubeconfig."""

    def present(common_name: str, *groups: str, profile: profiles.Profile = profiles.CLIENT) -> running.Kubectl:
        flags = control_plane.issue(tmp_path, common_name, *groups, profile=profile)
        return kubectl.presenting(control_plane, *flags)

    return present


def test_names_and_groups_are_those_of_the_certificate(presenting):
    ann = presenting("ann", "ops", "dev")
    ann.needs(28, "auth whoami")
    found = ann.json("auth", "whoami")["status"]["userInfo"]
    (credential,) = found.pop("extra")["authentication.kubernetes.io/credential-id"]
    # The organizations are a set, which DER sorts.
    assert found == {"username": "ann", "groups": ["dev", "ops", "system:authenticated"]}
    assert re.fullmatch("X509SHA256=[0-9a-f]{64}", credential)


def test_access_by_user_and_by_group(kubectl, presenting):
    ann, bob = presenting("ann"), presenting("bob", "ops")
    sentence = 'pods is forbidden: User "{}" cannot list resource "pods" in API group "" in the namespace "{}"'
    for name, who in (("ann", ann), ("bob", bob)):
        said = who.fails("get", "pods")
        assert said == f"Error from server (Forbidden): {sentence.format(name, kubectl.namespace)}"
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
    kubectl("create", "rolebinding", "ann", "--role=reader", "--user=ann")
    kubectl("create", "rolebinding", "ops", "--role=reader", "--group=ops")
    for who in (ann, bob):
        assert who("get", "pods").err.startswith("No resources found")
        assert "cannot delete resource" in who.fails("delete", "pod", "web")


def test_acting_as_another_needs_permission(presenting):
    ann = presenting("ann", "ops")
    denied = (
        'Error from server (Forbidden): {} is forbidden: User "ann" cannot impersonate resource "{}" in API group "" '
    )
    # In her own name first: kubectl asks what there is once, and of a refusal of that it tells only "unknown".
    assert "cannot list resource" in ann.fails("get", "pods")
    assert ann.fails("get", "pods", "--as", "root") == denied.format('users "root"', "users") + "at the cluster scope"
    account = ann.fails("get", "pods", "--as", "system:serviceaccount:kube-system:default")
    assert account == (denied.format('serviceaccounts "default"', "serviceaccounts") + 'in the namespace "kube-system"')


def test_acting_as_another_with_permission(kubectl, presenting, unique):
    kubectl("create", "-f", "-", stdin=manifests.impersonator(unique))
    kubectl("create", "clusterrolebinding", unique, f"--clusterrole={unique}", f"--user={unique}")
    helper = presenting(unique)
    assert 'User "bob" cannot list resource "pods"' in helper.fails("get", "pods", "--as", "bob")
    kubectl("create", "rolebinding", "bob", "--clusterrole=cluster-admin", "--user=bob")
    assert helper("get", "pods", "--as", "bob").code == 0
    more = helper.fails("get", "pods", "--as", "bob", "--as-group", "system:masters")
    assert f'groups "system:masters" is forbidden: User "{unique}" cannot impersonate resource "groups"' in more


def test_a_serving_certificate_does_not_log_in(presenting, unique):
    # The handshake ends already, so that there is nobody to send a 401 to.
    kubelet = presenting(f"system:node:{unique}", "system:nodes", profile=profiles.KUBELET_SERVING)
    assert kubelet.fails("get", "--raw", "/version").startswith("Unable to connect to the server: ")


def test_a_node_sees_its_own(kubectl, presenting, unique):
    kubectl("create", "-f", "-", stdin=manifests.node(unique))
    kubectl("create", "-f", "-", stdin=manifests.node(f"{unique}-other"))
    node = presenting(f"system:node:{unique}", "system:nodes", profile=profiles.KUBELET_CLIENT)
    assert node("get", "node", unique, "-o", "name").out == f"node/{unique}\n"
    assert node("label", "node", unique, "colour=green").out == f"node/{unique} labeled\n"
    expected = {
        "get nodes": f"node '{unique}' cannot read all nodes, only its own Node object",
        f"get node {unique}-other": f"node '{unique}' cannot read '{unique}-other', only its own Node object",
        "get secret password": f"no relationship found between node '{unique}' and this object",
        "get pods": "can only list/watch pods with spec.nodeName field selector",
    }
    found = {words: node.fails(*words.split()) for words in expected}
    assert {words: text.rpartition(": ")[2] for words, text in found.items()} == expected
    assert all(text.startswith("Error from server (Forbidden): ") for text in found.values())
    role = node.fails("label", "node", unique, "node-role.kubernetes.io/master=")
    assert f'nodes "{unique}" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/master' in role


def test_a_node_reads_what_its_pods_use(kubectl, presenting, unique):
    kubectl("create", "-f", "-", stdin=manifests.node(unique))
    node = presenting(f"system:node:{unique}", "system:nodes", profile=profiles.KUBELET_CLIENT)
    kubectl("create", "secret", "generic", "password", "--from-literal=word=horse")
    assert "no relationship found" in node.fails("get", "secret", "password")
    overrides = {"spec": {"nodeName": unique, "volumes": [{"name": "v", "secret": {"secretName": "password"}}]}}
    kubectl("run", "web", "--image=nginx", f"--overrides={json.dumps(overrides)}")
    assert node("get", "secret", "password", "-o", "name").out == "secret/password\n"
    assert node("get", "pods", f"--field-selector=spec.nodeName={unique}", "-o", "name").out == "pod/web\n"
    kubectl("delete", "pod", "web", "--grace-period=0", "--force")
    assert "no relationship found" in node.fails("get", "secret", "password")


def _handfast(plane: running.ControlPlane, *arguments: str) -> str:
    command = [sys.executable, "-m", "handfast", "node", *arguments, "--kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=running.DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_node_is_revoked_and_let_in_again(kubectl, control_plane, presenting, unique):
    kubectl("create", "-f", "-", stdin=manifests.node(unique))
    node = presenting(f"system:node:{unique}", "system:nodes", profile=profiles.KUBELET_CLIENT)
    renewed = presenting(f"system:node:{unique}", "system:nodes", profile=profiles.KUBELET_CLIENT)
    with node.running("get", "node", unique, "--watch-only") as stream:
        running.eventually(lambda: _touched(kubectl, stream, unique), "the node watches")
        printed = _handfast(control_plane, "revoke", unique, "--reason", "stolen")
        assert printed.startswith(f"node {unique} is refused from now on\n")
        stream.ended()
    for each in (node, renewed):
        assert each.fails("get", "node", unique) == _401
    header, line = kubectl("get", "revocations", f"node-{unique}").lines
    assert header.split() == ["NAME", "NODE", "USER", "SERIAL", "POD", "REASON", "EXPIRES", "AGE"]
    assert line.split()[:-1] == [f"node-{unique}", unique, "stolen"]
    assert f"node {unique} is let in again" in _handfast(control_plane, "revoke", unique, "--undo")
    assert node("get", "node", unique, "-o", "name").out == f"node/{unique}\n"
    assert kubectl.fails("get", "revocation", f"node-{unique}").endswith(f'"node-{unique}" not found')


def _touched(kubectl: running.Kubectl, stream: running.Stream, node: str) -> bool:
    """Change the node, until the watch has begun and says so."""
    kubectl("annotate", "node", node, f"touched={len(stream.lines())}", "--overwrite")
    kubectl("annotate", "node", node, "touched-")
    return bool(stream.lines())


def test_a_user_is_revoked_with_kubectl_alone(kubectl, presenting, unique):
    who = presenting(unique)
    document = {"apiVersion": "handfast.dev/v1alpha1", "kind": "Revocation", "metadata": {"name": unique}}
    assert who("get", "--raw", "/version").code == 0
    kubectl("create", "-f", "-", stdin=json.dumps({**document, "spec": {"user": unique, "reason": "left"}}))
    assert who.fails("get", "--raw", "/version") == _401
    # In somebody else's name it is no different.
    assert kubectl.fails("get", "pods", "--as", unique) == _401
    kubectl("delete", "revocation", unique)
    assert who("get", "--raw", "/version").code == 0
    empty = kubectl.fails("create", "-f", "-", stdin=json.dumps({**document, "spec": {"reason": "nobody"}}))
    assert empty.startswith(f'The Revocation "{unique}" is invalid: ')
    assert "spec: Invalid value" in empty


def test_revocations_are_explained(kubectl):
    kubectl.needs(27, "explain by OpenAPI v3")
    text = kubectl("explain", "revocation.spec").out
    assert "Whom to refuse, by at least one of node, user, serialNumber," in text
    fields = set(re.findall(r"^  (\w+)\t<string>", text, re.MULTILINE))
    assert fields == {"expires", "keyFingerprint", "node", "reason", "serialNumber", "user"}


def _request(name: str, *organizations: str, signer: str = _CLIENT) -> str:
    subject = names.Subject(common_name="ann", organizations=organizations)
    body = base64.b64encode(requests.build(subject, names.Sans(), keys.generate())).decode()
    spec = {"request": body, "signerName": signer, "usages": ["client auth"]}
    head = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


def _conditions(kubectl: running.Kubectl, name: str) -> list[tuple[str, str]]:
    status: dict[str, Any] = kubectl.json("get", "csr", name).get("status", {})
    return [(each["type"], each["reason"]) for each in status.get("conditions", ())]


def test_approve_and_deny(kubectl, unique):
    kubectl.needs(19, "certificate approve in certificates.k8s.io/v1")
    yes, no = f"{unique}-yes", f"{unique}-no"
    for name in (yes, no):
        kubectl("create", "-f", "-", stdin=_request(name, "ops"))
    shown = f"certificatesigningrequest.certificates.k8s.io/{unique}"
    assert kubectl("certificate", "approve", yes).out == f"{shown}-yes approved\n"
    assert kubectl("certificate", "deny", no).out == f"{shown}-no denied\n"
    assert _conditions(kubectl, yes) == [("Approved", "KubectlApprove")]
    assert _conditions(kubectl, no) == [("Denied", "KubectlDeny")]
    text = running.eventually(
        lambda: kubectl("get", "csr", yes, "-o", "jsonpath={.status.certificate}").out, "the request is signed"
    )
    states = {line.split()[0]: line.split()[-1] for line in kubectl("get", "csr", yes, no).lines[1:]}
    assert states == {yes: "Approved,Issued", no: "Denied"}
    issued = certificates.read(pem.one(base64.b64decode(text), pem.CERTIFICATE))
    assert (issued.subject, issued.usages) == (
        names.Subject(common_name="ann", organizations=("ops",)),
        frozenset({"client auth"}),
    )
    # What was decided stays, signed or not.
    assert kubectl("certificate", "approve", yes).out == f"{shown}-yes approved\n"
    assert _conditions(kubectl, yes) == [("Approved", "KubectlApprove")]
    assert f'certificate signing request "{no}" is already Denied' in kubectl.fails("certificate", "approve", no)
    assert "not found" in kubectl.fails("certificate", "approve", unique)


def test_a_certificate_that_was_requested_logs_in(kubectl, control_plane, tmp_path, unique):
    """From a key to a login: request, approval and signature by kubectl alone."""
    kubectl.needs(19, "certificate approve in certificates.k8s.io/v1")
    key = keys.generate()
    subject = names.Subject(common_name=unique, organizations=("ops",))
    document = json.loads(_request(unique))
    document["spec"]["request"] = base64.b64encode(requests.build(subject, names.Sans(), key)).decode()
    kubectl("create", "-f", "-", stdin=json.dumps(document))
    kubectl("certificate", "approve", unique)
    text = running.eventually(
        lambda: kubectl("get", "csr", unique, "-o", "jsonpath={.status.certificate}").out, "the request is signed"
    )
    (tmp_path / "own.crt").write_bytes(base64.b64decode(text))
    (tmp_path / "own.key").write_bytes(key.to_pem())
    flags = (f"--client-certificate={tmp_path / 'own.crt'}", f"--client-key={tmp_path / 'own.key'}")
    who = kubectl.presenting(control_plane, *flags)
    assert f'User "{unique}" cannot list resource "pods"' in who.fails("get", "pods")


def test_a_failure_of_the_signer_is_shown(kubectl, unique):
    kubectl.needs(19, "certificate approve in certificates.k8s.io/v1")
    document = json.loads(_request(unique))
    document["spec"]["usages"] = ["server auth"]
    kubectl("create", "-f", "-", stdin=json.dumps(document))
    kubectl("certificate", "approve", unique)
    running.eventually(lambda: len(_conditions(kubectl, unique)) == 2, "the signer says no")
    assert _conditions(kubectl, unique)[1] == ("Failed", "SignerValidationFailure")
    assert kubectl("get", "csr", unique).lines[1].split()[-1] == "Approved,Failed"


def test_why_a_nodes_request_waits_is_described(kubectl, unique):
    node = json.loads(_request(unique, signer="kubernetes.io/kube-apiserver-client-kubelet"))
    kubectl("create", "-f", "-", stdin=json.dumps(node))
    text = running.eventually(
        lambda: kubectl("get", "events", "-n", "default", f"--field-selector=involvedObject.name={unique}").out,
        "the reason is told",
    )
    assert "NotRecognised" in text


def test_who_asked_is_written_down(kubectl, presenting, unique):
    kubectl("create", "clusterrole", unique, "--verb=create,get", "--resource=csr")
    kubectl("create", "clusterrolebinding", unique, f"--clusterrole={unique}", f"--user={unique}")
    lying = json.loads(_request(unique))
    lying["spec"] |= {"username": "kubernetes-admin", "groups": ["system:masters"]}
    presenting(unique, "ops")("create", "-f", "-", "--validate=false", stdin=json.dumps(lying))
    spec = kubectl.json("get", "csr", unique)["spec"]
    assert (spec["username"], spec["groups"]) == (unique, ["ops", "system:authenticated"])


def test_approving_needs_the_signer(kubectl: running.Kubectl, unique: str) -> None:
    kubectl.needs(19, "certificate approve in certificates.k8s.io/v1")
    kubectl("create", "-f", "-", stdin=_request(f"{unique}-a"))
    kubectl("create", "-f", "-", stdin=_request(f"{unique}-b", signer="example.com/other"))
    user = f"{unique}-zoe"

    def approve(letter: str) -> str:
        return kubectl.fails("certificate", "approve", f"{unique}-{letter}", "--as", user)

    begin = f'Error from server (Forbidden): certificatesigningrequests.certificates.k8s.io "{unique}-'
    assert approve("a") == (
        f'{begin}a" is forbidden: User "{user}" cannot get resource "certificatesigningrequests" in API group '
        '"certificates.k8s.io" at the cluster scope'
    )
    kubectl("create", "clusterrole", unique, "--verb=get,update", "--resource=csr,csr/approval")
    kubectl("create", "clusterrolebinding", unique, f"--clusterrole={unique}", f"--user={user}")
    lacking = '" is forbidden: user not permitted to approve requests with signerName "'
    assert approve("a") == f'{begin}a{lacking}{_CLIENT}"'
    role = "--clusterrole=system:certificates.k8s.io:kube-apiserver-client-approver"
    kubectl("create", "clusterrolebinding", f"{unique}-signer", role, f"--user={user}")
    assert kubectl("certificate", "approve", f"{unique}-a", "--as", user).out.endswith(" approved\n")
    assert approve("b") == f'{begin}b{lacking}example.com/other"'
    assert _conditions(kubectl, f"{unique}-b") == []


def test_no_administrators_by_request(kubectl, unique):
    said = kubectl.fails("create", "-f", "-", stdin=_request(unique, "system:masters"))
    assert said.endswith(
        f'certificatesigningrequests.certificates.k8s.io "{unique}" is forbidden: use of {_CLIENT} signer with '
        "system:masters group is not allowed"
    )
