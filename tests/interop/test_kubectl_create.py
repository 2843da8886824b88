# SPDX-License-Identifier: Apache-2.0
"""kubectl create: from files and standard input in every form, each of its generators, and what is refused.

Reading back is done with kubectl as well; forms of output are proved in `test_kubectl_get`.
"""

from __future__ import annotations

import base64
import json

import pytest

from tests.interop import manifests, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]


def _config_map(**more: object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, **more})


def test_from_json_and_yaml_files_in_a_directory(kubectl, tmp_path):
    (tmp_path / "one.json").write_text(_config_map(data={"a": "1"}))
    (tmp_path / "usual.yaml").write_text(manifests.USUAL)
    printed = kubectl("create", "-f", str(tmp_path)).lines
    assert printed == [
        "configmap/one created",
        "configmap/settings created",
        "secret/password created",
        "pod/web created",
        "service/web created",
        "deployment.apps/web created",
    ]
    document = kubectl.json("get", "cm", "one")
    assert document["data"] == {"a": "1"}
    assert set(document["metadata"]) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}


def test_from_standard_input_with_a_generated_name(kubectl):
    printed = kubectl("create", "-f", "-", "-o", "name", stdin=_config_map(metadata={"generateName": "some-"})).out
    assert printed.startswith("configmap/some-")
    assert len(printed.strip()) == len("configmap/some-") + 5


def test_the_same_object_again_is_refused(kubectl):
    kubectl("create", "-f", "-", stdin=_config_map())
    assert kubectl.fails("create", "-f", "-", stdin=_config_map()) == (
        'Error from server (AlreadyExists): error when creating "STDIN": configmaps "one" already exists'
    )
    # Versions differ in how they begin the line.
    assert kubectl.fails("create", "configmap", "one").endswith(': configmaps "one" already exists')


def test_server_side_dry_run_stores_nothing(kubectl):
    kubectl.needs(27, "dry runs asked for by OpenAPI v3")
    shown = kubectl.json("create", "configmap", "one", "--from-literal=a=b", "--dry-run=server")
    assert shown["data"] == {"a": "b"}
    assert shown["metadata"]["uid"]
    assert "not found" in kubectl.fails("get", "cm", "one")


def test_secrets_of_the_three_generators(kubectl, control_plane):
    kubectl("create", "secret", "generic", "plain", "--from-literal=word=horse")
    pki = control_plane.directory / "pki"
    kubectl("create", "secret", "tls", "pair", f"--cert={pki / 'apiserver.crt'}", f"--key={pki / 'apiserver.key'}")
    kubectl(
        "create", "secret", "docker-registry", "pull", "--docker-server=r.example", "--docker-username=u",
        "--docker-password=p",
    )  # fmt: skip
    plain, pair, pull = (kubectl.json("get", "secret", name) for name in ("plain", "pair", "pull"))
    assert (plain["type"], base64.b64decode(plain["data"]["word"])) == ("Opaque", b"horse")
    assert pair["type"] == "kubernetes.io/tls"
    assert base64.b64decode(pair["data"]["tls.crt"]) == (pki / "apiserver.crt").read_bytes()
    assert pull["type"] == "kubernetes.io/dockerconfigjson"
    assert "r.example" in json.loads(base64.b64decode(pull["data"][".dockerconfigjson"]))["auths"]


def test_config_maps_with_text_and_binary_files(kubectl, tmp_path):
    (tmp_path / "text").write_text("grüße\n")
    (tmp_path / "bytes").write_bytes(b"\xff\x00")
    kubectl("create", "configmap", "files", f"--from-file={tmp_path}", "--from-literal=a=b")
    document = kubectl.json("get", "cm", "files")
    assert document["data"] == {"text": "grüße\n", "a": "b"}
    assert base64.b64decode(document["binaryData"]["bytes"]) == b"\xff\x00"


def test_namespace_gets_its_service_account_and_ca(kubectl, unique):
    assert kubectl("create", "namespace", unique).out == f"namespace/{unique} created\n"
    there = ("--namespace", unique)
    running.eventually(lambda: kubectl("get", "sa", "default", *there, code=None).code == 0, "default service account")
    running.eventually(lambda: kubectl("get", "cm", "kube-root-ca.crt", *there, code=None).code == 0, "the root CA")
    document = kubectl.json("get", "ns", unique)
    assert document["metadata"]["labels"] == {"kubernetes.io/metadata.name": unique}
    assert document["status"] == {"phase": "Active"}


def test_access_rules(kubectl, unique):
    kubectl("create", "serviceaccount", "robot")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,deployments.apps")
    kubectl("create", "clusterrole", unique, "--verb=get", "--non-resource-url=/healthz")
    kubectl("create", "rolebinding", "readers", "--role=reader", f"--serviceaccount={kubectl.namespace}:robot")
    kubectl("create", "clusterrolebinding", unique, f"--clusterrole={unique}", "--user=ann", "--group=ops")
    assert kubectl.json("get", "role", "reader")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
    ]
    assert kubectl.json("get", "clusterrole", unique)["rules"] == [{"nonResourceURLs": ["/healthz"], "verbs": ["get"]}]
    bound = kubectl.json("get", "rolebinding", "readers")
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": kubectl.namespace}]
    assert bound["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    shown = kubectl("get", "clusterrolebinding", unique, "-o", "wide", "--no-headers").out.split()
    assert shown[:2] + shown[3:] == [unique, f"ClusterRole/{unique}", "ann", "ops"]


def test_workloads_are_created_with_what_the_server_fills_in(kubectl):
    kubectl.needs(21, "create cronjob in batch/v1")
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=3", "--port=80")
    kubectl("create", "job", "once", "--image=busybox", "--", "date")
    kubectl("create", "cronjob", "nightly", "--image=busybox", "--schedule=0 3 * * *", "--", "date")
    kubectl("create", "job", "now", "--from=cronjob/nightly")
    kubectl("run", "single", "--image=nginx")
    deployment = kubectl.json("get", "deployment", "web")
    assert (deployment["spec"]["replicas"], deployment["metadata"]["generation"]) == (3, 1)
    assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"
    job = kubectl.json("get", "job", "once")
    # The server chooses the labels by which a Job knows its Pods.
    assert job["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
    assert kubectl.json("get", "job", "now")["metadata"]["ownerReferences"][0]["name"] == "nightly"
    assert kubectl.json("get", "pod", "single")["status"]["phase"] == "Pending"


def test_services_of_all_types(kubectl):
    kubectl("create", "service", "clusterip", "inner", "--tcp=80:8080")
    kubectl("create", "service", "nodeport", "outer", "--tcp=80:8080")
    kubectl("create", "service", "loadbalancer", "balanced", "--tcp=80:8080")
    kubectl("create", "service", "externalname", "elsewhere", "--external-name=example.com")
    services = {each["metadata"]["name"]: each["spec"] for each in kubectl.json("get", "services")["items"]}
    types = {name: spec["type"] for name, spec in services.items()}
    assert types == {
        "inner": "ClusterIP",
        "outer": "NodePort",
        "balanced": "LoadBalancer",
        "elsewhere": "ExternalName",
    }
    assert services["inner"]["ports"] == [{"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}]


def test_invalid_objects_are_refused_with_field_and_rule(kubectl):
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}})
    assert kubectl.fails("create", "-f", "-", stdin=pod) == 'The Pod "p" is invalid: spec.containers: Required value'
    name = kubectl.fails("create", "configmap", "Not_A_Name")
    assert 'ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name"' in name
    kind = kubectl.fails("create", "-f", "-", stdin=_config_map(kind="Unicorn"))
    assert 'no matches for kind "Unicorn" in version "v1"' in kind
    nowhere = kubectl.fails("create", "configmap", "one", "--namespace", "nowhere")
    assert nowhere.endswith(': namespaces "nowhere" not found')
    wrong = kubectl.fails("create", "-f", "-", stdin=_config_map(data={"a": 1}))
    assert "json: cannot unmarshal number into Go struct field ConfigMap.data of type string" in wrong


def test_unknown_fields_are_refused_or_dropped(kubectl):
    kubectl.needs(25, "field validation by the server")
    odd = _config_map(unknown="x", data={"a": "b"})
    assert kubectl.fails("create", "-f", "-", stdin=odd) == (
        'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be handled as a '
        'ConfigMap: strict decoding error: unknown field "unknown"'
    )
    warned = kubectl("create", "-f", "-", "--validate=warn", stdin=odd)
    assert warned.err == 'Warning: unknown field "unknown"\n'
    assert "unknown" not in kubectl.json("get", "cm", "one")
    kubectl("delete", "cm", "one")
    assert kubectl("create", "-f", "-", "--validate=ignore", stdin=odd).err == ""
    assert "unknown" not in kubectl.json("get", "cm", "one")


def test_duplicate_fields_reach_the_server_only_raw_and_are_refused(kubectl):
    kubectl.needs(20, "create --raw")
    twice = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two"},"data":{"a":"b","a":"c"}}'
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps?fieldValidation=Strict"
    assert 'strict decoding error: duplicate field "data.a"' in kubectl.fails(
        "create", "--raw", path, "-f", "-", stdin=twice
    )
