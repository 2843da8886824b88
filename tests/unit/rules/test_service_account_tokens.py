# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import dataclasses
import datetime
from typing import Any

import pytest
from msgspec import structs

from handfast import errors
from handfast.api import status
from handfast.rules import service_account_tokens as tokens

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)
AT = int(NOW.timestamp())
ISSUER = "https://kubernetes.default.svc"
ACCOUNT = tokens.Reference("builder", "uid-sa")
POD = tokens.Reference("pod-1", "uid-pod")
SECRET = tokens.Reference("secret-1", "uid-secret")
NODE = tokens.Reference("node-1", "uid-node")
BOUND = tokens.Bound(
    namespace="ns",
    account=ACCOUNT,
    audiences=("api", "other"),
    issued_at=AT,
    not_before=AT,
    expires=AT + 3600,
    id="11111111-2222-4333-8444-555555555555",
)
LEGACY = tokens.Legacy(namespace="ns", account=ACCOUNT, secret_name="builder-token")
API = ("api",)


def wanted(audiences: tuple[str, ...], seconds: int, bound: tokens.BoundObject | None) -> tokens.Request:
    return tokens.Request(ACCOUNT, audiences, seconds, bound)


def refused(call: Any, *args: Any) -> tuple[str, str]:
    with pytest.raises(errors.Refused) as caught:
        call(*args)
    return caught.value.reason, caught.value.message


# Claims out and in.


def test_the_claims_of_a_bound_token():
    bound = structs.replace(BOUND, pod=POD, node=NODE, warn_after=AT + 3607)
    assert tokens.bound_claims(ISSUER, bound) == {
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
        {"pod": POD, "node": tokens.Reference("node-1", "")},
        {"secret": SECRET},
        {"node": NODE},
        {"warn_after": AT + 5, "audiences": ("one",)},
    ],
)
def test_claims_survive_the_way(more: dict[str, Any]):
    bound = structs.replace(BOUND, **more)
    claims = tokens.bound_claims(ISSUER, bound)
    claims["aud"] = list(claims["aud"])
    assert tokens.read_bound(claims) == bound


def test_the_claims_of_a_legacy_token():
    claims = tokens.legacy_claims(tokens.LEGACY_ISSUER, LEGACY)
    assert claims == {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:ns:builder",
        "kubernetes.io/serviceaccount/namespace": "ns",
        "kubernetes.io/serviceaccount/secret.name": "builder-token",
        "kubernetes.io/serviceaccount/service-account.name": "builder",
        "kubernetes.io/serviceaccount/service-account.uid": "uid-sa",
    }
    assert tokens.read_legacy(claims) == LEGACY


def test_one_audience_may_stand_alone_and_times_may_be_missing():
    claims = tokens.bound_claims(ISSUER, BOUND)
    claims["aud"] = "api"
    for key in ("iat", "nbf", "jti"):
        del claims[key]
    found = tokens.read_bound(claims)
    assert (found.audiences, found.issued_at, found.not_before, found.id) == (("api",), 0, 0, "")


NOT_SECONDS = [float("nan"), float("inf"), 1e300, 10**300, -1, 1.5, float(AT), True, str(AT), [AT], {}, 253402300800]


@pytest.mark.parametrize("value", NOT_SECONDS, ids=range(len(NOT_SECONDS)))
@pytest.mark.parametrize("key", ["exp", "nbf", "iat", "warnafter"])
def test_times_of_another_shape(key: str, value: Any):
    claims = tokens.bound_claims(ISSUER, BOUND)
    claims["aud"] = ["api"]
    (claims["kubernetes.io"] if key == "warnafter" else claims)[key] = value
    reason, message = refused(tokens.read_bound, claims)
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
    claims = tokens.bound_claims(ISSUER, BOUND)
    claims["aud"] = ["api"]
    tokens.read_bound(claims)
    place = claims
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert refused(tokens.read_bound, claims) == ("BadClaim", message)


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
    claims = tokens.legacy_claims(tokens.LEGACY_ISSUER, LEGACY)
    for value in (None, "", 5, ["x"]):
        assert refused(tokens.read_legacy, {**claims, key: value}) == ("BadClaim", message)
    assert refused(tokens.read_legacy, {**claims, "sub": "system:serviceaccount:ns:admin"})[1] == "sub claim is invalid"


# Claims judged.


def test_audiences():
    assert tokens.judge_audiences(("a", "b", "c"), ("c", "x", "a")) == ("c", "a")
    message = 'token audiences ["a" "b"] is invalid for the target audiences ["c"]'
    assert refused(tokens.judge_audiences, ("a", "b"), ("c",)) == ("WrongAudience", message)
    # Whole texts are compared, and no audience is wanted by nobody.
    for wanted in ((), ("",), ("A",), ("https://api/",)):
        assert refused(tokens.judge_audiences, ("a", "https://api"), wanted)[0] == "WrongAudience"


@pytest.mark.parametrize(
    ("change", "seconds", "expected"),
    [
        ({}, 0, None),
        ({}, -60, None),
        ({"issued_at": 0}, -60.001, ("NotYetValid", "service account token is not valid yet")),
        ({"not_before": 0}, -60.001, ("NotYetValid", "service account token is issued in the future")),
        ({}, 3600 + 60, None),
        ({}, 3600 + 60.001, ("Expired", "service account token has expired")),
        ({"expires": 0}, 0, ("Expired", "service account token has expired")),
        ({"expires": 0, "not_before": AT + 61}, 0, ("NotYetValid", "service account token is not valid yet")),
    ],
)
def test_times(change: dict[str, int], seconds: float, expected: tuple[str, str] | None):
    bound = structs.replace(BOUND, **change)
    now = NOW + datetime.timedelta(seconds=seconds)
    if expected is None:
        tokens.judge_times(bound, now)
    else:
        assert refused(tokens.judge_times, bound, now) == expected


class World:
    """What there is, by kind, namespace and name."""

    def __init__(self) -> None:
        self.objects = {
            ("ServiceAccount", "ns", "builder"): tokens.Found("uid-sa"),
            ("Pod", "ns", "pod-1"): tokens.Found("uid-pod"),
            ("Secret", "ns", "secret-1"): tokens.Found("uid-secret"),
            ("Node", "", "node-1"): tokens.Found("uid-node"),
        }
        self.asked: list[str] = []

    def find(self, kind: str, namespace: str, name: str) -> tokens.Found | None:
        self.asked.append(kind)
        return self.objects.get((kind, namespace, name))


def test_the_account_must_be_the_same():
    world = World()
    tokens.judge_bound(BOUND, world.find, NOW)
    key = ("ServiceAccount", "ns", "builder")
    world.objects[key] = tokens.Found("uid-sa", NOW - 60 * SECOND)
    tokens.judge_bound(BOUND, world.find, NOW)
    world.objects[key] = tokens.Found("uid-sa", NOW - 61 * SECOND)
    assert refused(tokens.judge_bound, BOUND, world.find, NOW) == (
        "AccountGone",
        "service account ns/builder has been deleted",
    )
    world.objects[key] = tokens.Found("uid-new")
    assert refused(tokens.judge_bound, BOUND, world.find, NOW) == (
        "AccountReplaced",
        "service account UID (uid-new) does not match claim (uid-sa)",
    )
    del world.objects[key]
    assert refused(tokens.judge_bound, BOUND, world.find, NOW) == (
        "AccountGone",
        'serviceaccounts "builder" not found',
    )
    assert world.asked == ["ServiceAccount"] * 5


@pytest.mark.parametrize(
    ("kind", "reference", "place"),
    [
        ("Pod", POD, ("Pod", "ns", "pod-1")),
        ("Secret", SECRET, ("Secret", "ns", "secret-1")),
        ("Node", NODE, ("Node", "", "node-1")),
    ],
)
def test_bound_objects_must_be_the_same(kind: str, reference: tokens.Reference, place: tuple[str, str, str]):
    bound = structs.replace(BOUND, **{kind.lower(): reference})
    world = World()
    tokens.judge_bound(bound, world.find, NOW)
    assert world.asked == ["ServiceAccount", kind]
    world.objects[place] = tokens.Found(reference.uid, NOW - 60 * SECOND)
    tokens.judge_bound(bound, world.find, NOW)
    # A Pod that is still given its time to end.
    world.objects[place] = tokens.Found(reference.uid, NOW + 30 * SECOND)
    tokens.judge_bound(bound, world.find, NOW)
    invalidated = ("BoundObjectGone", "service account token has been invalidated")
    world.objects[place] = tokens.Found(reference.uid, NOW - 61 * SECOND)
    assert refused(tokens.judge_bound, bound, world.find, NOW) == invalidated
    word = kind.lower()
    world.objects[place] = tokens.Found("uid-new")
    assert refused(tokens.judge_bound, bound, world.find, NOW) == (
        "BoundObjectReplaced",
        f"{word} UID (uid-new) does not match service account {word} ref claim ({reference.uid})",
    )
    del world.objects[place]
    assert refused(tokens.judge_bound, bound, world.find, NOW) == invalidated


def test_the_node_of_a_pod_only_tells():
    world = World()
    del world.objects["Node", "", "node-1"]
    tokens.judge_bound(structs.replace(BOUND, pod=POD, node=NODE), world.find, NOW)
    assert world.asked == ["ServiceAccount", "Pod"]


HELD = tokens.FoundSecret(b"the.token.itself")
MARKED = (
    "the token in secret ns/builder-token for service account ns/builder has been marked invalid. Use tokens from the "
    "TokenRequest API or manually created secret-based tokens, or remove the "
    "'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token"
)


@pytest.mark.parametrize(
    ("secret", "account", "expected"),
    [
        (HELD, tokens.Found("uid-sa"), None),
        (None, tokens.Found("uid-sa"), ("SecretGone", "Token has been invalidated")),
        (
            dataclasses.replace(HELD, deleting=True),
            tokens.Found("uid-sa"),
            ("SecretGone", "Token has been invalidated"),
        ),
        (
            dataclasses.replace(HELD, token=b"the.token.refilled"),
            tokens.Found("uid-sa"),
            ("TokenReplaced", "Token does not match server's copy"),
        ),
        (
            dataclasses.replace(HELD, token=b""),
            tokens.Found("uid-sa"),
            ("TokenReplaced", "Token does not match server's copy"),
        ),
        (HELD, None, ("AccountGone", 'serviceaccounts "builder" not found')),
        (HELD, tokens.Found("uid-sa", NOW), ("AccountGone", "ServiceAccount ns/builder has been deleted")),
        (
            HELD,
            tokens.Found("uid-new"),
            ("AccountReplaced", "ServiceAccount UID (uid-new) does not match claim (uid-sa)"),
        ),
        (
            dataclasses.replace(HELD, invalid_since="2026-05-01"),
            tokens.Found("uid-sa"),
            ("MarkedInvalid", MARKED),
        ),
    ],
)
def test_legacy_tokens(
    secret: tokens.FoundSecret | None, account: tokens.Found | None, expected: tuple[str, str] | None
):
    if expected is None:
        tokens.judge_legacy(LEGACY, "the.token.itself", secret, account)
    else:
        assert refused(tokens.judge_legacy, LEGACY, "the.token.itself", secret, account) == expected
    assert "the.token" not in repr(secret)


# Requests.

FOUND = tokens.Found("uid-sa")


def read(document: dict[str, Any], account: tokens.Found | None = FOUND) -> tokens.Request:
    before = copy.deepcopy(document)
    try:
        return tokens.read_request(document, "ns", "builder", account, API)
    finally:
        assert document == before


def read_refused(document: dict[str, Any], account: tokens.Found | None = FOUND) -> status.StatusError:
    with pytest.raises(status.StatusError) as caught:
        read(document, account)
    return caught.value


def test_defaults():
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
        ({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"}, tokens.BoundObject("Pod", "p", "u")),
        ({"kind": "Secret", "apiVersion": "", "name": "s"}, tokens.BoundObject("Secret", "s", "")),
        ({"kind": "Node", "name": "n", "uid": None}, tokens.BoundObject("Node", "n", "")),
        ({"kind": "Pod", "name": None}, tokens.BoundObject("Pod", "", "")),
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
    asked = tokens.BoundObject("Secret", "s", "uid-1")
    assert tokens.judge_binding(asked, "uid-1") == tokens.Reference("s", "uid-1")
    assert tokens.judge_binding(tokens.BoundObject("Node", "n", ""), "uid-2") == tokens.Reference("n", "uid-2")
    with pytest.raises(status.StatusError) as caught:
        tokens.judge_binding(asked, "uid-2")
    assert caught.value.code == 409
    assert caught.value.message == (
        'Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (uid-1) does not match the '
        "UID in record. The object might have been deleted and then recreated"
    )
    with pytest.raises(status.StatusError, match='secrets "s" not found'):
        tokens.judge_binding(asked, None)


def test_pods_of_another_account():
    asked = tokens.BoundObject("Pod", "p", "")
    assert tokens.judge_pod(asked, "builder", tokens.FoundPod("u", "builder")) == (tokens.Reference("p", "u"), "")
    on_node = tokens.FoundPod("u", "builder", "node-1")
    assert tokens.judge_pod(asked, "builder", on_node) == (tokens.Reference("p", "u"), "node-1")
    with pytest.raises(status.StatusError) as caught:
        tokens.judge_pod(asked, "builder", tokens.FoundPod("u", "default"))
    assert caught.value.code == 400
    assert caught.value.message == (
        'cannot bind token for serviceaccount "builder" to pod running with different serviceaccount name.'
    )
    with pytest.raises(status.StatusError, match="the UID in the bound object reference"):
        tokens.judge_pod(tokens.BoundObject("Pod", "p", "old"), "builder", on_node)
    with pytest.raises(status.StatusError, match='pods "p" not found'):
        tokens.judge_pod(asked, "builder", None)


YEAR = 31536000
TO_POD = tokens.BoundObject("Pod", "p", "")
TO_SECRET = tokens.BoundObject("Secret", "s", "")
SHORTENED = "requested expiration of 8000 seconds shortened to 7200 seconds"


@pytest.mark.parametrize(
    ("request_", "maximum", "transition", "expected"),
    [
        (wanted(API, 8000, None), None, API, tokens.Lifetime(8000, 8000)),
        (wanted(API, 7200, None), 7200, API, tokens.Lifetime(7200, 7200)),
        (wanted(API, 8000, None), 7200, API, tokens.Lifetime(7200, 7200, None, SHORTENED)),
        (wanted(API, 3607, TO_POD), None, ("api", "b"), tokens.Lifetime(3607, YEAR, 3607)),
        (wanted(API, 3607, TO_POD), 7200, API, tokens.Lifetime(3607, YEAR, 3607)),
        (wanted(API, 3607, TO_POD), None, (), tokens.Lifetime(3607, 3607)),
        (wanted(API, 3606, TO_POD), None, API, tokens.Lifetime(3606, 3606)),
        (wanted(API, 3607, None), None, API, tokens.Lifetime(3607, 3607)),
        (wanted(API, 3607, TO_SECRET), None, API, tokens.Lifetime(3607, 3607)),
        (wanted(("api", "vault"), 3607, TO_POD), None, API, tokens.Lifetime(3607, 3607)),
    ],
)
def test_lifetimes(request_: tokens.Request, maximum: int | None, transition: tuple[str, ...], expected: Any):
    assert tokens.lifetime(request_, maximum, transition) == expected


def test_a_token_that_nobody_would_accept():
    error = tokens.token_too_long(100)
    assert (error.code, error.causes[0].field) == (422, "spec.audiences")
    assert "more than 100 bytes" in error.message
