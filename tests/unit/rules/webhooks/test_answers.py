# SPDX-License-Identifier: Apache-2.0
"""What the answers of webhooks mean: tables, without a server in sight."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from handfast.api import status
from handfast.rules.webhooks import answers
from tests.unit.rules.webhook_cases import webhook

UID = "0a1b2c3d-0000-4000-8000-000000000001"


def body(**response: Any) -> bytes:
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": UID, "allowed": True, **response},
        }
    ).encode()


def read(sent: bytes, *, mutating: bool = True) -> answers.Answer:
    return answers.read_answer(webhook(), sent, UID, mutating=mutating)


def encoded(patch: Any) -> str:
    return base64.b64encode(patch if isinstance(patch, bytes) else json.dumps(patch).encode()).decode()


def test_a_yes_has_no_refusal():
    assert read(body()) == answers.Answer(None)
    assert read(body(), mutating=False) == answers.Answer(None)


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
    assert answer == answers.Answer(
        None, tuple(operations), ("beware", "of the dog"), (("one.example.com/why", "because"),)
    )


def test_an_empty_patch_is_none():
    assert read(body(patchType="JSONPatch", patch=encoded([]))).patch == ()


def test_what_is_said_beside_is_bounded():
    answer = read(body(warnings=["x"] * 1000, auditAnnotations={str(n): "x" * 4096 for n in range(8)}))
    assert len(answer.warnings) == answers.MAX_WARNINGS
    assert len(answer.annotations) == 3


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "the answer is not the JSON of an AdmissionReview"),
        (b"<html>", "the answer is not the JSON of an AdmissionReview"),
        (b"[]", "the answer is not the JSON of an AdmissionReview"),
        (b'"\xff"', "the answer is not the JSON of an AdmissionReview"),
        (b'{"x":' + b"[" * 4000, "the answer is not the JSON of an AdmissionReview"),
        (body(warnings=["x"] * 6000), "the answer has more than 5000 values"),
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
        (body(patchType="JSONPatch", patch=encoded(b"[" * 4000)), "received undecodable patch in webhook response: "),
        (body(patchType="JSONPatch", patch=encoded([1] * 6000)), "received a patch with more than 5000 values"),
        (body(patchType="JSONPatch", patch=encoded({})), "received undecodable patch in webhook response: "),
    ],
)
def test_what_is_no_answer_is_a_failure(sent, why):
    with pytest.raises(answers.CallFailed) as caught:
        read(sent)
    assert why in caught.value.message


def test_what_is_quoted_of_a_wrong_answer_is_bounded():
    with pytest.raises(answers.CallFailed) as caught:
        read(body().replace(b"k8s.io/v1", b"x" * 1000))
    assert caught.value.message.endswith(", got " + ("admission." + "x" * 1000)[:200])
    with pytest.raises(answers.CallFailed) as caught:
        read(body(uid="u" * 1000))
    assert caught.value.message.endswith(f', got "{"u" * 64}"')


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ({"patch": encoded([]), "patchType": "JSONPatch"}, "validating webhook may not return response.patch"),
        ({"patchType": "JSONPatch"}, "validating webhook may not return response.patchType"),
    ],
)
def test_a_validating_webhook_may_not_patch(response, why):
    with pytest.raises(answers.CallFailed) as caught:
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
def test_a_no_has_the_code_and_reason_of_the_webhook(said, code, reason, message, allowed):
    refusal = read(body(allowed=allowed, status=said)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.reason, refusal.retry_after) == (code, reason, 0)
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
    failed = answers.failure("one.example.com", "failed to call webhook: EOF")
    assert (failed.code, failed.reason) == (500, "InternalError")
    assert failed.message == (
        'Internal error occurred: failed calling webhook "one.example.com": failed to call webhook: EOF'
    )
    dry = answers.dry_run_refused("one.example.com")
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
    after = answers.patched("w", document, [op("add", "/metadata/labels", {"x": "y"}), op("remove", "/spec/nodeName")])
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
        answers.patched("w", pod(), [operation])
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
    assert answers.patched("w", pod(), [operation]) == pod()


def test_a_document_without_metadata_may_be_patched():
    binding = {"apiVersion": "v1", "kind": "Binding"}
    assert answers.patched("w", binding, [op("add", "/x", 1)]) == {**binding, "x": 1}


def test_without_an_object_there_is_nothing_to_change():
    with pytest.raises(status.StatusError) as caught:
        answers.patched("w", None, [op("add", "/x", 1)])
    assert caught.value.message == (
        'Internal error occurred: admission webhook "w" attempted to modify the object, '
        "which is not supported for this operation"
    )


@pytest.mark.parametrize("operation", [op("remove", "/nothing"), op("explode", "/spec"), 7, op("test", "/kind", "x")])
def test_a_patch_that_does_not_apply_is_a_failure(operation):
    with pytest.raises(answers.BadPatch) as caught:
        answers.patched("w", pod(), [operation])
    assert caught.value.message.startswith("received a patch that does not apply: ")
    assert not isinstance(caught.value, answers.CallFailed), "no failure policy excuses it"
