# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh install` on real processes: repeated, refused, and who may read what afterwards.

Each test installs into a namespace of its own, so that one control plane serves them all.
"""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import subprocess
from typing import Any

import pytest
import yaml

from handfast.bootstrap import kubeconfig
from handfast.rules.mesh import control_plane, installation, issuer, names
from handfast.runtime import clock as clocks
from handfast.runtime import tls
from tests.scenarios import up_world
from tests.unit.pki import making

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
READING = ("get", "list", "watch")


def install(plane: up_world.Up, namespace: str, *words: object) -> subprocess.CompletedProcess[str]:
    return up_world.run(
        "mesh", "install", "--dir", plane.directory, "--control-plane-namespace", namespace, *words, seconds=90
    )


def installed(plane: up_world.Up, namespace: str, *words: object) -> subprocess.CompletedProcess[str]:
    done = install(plane, namespace, *words)
    assert done.returncode == 0, done.stderr
    return done


def there(plane: up_world.Up, namespace: str, plural: str, name: str) -> Any:
    code, answer = plane.call("GET", f"/api/v1/namespaces/{namespace}/{plural}/{name}")
    return answer if code == 200 else None


def everything(plane: up_world.Up, namespace: str) -> dict[str, Any]:
    """The objects of a mesh that count, by name."""
    rows = (
        ("secrets", control_plane.SIGNING),
        ("configmaps", control_plane.TRUST_ANCHOR),
        ("configmaps", control_plane.CONFIG),
    )
    return {name: there(plane, namespace, plural, name) for plural, name in rows}


def may(plane: up_world.Up, account: tuple[str, str], verb: str, resource: str, namespace: str, name: str = "") -> bool:
    space, own = account
    spec = {
        "user": f"system:serviceaccount:{space}:{own}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{space}", "system:authenticated"],
        "resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace, "name": name},
    }
    code, answer = plane.call("POST", REVIEWS, {"spec": spec})
    assert code == 201, answer
    return bool(answer["status"]["allowed"])


def token(plane: up_world.Up, namespace: str, account: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    code, answer = plane.call("POST", path, {"spec": {}})
    assert code == 201, answer
    return str(answer["status"]["token"])


def code_of(plane: up_world.Up, bearer: str, path: str) -> int:
    """What somebody with a token gets, really."""
    cluster = kubeconfig.parse((plane.directory / "admin.conf").read_text()).cluster
    context = tls.client_context(cluster.certificate_authority_data, None, None)
    with contextlib.closing(plane.connection(context)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {bearer}"})
        response = connection.getresponse()
        response.read()
        return response.status


def test_a_second_call_changes_nothing_and_says_so(plane: up_world.Up) -> None:
    first = installed(plane, "twice")
    assert first.stdout == "the mesh is installed in namespace twice\n"
    assert "created Secret twice/linkerd-identity-signing" in first.stderr
    before = everything(plane, "twice")
    second = installed(plane, "twice")
    assert second.stdout == "the mesh in namespace twice is as it should be: nothing was changed\n"
    assert second.stderr == ""
    assert everything(plane, "twice") == before


def test_what_is_stored_is_a_good_issuer_and_the_settings_can_be_read(plane: up_world.Up) -> None:
    installed(plane, "stored", "--set", "identity.lifetime=12h")
    rows = everything(plane, "stored")
    secret = rows[control_plane.SIGNING]["data"]
    material = issuer.Material(
        base64.b64decode(secret["tls.crt"]),
        base64.b64decode(secret["key.der"]),
        rows[control_plane.TRUST_ANCHOR]["data"]["ca-bundle.crt"].encode(),
    )
    loaded = issuer.load(material, names.Mesh("cluster.local", "stored"), clocks.SystemClock().now())
    assert loaded.certificate.path_length == 0
    # The key of the root is in no object.
    assert loaded.certificate.issuer == str(loaded.anchors.anchors[0].subject)
    assert loaded.anchors.anchors[0].public_key != loaded.certificate.public_key
    assert rows[control_plane.CONFIG]["data"]["identity.lifetime"] == "12h"


def test_the_issuers_key_is_read_by_the_identity_service_alone(plane: up_world.Up) -> None:
    installed(plane, "rights")
    _, listed = plane.call("GET", "/api/v1/serviceaccounts")
    accounts = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in listed["items"]]
    assert ("rights", control_plane.CONTROLLER) in accounts
    readers = {
        account
        for account in accounts
        for verb in READING
        if may(plane, account, verb, "secrets", "rights", control_plane.SIGNING)
    }
    assert readers == {("rights", control_plane.IDENTITY)}
    # And so it is.
    path = f"/api/v1/namespaces/rights/secrets/{control_plane.SIGNING}"
    codes = {name: code_of(plane, token(plane, "rights", name), path) for name in control_plane.ACCOUNTS}
    assert codes == {control_plane.IDENTITY: 200, control_plane.CONTROLLER: 403, control_plane.INJECTOR: 403}


def test_no_account_reads_secrets_of_applications(plane: up_world.Up) -> None:
    installed(plane, "secrets")
    for name in control_plane.ACCOUNTS:
        for namespace in ("default", "kube-system", ""):
            for verb in READING:
                assert not may(plane, ("secrets", name), verb, "secrets", namespace), (name, verb, namespace)
        # Nor any other Secret of its own namespace, nor all of them.
        assert not may(plane, ("secrets", name), "list", "secrets", "secrets")
        assert code_of(plane, token(plane, "secrets", name), "/api/v1/namespaces/default/secrets") == 403


WRITING = ("create", "update", "patch", "delete", "deletecollection")


def test_what_every_account_may_do_with_either_kind_of_secret(plane: up_world.Up) -> None:
    """The issuer's Secret, that of the injector's pair, and those of an application: each account, each verb, as the server decides it."""
    installed(plane, "matrix")
    plane.call("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "app"}, "stringData": {"k": "v"}})
    secrets = {
        "issuer": ("matrix", control_plane.SIGNING),
        "pair": ("matrix", control_plane.INJECTOR_PAIR),
        "application": ("default", "app"),
        "another of its own": ("matrix", "another"),
    }
    allowed = {
        (account, what, verb)
        for account in control_plane.ACCOUNTS
        for what, (namespace, name) in secrets.items()
        for verb in (*READING, *WRITING)
        if may(plane, ("matrix", account), verb, "secrets", namespace, name)
    }
    assert allowed == {
        *((control_plane.IDENTITY, "issuer", verb) for verb in READING),
        *((control_plane.INJECTOR, "pair", verb) for verb in (*READING, "update", "patch")),
    }
    # And so it is, with real tokens.
    codes = {
        (account, what): code_of(plane, token(plane, "matrix", account), f"/api/v1/namespaces/{space}/secrets/{name}")
        for account in control_plane.ACCOUNTS
        for what, (space, name) in secrets.items()
    }
    assert {key for key, code in codes.items() if code == 200} == {
        (control_plane.IDENTITY, "issuer"),
        (control_plane.INJECTOR, "pair"),
    }
    assert {code for code in codes.values() if code != 200} == {403}


def test_the_anchors_are_read_by_the_injector_and_by_whoever_installed(plane: up_world.Up) -> None:
    installed(plane, "anchors")
    injector = ("anchors", control_plane.INJECTOR)
    for verb in READING:
        assert may(plane, injector, verb, "configmaps", "anchors", control_plane.TRUST_ANCHOR)
    assert not may(plane, injector, "update", "configmaps", "anchors", control_plane.TRUST_ANCHOR)
    spec = {
        "user": "kubernetes-admin",
        "resourceAttributes": {
            "verb": "get",
            "resource": "configmaps",
            "namespace": "anchors",
            "name": control_plane.TRUST_ANCHOR,
        },
    }
    # By name, without the groups that would let an administrator read anything.
    assert plane.call("POST", REVIEWS, {"spec": spec})[1]["status"]["allowed"]


def written(directory: pathlib.Path, **files: bytes) -> list[str]:
    """The three flags, with these files."""
    words = []
    for name, data in files.items():
        path = directory / name
        path.write_bytes(data)
        path.chmod(0o600)
        words += [f"--{name.replace('_', '-')}", str(path)]
    return words


def around_now() -> dict[str, Any]:
    now = clocks.SystemClock().now().replace(microsecond=0)
    return {"not_before": now - making.DAY, "not_after": now + 300 * making.DAY}


def test_files_of_the_operators_own_are_stored_in_one_form(plane: up_world.Up, tmp_path: pathlib.Path) -> None:
    root = making.ca("root", **around_now())
    made = making.ca("issuer", root, **around_now())
    flags = written(tmp_path, trust_anchors=root.der, issuer_cert=made.der, issuer_key=made.key_pem)
    installed(plane, "given", *flags)
    rows = everything(plane, "given")
    assert rows[control_plane.TRUST_ANCHOR]["data"]["ca-bundle.crt"].encode() == root.pem
    assert base64.b64decode(rows[control_plane.SIGNING]["data"]["tls.crt"]) == made.pem
    assert installed(plane, "given", *flags).stdout.endswith("nothing was changed\n")
    # Another issuer below the same root is an issuer's rotation; another root has to be forced.
    second = making.ca("second", root, **around_now())
    flags = written(tmp_path, trust_anchors=root.pem, issuer_cert=second.pem, issuer_key=second.key_pem)
    assert installed(plane, "given", *flags).stderr == "updated Secret given/linkerd-identity-signing\n"
    other = making.ca("other", **around_now())
    third = making.ca("third", other, **around_now())
    flags = written(tmp_path, trust_anchors=other.pem, issuer_cert=third.pem, issuer_key=third.key_pem)
    refused = install(plane, "given", *flags)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, "reason: MeshIsLive")
    installed(plane, "given", *flags, "--force")


ROOT = making.ca("root", **around_now())
ISSUER = making.ca("issuer", ROOT, **around_now())
LEAF = making.leaf(ROOT, making.SERVER, **around_now())
PAST = making.ca("issuer", ROOT)
OTHER = making.ca("other", **around_now())


@pytest.mark.parametrize(
    ("anchors", "certificate", "key", "reason"),
    [
        pytest.param(ROOT.pem, ISSUER.pem, ISSUER.key_with_password(b"x"), "EncryptedIssuerKey", id="encrypted"),
        pytest.param(ROOT.pem, ISSUER.pem, ROOT.key_pem, "IssuerKeyMismatch", id="mismatched"),
        pytest.param(ROOT.pem, LEAF.pem, LEAF.key_pem, "IssuerNotCA", id="no CA"),
        pytest.param(ROOT.pem, PAST.pem, PAST.key_pem, "IssuerExpired", id="expired"),
        pytest.param(OTHER.pem, ISSUER.pem, ISSUER.key_pem, "IssuerNotTrusted", id="not chaining"),
        pytest.param(b"\n", ISSUER.pem, ISSUER.key_pem, "NoTrustAnchors", id="empty anchors"),
    ],
)
def test_a_bad_issuer_is_refused_and_nothing_is_written(
    plane: up_world.Up, tmp_path: pathlib.Path, anchors: bytes, certificate: bytes, key: bytes, reason: str
) -> None:
    flags = written(tmp_path, trust_anchors=anchors, issuer_cert=certificate, issuer_key=key)
    refused = install(plane, "refused", *flags)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, f"reason: {reason}")
    assert plane.call("GET", "/api/v1/namespaces/refused")[0] == 404


@pytest.mark.parametrize(
    ("words", "code", "reason", "says"),
    [
        (("--trust-domain", "Not_A_Domain"), 1, "MeshSettingsUnreadable", 'trustDomain: "Not_A_Domain" is not allowed'),
        (("--set", "identity.lifetme=1h"), 1, "MeshSettingsUnreadable", "did you mean identity.lifetime?"),
        (("--set", "identity.lifetime=1s"), 1, "MeshSettingsUnreadable", "a duration of 1m to 7d"),
        (("--set", "identity.lifetime"), 2, "Usage", '"identity.lifetime" has no ='),
        (("--set", "trustDomain=a.b", "--trust-domain", "a.b"), 2, "Usage", "trustDomain is given twice"),
        (("--issuer-cert", "x"), 2, "Usage", "--trust-anchors is missing"),
        (("--tls", "optional"), 2, "Usage", "--tls was removed"),
        (("--tls",), 2, "Usage", "--tls was removed"),
    ],
)
def test_what_is_typed_wrongly_is_refused_and_nothing_is_written(
    plane: up_world.Up, words: tuple[str, ...], code: int, reason: str, says: str
) -> None:
    refused = install(plane, "wrong", *words)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (code, f"reason: {reason}")
    assert says in refused.stderr
    assert plane.call("GET", "/api/v1/namespaces/wrong")[0] == 404


def test_a_namespace_that_is_no_label_is_refused(plane: up_world.Up) -> None:
    refused = install(plane, "a.b")
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, "reason: NotALabel")


def test_another_trust_domain_has_to_be_forced_on_a_mesh_in_use(plane: up_world.Up) -> None:
    installed(plane, "domain")
    before = everything(plane, "domain")
    refused = install(plane, "domain", "--trust-domain", "other.example")
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, "reason: MeshIsLive")
    assert everything(plane, "domain") == before
    forced = installed(plane, "domain", "--trust-domain", "other.example", "--force")
    assert forced.stderr == "updated ConfigMap domain/linkerd-config\n"


def test_whoever_may_not_write_all_of_it_writes_nothing(plane: up_world.Up, tmp_path: pathlib.Path) -> None:
    """Somebody may read everything and create all but Secrets: nothing is created."""
    role = {
        "metadata": {"name": "half-installer"},
        "rules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["namespaces", "serviceaccounts", "configmaps"], "verbs": ["*"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        ],
    }
    binding = {
        "metadata": {"name": "half-installer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "half-installer"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "half-installer"}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for path, document in (
        ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "half-installer"}}),
        (f"{rbac}/clusterroles", role),
        (f"{rbac}/clusterrolebindings", binding),
    ):
        assert plane.call("POST", path, document)[0] == 201
    config = yaml.safe_load((plane.directory / "admin.conf").read_text())
    config["users"][0]["user"] = {"token": token(plane, "default", "half-installer")}
    credential = tmp_path / "half.conf"
    credential.touch(mode=0o600)
    credential.write_text(json.dumps(config))
    words = ("mesh", "install", "--kubeconfig", credential, "--control-plane-namespace", "half")
    refused = up_world.run(*words, seconds=90)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, "reason: Forbidden")
    assert "you may not create Secret half/linkerd-proxy-injector-tls; nothing was written" in refused.stderr
    assert plane.call("GET", "/api/v1/namespaces/half")[0] == 404
    # Whoever reads every Secret is not there when others count the readers.
    assert plane.call("DELETE", f"{rbac}/clusterrolebindings/half-installer")[0] == 200


def test_manifests_are_printed_and_nothing_is_done(plane: up_world.Up) -> None:
    printed = installed(plane, "printed", "-o", "yaml")
    assert plane.call("GET", "/api/v1/namespaces/printed")[0] == 404
    whole = list(yaml.safe_load_all(printed.stdout))
    # This server has the kinds that the manifests define.
    documents = [each for each in whole if each["kind"] != "CustomResourceDefinition"]
    assert len(documents) == len(whole) - len(installation.KINDS)
    assert documents[0] == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "printed"}}
    assert [each["metadata"]["name"] for each in documents if each["kind"] == "Deployment"] == [
        *("linkerd-identity", "linkerd-destination", "linkerd-proxy-injector"),
    ]
    # The webhook comes last: whatever is asked about is there by then.
    assert documents[-1]["kind"] == "MutatingWebhookConfiguration"
    assert "private key" in printed.stderr
    as_json = json.loads(installed(plane, "printed", "-o", "json").stdout)
    assert [each["kind"] for each in as_json["items"]] == [each["kind"] for each in whole]
    # The order is one in which they can be applied.
    for document in documents:
        api_version, metadata = document["apiVersion"], document["metadata"]
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        space = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        code, answer = plane.call("POST", f"{root}{space}/{document['kind'].lower()}s", document)
        assert code == 201, answer
    assert "created RoleBinding printed/linkerd-installers" in installed(plane, "printed").stderr
    assert installed(plane, "printed").stdout.endswith("nothing was changed\n")
    # Nobody answers it here.
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/linkerd-proxy-injector"
    assert plane.call("DELETE", path)[0] == 200


def test_a_run_that_was_cut_short_is_completed_by_the_next(plane: up_world.Up) -> None:
    installed(plane, "short")
    for plural, name in (("configmaps", control_plane.CONFIG), ("secrets", control_plane.SIGNING)):
        assert plane.call("DELETE", f"/api/v1/namespaces/short/{plural}/{name}")[0] == 200
    again = installed(plane, "short")
    assert again.stderr.splitlines() == [
        "updated ConfigMap short/linkerd-trust-anchor",
        "created Secret short/linkerd-identity-signing",
        "created ConfigMap short/linkerd-config",
    ]
    # On a mesh in use a Secret that is gone is not made up.
    assert plane.call("DELETE", f"/api/v1/namespaces/short/secrets/{control_plane.SIGNING}")[0] == 200
    refused = install(plane, "short")
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, "reason: MeshIncomplete")


def test_rights_that_somebody_changed_become_what_they_should_be(plane: up_world.Up) -> None:
    installed(plane, "changed")
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/changed/roles/linkerd-controller"
    _, role = plane.call("GET", path)
    role["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})
    assert plane.call("PUT", path, role)[0] == 200
    assert installed(plane, "changed").stderr == "updated Role changed/linkerd-controller\n"
    assert not may(plane, ("changed", control_plane.CONTROLLER), "get", "secrets", "changed", control_plane.SIGNING)
