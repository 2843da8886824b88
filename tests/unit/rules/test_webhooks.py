# SPDX-License-Identifier: Apache-2.0
"""Which webhooks a write concerns, and what their answers mean: tables, without a server in sight."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest

from handfast.api import kinds, selectors, status
from handfast.rules import webhooks

UID = "0a1b2c3d-0000-4000-8000-000000000001"


def kind(group: str, plural: str) -> kinds.Kind:
    return next(row for row in kinds.builtin() if row.resource == (group, plural))


PODS = kind("", "pods")
NODES = kind("", "nodes")
NAMESPACES = kind("", "namespaces")
DEPLOYMENTS = kind("apps", "deployments")
EVENTS = kind("", "events")
NEW_EVENTS = kind("events.k8s.io", "events")


def rule(
    operations: str = "CREATE", groups: str = "", versions: str = "v1", resources: str = "pods", scope: str = "*"
) -> dict[str, Any]:
    """A rule from comma-separated lists."""
    return {
        "operations": operations.split(","),
        "apiGroups": groups.split(","),
        "apiVersions": versions.split(","),
        "resources": resources.split(","),
        "scope": scope,
    }


def webhook(*rules: dict[str, Any], **more: Any) -> webhooks.Webhook:
    document = {
        "name": "one.example.com",
        "rules": list(rules),
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://example.com"},
        **more,
    }
    return webhooks.parse({"metadata": {"name": "config"}, "webhooks": [document]})[0]


# --- parsing


def test_everything_is_parsed():
    found = webhooks.parse(
        {
            "metadata": {"name": "config"},
            "webhooks": [
                {
                    "name": "one.example.com",
                    "clientConfig": {
                        "service": {"namespace": "system", "name": "hook", "path": "/check", "port": 8443},
                        "caBundle": base64.b64encode(b"PEM").decode(),
                    },
                    "rules": [rule("CREATE,UPDATE", ",apps", "v1", "pods,pods/*,*/*", "Namespaced")],
                    "failurePolicy": "Ignore",
                    "matchPolicy": "Exact",
                    "namespaceSelector": {"matchLabels": {"a": "b"}},
                    "objectSelector": {"matchExpressions": [{"key": "c", "operator": "Exists"}]},
                    "sideEffects": "NoneOnDryRun",
                    "timeoutSeconds": 30,
                    "admissionReviewVersions": ["v1beta1", "v1"],
                    "reinvocationPolicy": "IfNeeded",
                    "matchConditions": [{"name": "x", "expression": "true"}],
                }
            ],
        }
    )
    assert found == (
        webhooks.Webhook(
            configuration="config",
            index=0,
            name="one.example.com",
            url="",
            service=webhooks.Service(namespace="system", name="hook", path="/check", port=8443),
            ca_bundle=b"PEM",
            rules=(
                webhooks.Rule(
                    operations=frozenset({"CREATE", "UPDATE"}),
                    groups=frozenset({"", "apps"}),
                    versions=frozenset({"v1"}),
                    resources=(("pods", ""), ("pods", "*"), ("*", "*")),
                    scope="Namespaced",
                ),
            ),
            fails_open=True,
            exact=True,
            namespace_selector=selectors.parse_labels("a=b"),
            object_selector=selectors.parse_labels("c"),
            dry_run=True,
            seconds=30,
            reinvoked=True,
            conditional=True,
        ),
    )


def test_what_is_left_out_is_the_strict_choice():
    found = webhooks.parse(
        {"metadata": {"name": "c"}, "webhooks": [{"clientConfig": {"service": {}}, "rules": [{"resources": ["pods"]}]}]}
    )[0]
    assert not found.fails_open
    assert not found.exact
    assert not found.dry_run
    assert not found.reinvoked
    assert not found.conditional
    assert found.seconds == 10
    assert found.ca_bundle is None
    assert found.service == webhooks.Service(namespace="", name="", path="/", port=443)
    assert found.namespace_selector.empty
    assert found.object_selector.empty
    assert found.rules[0].scope == "*"


@pytest.mark.parametrize(("seconds", "used"), [(1, 1), (30, 30), (0, 10), (31, 10), (-1, 10), ("5", 10), (True, 10)])
def test_the_time_allowed_is_bounded(seconds, used):
    assert webhook(timeoutSeconds=seconds).seconds == used


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, ""),
        ({"admissionReviewVersions": ["v1beta1"]}, "webhook does not accept v1 AdmissionReview"),
        ({"clientConfig": {"caBundle": "!"}}, "clientConfig.caBundle is not base64"),
        ({"objectSelector": {"matchLabels": {"a": 1}}}, "objectSelector: matchLabels: Invalid value: must be a map"),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a"}]}}, 'namespaceSelector: "None" is not a valid'),
    ],
)
def test_what_cannot_be_used_is_known_and_still_matches(more, wrong):
    found = webhook(rule(), **more)
    assert found.wrong.startswith(wrong)
    assert bool(found.wrong) is bool(wrong)
    assert webhooks.matched(found, "CREATE", [PODS], "") is PODS
    assert webhooks.selects(found, {}, [{"metadata": {}}])


def test_configurations_are_asked_by_name_and_webhooks_as_listed():
    def configuration(name: str, *names: str) -> tuple[webhooks.Webhook, ...]:
        return webhooks.parse({"metadata": {"name": name}, "webhooks": [{"name": each} for each in names]})

    configurations = {name: configuration(name, f"{name}2", f"{name}1") for name in ("b", "a", "B")}
    assert [each.name for each in webhooks.ordered(configurations)] == ["B2", "B1", "a2", "a1", "b2", "b1"]


# --- rules


@pytest.mark.parametrize(
    ("found", "operation", "asked", "subresource", "matches"),
    [
        (rule(), "CREATE", PODS, "", True),
        (rule(), "UPDATE", PODS, "", False),
        (rule("*"), "DELETE", PODS, "", True),
        (rule("CREATE,DELETE"), "DELETE", PODS, "", True),
        (rule(groups="apps"), "CREATE", PODS, "", False),
        (rule(groups="*"), "CREATE", PODS, "", True),
        (rule(groups="*", resources="deployments"), "CREATE", DEPLOYMENTS, "", True),
        (rule(groups=",apps", resources="pods,deployments"), "CREATE", DEPLOYMENTS, "", True),
        (rule(versions="v2"), "CREATE", PODS, "", False),
        (rule(versions="v2,v1"), "CREATE", PODS, "", True),
        (rule(versions="*"), "CREATE", PODS, "", True),
        # Resources and their subresources.
        (rule(resources="pod"), "CREATE", PODS, "", False),
        (rule(resources="*"), "CREATE", PODS, "", True),
        (rule(resources="*"), "CREATE", PODS, "eviction", False),
        (rule(resources="pods"), "CREATE", PODS, "eviction", False),
        (rule(resources="pods/eviction"), "CREATE", PODS, "eviction", True),
        (rule(resources="pods/eviction"), "CREATE", PODS, "", False),
        (rule(resources="pods/eviction"), "CREATE", PODS, "binding", False),
        (rule(resources="pods/*"), "CREATE", PODS, "binding", True),
        (rule(resources="pods/*"), "CREATE", PODS, "", True),
        (rule(resources="*/*"), "CREATE", PODS, "binding", True),
        (rule(resources="*/*"), "CREATE", PODS, "", True),
        (rule(resources="*/status"), "CREATE", PODS, "status", True),
        (rule(resources="*/status"), "CREATE", PODS, "binding", False),
        (rule(resources="*/status,pods/binding"), "CREATE", PODS, "binding", True),
        # Scope.
        (rule(scope="Namespaced"), "CREATE", PODS, "", True),
        (rule(scope="Cluster"), "CREATE", PODS, "", False),
        (rule(resources="*", scope="Cluster"), "CREATE", NODES, "", True),
        (rule(resources="*", scope="Namespaced"), "CREATE", NODES, "", False),
        (rule(resources="*", scope="Cluster"), "CREATE", NAMESPACES, "", True),
        (rule(resources="*", scope="Namespaced"), "CREATE", NAMESPACES, "", False),
        (rule(resources="*", scope="Galaxy"), "CREATE", PODS, "", False),
    ],
)
def test_rules(found, operation, asked, subresource, matches):
    assert webhooks.matched(webhook(found), operation, [asked], subresource) is (asked if matches else None)


def test_one_rule_that_covers_is_enough_and_none_covers_nothing():
    assert webhooks.matched(webhook(rule("DELETE"), rule()), "CREATE", [PODS], "") is PODS
    assert webhooks.matched(webhook(), "CREATE", [PODS], "") is None


@pytest.mark.parametrize(
    ("groups", "policy", "names", "seen"),
    [
        ("", "Equivalent", [EVENTS, NEW_EVENTS], EVENTS),
        ("events.k8s.io", "Equivalent", [EVENTS, NEW_EVENTS], NEW_EVENTS),
        ("events.k8s.io", "Exact", [EVENTS, NEW_EVENTS], None),
        ("", "Equivalent", [NEW_EVENTS, EVENTS], EVENTS),
        ("", "Exact", [NEW_EVENTS, EVENTS], None),
        ("*", "Equivalent", [NEW_EVENTS, EVENTS], NEW_EVENTS),
        ("apps", "Equivalent", [NEW_EVENTS, EVENTS], None),
    ],
)
def test_equivalent_names(groups, policy, names, seen):
    found = webhook(rule(groups=groups, resources="events"), matchPolicy=policy)
    assert webhooks.matched(found, "CREATE", names, "") is seen


@pytest.mark.parametrize("plural", ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"])
def test_configurations_are_never_sent(plural):
    found = webhook(rule("*", "*", "*", "*/*"))
    assert webhooks.matched(found, "DELETE", [kind("admissionregistration.k8s.io", plural)], "") is None


# --- selectors


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


@pytest.mark.parametrize(
    ("more", "namespace", "documents", "selected"),
    [
        ({}, {}, [labelled(), None], True),
        ({}, None, [None, None], True),
        # The namespace's labels.
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, {"a": "b"}, [labelled(), None], True),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, {"a": "c"}, [labelled(a="b"), None], False),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, {}, [labelled(), None], False),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, None, [labelled(), None], True),
        # The object's: new or old.
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {"a": "b"}, [labelled(), None], False),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, [labelled(a="b"), None], True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, [labelled(), labelled(a="b")], True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, [None, labelled(a="b")], True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, [None, labelled()], False),
        # An absent label matches what must not be there, but only on what could have labels.
        ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}, {}, [{}, None], False),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}},
            {},
            [{"metadata": {}}, None],
            True,
        ),
    ],
)
def test_selectors(more, namespace, documents, selected):
    assert webhooks.selects(webhook(**more), namespace, documents) is selected


# --- rounds


def test_a_second_round_asks_those_before_a_change():
    one, two, three = (
        dataclasses.replace(webhook(reinvocationPolicy=policy), index=index)
        for index, policy in enumerate(("IfNeeded", "Never", "IfNeeded"))
    )
    rounds = webhooks.Rounds()
    rounds.answered(one, changed=True)
    assert not rounds.again(one)
    rounds.answered(two, changed=True)
    rounds.answered(three, changed=False)
    assert [rounds.again(each) for each in (one, two, three)] == [True, False, False]
    rounds.changed_by_others()
    assert [rounds.again(each) for each in (one, two, three)] == [True, False, True]


# --- answers


def body(**response: Any) -> bytes:
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": UID, "allowed": True, **response},
        }
    ).encode()


def read(sent: bytes, *, mutating: bool = True) -> webhooks.Answer:
    return webhooks.read_answer(webhook(), sent, UID, mutating=mutating)


def encoded(patch: Any) -> str:
    return base64.b64encode(patch if isinstance(patch, bytes) else json.dumps(patch).encode()).decode()


def test_yes():
    assert read(body()) == webhooks.Answer(None)
    assert read(body(), mutating=False) == webhooks.Answer(None)


def test_a_patch_and_what_is_said_beside():
    operations = [{"op": "add", "path": "/a", "value": 1}]
    answer = read(
        body(
            patchType="JSONPatch",
            patch=encoded(operations),
            warnings=["beware", "", "of the dog"],
            auditAnnotations={"why": "because"},
        )
    )
    assert answer == webhooks.Answer(
        None, tuple(operations), ("beware", "of the dog"), (("one.example.com/why", "because"),)
    )


def test_an_empty_patch_is_none():
    assert read(body(patchType="JSONPatch", patch=encoded([]))).patch == ()


def test_what_is_said_beside_is_bounded():
    answer = read(body(warnings=["x"] * 1000, auditAnnotations={str(n): "x" * 4096 for n in range(8)}))
    assert len(answer.warnings) == webhooks.MAX_WARNINGS
    assert len(answer.annotations) == 3


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "the answer is not the JSON of an AdmissionReview"),
        (b"<html>", "the answer is not the JSON of an AdmissionReview"),
        (b"[]", "the answer is not the JSON of an AdmissionReview"),
        (b'"\xff"', "the answer is not the JSON of an AdmissionReview"),
        (b'{"x":' + b"[" * 100_000, "the answer is not the JSON of an AdmissionReview"),
        (body(allowed="yes"), "the answer is not the JSON of an AdmissionReview"),
        (body(patch="!"), "the answer is not the JSON of an AdmissionReview"),
        (b"{}", "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got , Kind="),
        (
            body().replace(b"k8s.io/v1", b"k8s.io/v1beta1"),
            "Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview",
        ),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "webhook response was absent"),
        (body(uid="other"), f'expected response.uid="{UID}", got "other"'),
        (body(uid=None), f'expected response.uid="{UID}", got ""'),
        (body(patch=encoded([])), "webhook returned response.patch but not response.patchType"),
        (body(patchType="JSONPatch"), "webhook returned response.patchType but not response.patch"),
        (body(patchType="Merge", patch=encoded({})), 'unsupported patch type "Merge"'),
        (body(patchType="JSONPatch", patch=encoded(b"no")), "received undecodable patch in webhook response: "),
        (body(patchType="JSONPatch", patch=encoded(b"\xff")), "received undecodable patch in webhook response: "),
        (body(patchType="JSONPatch", patch=encoded(b"[" * 90_000)), "received undecodable patch in webhook response: "),
        (body(patchType="JSONPatch", patch=encoded({})), "received undecodable patch in webhook response: "),
    ],
)
def test_what_is_no_answer_is_a_failure(sent, why):
    with pytest.raises(webhooks.CallFailed) as caught:
        read(sent)
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ({"patch": encoded([]), "patchType": "JSONPatch"}, "validating webhook may not return response.patch"),
        ({"patchType": "JSONPatch"}, "validating webhook may not return response.patchType"),
    ],
)
def test_a_validating_webhook_may_not_patch(response, why):
    with pytest.raises(webhooks.CallFailed) as caught:
        read(body(**response), mutating=False)
    assert caught.value.message == f"received invalid webhook response: {why}"


@pytest.mark.parametrize(
    ("said", "code", "reason", "message"),
    [
        (None, 403, "Forbidden", " without explanation"),
        ({}, 403, "Forbidden", " without explanation"),
        ({"message": "no"}, 403, "Forbidden", ": no"),
        ({"reason": "Invalid"}, 403, "Invalid", ": Invalid"),
        ({"message": "no", "reason": "Invalid", "code": 422}, 422, "Invalid", ": no"),
        ({"message": "no", "code": 409}, 409, "Conflict", ": no"),
        ({"message": "no", "code": 418}, 418, "BadRequest", ": no"),
        ({"message": "no", "code": 507}, 507, "InternalError", ": no"),
        # A refusal never looks like a success, nor like something HTTP does not know.
        ({"message": "no", "code": 200}, 400, "BadRequest", ": no"),
        ({"message": "no", "code": 302}, 400, "BadRequest", ": no"),
        ({"message": "no", "code": -1}, 400, "BadRequest", ": no"),
        ({"message": "no", "code": 99999}, 400, "BadRequest", ": no"),
        ({"message": "no", "status": "Success"}, 403, "Forbidden", ": no"),
    ],
)
@pytest.mark.parametrize("allowed", [False, None])
def test_no(said, code, reason, message, allowed):
    refusal = read(body(allowed=allowed, status=said)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (code, reason)
    assert refusal.message == 'admission webhook "one.example.com" denied the request' + message
    assert refusal.document()["status"] == "Failure"


def test_the_details_of_a_refusal_are_passed_on():
    causes = [{"reason": "FieldValueInvalid", "message": "too big", "field": "spec.replicas"}, {}]
    details = {"name": "n", "group": "g", "kind": "k", "causes": causes, "retryAfterSeconds": 7}
    refusal = read(body(allowed=False, status={"details": details})).refusal
    assert refusal is not None
    assert refusal.document()["details"] == {
        "name": "n",
        "group": "g",
        "kind": "k",
        "causes": [causes[0], {"reason": "", "message": ""}],
        "retryAfterSeconds": 7,
    }


def test_a_time_to_wait_is_not_negative():
    refusal = read(body(allowed=False, status={"details": {"retryAfterSeconds": -7}})).refusal
    assert refusal is not None
    assert refusal.retry_after == 0


def test_the_texts_of_refusals():
    failed = webhooks.failure("one.example.com", "failed to call webhook: EOF")
    assert (failed.code, failed.reason) == (500, "InternalError")
    assert failed.message == (
        'Internal error occurred: failed calling webhook "one.example.com": failed to call webhook: EOF'
    )
    dry = webhooks.dry_run_refused("one.example.com")
    assert (dry.code, dry.message) == (400, 'admission webhook "one.example.com" does not support dry run')


# --- patches


def pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "b", "uid": "c", "creationTimestamp": "then", "generation": 1},
        "spec": {"nodeName": "n"},
    }


def op(name: str, path: str, value: Any = None) -> dict[str, Any]:
    return {"op": name, "path": path, "value": value}


def test_a_patch_makes_a_new_document():
    document = pod()
    after = webhooks.patched("w", document, [op("add", "/metadata/labels", {"x": "y"}), op("remove", "/spec/nodeName")])
    assert after == {**pod(), "metadata": {**pod()["metadata"], "labels": {"x": "y"}}, "spec": {}}
    assert document == pod()


@pytest.mark.parametrize(
    "operation",
    [
        op("replace", "/apiVersion", "v2"),
        op("replace", "/kind", "Node"),
        op("remove", "/kind"),
        op("replace", "/metadata/name", "z"),
        op("replace", "/metadata/namespace", "kube-system"),
        op("replace", "/metadata/uid", "z"),
        op("remove", "/metadata"),
        op("replace", "/metadata", []),
        op("replace", "", {}),
    ],
)
def test_identity_cannot_be_changed(operation):
    with pytest.raises(status.StatusError) as caught:
        webhooks.patched("w", pod(), [operation])
    assert caught.value.code == 500
    assert caught.value.message.startswith('Internal error occurred: admission webhook "w" attempted to change ')
    assert operation["path"].strip("/").split("/")[-1] in caught.value.message


@pytest.mark.parametrize(
    "operation",
    [
        op("replace", "/metadata/creationTimestamp", "now"),
        op("remove", "/metadata/creationTimestamp"),
        op("add", "/metadata/deletionTimestamp", "now"),
        op("add", "/metadata/generation", 9),
        op("add", "/metadata/managedFields", []),
        op("add", "/metadata/resourceVersion", "9"),
    ],
)
def test_what_only_the_server_sets_is_put_back(operation):
    assert webhooks.patched("w", pod(), [operation]) == pod()


def test_a_document_without_metadata_may_be_patched():
    binding = {"apiVersion": "v1", "kind": "Binding"}
    assert webhooks.patched("w", binding, [op("add", "/x", 1)]) == {**binding, "x": 1}


def test_without_an_object_there_is_nothing_to_change():
    with pytest.raises(status.StatusError) as caught:
        webhooks.patched("w", None, [op("add", "/x", 1)])
    assert caught.value.message == (
        'Internal error occurred: admission webhook "w" attempted to modify the object, '
        "which is not supported for this operation"
    )


@pytest.mark.parametrize("operation", [op("remove", "/nothing"), op("explode", "/spec"), 7, op("test", "/kind", "x")])
def test_a_patch_that_does_not_apply_is_a_failure(operation):
    with pytest.raises(webhooks.BadPatch) as caught:
        webhooks.patched("w", pod(), [operation])
    assert caught.value.message.startswith("received a patch that does not apply: ")
    assert not isinstance(caught.value, webhooks.CallFailed), "no failure policy excuses it"
