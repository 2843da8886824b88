# SPDX-License-Identifier: Apache-2.0
"""kubectl asking who may do what: can-i, whoami, impersonation; roles and bindings, their effect, and who may give them.

Credentials of every kind are proved in `test_kubectl_tokens` and `test_kubectl_certificates`.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.interop import manifests, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

_EVERYONES = {
    ("selfsubjectreviews.authentication.k8s.io", "[]", "[]", "[create]"),
    ("selfsubjectaccessreviews.authorization.k8s.io", "[]", "[]", "[create]"),
    ("selfsubjectrulesreviews.authorization.k8s.io", "[]", "[]", "[create]"),
    *(
        ("", f"[{path}]", "[]", "[get]")
        for path in (
            "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/healthz", "/livez", "/readyz", "/version",
            "/version/",
        )
    ),
}  # fmt: skip


@pytest.fixture
def given(kubectl, unique):
    """Access made by kubectl's own generators: ann, the group ops and a robot in the namespace, cid in the cluster."""
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,pods/log")
    kubectl("create", "role", "one", "--verb=get", "--resource=configmaps", "--resource-name=settings")
    robot = f"--serviceaccount={kubectl.namespace}:robot"
    kubectl("create", "rolebinding", "readers", "--role=reader", "--user=ann", "--group=ops", robot)
    kubectl("create", "rolebinding", "one", "--role=one", "--user=ann")
    kubectl("create", "clusterrole", unique, "--verb=list", "--resource=nodes")
    kubectl("create", "clusterrole", f"{unique}-paths", "--verb=get", "--non-resource-url=/metrics,/logs/*")
    cid = f"--user={unique}-cid"
    kubectl("create", "clusterrolebinding", unique, f"--clusterrole={unique}", cid)
    kubectl("create", "clusterrolebinding", f"{unique}-paths", f"--clusterrole={unique}-paths", cid)
    return unique


def test_can_i_says_yes_or_no_and_ends_accordingly(kubectl, given):
    robot = f"system:serviceaccount:{kubectl.namespace}:robot"
    expected = {
        "* *": "yes",
        "list pods --as ann": "yes",
        "get pods/web --as ann": "yes",
        "get pods --subresource=log --as ann": "yes",
        "get pods --subresource=exec --as ann": "no",
        "delete pods --as ann": "no",
        "list pods --as ann --all-namespaces": "no",
        "list pods --as ann --namespace kube-system": "no",
        "get configmaps/settings --as ann": "yes",
        "get configmaps/other --as ann": "no",
        "get configmaps --as ann": "no",
        "list pods --as bob": "no",
        "list pods --as bob --as-group ops": "yes",
        "list pods --as bob --as-group system:masters": "yes",
        f"list pods --as {robot}": "yes",
        f"list pods --as {robot}-2": "no",
        f"list nodes --as {given}-cid": "yes",
        "list nodes --as ann": "no",
        f"get /metrics --as {given}-cid": "yes",
        f"get /logs/a --as {given}-cid": "yes",
        "get /metrics --as ann": "no",
        "get /healthz --as ann": "yes",
        "list unicorns --as ann": "no",
    }
    found = {words: kubectl("auth", "can-i", *words.split(), code=None) for words in expected}
    assert {words: result.out.strip() for words, result in found.items()} == expected
    assert {words: result.code for words, result in found.items()} == {
        words: int(answer == "no") for words, answer in expected.items()
    }
    quiet = kubectl("auth", "can-i", "list", "pods", "--as", "bob", "--quiet", code=1)
    assert quiet.out == ""


def _rules(kubectl: running.Kubectl, *arguments: str) -> list[tuple[str, ...]]:
    header, *lines = kubectl("auth", "can-i", "--list", *arguments).lines
    assert re.split(r"\s{3,}", header) == ["Resources", "Non-Resource URLs", "Resource Names", "Verbs"]
    return [tuple(re.split(r"\s{3,}", line)) for line in lines]


def test_can_i_list(kubectl, given):
    assert set(_rules(kubectl, "--as", "ann")) == _EVERYONES | {
        ("pods", "[]", "[]", "[get list]"),
        ("pods/log", "[]", "[]", "[get list]"),
        ("configmaps", "[]", "[settings]", "[get]"),
    }
    assert set(_rules(kubectl, "--as", f"{given}-cid")) == _EVERYONES | {
        ("nodes", "[]", "[]", "[list]"),
        ("", "[/metrics]", "[]", "[get]"),
        ("", "[/logs/*]", "[]", "[get]"),
    }
    administrators = _rules(kubectl)
    assert administrators.count(("*.*", "[]", "[]", "[*]")) == administrators.count(("", "[*]", "[]", "[*]")) == 1


def test_whoami_with_the_administrators_certificate(kubectl):
    kubectl.needs(28, "auth whoami")
    info = kubectl.json("auth", "whoami")["status"]["userInfo"]
    (credential,) = info.pop("extra")["authentication.kubernetes.io/credential-id"]
    assert info == {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}
    assert re.fullmatch("X509SHA256=[0-9a-f]{64}", credential)
    assert kubectl("auth", "whoami").lines[1].split() == ["Username", "kubernetes-admin"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--as", "ann"], {"username": "ann", "groups": ["system:authenticated"]}),
        (
            ["--as", "ann", "--as-group", "ops", "--as-group", "dev", "--as-uid", "7"],
            {"username": "ann", "uid": "7", "groups": ["ops", "dev", "system:authenticated"]},
        ),
        (
            ["--as", "system:serviceaccount:a:b"],
            {
                "username": "system:serviceaccount:a:b",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
            },
        ),
    ],
    ids=["user", "groups and uid", "service account"],
)
def test_whoami_in_somebody_elses_name(kubectl, flags, expected):
    kubectl.needs(28, "auth whoami")
    assert kubectl.json("auth", "whoami", *flags)["status"]["userInfo"] == expected


def test_anonymous_may_not_ask_who_it_is(kubectl):
    kubectl.needs(28, "auth whoami")
    assert kubectl.fails("auth", "whoami", "--as", "system:anonymous") == (
        "error: the selfsubjectreviews API is not enabled in the cluster or you do not have permission to call it"
    )
    assert '"gitVersion"' in kubectl("get", "--raw", "/version", "--as", "system:anonymous").out


_IN = 'in API group "" in the namespace "{}"'


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("get pods --as zoe", f'pods is forbidden: User "zoe" cannot list resource "pods" {_IN}'),
        ("get pod web --as zoe", f'pods "web" is forbidden: User "zoe" cannot get resource "pods" {_IN}'),
        (
            "get pods --all-namespaces --as zoe --as-group ops",
            'pods is forbidden: User "zoe" cannot list resource "pods" in API group "" at the cluster scope',
        ),
        ("delete pod web --as zoe", f'pods "web" is forbidden: User "zoe" cannot delete resource "pods" {_IN}'),
        ("logs web --as zoe", f'pods "web" is forbidden: User "zoe" cannot get resource "pods" {_IN}'),
        (
            "get deployment web --as zoe",
            'deployments.apps "web" is forbidden: User "zoe" cannot get resource "deployments" '
            + _IN.replace('""', '"apps"'),
        ),
        ("get --raw /metrics --as zoe", 'forbidden: User "zoe" cannot get path "/metrics"'),
        (
            # Nobody may not ask which kinds there are.
            "get --raw /api/v1/namespaces/{}/pods --as system:anonymous",
            f'pods is forbidden: User "system:anonymous" cannot list resource "pods" {_IN}',
        ),
    ],
)
def test_403_as_people_see_it(kubectl, words, sentence):
    said = kubectl.fails(*words.format(kubectl.namespace).split())
    assert said == f"Error from server (Forbidden): {sentence.format(kubectl.namespace)}"


def test_impersonation_is_itself_a_permission(kubectl, unique):
    ann = ("--as", f"{unique}-ann")
    kubectl("create", "-f", "-", stdin=manifests.impersonator(unique))
    kubectl("create", "clusterrolebinding", unique, f"--clusterrole={unique}", f"--user={ann[1]}")
    assert kubectl("auth", "can-i", "impersonate", "users/bob", *ann).out == "yes\n"
    assert kubectl("auth", "can-i", "impersonate", "users/root", *ann, code=1).out == "no\n"
    assert kubectl("auth", "can-i", "impersonate", "groups/system:masters", *ann, code=1).out == "no\n"


def test_roles_take_effect_and_end_at_once(kubectl, given):
    kubectl("create", "configmap", "settings", "--from-literal=a=b")
    ann = ("--as", "ann")
    assert kubectl("get", "configmap", "settings", "-o", "name", *ann).out == "configmap/settings\n"
    kubectl("delete", "rolebinding", "one")
    assert kubectl.fails("get", "configmap", "settings", *ann).startswith("Error from server (Forbidden): configmaps")
    kubectl("create", "rolebinding", "editors", "--clusterrole=edit", "--user=ann")
    assert kubectl("create", "configmap", "mine", *ann).out == "configmap/mine created\n"
    assert "cannot create resource" in kubectl.fails("create", "role", "r", "--verb=get", "--resource=pods", *ann)


def test_nobody_gives_away_what_they_do_not_have(kubectl, unique):
    ann = ("--as", "ann")
    kubectl("create", "role", "writer", "--verb=create,get", "--resource=roles,rolebindings,pods")
    kubectl("create", "rolebinding", "writer", "--role=writer", "--user=ann")
    kubectl("create", "role", "less", "--verb=get", "--resource=pods", *ann)
    kubectl("create", "rolebinding", "less", "--role=less", "--user=bob", *ann)
    who = 'user "ann" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:'
    assert kubectl.fails("create", "role", "more", "--verb=get", "--resource=secrets", *ann).endswith(
        f'roles.rbac.authorization.k8s.io "more" is forbidden: {who}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    bind = ("create", "rolebinding", "more", "--user=ann", *ann)
    assert kubectl.fails(*bind, "--clusterrole=cluster-admin").endswith(
        f'rolebindings.rbac.authorization.k8s.io "more" is forbidden: {who}\n'
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}'
    )
    missing = kubectl.fails(*bind, f"--clusterrole={unique}")
    assert missing.endswith(f'clusterroles.rbac.authorization.k8s.io "{unique}" not found')


_RECONCILED = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: {cluster}Role
metadata: {{name: {name}{where}}}
rules:
- {{apiGroups: [""], resources: [{resource}], verbs: [get]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {cluster}RoleBinding
metadata: {{name: {name}{where}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {cluster}Role, name: {name}}}
subjects:
- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: {name}}}
"""


@pytest.mark.parametrize("cluster", ["", "Cluster"], ids=["in a namespace", "in the cluster"])
def test_reconcile_adds_what_is_missing_and_leaves_the_rest(kubectl, unique, cluster):
    where = "" if cluster else f", namespace: {kubectl.namespace}"
    manifest = _RECONCILED.format(cluster=cluster, name=unique, where=where, resource="pods")
    kinds = [f"{cluster.lower()}{kind}.rbac.authorization.k8s.io/{unique}" for kind in ("role", "rolebinding")]
    reconcile = ("auth", "reconcile", "-f", "-")
    first = kubectl(*reconcile, stdin=manifest)
    assert first.lines == [f"{kind} reconciled" for kind in kinds]
    assert first.err.count("reconciliation required create") == 2
    versions = [kubectl.resource_version(kind) for kind in kinds]
    assert "reconciliation required" not in kubectl(*reconcile, stdin=manifest).err
    assert [kubectl.resource_version(kind) for kind in kinds] == versions
    more = kubectl(*reconcile, stdin=manifest.replace("[pods]", "[secrets]"))
    assert "reconciliation required update" in more.err
    assert [rule["resources"] for rule in kubectl.json("get", kinds[0])["rules"]] == [["pods"], ["secrets"]]
    kubectl("auth", "can-i", "get", "secrets", "--as", unique)


def test_reconcile_cannot_do_without_a_namespace(kubectl, unique):
    # kubectl reads these manifests without asking what is namespaced, so that it fills in nothing, not even that of
    # --namespace: it asks for a Role outside of namespaces, where there are none, and then for a Namespace without name.
    manifest = _RECONCILED.format(cluster="", name=unique, where="", resource="pods")
    assert kubectl.fails("auth", "reconcile", "-f", "-", stdin=manifest).count("resource name may not be empty") == 2
    path = f"/apis/rbac.authorization.k8s.io/v1/roles/{unique}"
    assert kubectl.fails("get", "--raw", path) == (
        "Error from server (NotFound): the server could not find the requested resource"
    )


def test_default_roles_are_there(kubectl):
    names = (
        "cluster-admin", "admin", "edit", "view", "system:aggregate-to-admin", "system:aggregate-to-edit",
        "system:aggregate-to-view", "system:node", "system:node-bootstrapper", "system:basic-user", "system:discovery",
        "system:public-info-viewer", "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver", "system:auth-delegator",
    )  # fmt: skip
    header, *lines = kubectl("get", "clusterroles", *names).lines
    assert header.split() == ["NAME", "CREATED", "AT"]
    assert [line.split()[0] for line in lines] == list(names)
    label = "kubernetes.io/bootstrapping=rbac-defaults"
    bindings = kubectl("get", "clusterrolebindings", "-l", label, "-o", "name").lines
    assert {"cluster-admin", "system:basic-user", "system:discovery"} <= {name.rpartition("/")[2] for name in bindings}


def _resources_of(kubectl: running.Kubectl, role: str) -> set[str]:
    rules = kubectl.json("get", "clusterrole", role)["rules"] or ()
    return {resource for rule in rules for resource in rule["resources"]}


def test_default_roles_are_gathered_from_their_parts(kubectl):
    readable = running.eventually(lambda: _resources_of(kubectl, "view"), "view has rules")
    assert "pods" in readable
    assert "secrets" not in readable
    running.eventually(lambda: "secrets" in _resources_of(kubectl, "edit"), "edit has rules")
    running.eventually(lambda: "rolebindings" in _resources_of(kubectl, "admin"), "admin has rules")


def test_a_role_with_the_label_is_taken_into_view(kubectl, unique):
    manifest = f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {unique}
  labels: {{rbac.authorization.k8s.io/aggregate-to-view: "true"}}
rules:
- {{apiGroups: ["{unique}.example"], resources: [things], verbs: [get]}}
"""
    kubectl("create", "rolebinding", "viewers", "--clusterrole=view", "--user=ann")
    ask = ("create", "--raw", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "-f", "-")
    asked = {"namespace": kubectl.namespace, "verb": "get", "group": f"{unique}.example", "resource": "things"}
    head = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    review = json.dumps({**head, "spec": {"user": "ann", "resourceAttributes": asked}})
    assert kubectl(*ask, stdin=review).json()["status"]["allowed"] is False
    kubectl("create", "-f", "-", stdin=manifest)
    running.eventually(lambda: kubectl(*ask, stdin=review).json()["status"]["allowed"], "view has the new rule")
    kubectl("delete", "clusterrole", unique)
