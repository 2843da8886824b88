# SPDX-License-Identifier: Apache-2.0
"""Mutating policies over a real server, and bodies in protobuf past policies of both sorts, quotas and limit ranges."""

from __future__ import annotations

import base64
from typing import Any

from handfast.api import kinds
from handfast.api.schema import schema
from tests.properties import protobuf_wire
from tests.scenarios.test_certificate_requests import request_text
from tests.world import world as worlds

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


def wire(row: kinds.Kind, document: dict[str, Any]) -> bytes:
    """A body as Go's clients send it."""
    raw = protobuf_wire.encode(schema.message(row.message), document, zeros=True)
    return protobuf_wire.enveloped(row.api_version, row.kind, raw)


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def change(world: worlds.World, name: str, resources: list[str], *texts: str, **spec: Any) -> None:
    """A policy, and a binding of it to everything."""
    rule = {"operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}
    mutations = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}
        if text.lstrip().startswith("[")
        else {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
        for text in texts
    ]
    document = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "mutations": mutations,
            "reinvocationPolicy": "Never",
            **spec,
        },
    }
    answer = await world.request("POST", f"{REGISTRATION}/mutatingadmissionpolicies", document)
    assert answer.status == 201, answer.body
    binding = {"metadata": {"name": name}, "spec": {"policyName": name}}
    answer = await world.request("POST", f"{REGISTRATION}/mutatingadmissionpolicybindings", binding)
    assert answer.status == 201, answer.body


async def test_a_deployment_is_changed_as_the_suite_asks(world: worlds.World) -> None:
    """In JSON and in protobuf; what a policy puts in is nobody's, and applying the same file again keeps it."""
    annotated = """
        Object{
            metadata: Object.metadata{
                annotations: {
                    "mutated-by": "admission-policy"
                }
            }
        }"""
    await change(world, "notes", ["deployments"], annotated, "Object{spec: Object.spec{replicas: 1337}}")
    row = kinds.row("deployments", "apps")
    for name, body, headers in (("a", deployment("a"), {}), ("b", wire(row, deployment("b")), PROTOBUF)):
        answer = await world.request("POST", DEPLOYMENTS, body, headers=dict(headers))
        made = answer.json()
        assert (answer.status, made["metadata"]["name"], made["spec"]["replicas"]) == (201, name, 1337), answer.body
        assert made["metadata"]["annotations"] == {"mutated-by": "admission-policy"}
    owned = [entry["fieldsV1"].get("f:metadata", {}) for entry in made["metadata"]["managedFields"]]
    assert not any("f:annotations" in fields for fields in owned)
    for _ in range(2):
        answer = await world.request("PATCH", f"{DEPLOYMENTS}/c?fieldManager=m", deployment("c"), headers=dict(APPLY))
        assert answer.status in {200, 201}, answer.body
        assert answer.json()["metadata"]["annotations"] == {"mutated-by": "admission-policy"}


async def test_what_a_policy_makes_is_judged_like_what_is_sent(world: worlds.World) -> None:
    await change(
        world, "names", ["configmaps"], "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a b': 'c'}}]"
    )
    answer = await world.request("POST", CONFIGMAPS, {"metadata": {"name": "x"}})
    assert (answer.status, "metadata.labels" in answer.json()["message"]) == (422, True)
    answer = await world.request("POST", f"{REGISTRATION}/mutatingadmissionpolicies", {"metadata": {"name": "p"}})
    assert answer.status == 422


async def test_an_error_is_told_and_the_failure_policy_decides(world: worlds.World) -> None:
    await change(world, "fails", ["configmaps"], "Object{data: {'a': object.nope}}")
    answer = await world.request("POST", CONFIGMAPS, {"metadata": {"name": "x"}})
    said = "MutatingAdmissionPolicy 'fails' with binding 'fails' denied request: expression 'Object{data: {'a': object.nope}}' resulted in error"
    assert (answer.status, said in answer.json()["message"]) == (422, True)
    ignore = {"spec": {"failurePolicy": "Ignore"}}
    path = f"{REGISTRATION}/mutatingadmissionpolicies/fails"
    answer = await world.request("PATCH", path, ignore, headers={"Content-Type": "application/merge-patch+json"})
    assert answer.status == 200, answer.body
    assert (await world.request("POST", CONFIGMAPS, {"metadata": {"name": "x"}})).status == 201


async def test_trust_is_left_as_it_was_sent(world: worlds.World) -> None:
    """A denial stays one, a token gets no other groups, and no Secret becomes a token."""
    approve = "[JSONPatch{op: 'replace', path: '/status/conditions/0/type', value: 'Approved'}]"
    await change(world, "approve", ["certificatesigningrequests/*"], approve)
    spec = {"request": request_text(), "signerName": "example.com/x", "usages": ["client auth"]}
    assert (await world.request("POST", REQUESTS, {"metadata": {"name": "r"}, "spec": spec})).status == 201
    found = (await world.get(f"{REQUESTS}/r")).json()
    denial = {"type": "Denied", "status": "True", "reason": "No", "message": "no"}
    answer = await world.request("PUT", f"{REQUESTS}/r/approval", {**found, "status": {"conditions": [denial]}})
    assert (answer.status, [row["type"] for row in answer.json()["status"]["conditions"]]) == (200, ["Denied"])
    group = base64.b64encode(b"system:bootstrappers:evil").decode()
    await change(
        world,
        "token",
        ["secrets"],
        f"Object{{type: 'bootstrap.kubernetes.io/token', data: {{'auth-extra-groups': '{group}'}}}}",
    )
    data = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
    token = {
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }
    answer = await world.request("POST", SECRETS, token)
    assert (answer.status, "auth-extra-groups" in answer.json()["data"]) == (201, False)
    answer = await world.request("POST", SECRETS, {"metadata": {"name": "bootstrap-token-ghijkl"}})
    assert (answer.status, "may not make a token" in answer.json()["message"]) == (422, True)


async def test_a_policy_on_what_is_left_alone_warns_its_author(world: worlds.World) -> None:
    rule = {"operations": ["CREATE"], "apiGroups": ["handfast.dev"], "apiVersions": ["*"], "resources": ["revocations"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
        "reinvocationPolicy": "Never",
    }
    body = {"metadata": {"name": "p"}, "spec": spec}
    answer = await world.request("POST", f"{REGISTRATION}/mutatingadmissionpolicies", body)
    assert (answer.status, "change nothing of handfast.dev" in answer.headers["Warning"]) == (201, True)


# --- protobuf


async def test_a_body_in_protobuf_is_judged_as_one_in_json_is(world: worlds.World) -> None:
    """By policies, quotas and limit ranges: none of them has a second way in."""
    rule = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    denies = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "!has(object.data)"}]}
    path = f"{REGISTRATION}/validatingadmissionpolicies"
    assert (await world.request("POST", path, {"metadata": {"name": "p"}, "spec": denies})).status == 201
    bound = {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    assert (await world.request("POST", f"{REGISTRATION}/validatingadmissionpolicybindings", bound)).status == 201
    row = kinds.row("configmaps")
    body = wire(row, {"metadata": {"name": "x"}, "data": {"a": "b"}})
    answer = await world.request("POST", CONFIGMAPS, body, headers=dict(PROTOBUF))
    assert (answer.status, "failed expression: !has(object.data)" in answer.json()["message"]) == (422, True)
    assert (
        await world.request("POST", CONFIGMAPS, wire(row, {"metadata": {"name": "x"}}), headers=dict(PROTOBUF))
    ).status == 201
    answer = await world.request("PUT", f"{CONFIGMAPS}/x", body, headers=dict(PROTOBUF))
    assert answer.status == 422


async def test_limits_hold_for_protobuf(world: worlds.World) -> None:
    await world.ensure_service_account("default")
    limits = {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]}
    path = "/api/v1/namespaces/default"
    answer = await world.request("POST", f"{path}/limitranges", {"metadata": {"name": "l"}, "spec": limits})
    assert answer.status == 201, answer.body
    row = kinds.row("pods")

    def pod(name: str, **limit: str) -> bytes:
        container = {"name": "c", "image": "i", "resources": {"limits": limit} if limit else {}}
        return wire(row, {"metadata": {"name": name}, "spec": {"containers": [container]}})

    answer = await world.request("POST", f"{path}/pods", pod("a"), headers=dict(PROTOBUF))
    assert (answer.status, answer.json()["spec"]["containers"][0]["resources"]["limits"]) == (201, {"cpu": "1"})
    answer = await world.request("POST", f"{path}/pods", pod("b", cpu="3"), headers=dict(PROTOBUF))
    assert (answer.status, "maximum cpu usage per Container is 2" in answer.json()["message"]) == (403, True)


async def test_stored_kinds_of_the_suite(world: worlds.World) -> None:
    group = "/apis/networking.k8s.io/v1"
    answer = await world.get(f"{group}/servicecidrs/kubernetes/status")
    found = answer.json()
    assert (answer.status, found["spec"]["cidrs"]) == (200, ["10.96.0.0/12"])
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "NotAllocated")
    row = kinds.row("ipaddresses", "networking.k8s.io")
    parent = {"group": "mygroup", "resource": "myresources", "namespace": "foo", "name": "bar"}
    for name in ("255.255.255.255", "fe80::42:1dff:fe84:f9e2"):
        body = wire(row, {"metadata": {"name": name}, "spec": {"parentRef": parent}})
        answer = await world.request("POST", f"{group}/ipaddresses", body, headers=dict(PROTOBUF))
        assert (answer.status, answer.json().get("spec")) == (201, {"parentRef": parent}), answer.body
        assert (await world.request("DELETE", f"{group}/ipaddresses/{name}")).status == 200
    classes = "/apis/storage.k8s.io/v1/volumeattributesclasses"
    row = kinds.row("volumeattributesclasses", "storage.k8s.io")
    body = wire(row, {"metadata": {"name": "fast"}, "driverName": "e2e-fake-csi-driver", "parameters": {"foo": "bar"}})
    answer = await world.request("POST", classes, body, headers=dict(PROTOBUF))
    assert answer.status == 201, answer.body
    assert (await world.request("DELETE", f"{classes}/fast")).status == 200


async def test_a_quota_counts_what_comes_in_protobuf(world: worlds.World) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    hard = {"count/configmaps": "1"}
    answer = await world.request("POST", quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    assert answer.status == 201, answer.body
    # What the controller writes when it has counted.
    counted = {**answer.json(), "status": {"hard": hard, "used": {"count/configmaps": "0"}}}
    assert (await world.request("PUT", f"{quotas}/q/status", counted)).status == 200
    row = kinds.row("configmaps")
    codes = []
    for name in ("a", "b"):
        body = wire(row, {"metadata": {"name": name}})
        codes.append((await world.request("POST", CONFIGMAPS, body, headers=dict(PROTOBUF))).status)
    assert codes == [201, 403]


async def test_another_kind_in_the_envelope_gets_past_nobody(world: worlds.World) -> None:
    """Policies and quotas go by the path; a body that says it is something else is refused."""
    body = wire(kinds.row("secrets"), {"metadata": {"name": "x"}})
    answer = await world.request("POST", CONFIGMAPS, body, headers=dict(PROTOBUF))
    assert (answer.status, answer.json()["reason"]) == (400, "BadRequest")


async def test_nobody_locks_revocation(world: worlds.World) -> None:
    """A policy, or a webhook that cannot be reached, keeps nobody from being revoked; taking a revocation back is judged."""
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    denies = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]}
    path = f"{REGISTRATION}/validatingadmissionpolicies"
    assert (await world.request("POST", path, {"metadata": {"name": "p"}, "spec": denies})).status == 201
    bound = {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    assert (await world.request("POST", f"{REGISTRATION}/validatingadmissionpolicybindings", bound)).status == 201
    hook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        answer = await world.request(
            "POST", f"{REGISTRATION}/{plural}", {"metadata": {"name": "h"}, "webhooks": [hook]}
        )
        assert answer.status == 201, answer.body
    revocations = "/apis/handfast.dev/v1alpha1/revocations"
    document = {
        "apiVersion": "handfast.dev/v1alpha1",
        "kind": "Revocation",
        "metadata": {"name": "r"},
        "spec": {"user": "mallory"},
    }
    answer = await world.request("POST", revocations, document)
    assert answer.status == 201, answer.body
    assert (await world.request("DELETE", f"{revocations}/r")).status in {403, 422, 500}
    assert (await world.request("POST", CONFIGMAPS, {"metadata": {"name": "x"}})).status in {403, 422, 500}
