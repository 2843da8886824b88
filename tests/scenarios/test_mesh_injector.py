# SPDX-License-Identifier: Apache-2.0
"""The API server asks a real injector for every Pod that is created: what comes out, who is refused, and what outlives its certificate."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.rules.mesh import admission_reviews, webhook
from handfast.rules.mesh import settings as mesh_settings
from tests.scenarios import injector_history, injector_world, mesh_world, up_world
from tests.scenarios.injector_world import INJECT, create, is_injected, pod

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh")) as plane:
        injector_world.install(plane)
        injector_world.namespace(plane, "shop", inject="enabled")
        injector_world.namespace(plane, "plain")
        yield plane


@pytest.fixture(scope="module")
def injector(plane: mesh_world.Plane) -> Iterator[injector_world.Injector]:
    with injector_world.Injector(plane) as injector:
        injector_world.lead_to(plane, injector.ready().port)
        yield injector


def variables(document: dict[str, Any]) -> dict[str, Any]:
    proxy = document["spec"]["initContainers"][1]
    return {row["name"]: row.get("value", row.get("valueFrom")) for row in proxy["env"]}


def test_a_pod_of_a_namespace_of_the_mesh_comes_out_injected(plane, injector):
    code, answer = create(plane, "shop", pod("web"))
    assert code == 201, answer
    assert is_injected(answer)
    env = variables(answer)
    assert env["LINKERD2_PROXY_LOCAL_IDENTITY"] == "$(K8S_SA).$(K8S_NS).sa.linkerd-identity.$(L5D_NS).$(TRUST_DOMAIN)"
    assert env["LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"] == plane.anchors().decode()
    assert env["LINKERD2_PROXY_INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION"] == "3306"
    assert answer["metadata"]["labels"]["linkerd.io/workload-ns"] == "shop"
    assert answer["metadata"]["annotations"]["config.linkerd.io/opaque-ports"] == "3306"
    assert answer["metadata"]["annotations"]["linkerd.io/identity"] == "enabled"
    up_world.until(lambda: 'result="injected"' in injector.metrics(), 10)
    # What is injected is once.
    bare = {key: answer[key] for key in ("spec",)} | {"metadata": {**answer["metadata"], "name": "web-again"}}
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        bare["metadata"].pop(key, None)
    code, again = create(plane, "shop", bare)
    assert code == 201, again
    assert len(again["spec"]["initContainers"]) == 2


def test_who_makes_the_pod_is_told_and_labelled(plane, injector):
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cart", "uid": "0c2f", "controller": True}
    code, answer = create(plane, "shop", pod("cart-0", ownerReferences=[owner]))
    assert code == 201, answer
    assert answer["metadata"]["labels"]["linkerd.io/proxy-statefulset"] == "cart"
    skipped = pod("cart-1", ownerReferences=[owner], annotations={INJECT: "disabled"})
    assert not is_injected(create(plane, "shop", skipped)[1])

    def reasons() -> set[str]:
        rows = plane.call("GET", "/api/v1/namespaces/shop/events")[1]["items"]
        return {row["reason"] for row in rows if row["involvedObject"]["name"] == "cart"}

    up_world.until(lambda: reasons() == {"Injected", "InjectionSkipped"}, 20, "Events about the owner")


@pytest.mark.parametrize(
    ("namespace", "annotations", "injected"),
    [
        ("shop", {INJECT: "disabled"}, False),
        ("plain", {}, False),
        ("plain", {INJECT: "enabled"}, True),
        ("shop", {INJECT: "yes"}, False),
        ("linkerd", {INJECT: "enabled"}, False),
        ("kube-system", {INJECT: "enabled"}, False),
    ],
)
def test_annotations_and_namespaces_decide(plane, injector, namespace, annotations, injected):
    document = pod("", annotations=annotations, generateName="chosen-")
    del document["metadata"]["name"]
    code, answer = create(plane, namespace, document)
    assert code == 201, answer
    assert is_injected(answer) is injected
    if not injected:
        assert "volumes" not in answer["spec"] or "linkerd-identity-store" not in str(answer["spec"]["volumes"])


def test_a_pod_that_cannot_have_its_identity_is_denied_with_the_reason(plane, injector):
    plane.account("shop", "a.b")
    document = pod("dotted")
    document["spec"]["serviceAccountName"] = "a.b"
    code, answer = create(plane, "shop", document)
    assert code == 403, answer
    assert 'admission webhook "linkerd-proxy-injector.linkerd.io" denied the request' in answer["message"]
    assert "rename the account" in answer["message"]
    assert answer["reason"] == "NotALabel"
    code, answer = create(plane, "shop", pod("bad", annotations={"linkerd.io/identity": "on"}))
    assert (code, answer["reason"]) == (403, "BadIdentityAnnotation")
    document["spec"]["volumes"] = [{"name": "linkerd-identity-store", "emptyDir": {}}]
    document["spec"]["serviceAccountName"] = "default"
    code, answer = create(plane, "shop", document)
    assert (code, answer["reason"]) == (403, "MeshNameTaken")
    assert 'result="refused"' in injector.metrics()


def test_a_service_gets_its_opaque_ports_and_no_identity(plane, injector):
    ports = [{"name": "a", "port": 9090, "targetPort": 3306}, {"name": "b", "port": 80}]
    code, answer = create(plane, "shop", {"metadata": {"name": "db"}, "spec": {"ports": ports}}, "services")
    assert code == 201, answer
    assert answer["metadata"]["annotations"] == {"config.linkerd.io/opaque-ports": "9090"}
    metadata = {"name": "bad", "annotations": {"linkerd.io/identity": "enabled"}}
    code, answer = create(plane, "shop", {"metadata": metadata, "spec": {"ports": ports}}, "services")
    assert (code, answer["reason"]) == (403, "BadIdentityAnnotation")
    assert "which is for Pods and pod templates" in answer["message"]


def test_a_dry_run_is_answered_and_tells_nobody(plane, injector):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "dry", "uid": "0c2e", "controller": True}
    path = "/api/v1/namespaces/shop/pods?dryRun=All"
    code, answer = plane.call("POST", path, pod("dry", ownerReferences=[owner]))
    assert (code, is_injected(answer)) == (201, True)
    create(plane, "shop", pod("wet", ownerReferences=[{**owner, "name": "wet"}]))

    def told() -> set[str]:
        rows = plane.call("GET", "/api/v1/namespaces/shop/events")[1]["items"]
        return {row["involvedObject"]["name"] for row in rows}

    up_world.until(lambda: "wet" in told(), 20, "an Event about what was no dry run")
    assert "dry" not in told()


REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "shop",
        "operation": "CREATE",
        "object": pod("raw"),
    },
}


def review(**request: Any) -> bytes:
    rows = {key: value for key, value in {**REVIEW["request"], **request}.items() if value is not None}  # type: ignore[dict-item]
    return json.dumps({**REVIEW, "request": rows}).encode()


BAD = {
    "not JSON": (b"{", 400, b"NotJSON"),
    "another kind": (b'{"kind": "Pod", "apiVersion": "v1"}', 400, b"WrongKind"),
    "no request": (json.dumps({**REVIEW, "request": None}).encode(), 400, b"NoRequest"),
    "no uid": (review(uid=None), 400, b"NoUid"),
    "no object": (review(object=None), 400, b"NoObject"),
    "another object": (review(object={"kind": "Secret", "metadata": {}}), 400, b"NoObject"),
    "too many values": (b"[" + b"{}," * 10_000 + b"{}]", 400, b"TooLarge"),
    "too long": (b" " * (admission_reviews.MAX_BYTES + 1), 413, b"too large"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_review_is_refused_by_a_real_injector(plane, injector, case):
    body, code, said = BAD[case]
    status, answer = injector.post(plane, body)
    assert status == code, answer
    assert said in answer
    if status == 400:
        assert answer.startswith(b"invalid admission review request: ")


def test_other_paths_methods_and_empty_bodies(plane, injector):
    assert injector.post(plane, b"") == (200, b"")
    assert injector.post(plane, review(), path="/other")[0] == 404
    assert injector.post(plane, b"", method="GET")[0] == 405
    status, answer = injector.post(plane, json.dumps({**REVIEW, "apiVersion": "admission.k8s.io/v1beta1"}).encode())
    assert status == 200
    read = json.loads(answer)
    assert (read["apiVersion"], read["response"]["uid"]) == ("admission.k8s.io/v1beta1", "u-1")
    assert read["response"]["allowed"] is True


def test_older_tls_is_refused(plane, injector):
    context = injector.context(plane)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    injector.context = lambda _plane: context
    try:
        with pytest.raises(ssl.SSLError):
            injector.post(plane, b"")
    finally:
        del injector.context


def test_names_with_uids_have_that_of_the_account_as_it_is_now(plane, injector):
    injector_world.settle(plane, injector, {"identity.nameScheme": "uid"})
    try:
        account = "/api/v1/namespaces/shop/serviceaccounts"
        for number in range(2):
            plane.call("DELETE", f"{account}/made-anew")
            uid = plane.post(account, {"metadata": {"name": "made-anew"}}, wanted=(201,))["metadata"]["uid"]
            document = pod(f"uid-{number}")
            document["spec"]["serviceAccountName"] = "made-anew"
            code, answer = create(plane, "shop", document)
            assert code == 201, answer
            assert variables(answer)["LINKERD2_PROXY_LOCAL_IDENTITY"].startswith(f"{uid}.$(K8S_SA).")
    finally:
        injector_world.settle(plane, injector, {"identity.nameScheme": "sa"})


def test_a_ca_bundle_that_somebody_overwrote_is_healed(plane, injector):
    for text in (b"", b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"):
        good = injector_world.bundle(plane)
        assert good
        _, document = plane.call("GET", injector_world.WEBHOOKS)
        assert plane.call("PUT", injector_world.WEBHOOKS, webhook.with_bundle(document, text))[0] in {200, 422}
        up_world.until(lambda good=good: injector_world.bundle(plane) == good, 20, "the bundle")
    assert is_injected(create(plane, "shop", pod("healed"))[1])


def test_an_emptied_secret_is_another_key(plane, injector):
    before, good = injector.serial(), injector_world.bundle(plane)
    injector_world.change(plane, injector_world.SECRET, dict.fromkeys(injector_world.secret(plane)))
    up_world.until(lambda: injector.serial() != before, 20, "another certificate")
    up_world.until(lambda: injector_world.bundle(plane) not in {good, b""}, 20, "another bundle")
    assert injector_world.stored_serial(plane) == injector.serial()
    up_world.until(lambda: create(plane, "shop", pod("emptied"))[0] in {201, 409}, 20, "a Pod")


def test_a_mesh_without_identities_refuses_who_wants_one(plane, injector):
    injector_world.settle(plane, injector, {"identity.enabled": "false", "identity.default": "disabled"})
    try:
        code, answer = create(plane, "shop", pod("wants", annotations={"linkerd.io/identity": "enabled"}))
        assert (code, answer["reason"]) == (403, "MeshHasNoIdentities")
        code, answer = create(plane, "shop", pod("without"))
        assert (code, answer["metadata"]["annotations"]["linkerd.io/identity"]) == (201, "disabled")
    finally:
        injector_world.settle(plane, injector, {"identity.enabled": "true", "identity.default": "enabled"})


# --- renewal, restart and replicas: a mesh of their own, whose certificates live for two minutes


@pytest.fixture(scope="module")
def brief(tmp_path_factory) -> Iterator[mesh_world.Plane]:
    words = ("--set", f"injector.certificateLifetime={injector_history.LIFETIME.total_seconds():.0f}s")
    with mesh_world.mesh(tmp_path_factory.mktemp("brief"), *words) as plane:
        injector_world.install(plane, mesh_settings.Settings(failure_policy="Fail"))
        injector_world.namespace(plane, "shop", inject="enabled")
        yield plane


def test_no_pod_is_missed_while_the_certificate_is_renewed(brief):
    injector_history.age(brief)
    with injector_world.Injector(brief) as injector:
        injector_world.lead_to(brief, injector.ready().port)
        history = injector_history.History(brief)
        with injector_world.Stream(brief, "renewed") as stream:
            # The old root is believed still, and the new one was before it was shown.
            up_world.until(lambda: history.has_switched(injector), 150, "another certificate")
            up_world.until(lambda: injector.serial() == injector_world.stored_serial(brief), 20, "that one, shown")
            seen = len(stream.codes)
            up_world.until(lambda: len(stream.codes) > max(100, seen + 5), 60, "a few more Pods")
        assert not stream.bare


def test_two_replicas_serve_one_certificate(brief):
    injector_history.age(brief)
    with injector_world.Injector(brief, "one") as one, injector_world.Injector(brief, "two") as two:
        injector_world.lead_to(brief, one.ready().port, two.ready().port)

        def are_one() -> bool:
            return one.serial() == two.serial() == injector_world.stored_serial(brief)

        up_world.until(are_one, 20, "one certificate")
        history = injector_history.History(brief)
        with injector_world.Stream(brief, "replicas") as stream:
            # Of each step, one replica did it.
            up_world.until(lambda: history.has_switched(one, two), 150, "another certificate")
            up_world.until(are_one, 20, "one certificate")
            # One of them ends, and nobody misses it.
            one.stop()
            seen = len(stream.codes)
            up_world.until(lambda: len(stream.codes) > seen + 20, 60, "a few more Pods")
        assert not stream.bare
        assert "switch" in history.steps()


def test_after_a_restart_a_certificate_is_served_on_and_an_ended_one_is_replaced(brief):
    with injector_world.Injector(brief, "before") as injector:
        injector_world.lead_to(brief, injector.ready().port)
        first = injector.serial()
    with injector_world.Injector(brief, "after") as injector:
        injector_world.lead_to(brief, injector.ready().port)
        assert injector.serial() in {first, injector_world.stored_serial(brief)}
        assert is_injected(create(brief, "shop", pod("restarted"))[1])
    # What ended while nobody was there is replaced at once. Until then no Pod is made: so the operator has chosen.
    code, answer = create(brief, "shop", pod("nobody-there"))
    assert code == 500, answer
    assert "failed calling webhook" in answer["message"]
    injector_world.change(brief, injector_world.SECRET, injector_world.over())
    stored = injector_world.stored_serial(brief)
    with injector_world.Injector(brief, "later") as injector:
        injector_world.lead_to(brief, injector.ready().port)
        assert injector.serial() != stored
        assert is_injected(create(brief, "shop", pod("later"))[1])
