# SPDX-License-Identifier: Apache-2.0
"""What may be asked for. The table of `token_requests.py` is here."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import status
from handfast.rules.tokens import claims, requests, service_accounts
from tests.unit.rules.token_cases import ACCOUNT

API = ("api",)
FOUND = service_accounts.Stored("uid-sa")


def wanted(audiences: tuple[str, ...], seconds: int, bound: requests.BoundObject | None) -> requests.Request:
    return requests.Request(ACCOUNT, audiences, seconds, bound)


def read(document: dict[str, Any], account: service_accounts.Stored | None = FOUND) -> requests.Request:
    before = copy.deepcopy(document)
    try:
        return requests.read_request(document, "ns", "builder", account, API)
    finally:
        assert document == before


def read_refused(document: dict[str, Any], account: service_accounts.Stored | None = FOUND) -> status.StatusError:
    with pytest.raises(status.StatusError) as caught:
        read(document, account)
    return caught.value


def test_a_request_without_fields_gets_the_defaults():
    default = wanted(("api",), 3600, None)
    documents: tuple[dict[str, Any], ...] = (
        {},
        {"metadata": None},
        {"metadata": {}, "spec": None},
        {"spec": {}},
        {"spec": {"audiences": None, "expirationSeconds": None, "boundObjectRef": None}},
        {"spec": {"audiences": []}},
        {"metadata": {"name": "builder", "namespace": "ns", "uid": "uid-sa"}},
        {"metadata": {"name": "", "namespace": "", "uid": ""}},
    )
    for document in documents:
        assert read(document) == default
    assert read({"spec": {"audiences": ["x", "y"], "expirationSeconds": 700}}) == wanted(("x", "y"), 700, None)


def test_requests_for_something_else():
    error = read_refused({"metadata": {"name": "other"}})
    assert error.code == 422
    assert error.message == (
        'TokenRequest.authentication.k8s.io "builder" is invalid: metadata.name: Invalid value: "other": '
        "must match the service account name if specified"
    )
    error = read_refused({"metadata": {"namespace": "kube-system"}}, None)
    assert (error.code, error.causes[0].field) == (422, "metadata.namespace")
    error = read_refused({}, None)
    assert (error.code, error.message) == (404, 'serviceaccounts "builder" not found')
    error = read_refused({"metadata": {"uid": "uid-old"}})
    assert error.code == 409
    assert error.message == (
        'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "builder": the UID in the token request '
        "(uid-old) does not match the UID of the service account (uid-sa)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (600, None),
        (1 << 32, None),
        (599, "may not specify a duration less than 10 minutes"),
        (0, "may not specify a duration less than 10 minutes"),
        (-(1 << 62), "may not specify a duration less than 10 minutes"),
        ((1 << 32) + 1, "may not specify a duration larger than 2^32 seconds"),
    ],
)
def test_lifetimes_asked_for(seconds: int, text: str | None):
    document = {"spec": {"expirationSeconds": seconds}}
    if text is None:
        assert read(document).seconds == seconds
        return
    error = read_refused(document)
    assert error.code == 422
    assert error.message == (
        f'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: {seconds}: {text}'
    )


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"}, requests.BoundObject("Pod", "p", "u")),
        ({"kind": "Secret", "apiVersion": "", "name": "s"}, requests.BoundObject("Secret", "s", "")),
        ({"kind": "Node", "name": "n", "uid": None}, requests.BoundObject("Node", "n", "")),
        ({"kind": "Pod", "name": None}, requests.BoundObject("Pod", "", "")),
        ({"kind": "Deployment", "apiVersion": "apps/v1", "name": "d"}, "apps/v1, Kind=Deployment"),
        ({"kind": "Pod", "apiVersion": "example.com/v1", "name": "d"}, "example.com/v1, Kind=Pod"),
        ({"kind": "ConfigMap", "apiVersion": "v1", "name": "d"}, "/v1, Kind=ConfigMap"),
        ({"kind": "pod", "apiVersion": "v1", "name": "d"}, "/v1, Kind=pod"),
        ({}, "/, Kind="),
    ],
)
def test_what_a_token_can_be_bound_to(reference: dict[str, Any], expected: Any):
    document = {"spec": {"boundObjectRef": reference}}
    if isinstance(expected, str):
        error = read_refused(document)
        assert (error.code, error.message) == (400, f"cannot bind token to object of type {expected}")
    else:
        assert read(document).bound == expected


def test_the_object_must_be_there():
    asked = requests.BoundObject("Secret", "s", "uid-1")
    assert requests.judge_binding(asked, "uid-1") == claims.Reference("s", "uid-1")
    assert requests.judge_binding(requests.BoundObject("Node", "n", ""), "uid-2") == claims.Reference("n", "uid-2")
    with pytest.raises(status.StatusError) as caught:
        requests.judge_binding(asked, "uid-2")
    assert caught.value.code == 409
    assert caught.value.message == (
        'Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (uid-1) does not match the '
        "UID in record. The object might have been deleted and then recreated"
    )
    with pytest.raises(status.StatusError, match='secrets "s" not found'):
        requests.judge_binding(asked, None)


def test_pods_of_another_account():
    asked = requests.BoundObject("Pod", "p", "")
    assert requests.judge_pod(asked, "builder", service_accounts.StoredPod("u", "builder")) == (
        claims.Reference("p", "u"),
        "",
    )
    on_node = service_accounts.StoredPod("u", "builder", "node-1")
    assert requests.judge_pod(asked, "builder", on_node) == (claims.Reference("p", "u"), "node-1")
    with pytest.raises(status.StatusError) as caught:
        requests.judge_pod(asked, "builder", service_accounts.StoredPod("u", "default"))
    assert caught.value.code == 400
    assert caught.value.message == (
        'cannot bind token for serviceaccount "builder" to pod running with different serviceaccount name.'
    )
    with pytest.raises(status.StatusError, match="the UID in the bound object reference"):
        requests.judge_pod(requests.BoundObject("Pod", "p", "old"), "builder", on_node)
    with pytest.raises(status.StatusError, match='pods "p" not found'):
        requests.judge_pod(asked, "builder", None)


YEAR = 31536000
TO_POD = requests.BoundObject("Pod", "p", "")
TO_SECRET = requests.BoundObject("Secret", "s", "")
SHORTENED = "requested expiration of 8000 seconds shortened to 7200 seconds"


@pytest.mark.parametrize(
    ("request_", "maximum", "transition", "expected"),
    [
        (wanted(API, 8000, None), None, API, requests.Lifetime(8000, 8000)),
        (wanted(API, 7200, None), 7200, API, requests.Lifetime(7200, 7200)),
        (wanted(API, 8000, None), 7200, API, requests.Lifetime(7200, 7200, None, SHORTENED)),
        (wanted(API, 3607, TO_POD), None, ("api", "b"), requests.Lifetime(3607, YEAR, 3607)),
        (wanted(API, 3607, TO_POD), 7200, API, requests.Lifetime(3607, YEAR, 3607)),
        (wanted(API, 3607, TO_POD), None, (), requests.Lifetime(3607, 3607)),
        (wanted(API, 3606, TO_POD), None, API, requests.Lifetime(3606, 3606)),
        (wanted(API, 3607, None), None, API, requests.Lifetime(3607, 3607)),
        (wanted(API, 3607, TO_SECRET), None, API, requests.Lifetime(3607, 3607)),
        (wanted(("api", "vault"), 3607, TO_POD), None, API, requests.Lifetime(3607, 3607)),
    ],
)
def test_a_lifetime_is_shortened_to_the_maximum_with_a_warning(
    request_: requests.Request, maximum: int | None, transition: tuple[str, ...], expected: Any
):
    assert requests.lifetime(request_, maximum, transition) == expected


def test_a_token_that_nobody_would_accept():
    error = requests.token_too_long(100)
    assert (error.code, error.causes[0].field) == (422, "spec.audiences")
    assert "more than 100 bytes" in error.message
