# SPDX-License-Identifier: Apache-2.0
"""AdmissionReviews: what is one, why a body is none, and what the answers look like."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from handfast.rules.mesh import admission_reviews as reviews
from tests.unit.rules.mesh import pods


def body(*, version: str = "v1", **request: Any) -> bytes:
    """A review as the API server sends it; what is None is left out."""
    values = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web",
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "somebody"},
        "object": pods.pod(),
        "oldObject": None,
        "dryRun": False,
        **request,
    }
    kept = {key: value for key, value in values.items() if value is not None}
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": kept}
    ).encode()


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_review_is_read_and_answered_in_its_own_version(version):
    review = reviews.read(body(version=version, dryRun=True))
    assert (review.uid, review.namespace, review.kind, review.dry_run) == ("u-1", "shop", "Pod", True)
    assert review.document == pods.pod()
    answer = json.loads(reviews.written(review, reviews.Answer()))
    assert answer == {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_apiversion_and_kind_of_an_object_are_said_by_the_request():
    bare = {key: value for key, value in pods.pod().items() if key not in {"apiVersion", "kind"}}
    assert reviews.read(body(object=bare)).document == pods.pod()


@pytest.mark.parametrize(
    "request_",
    [
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "binding"},
        {"kind": None},
    ],
)
def test_what_is_nobodys_needs_no_object(request_):
    review = reviews.read(body(**request_))
    assert (review.kind, review.document) == ("", {})


def without(*keys: str) -> bytes:
    review = json.loads(body())
    for key in keys:
        (review["request"] if key in review["request"] else review).pop(key)
    return json.dumps(review).encode()


BAD = {
    "not JSON": (b"{", "NotJSON", "not the JSON"),
    "not UTF-8": (b'{"kind": "\xff"}', "NotJSON", "not the JSON"),
    "a list": (b"[]", "NotJSON", "not the JSON"),
    "a number as uid": (body(uid=5), "NotJSON", "not the JSON"),
    "nothing in it": (b"{}", "WrongKind", "not admission.k8s.io/v1 or admission.k8s.io/v1beta1 AdmissionReview"),
    "another kind": (b'{"kind": "Pod", "apiVersion": "v1"}', "WrongKind", "it is 'v1' 'Pod'"),
    "another version": (body(version="v2"), "WrongKind", "'admission.k8s.io/v2'"),
    "no request": (without("request"), "NoRequest", "it has no request"),
    "no uid": (without("uid"), "NoUid", "request.uid must have 1 to 253 characters"),
    "an empty uid": (body(uid=""), "NoUid", "request.uid"),
    "a long uid": (body(uid="u" * 254), "NoUid", "request.uid"),
    "no object": (body(object=None), "NoObject", "request.object must be an object"),
    "a text as object": (body(object="web"), "NoObject", "request.object must be an object"),
    "no metadata": (body(object={"spec": {}}), "NoObject", "request.object.metadata"),
    "no namespace": (body(namespace=""), "NoObject", "request.namespace"),
    "another object": (body(object={"kind": "Secret", "metadata": {}}), "NoObject", "must be a v1 Pod"),
    "another group": (body(object={"apiVersion": "x/v1", "metadata": {}}), "NoObject", "must be a v1 Pod"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_review_is_refused_with_its_reason(case):
    text, reason, said = BAD[case]
    with pytest.raises(reviews.BadReview) as caught:
        reviews.read(text)
    assert caught.value.reason == reason
    assert caught.value.message.startswith("invalid admission review request: ")
    assert said in caught.value.message


def test_a_body_that_is_too_long_is_refused():
    with pytest.raises(reviews.BadReview, match=f"at most {reviews.MAX_BYTES} are allowed") as caught:
        reviews.read(b" " * (reviews.MAX_BYTES + 1))
    assert caught.value.reason == "TooLarge"


def test_a_body_with_too_many_values_is_refused():
    with pytest.raises(reviews.BadReview, match=f"more than {reviews.MAX_VALUES} values"):
        reviews.read(b"[" + b"{}," * (reviews.MAX_VALUES + 1) + b"{}]")


def test_a_body_that_is_too_deep_is_refused():
    with pytest.raises(reviews.BadReview, match="not the JSON"):
        reviews.read(body(object={"a": 0}).replace(b'{"a": 0}', b'{"a":' * 5000 + b"0" + b"}" * 5000))


def test_a_refusal_has_its_reason_and_a_patch_its_type():
    review = reviews.read(body())
    no = json.loads(reviews.written(review, reviews.Answer(allowed=False, reason="NotALabel", message="no: rename it")))
    assert no["response"] == {
        "uid": "u-1",
        "allowed": False,
        "status": {"code": 403, "message": "no: rename it", "reason": "NotALabel"},
    }
    operations = [{"op": "add", "path": "/metadata/labels", "value": {}}]
    yes = json.loads(reviews.written(review, reviews.Answer(operations=operations, warnings=["mind"])))["response"]
    assert (yes["allowed"], yes["patchType"], yes["warnings"]) == (True, "JSONPatch", ["mind"])
    assert json.loads(base64.b64decode(yes["patch"])) == operations


def test_the_owner_is_the_one_that_controls():
    rows = [{"kind": "A", "name": "a"}, {"kind": "B", "name": "b", "controller": True}]
    assert reviews.owner({"metadata": {"ownerReferences": rows}}) == rows[1]
    assert reviews.owner({"metadata": {}}) == {}


@pytest.mark.parametrize("namespace", ["", "a/b", "..", "n" * 3_000_000])
def test_names_that_are_none_are_not_kept(namespace):
    with pytest.raises(reviews.BadReview) as caught:
        reviews.read(body(namespace=namespace))
    assert len(caught.value.message) < 200
    # Of what is nobody's, nothing is kept.
    assert reviews.read(body(namespace=namespace, operation="DELETE")).namespace == ""
    for key in ("apiVersion", "kind", "name", "uid"):
        row = {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "controller": True, key: "n" * 254}
        assert reviews.owner({"metadata": {"ownerReferences": [row]}}) == {}
