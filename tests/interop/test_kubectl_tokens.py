# SPDX-License-Identifier: Apache-2.0
"""kubectl and the Python client with tokens: bootstrap, service accounts', from Secrets, wrong ones, and with nothing.

The token's owner has no kubeconfig: the server's address, its CA and the token are all that it knows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from tests.interop import running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

_401 = "error: You must be logged in to the server (Unauthorized)"
_ACCOUNTS = ["system:serviceaccounts", "system:serviceaccounts:{}", "system:authenticated"]
# Asks nothing else of the server first, as kubectl does for kinds that it does not know yet.
_ANYTHING = ("get", "--raw", "/version")
_EXTRA = "authentication.kubernetes.io/"


def _claims(token: str) -> Any:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def _whoami(kubectl: running.Kubectl) -> Any:
    return kubectl.json("auth", "whoami")["status"]["userInfo"]


def _bootstrap_secret(kubectl: running.Kubectl, token_id: str, *more: str) -> str:
    kubectl(
        "create", "secret", "generic", f"bootstrap-token-{token_id}", "--namespace", "kube-system",
        "--type", "bootstrap.kubernetes.io/token", f"--from-literal=token-id={token_id}",
        "--from-literal=token-secret=0123456789abcdef", *more,
    )  # fmt: skip
    return f"{token_id}.0123456789abcdef"


_LOGIN = "--from-literal=usage-bootstrap-authentication=true"


def test_bootstrap_token(kubectl, control_plane):
    kubectl.needs(28, "auth whoami")
    groups = "--from-literal=auth-extra-groups=system:bootstrappers:workers"
    token = _bootstrap_secret(kubectl, "goodid", _LOGIN, groups)
    joining = kubectl.presenting(control_plane, "--token", token)
    assert _whoami(joining) == {
        "username": "system:bootstrap:goodid",
        "groups": ["system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"],
    }
    assert joining.fails("get", "pods") == (
        'Error from server (Forbidden): pods is forbidden: User "system:bootstrap:goodid" cannot list resource "pods" in '
        f'API group "" in the namespace "{kubectl.namespace}"'
    )
    assert joining("auth", "can-i", "create", "csr", code=1).out == "no\n"
    user = "--user=system:bootstrap:goodid"
    kubectl("create", "clusterrolebinding", "goodid", "--clusterrole=system:node-bootstrapper", user)
    assert joining("auth", "can-i", "create", "csr").out == "yes\n"
    kubectl("delete", "secret", "bootstrap-token-goodid", "--namespace", "kube-system")
    assert joining.fails(*_ANYTHING) == _401


@pytest.mark.parametrize(
    ("token_id", "more"),
    [
        ("sign00", ["--from-literal=usage-bootstrap-signing=true"]),
        ("late00", [_LOGIN, "--from-literal=expiration=2020-01-01T00:00:00Z"]),
        ("grp000", [_LOGIN, "--from-literal=auth-extra-groups=system:masters"]),
    ],
    ids=["not for login", "expired", "group of administrators"],
)
def test_bootstrap_token_that_is_not_good(kubectl, control_plane, token_id, more):
    token = _bootstrap_secret(kubectl, token_id, *more)
    assert kubectl.presenting(control_plane, "--token", token).fails(*_ANYTHING) == _401


@pytest.mark.parametrize("token", ["abcdef.0123456789abcdef", "not-a-token", "a.b.c", "eyJhbGciOiJub25lIn0.e30."])
def test_token_that_nobody_knows_is_never_anonymous(kubectl, control_plane, token):
    stranger = kubectl.presenting(control_plane, "--token", token)
    assert stranger.fails(*_ANYTHING) == _401


def test_password_is_no_credential_here(kubectl, control_plane):
    stranger = kubectl.presenting(control_plane, "--username", "ann", "--password", "horse")
    assert stranger.fails(*_ANYTHING) == _401


def test_with_nothing_kubectl_asks_for_a_name(kubectl, control_plane):
    # It never calls the server: without a credential it wants one typed in.
    assert kubectl.presenting(control_plane)("get", "pods", code=1).out == "Please enter Username: "


def test_token_of_a_service_account(kubectl, control_plane):
    kubectl.needs(28, "auth whoami")
    space = kubectl.namespace
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot", "--duration=20m").out.strip()
    uid = kubectl.json("get", "sa", "robot")["metadata"]["uid"]
    claims = _claims(token)
    assert claims["sub"] == f"system:serviceaccount:{space}:robot"
    assert claims["exp"] - claims["iat"] == 1200
    assert claims["kubernetes.io"] == {"namespace": space, "serviceaccount": {"name": "robot", "uid": uid}}
    robot = kubectl.presenting(control_plane, "--token", token)
    assert _whoami(robot) == {
        "username": f"system:serviceaccount:{space}:robot",
        "uid": uid,
        "groups": [group.format(space) for group in _ACCOUNTS],
        "extra": {f"{_EXTRA}credential-id": [f"JTI={claims['jti']}"]},
    }
    assert f'User "system:serviceaccount:{space}:robot" cannot list resource "pods"' in robot.fails("get", "pods")
    kubectl("create", "rolebinding", "robot", "--clusterrole=view", f"--serviceaccount={space}:robot")
    running.eventually(lambda: robot("get", "pods", code=None).code == 0, "view may list pods")
    kubectl("delete", "serviceaccount", "robot")
    assert robot.fails(*_ANYTHING) == _401


def test_token_for_another_audience(kubectl, control_plane):
    kubectl.needs(24, "create token")
    token = kubectl("create", "token", "default", "--audience=one", "--audience=two").out.strip()
    assert _claims(token)["aud"] == ["one", "two"]
    assert kubectl.presenting(control_plane, "--token", token).fails(*_ANYTHING) == _401
    ask = ("create", "--raw", "/apis/authentication.k8s.io/v1/tokenreviews", "-f", "-")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    spec = {"token": token, "audiences": ["two", "three"]}
    status = kubectl(*ask, stdin=json.dumps({**review, "spec": spec})).json()["status"]
    assert (status["authenticated"], status["audiences"]) == (True, ["two"])
    assert status["user"]["username"] == f"system:serviceaccount:{kubectl.namespace}:default"


_BOUND = {
    "Pod": "apiVersion: v1\nkind: Pod\nmetadata: {{name: {}}}\nspec: {{containers: [{{name: main, image: nginx}}]}}\n",
    "Secret": "apiVersion: v1\nkind: Secret\nmetadata: {{name: {}}}\n",
    "Node": "apiVersion: v1\nkind: Node\nmetadata: {{name: {}}}\n",
}


@pytest.mark.parametrize("kind", _BOUND)
def test_token_that_ends_with_an_object(kubectl, control_plane, unique, kind):
    kubectl.needs(31 if kind == "Node" else 28, "auth whoami, or tokens bound to nodes")
    kubectl("create", "-f", "-", stdin=_BOUND[kind].format(unique))
    uid = kubectl.json("get", kind, unique)["metadata"]["uid"]
    bound = ("--bound-object-kind", kind, "--bound-object-name", unique)
    token = kubectl("create", "token", "default", *bound, "--bound-object-uid", uid).out.strip()
    assert _claims(token)["kubernetes.io"][kind.lower()] == {"name": unique, "uid": uid}
    bearer = kubectl.presenting(control_plane, "--token", token)
    extra = _whoami(bearer)["extra"]
    del extra[f"{_EXTRA}credential-id"]
    # Of a Secret nothing is told.
    told = {f"{_EXTRA}{kind.lower()}-name": [unique], f"{_EXTRA}{kind.lower()}-uid": [uid]}
    assert extra == ({} if kind == "Secret" else told)
    kubectl("delete", kind, unique, "--now")
    assert bearer.fails("auth", "whoami") == _401


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nobody", 'serviceaccounts "nobody" not found'),
        (
            "default --duration 1m",
            (
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 60: may not '
                "specify a duration less than 10 minutes"
            ),
        ),
        ("default --bound-object-kind Pod --bound-object-name none", 'pods "none" not found'),
        ("default --bound-object-kind Secret --bound-object-name none", 'secrets "none" not found'),
    ],
)
def test_tokens_that_are_not_given(kubectl, words, sentence):
    kubectl.needs(24, "create token")
    assert kubectl.fails("create", "token", *words.split()) == f"error: failed to create token: {sentence}"


def test_tokens_only_for_who_may_have_them(kubectl):
    kubectl.needs(24, "create token")
    assert kubectl.fails("create", "token", "default", "--as", "zoe") == (
        'error: failed to create token: serviceaccounts "default" is forbidden: User "zoe" cannot create resource '
        f'"serviceaccounts/token" in API group "" in the namespace "{kubectl.namespace}"'
    )


def test_token_from_a_secret(kubectl, control_plane):
    kubectl.needs(28, "auth whoami")
    kubectl("create", "serviceaccount", "robot")
    manifest = """\
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata:
  name: old
  annotations: {kubernetes.io/service-account.name: robot}
"""
    kubectl("apply", "-f", "-", stdin=manifest)
    data = running.eventually(lambda: kubectl.json("get", "secret", "old").get("data"), "the Secret is filled in")
    assert base64.b64decode(data["namespace"]).decode() == kubectl.namespace
    assert base64.b64decode(data["ca.crt"]) == (control_plane.pki / "ca.crt").read_bytes()
    robot = kubectl.presenting(control_plane, "--token", base64.b64decode(data["token"]).decode())
    info = _whoami(robot)
    assert info["username"] == f"system:serviceaccount:{kubectl.namespace}:robot"
    assert info["groups"] == [group.format(kubectl.namespace) for group in _ACCOUNTS]
    # Applying the manifest again takes nothing away.
    kubectl("apply", "-f", "-", stdin=manifest)
    assert kubectl.json("get", "secret", "old")["data"] == data
    kubectl("delete", "secret", "old")
    assert robot.fails("auth", "whoami") == _401


@pytest.fixture
def bearing(control_plane) -> Iterator[Any]:
    """The official Python client with a token, or with nothing."""
    opened = []

    def connect(token: str = "") -> Any:
        settings = client.Configuration(host=control_plane.server)
        settings.ssl_ca_cert = str(control_plane.pki / "ca.crt")
        if token:
            settings.api_key["authorization"] = f"Bearer {token}"
        opened.append(client.ApiClient(settings))
        return opened[-1]

    yield connect
    for api in opened:
        api.close()


def _refusal(call: Any, *arguments: Any) -> tuple[int, str]:
    with pytest.raises(client.ApiException) as raised:
        call(*arguments)
    return raised.value.status or 0, json.loads(raised.value.body or "{}")["message"]


def test_python_client_with_a_token_and_with_nothing(core, namespace, bearing):
    spec = client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600)
    request = client.AuthenticationV1TokenRequest(spec=spec)
    given = core.create_namespaced_service_account_token("default", namespace, request)
    left = given.status.expiration_timestamp - given.metadata.creation_timestamp
    assert 3590 <= left.total_seconds() <= 3600
    mine = bearing(given.status.token)
    self_review: Any = client.AuthenticationV1Api(mine).create_self_subject_review(client.V1SelfSubjectReview())
    who = self_review.status.user_info
    assert who.username == f"system:serviceaccount:{namespace}:default"
    lists = f'pods is forbidden: User "{{}}" cannot list resource "pods" in API group "" in the namespace "{namespace}"'
    assert _refusal(client.CoreV1Api(mine).list_namespaced_pod, namespace) == (403, lists.format(who.username))
    nobody = bearing()
    assert _refusal(client.CoreV1Api(nobody).list_namespaced_pod, namespace) == (403, lists.format("system:anonymous"))
    assert client.VersionApi(nobody).get_code().git_version.startswith("v1.")
    assert _refusal(client.CoreV1Api(bearing("wrong")).list_namespaced_pod, namespace) == (401, "Unauthorized")


def test_python_client_asks_for_others(api, namespace):
    access: Any = client.AuthorizationV1Api(api)
    asked = client.V1ResourceAttributes(namespace=namespace, verb="list", resource="pods")
    for groups, allowed in ((["ops"], False), (["system:masters"], True)):
        spec = client.V1SubjectAccessReviewSpec(user="zoe", groups=groups, resource_attributes=asked)
        answer = access.create_subject_access_review(client.V1SubjectAccessReview(spec=spec)).status
        assert answer.allowed is allowed
    rules = access.create_self_subject_rules_review({"spec": {"namespace": namespace}}).status
    assert rules.resource_rules[0].verbs == rules.resource_rules[0].resources == ["*"]
