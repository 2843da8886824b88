# SPDX-License-Identifier: Apache-2.0
"""What the injector answers: which Pods get a proxy, which pass, which are refused, and what Services get."""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any

import pytest

from handfast.api.merging import patch
from handfast.rules.mesh import admission, injectable, injection, names, uninjection, workloads
from handfast.rules.mesh import admission_reviews as reviews
from tests.unit.rules.mesh import pods

ENABLED = {"linkerd.io/inject": "enabled"}
UID = "3b241101-e2bb-4255-8caf-4136c566a962"


def review(document: dict[str, Any], kind: str = "Pod", namespace: str = "shop") -> reviews.Review:
    return reviews.Review(api_version="admission.k8s.io/v1", uid="u", namespace=namespace, kind=kind, document=document)


def judged(document: dict[str, Any], namespace: dict[str, str] | None = None, **chosen: Any) -> admission.Verdict:
    around = admission.Around(annotations=ENABLED if namespace is None else namespace, uid=chosen.pop("uid", ""))
    kind = document["kind"]
    return admission.judge(review(document, kind), pods.plan(**chosen), around)


def annotated(document: dict[str, Any], **annotations: str) -> dict[str, Any]:
    document["metadata"]["annotations"] = {key.replace("_", "/", 1): value for key, value in annotations.items()}
    return document


def result(document: dict[str, Any], verdict: admission.Verdict) -> dict[str, Any]:
    return patch.apply_json_patch(document, list(verdict.answer.operations))


def service(*ports: dict[str, Any], **annotations: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "web"}
    if annotations:
        metadata["annotations"] = {key.replace("_", "/", 1): value for key, value in annotations.items()}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": list(ports)}}


INJECT = "linkerd.io/inject"
ROWS = [
    # namespace, pod, whether there is a proxy, else the reason
    ("enabled", "enabled", ""),
    ("enabled", "", ""),
    ("enabled", "disabled", "injection_disable_annotation_present"),
    ("disabled", "enabled", ""),
    ("", "enabled", ""),
    ("disabled", "disabled", "injection_enable_annotation_absent"),
    ("disabled", "", "injection_enable_annotation_absent"),
    ("", "disabled", "injection_enable_annotation_absent"),
    ("", "", "injection_enable_annotation_absent"),
    ("yes", "enabled", "invalid_inject_annotation_at_ns"),
    ("enabled", "yes", "invalid_inject_annotation_at_workload"),
]


@pytest.mark.parametrize(("namespace", "pod", "reason"), ROWS)
def test_the_annotations_of_namespace_and_pod_decide_as_in_linkerds_table(namespace, pod, reason):
    document = pods.pod()
    if pod:
        document["metadata"]["annotations"] = {INJECT: pod}
    verdict = judged(document, {INJECT: namespace} if namespace else {})
    assert verdict.result is (admission.Result.SKIPPED if reason else admission.Result.INJECTED)
    assert verdict.reasons == ((reason,) if reason else ())
    assert bool(verdict.answer.operations) is not bool(reason)
    assert verdict.answer.allowed


def test_all_reasons_are_told_in_order():
    verdict = judged(pods.pod(hostNetwork=True, initContainers=[{"name": "linkerd-init"}]), {})
    assert verdict.reasons == (
        "host_network_enabled",
        "sidecar_already_exists",
        "injection_enable_annotation_absent",
    )
    assert verdict.sentence.startswith("hostNetwork is enabled, pod has a sidecar injected already, ")


def test_a_pod_that_is_injected_passes_as_it_is():
    document = pods.pod()
    once = result(document, judged(document))
    again = judged(once)
    assert (again.result, again.reasons) == (admission.Result.SKIPPED, ("sidecar_already_exists",))
    workload = workloads.find(once)
    assert workload is not None
    assert uninjection.uninject(workload) == document


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "an account with a dot": (pods.pod(serviceAccountName="a.b"), {}, "NotALabel", "rename the account"),
    "a name that is too long": (
        pods.pod(serviceAccountName="a" * 63),
        {"trust_domain": ".".join(["d" * 63] * 3)},
        "IdentityTooLong",
        "at most 253",
    ),
    "an account that nobody knows": (pods.pod(), {"scheme": names.Scheme.UID}, "UidUnknown", "is not known"),
    "no identities": (
        annotated(pods.pod(), **{"linkerd.io_identity": "enabled"}),
        {"enabled": False, "default_enabled": False},
        "MeshHasNoIdentities",
        "the control plane has no identities",
    ),
    "an identity that is no word": (
        annotated(pods.pod(), **{"linkerd.io_identity": "on"}),
        {},
        "BadIdentityAnnotation",
        "allowed: enabled or disabled",
    ),
    "our volume": (
        pods.pod(volumes=[{"name": "linkerd-identity-store", "hostPath": {"path": "/tmp"}}]),
        {},
        "MeshNameTaken",
        "spec.volumes[0].name",
    ),
    "ports that are none": (
        annotated(pods.pod(), **{"config.linkerd.io_skip-inbound-ports": "x"}),
        {},
        "BadPortsAnnotation",
        "'x' is not allowed",
    ),
    "headers that are neither wanted nor not": (
        annotated(pods.pod(), **{"mesh.handfast.dev_identity-headers": "on"}),
        {},
        "BadIdentityHeaders",
        "allowed: enabled, disabled",
    ),
    "no containers": (pods.pod(containers=[]), {}, "NotAPodTemplate", "spec.containers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_injected_is_refused_with_its_reason(case):
    document, chosen, reason, said = REFUSED[case]
    verdict = judged(document, **chosen)
    assert (verdict.result, verdict.reasons) == (admission.Result.REFUSED, (reason,))
    assert (verdict.answer.allowed, verdict.answer.reason) == (False, reason)
    assert said in verdict.answer.message
    assert not verdict.answer.operations


def test_a_pod_of_a_wrong_form_passes_where_it_was_to_have_no_proxy():
    verdict = judged(pods.pod(containers=[]), {})
    assert (verdict.result, verdict.answer.allowed) == (admission.Result.SKIPPED, True)
    own = annotated(pods.pod(containers=[]), **{"linkerd.io_inject": "disabled"})
    assert judged(own).result is admission.Result.SKIPPED


def test_without_an_identity_the_pod_says_so():
    document = annotated(pods.pod(serviceAccountName="a.b"), **{"linkerd.io_identity": "disabled"})
    after = result(document, judged(document))
    assert after["metadata"]["annotations"][injectable.IDENTITY] == "disabled"
    assert "linkerd-identity-store" not in {row["name"] for row in after["spec"]["volumes"]}


def test_the_uid_of_the_account_is_in_the_name():
    document = pods.pod(serviceAccountName="web")
    after = result(
        document,
        judged(
            document,
            uid=UID,
            scheme=names.Scheme.UID,
            identity_address="localhost:8080",
            destination_address="localhost:1",
            policy_address="localhost:2",
            uids={"linkerd-controller": "u2"},
        ),
    )
    values = {row["name"]: row.get("value") for row in after["spec"]["initContainers"][1]["env"]}
    assert str(values["LINKERD2_PROXY_LOCAL_IDENTITY"]).startswith(f"{UID}.$(K8S_SA).")


def test_the_request_says_which_namespace_it_is():
    document = pods.pod()
    document["metadata"]["namespace"] = "bank"
    after = result(document, judged(document))
    assert after["metadata"]["labels"]["linkerd.io/workload-ns"] == "shop"


@pytest.mark.parametrize(
    ("owner", "labels", "label"),
    [
        ({"kind": "ReplicaSet", "name": "web-5d9c"}, {"pod-template-hash": "5d9c"}, ("deployment", "web")),
        ({"kind": "ReplicaSet", "name": "web-5d9c"}, {"pod-template-hash": "other"}, ("replicaset", "web-5d9c")),
        ({"kind": "ReplicaSet", "name": "web-5d9c"}, {}, ("replicaset", "web-5d9c")),
        ({"kind": "StatefulSet", "name": "web"}, {}, ("statefulset", "web")),
        ({"kind": "Node", "name": "n" * 64}, {}, None),
        ({"kind": "A/B", "name": "x"}, {}, None),
        ({"kind": "", "name": "x"}, {}, None),
        (None, {}, None),
    ],
)
def test_the_label_of_the_owner(owner, labels, label):
    document = pods.pod()
    document["metadata"] |= {"labels": labels}
    if owner is not None:
        document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    after = result(document, judged(document))["metadata"]["labels"]
    found = {key: value for key, value in after.items() if key.startswith("linkerd.io/proxy-")}
    assert found == ({} if label is None else {f"linkerd.io/proxy-{label[0]}": label[1]})


def test_ports_are_the_pods_else_the_namespaces_else_the_usual_ones():
    ports = [{"containerPort": 11211}, {"containerPort": 3306}]
    document = pods.pod(containers=[{"name": "web", "image": "web:1", "ports": ports}])
    usual = result(document, judged(document))
    assert usual["metadata"]["annotations"]["config.linkerd.io/opaque-ports"] == "11211,3306"
    namespace = {
        **ENABLED,
        "config.linkerd.io/opaque-ports": "9000",
        "config.linkerd.io/skip-outbound-ports": "25,587",
        "config.linkerd.io/skip-subnets": "192.0.2.0/24",
        "config.linkerd.io/proxy-cpu-limit": "1",
    }
    verdict = judged(document, namespace)
    inherited = result(document, verdict)
    assert inherited["metadata"]["annotations"]["config.linkerd.io/opaque-ports"] == "9000"
    assert "config.linkerd.io/proxy-cpu-limit" not in inherited["metadata"]["annotations"]
    assert inherited["spec"]["initContainers"][0]["args"][-4:] == [
        *("--outbound-ports-to-ignore", "25,587"),
        *("--subnets-to-ignore", "192.0.2.0/24"),
    ]
    assert list(verdict.answer.warnings) == ["config.linkerd.io/proxy-cpu-limit is not read by this mesh"]
    own = annotated(document, **{"config.linkerd.io_opaque-ports": "7000"})
    env = {
        row["name"]: row.get("value") for row in result(own, judged(own, namespace))["spec"]["initContainers"][1]["env"]
    }
    assert env["LINKERD2_PROXY_INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION"] == "7000"


@pytest.mark.parametrize(
    ("document", "namespace", "value"),
    [
        (service({"port": 9090, "targetPort": 3306}, {"port": 3306}), {}, "9090,3306"),
        (service({"port": 80}), {"config.linkerd.io/opaque-ports": "80"}, "80"),
        (service({"port": 3306}, **{"example.com_a": "b"}), {}, "3306"),
        (service({"port": 3306}, **{"config.linkerd.io_opaque-ports": ""}), {}, None),
        (service({"port": 80}), {}, None),
        (service(), {}, None),
    ],
)
def test_a_service_gets_the_annotation_of_opaque_ports_and_nothing_else(document, namespace, value):
    verdict = judged(document, {**ENABLED, **namespace})
    before = document["metadata"].get("annotations", {})
    after = result(document, verdict)["metadata"].get("annotations", {})
    if value is None:
        assert (verdict.result, verdict.reasons) == (admission.Result.SKIPPED, (admission.NOTHING,))
        assert not verdict.answer.operations
    else:
        assert verdict.result is admission.Result.ANNOTATED
        assert after == {**before, "config.linkerd.io/opaque-ports": value}


def test_identity_enabled_on_a_service_is_refused():
    verdict = judged(service({"port": 80}, **{"linkerd.io_identity": "enabled"}))
    assert (verdict.answer.allowed, verdict.answer.reason) == (False, "BadIdentityAnnotation")


def test_what_is_neither_passes():
    verdict = admission.judge(review({}, ""), pods.plan(), admission.Around())
    assert (verdict.result, verdict.reasons) == (admission.Result.SKIPPED, ("unsupported_resource",))


def test_the_mirror_of_a_static_pod_passes():
    document = annotated(pods.pod(), **{"kubernetes.io_config.mirror": "1", "linkerd.io_inject": "enabled"})
    verdict = judged(document)
    assert (verdict.result, verdict.reasons) == (admission.Result.SKIPPED, ("unsupported_resource",))


def test_whose_account_is_asked_for():
    assert admission.account(review(pods.pod())) == "default"
    assert admission.account(review(pods.pod(serviceAccountName="web"))) == "web"
    assert admission.account(review(pods.pod(serviceAccount="old"))) == "old"
    assert admission.account(review(service(), "Service")) == ""


# Written by hand, from the order and the values of Linkerd's patch and from what is ours beside them.
VECTORS = json.loads((pathlib.Path(__file__).parents[3] / "vectors" / "mesh" / "admission.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_answer_is_the_one_that_was_written_by_hand(vector):
    request = {
        "uid": "705ab4f5",
        "kind": {"group": "", "version": "v1", "kind": vector["kind"]},
        "namespace": "shop",
        "operation": "CREATE",
        "object": vector["object"],
    }
    body = {"kind": "AdmissionReview", "apiVersion": vector["apiVersion"], "request": request}
    read = reviews.read(json.dumps(body).encode())
    verdict = admission.judge(read, pods.plan(), admission.Around(annotations=vector["namespace"]))
    answer = json.loads(reviews.written(read, verdict.answer))
    response = answer["response"]
    assert (answer["apiVersion"], response.pop("uid")) == (vector["apiVersion"], "705ab4f5")
    operations = json.loads(base64.b64decode(response.pop("patch", base64.b64encode(b"[]"))))
    status = response.pop("status", {})
    assert {**response, **({"reason": status["reason"]} if status else {})} == vector["response"]
    assert [row["path"] for row in operations] == vector.get("paths", [])
    assert {row["op"] for row in operations} <= {"add"}
    if operations:
        check_result(patch.apply_json_patch(read.document, operations), vector)


def check_result(after: dict[str, Any], vector: dict[str, Any]) -> None:
    annotations = {key: value for key, value in after["metadata"]["annotations"].items() if key != injection.RECORD}
    assert annotations == vector["annotations"]
    if vector["kind"] == "Pod":
        init, proxy = after["spec"]["initContainers"][:2]
        env = {row["name"]: row.get("value") for row in proxy["env"]}
        assert after["metadata"]["labels"] == vector["labels"]
        assert init["args"] == vector["args"]
        assert {name: env.get(name) for name in vector["env"]} == vector["env"]
