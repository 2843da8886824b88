# SPDX-License-Identifier: Apache-2.0
"""Claims there and back, and every other shape refused. The table of `token_claims.py` is here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec import structs

from handfast.rules.tokens import claims as token_claims
from tests.unit.rules.token_cases import AT, BOUND, ISSUER, LEGACY, NODE, POD, SECRET, refused


def test_the_claims_of_a_bound_token():
    bound = structs.replace(BOUND, pod=POD, node=NODE, warn_after=AT + 3607)
    assert token_claims.bound_claims(ISSUER, bound) == {
        "iss": ISSUER,
        "sub": "system:serviceaccount:ns:builder",
        "aud": ("api", "other"),
        "iat": AT,
        "nbf": AT,
        "exp": AT + 3600,
        "jti": "11111111-2222-4333-8444-555555555555",
        "kubernetes.io": {
            "namespace": "ns",
            "serviceaccount": {"name": "builder", "uid": "uid-sa"},
            "pod": {"name": "pod-1", "uid": "uid-pod"},
            "node": {"name": "node-1", "uid": "uid-node"},
            "warnafter": AT + 3607,
        },
    }


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"pod": POD},
        {"pod": POD, "node": NODE},
        {"pod": POD, "node": token_claims.Reference("node-1", "")},
        {"secret": SECRET},
        {"node": NODE},
        {"warn_after": AT + 5, "audiences": ("one",)},
    ],
)
def test_claims_survive_the_way(more: dict[str, Any]):
    bound = structs.replace(BOUND, **more)
    claims = token_claims.bound_claims(ISSUER, bound)
    claims["aud"] = list(claims["aud"])
    assert token_claims.read_bound(claims) == bound


def test_the_issuer_decides_the_kind():
    bound = token_claims.bound_claims(ISSUER, BOUND)
    assert token_claims.read({**bound, "aud": list(bound["aud"])}) == BOUND
    assert token_claims.read(token_claims.legacy_claims(token_claims.LEGACY_ISSUER, LEGACY)) == LEGACY
    assert refused(token_claims.read, {**bound, "iss": token_claims.LEGACY_ISSUER})[0] == "BadClaim"


def test_the_claims_of_a_legacy_token():
    claims = token_claims.legacy_claims(token_claims.LEGACY_ISSUER, LEGACY)
    assert claims == {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:ns:builder",
        "kubernetes.io/serviceaccount/namespace": "ns",
        "kubernetes.io/serviceaccount/secret.name": "builder-token",
        "kubernetes.io/serviceaccount/service-account.name": "builder",
        "kubernetes.io/serviceaccount/service-account.uid": "uid-sa",
    }
    assert token_claims.read_legacy(claims) == LEGACY


def test_a_legacy_token_may_have_an_id():
    legacy = dataclasses.replace(LEGACY, id="11111111-2222-4333-8444-555555555555")
    claims = token_claims.legacy_claims(token_claims.LEGACY_ISSUER, legacy)
    assert claims == {
        **token_claims.legacy_claims(token_claims.LEGACY_ISSUER, LEGACY),
        "jti": "11111111-2222-4333-8444-555555555555",
    }
    assert token_claims.read_legacy(claims) == legacy
    for value in (5, None):
        assert refused(token_claims.read_legacy, {**claims, "jti": value}) == ("BadClaim", "jti is not a text")


def test_one_audience_may_stand_alone_and_times_may_be_missing():
    claims = token_claims.bound_claims(ISSUER, BOUND)
    claims["aud"] = "api"
    for key in ("iat", "nbf", "jti"):
        del claims[key]
    found = token_claims.read_bound(claims)
    assert (found.audiences, found.issued_at, found.not_before, found.id) == (("api",), 0, 0, "")


NOT_SECONDS = [
    float("nan"),
    float("inf"),
    1e300,
    10**300,
    -1,
    1.5,
    float(AT),
    True,
    str(AT),
    [AT],
    {},
    253402300800,
]


@pytest.mark.parametrize("value", NOT_SECONDS, ids=range(len(NOT_SECONDS)))
@pytest.mark.parametrize("key", ["exp", "nbf", "iat", "warnafter"])
def test_times_of_another_shape(key: str, value: Any):
    claims = token_claims.bound_claims(ISSUER, BOUND)
    claims["aud"] = ["api"]
    (claims["kubernetes.io"] if key == "warnafter" else claims)[key] = value
    reason, message = refused(token_claims.read_bound, claims)
    assert reason == "BadClaim"
    assert message == f"{key} is not a whole number of seconds from 0 to 253402300799"


BAD_CLAIMS: list[tuple[tuple[str, ...], Any, str]] = [
    (("exp",), None, "exp is missing"),
    (("sub",), None, "sub claim is missing"),
    (("sub",), "system:serviceaccount:ns:other", "sub claim is invalid"),
    (("sub",), "system:serviceaccount:kube-system:builder", "sub claim is invalid"),
    (("sub",), "builder", "sub claim is invalid"),
    (("jti",), 5, "jti is not a text"),
    (("jti",), None, "jti is not a text"),
    (("aud",), None, "aud is not a text or a list of texts"),
    (("aud",), [], "aud is not a text or a list of texts"),
    (("aud",), ["api", 5], "aud is not a text or a list of texts"),
    (("aud",), {"api": 1}, "aud is not a text or a list of texts"),
    (("kubernetes.io",), None, "kubernetes.io claim is missing"),
    (("kubernetes.io",), ["ns"], "kubernetes.io claim is missing"),
    (("kubernetes.io", "namespace"), "", "kubernetes.io.namespace claim is missing"),
    (("kubernetes.io", "namespace"), 7, "kubernetes.io.namespace claim is missing"),
    (("kubernetes.io", "serviceaccount"), None, "kubernetes.io.serviceaccount is missing"),
    (("kubernetes.io", "serviceaccount"), "builder", "serviceaccount claim is missing"),
    (("kubernetes.io", "serviceaccount", "uid"), "", "kubernetes.io.serviceaccount.uid claim is missing"),
    (("kubernetes.io", "serviceaccount", "name"), None, "kubernetes.io.serviceaccount.name claim is missing"),
    (("kubernetes.io", "pod"), {"name": "p"}, "kubernetes.io.pod.uid claim is missing"),
    (("kubernetes.io", "pod"), [], "pod claim is missing"),
    (("kubernetes.io", "secret"), {"uid": "u"}, "kubernetes.io.secret.name claim is missing"),
    (("kubernetes.io", "node"), {"name": "n"}, "kubernetes.io.node.uid claim is missing"),
    (("kubernetes.io", "node"), {"name": "n", "uid": 3}, "kubernetes.io.node.uid claim is missing"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD_CLAIMS, ids=range(len(BAD_CLAIMS)))
def test_claims_of_another_shape(path: tuple[str, ...], value: Any, message: str):
    claims = token_claims.bound_claims(ISSUER, BOUND)
    claims["aud"] = ["api"]
    token_claims.read_bound(claims)
    place = claims
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert refused(token_claims.read_bound, claims) == ("BadClaim", message)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sub", "sub claim is missing"),
        ("kubernetes.io/serviceaccount/namespace", "namespace claim is missing"),
        ("kubernetes.io/serviceaccount/secret.name", "secretName claim is missing"),
        ("kubernetes.io/serviceaccount/service-account.name", "serviceAccountName claim is missing"),
        ("kubernetes.io/serviceaccount/service-account.uid", "serviceAccountUID claim is missing"),
    ],
)
def test_legacy_claims_of_another_shape(key: str, message: str):
    claims = token_claims.legacy_claims(token_claims.LEGACY_ISSUER, LEGACY)
    for value in (None, "", 5, ["x"]):
        assert refused(token_claims.read_legacy, {**claims, key: value}) == ("BadClaim", message)
    assert (
        refused(token_claims.read_legacy, {**claims, "sub": "system:serviceaccount:ns:admin"})[1]
        == "sub claim is invalid"
    )
