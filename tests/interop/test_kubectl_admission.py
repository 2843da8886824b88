# SPDX-License-Identifier: Apache-2.0
"""kubectl against admission: what a new Pod is given, and webhooks on a real HTTPS server that change, refuse or fail.

Each webhook looks at the test's own namespace only, and at no other test.
"""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest

from handfast.pki import authority, keys, names, profiles
from handfast.runtime import clock, tls
from tests.interop import running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: main
    image: nginx:1
"""
_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def _injected(pod: Any) -> str:
    """The name of the volume with the account's token, which is whole and mounted in each container."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    (name,) = (name for name in volumes if name.startswith("kube-api-access-"))
    token, root, where = volumes[name]["projected"]["sources"]
    assert token["serviceAccountToken"] == {"expirationSeconds": 3607, "path": "token"}
    assert root["configMap"]["name"] == "kube-root-ca.crt"
    assert where["downwardAPI"]["items"][0]["path"] == "namespace"
    for container in pod["spec"]["containers"]:
        assert {"mountPath": _MOUNT, "name": name, "readOnly": True} in container["volumeMounts"]
    return str(name)


def test_a_pod_gets_its_accounts_token(kubectl):
    kubectl("run", "web", "--image=nginx")
    pod = kubectl.json("get", "pod", "web")
    assert pod["spec"]["serviceAccountName"] == "default"
    name = _injected(pod)
    assert f"{name}:\n    Type:" in kubectl("describe", "pod", "web").out


def test_a_pod_that_wants_no_token_gets_none(kubectl):
    kubectl("create", "-f", "-", stdin=_POD.replace("spec:\n", "spec:\n  automountServiceAccountToken: false\n"))
    pod = kubectl.json("get", "pod", "web")
    assert "volumes" not in pod["spec"]
    assert pod["spec"]["serviceAccountName"] == "default"


def test_a_pod_of_an_account_that_is_not_there_is_refused(kubectl):
    said = kubectl.fails("create", "-f", "-", stdin=_POD.replace("spec:\n", "spec:\n  serviceAccountName: robot\n"))
    assert said.endswith(
        f'pods "web" is forbidden: error looking up service account {kubectl.namespace}/robot: serviceaccount "robot" '
        "not found"
    )


def test_both_ways_of_apply_keep_what_was_put_in(kubectl):
    kubectl.needs(22, "apply --server-side")
    kubectl("apply", "-f", "-", stdin=_POD)
    name = _injected(kubectl.json("get", "pod", "web"))
    for arguments, printed in (
        (["--server-side"], "pod/web serverside-applied\n"),
        (["--server-side", "--field-manager=another"], "pod/web serverside-applied\n"),
        # The annotation is in the server's words now, and kubectl puts it into its own. So it is with a stock server.
        ([], "pod/web configured\n"),
        ([], "pod/web unchanged\n"),
    ):
        assert kubectl("apply", *arguments, "-f", "-", stdin=_POD).out == printed
        assert _injected(kubectl.json("get", "pod", "web")) == name


def test_server_side_apply_alone_is_given_the_token_once(kubectl):
    kubectl.needs(22, "apply --server-side")
    apply = ("apply", "--server-side", "-f", "-")
    kubectl(*apply, stdin=_POD)
    name = _injected(kubectl.json("get", "pod", "web"))
    version = kubectl.resource_version("pod", "web")
    kubectl(*apply, stdin=_POD)
    assert _injected(kubectl.json("get", "pod", "web")) == name
    assert kubectl.resource_version("pod", "web") == version
    kubectl(*apply, stdin=_POD.replace("nginx:1", "nginx:2"))
    pod = kubectl.json("get", "pod", "web")
    assert (_injected(pod), pod["spec"]["containers"][0]["image"]) == (name, "nginx:2")


def test_nothing_new_in_a_namespace_that_ends(kubectl, unique):
    kubectl("create", "namespace", unique)
    there = ("--namespace", unique)
    kubectl("create", "configmap", "stays", *there)
    kubectl("patch", "configmap", "stays", *there, "-p", '{"metadata":{"finalizers":["example.com/wait"]}}')
    kubectl("delete", "namespace", unique, "--wait=false")
    said = kubectl.fails("create", "configmap", "late", *there)
    assert said.endswith(
        f'configmaps "late" is forbidden: unable to create new content in namespace {unique} because it is being terminated'
    )
    kubectl("patch", "configmap", "stays", *there, "-p", '{"metadata":{"finalizers":null}}')
    assert kubectl.fails("delete", "namespace", "kube-system").endswith(
        'namespaces "kube-system" is forbidden: this namespace may not be deleted'
    )


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers AdmissionReviews by the last part of the path."""

    server: _Webhooks

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = review["request"]
        self.server.seen.append(asked)
        answer: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        # What follows is the time that the webhook has.
        path, _, _ = self.path.partition("?")
        match path:
            case "/label":
                patch = [{"op": "add", "path": "/data/hooked", "value": asked["userInfo"]["username"]}]
                answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
            case "/misfit":
                patch = [{"op": "remove", "path": "/data/nothing"}]
                answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
            case "/deny":
                answer |= {"allowed": False, "status": {"message": "not on a Sunday", "code": 403}}
            case "/warn":
                answer["warnings"] = ["blue is out of fashion"]
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
        self.send_response(500 if path == "/broken" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Say nothing."""


class _Webhooks(http.server.ThreadingHTTPServer):
    """A real HTTPS server on a port of its own, with a CA of its own."""

    # Each connection carries one review, so that there is an end to wait for.
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        now = clock.SystemClock().now()
        key, ca_key = keys.generate(), keys.generate()
        ca = authority.self_signed_ca(names.Subject(common_name="webhooks"), ca_key, now)
        self.bundle = base64.b64encode(ca.pem).decode()
        sans = names.Sans.parse(["IP:127.0.0.1"])
        issued = ca.issue(key.public, names.Subject(), sans, profiles.APISERVER_SERVING, now)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_pair(context, issued.pem, key.to_pem())
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.seen: list[Any] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


@pytest.fixture(scope="module")
def webhooks() -> Iterator[_Webhooks]:
    with _Webhooks() as server:
        yield server


@pytest.fixture
def hooked(kubectl, webhooks, unique):
    """Applies a configuration of one webhook for ConfigMaps of this namespace; it is gone after the test."""
    made: set[str] = set()
    webhooks.seen.clear()

    def apply(kind: str, path: str, **more: Any) -> str:
        url = f"https://127.0.0.1:{webhooks.server_address[1]}/{path}"
        hook = {
            "name": f"{path}.example.com",
            "clientConfig": {"url": url, "caBundle": webhooks.bundle},
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
            **more,
        }
        document = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": unique}}
        made.add(kind)
        return str(kubectl("apply", "-f", "-", stdin=json.dumps({**document, "webhooks": [hook]})).out)

    yield apply
    for kind in made:
        kubectl("delete", kind, unique)


_MUTATING, _VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"


def _create(kubectl: running.Kubectl, *more: str, name: str = "one") -> running.Result:
    return kubectl("create", "configmap", name, "--from-literal=a=b", *more)


def test_a_mutating_webhook_changes_what_is_stored(kubectl, hooked, webhooks, unique):
    printed = hooked(_MUTATING, "label")
    assert printed == f"mutatingwebhookconfiguration.admissionregistration.k8s.io/{unique} created\n"
    _create(kubectl)
    assert kubectl.json("get", "cm", "one")["data"] == {"a": "b", "hooked": "kubernetes-admin"}
    (asked,) = webhooks.seen
    assert (asked["operation"], asked["namespace"], asked["name"]) == ("CREATE", kubectl.namespace, "one")
    assert asked["object"]["data"] == {"a": "b"}
    assert asked["dryRun"] is False
    assert "system:masters" in asked["userInfo"]["groups"]
    # A Secret is not in the rules, another namespace not in the selector.
    kubectl("create", "secret", "generic", "other")
    assert len(webhooks.seen) == 1


def test_a_webhook_sees_whom_the_administrator_acts_as_and_dry_runs(kubectl, hooked, webhooks):
    kubectl.needs(27, "dry runs asked for by OpenAPI v3")
    hooked(_MUTATING, "label")
    kubectl("create", "rolebinding", "ann", "--clusterrole=edit", "--user=ann")
    running.eventually(lambda: kubectl("auth", "can-i", "create", "cm", "--as=ann", code=None).code == 0, "edit")
    _create(kubectl, "--as", "ann")
    assert kubectl.json("get", "cm", "one")["data"]["hooked"] == "ann"
    shown = kubectl.json("create", "configmap", "two", "--from-literal=a=b", "--dry-run=server")
    assert shown["data"]["hooked"] == "kubernetes-admin"
    assert [asked["dryRun"] for asked in webhooks.seen] == [False, True]


def test_a_validating_webhook_refuses_in_its_own_words(kubectl, hooked, unique):
    printed = hooked(_VALIDATING, "deny")
    assert printed == f"validatingwebhookconfiguration.admissionregistration.k8s.io/{unique} created\n"
    said = kubectl.fails("create", "configmap", "one")
    assert said.endswith('admission webhook "deny.example.com" denied the request: not on a Sunday')
    assert "not found" in kubectl.fails("get", "cm", "one")


def test_a_webhooks_warnings_are_shown(kubectl, hooked):
    kubectl.needs(19, "warnings of the server")
    hooked(_VALIDATING, "warn")
    assert _create(kubectl).err == "Warning: blue is out of fashion\n"


_CALL = 'Internal error occurred: failed calling webhook "{}.example.com": '


@pytest.mark.parametrize(
    ("path", "more", "why"),
    [
        ("broken", {}, "the server responded with the status code 500 but did not return more information"),
        ("label", {"clientConfig": {"url": "https://127.0.0.1:1/x"}}, "dial tcp 127.0.0.1:1: "),
    ],
    ids=["answers 500", "not there"],
)
def test_a_webhook_that_fails(kubectl, hooked, path, more, why):
    hooked(_MUTATING, path, **more)
    said = kubectl.fails("create", "configmap", "one")
    assert _CALL.format(path) in said
    assert why in said
    # The same configuration, applied again with another policy.
    assert hooked(_MUTATING, path, failurePolicy="Ignore", **more).endswith(" configured\n")
    _create(kubectl)
    assert kubectl.json("get", "cm", "one")["data"] == {"a": "b"}


def test_a_patch_that_does_not_apply_ends_the_request(kubectl, hooked):
    hooked(_MUTATING, "misfit")
    assert "Internal error occurred: " in kubectl.fails("create", "configmap", "one")
    assert "not found" in kubectl.fails("get", "cm", "one")


def test_a_webhook_nobody_vouches_for_is_not_called(kubectl, hooked, webhooks):
    url = f"https://127.0.0.1:{webhooks.server_address[1]}/label"
    hooked(_MUTATING, "label", clientConfig={"url": url})
    said = kubectl.fails("create", "configmap", "one")
    assert _CALL.format("label") in said
    assert "certificate" in said
    assert webhooks.seen == []


def test_a_webhook_sees_updates_and_deletions_as_its_rules_say(kubectl, hooked, webhooks):
    operations = ["UPDATE", "DELETE"]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["configmaps"]}
    hooked(_VALIDATING, "warn", rules=[rule])
    _create(kubectl)
    kubectl("label", "cm", "one", "a=b")
    kubectl("delete", "cm", "one")
    assert [asked["operation"] for asked in webhooks.seen] == operations
    update, delete = webhooks.seen
    assert (update["oldObject"]["metadata"].get("labels"), update["object"]["metadata"]["labels"]) == (None, {"a": "b"})
    assert (delete["oldObject"]["metadata"]["labels"], delete["object"]) == ({"a": "b"}, None)
