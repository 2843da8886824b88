# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import datetime
import re
from typing import Any, cast

import pytest

from handfast.api import status
from handfast.apiserver.access import service_account_tokens
from handfast.apiserver.state import envelope, items, replica
from handfast.apiserver.verbs import token_requests
from handfast.pki import jwt, keys
from handfast.rules.tokens import claims as token_claims
from tests.world import clock

NOW = datetime.datetime(2026, 6, 1, 12, 0, 0, 900000, tzinfo=datetime.UTC)
AT = int(NOW.timestamp())
ISSUER = "https://kubernetes.default.svc"
API = ("api", "api-2")
KEY = keys.generate()
KEYS = jwt.KeySet([KEY.public])
YEAR = 365 * 24 * 3600


class World:
    def __init__(self, **more: Any) -> None:
        self.replica = replica.Replica(cast("Any", None), envelope.Envelopes())
        self.put("serviceaccounts", "builder", "ns")
        self.put("pods", "pod-1", "ns", {"serviceAccountName": "builder", "nodeName": "node-1"})
        self.put("pods", "unbound", "ns", {"serviceAccountName": "builder"})
        self.put("pods", "other", "ns", {"serviceAccountName": "default"})
        self.put("secrets", "secret-1", "ns")
        self.put("nodes", "node-1")
        self.issued: list[tuple[str, token_claims.Bound]] = []
        self.requests = token_requests.TokenRequests(
            jwt.Signer(KEY),
            issuer=ISSUER,
            api_audiences=API,
            replica=self.replica,
            clock=clock.MovableClock(NOW),
            issued=lambda token, bound: self.issued.append((token, bound)),
            **more,
        )

    def put(self, plural: str, name: str, namespace: str = "", spec: dict[str, Any] | None = None) -> None:
        metadata = {"name": name, "uid": f"uid-{name}"}
        body = envelope.encode_document({"apiVersion": "v1", "kind": "K", "metadata": metadata, "spec": spec or {}})
        self.replica.collection(f"core/{plural}/").load(items.Item(namespace, name, 1, body))

    def answer(self, document: dict[str, Any]) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
        """The answer, the warnings and the claims of the token."""
        before = copy.deepcopy(document)
        answered, warnings = self.requests.answer(document, "ns", "builder")
        assert document == before
        return answered, warnings, KEYS.verify(answered["status"]["token"])

    def refused(self, document: dict[str, Any], name: str = "builder") -> status.StatusError:
        with pytest.raises(status.StatusError) as caught:
            self.requests.answer(document, "ns", name)
        return caught.value


def to(kind: str, name: str, uid: str = "", **spec: Any) -> dict[str, Any]:
    reference = {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}
    return {"spec": {"boundObjectRef": reference, **spec}}


def test_a_request_for_nothing_in_particular():
    answered, warnings, claims = World().answer({"metadata": {"labels": {"a": "b"}}})
    identity = claims.pop("jti")
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", identity)
    assert claims == {
        "iss": ISSUER,
        "sub": "system:serviceaccount:ns:builder",
        "aud": ["api", "api-2"],
        "iat": AT,
        "nbf": AT,
        "exp": AT + 3600,
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "builder", "uid": "uid-builder"}},
    }
    token = answered["status"].pop("token")
    assert token.count(".") == 2
    assert answered == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {
            "name": "builder",
            "namespace": "ns",
            "uid": "uid-builder",
            "creationTimestamp": "2026-06-01T12:00:00Z",
            "labels": {"a": "b"},
        },
        "spec": {"audiences": ["api", "api-2"], "expirationSeconds": 3600},
        "status": {"expirationTimestamp": "2026-06-01T13:00:00Z"},
    }
    assert warnings == []


def test_as_decoded_from_protobuf():
    """Without spec, or even metadata."""
    for document in ({}, {"spec": None, "status": {"token": "theirs"}}):
        answered, _, claims = World().answer(document)
        assert claims["exp"] == AT + 3600
        assert answered["status"]["token"] != "theirs"


def test_every_token_is_another():
    world = World()
    found = [world.answer({}) for _ in range(3)]
    assert len({claims["jti"] for _, _, claims in found}) == 3
    fixed = World(new_id=lambda: "the-id").answer({})[2]
    assert fixed["jti"] == "the-id"


@pytest.mark.parametrize(
    "document", [{}, to("Pod", "pod-1"), to("Pod", "unbound"), to("Secret", "secret-1"), to("Node", "node-1")]
)
def test_what_is_remembered_is_what_the_token_says(document: dict[str, Any]):
    """The authenticator believes the signer without verifying: then both must say the same."""
    world = World()
    answered, _, claims = world.answer(document)
    ((token, bound),) = world.issued
    assert token == answered["status"]["token"]
    assert bound == token_claims.read_bound(claims)
    judge = service_account_tokens.ServiceAccountTokens(
        KEYS, issuers=(ISSUER,), replica=world.replica, api_audiences=API
    )
    verified = judge.authenticate(token, (), NOW)
    again = service_account_tokens.ServiceAccountTokens(
        jwt.KeySet([keys.generate().public]), issuers=(ISSUER,), replica=world.replica, api_audiences=API
    )
    again.issued(token, bound)
    assert again.authenticate(token, (), NOW) == verified


def test_our_authenticator_takes_them():
    world = World()
    judge = service_account_tokens.ServiceAccountTokens(
        KEYS, issuers=[ISSUER], api_audiences=API, replica=world.replica
    )
    for document in ({}, to("Pod", "pod-1"), to("Secret", "secret-1"), to("Node", "node-1")):
        token = world.answer(document)[0]["status"]["token"]
        verdict = judge.authenticate(token, ("api",), NOW)
        assert verdict is not None
        assert verdict.user.name == "system:serviceaccount:ns:builder"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            to("Pod", "pod-1", "uid-pod-1"),
            {"pod": {"name": "pod-1", "uid": "uid-pod-1"}, "node": {"name": "node-1", "uid": "uid-node-1"}},
        ),
        (to("Pod", "unbound"), {"pod": {"name": "unbound", "uid": "uid-unbound"}}),
        (to("Secret", "secret-1"), {"secret": {"name": "secret-1", "uid": "uid-secret-1"}}),
        (to("Node", "node-1", "uid-node-1"), {"node": {"name": "node-1", "uid": "uid-node-1"}}),
    ],
)
def test_bound_to_an_object(document: dict[str, Any], expected: dict[str, Any]):
    answered, _, claims = World().answer(document)
    private = claims["kubernetes.io"]
    assert {key: private[key] for key in private.keys() - {"namespace", "serviceaccount"}} == expected
    assert answered["spec"]["boundObjectRef"] == document["spec"]["boundObjectRef"]


def test_a_node_that_is_not_there_is_named():
    world = World()
    world.put("pods", "pod-2", "ns", {"serviceAccountName": "builder", "nodeName": "lost"})
    assert world.answer(to("Pod", "pod-2"))[2]["kubernetes.io"]["node"] == {"name": "lost"}


@pytest.mark.parametrize(
    ("document", "code", "text"),
    [
        (to("Pod", "missing"), 404, 'pods "missing" not found'),
        (to("Secret", "missing"), 404, 'secrets "missing" not found'),
        (to("Node", "missing"), 404, 'nodes "missing" not found'),
        (to("Pod", "pod-1", "uid-old"), 409, "(uid-old) does not match the UID in record"),
        (to("Secret", "secret-1", "uid-old"), 409, "(uid-old) does not match the UID in record"),
        (to("Node", "node-1", "uid-old"), 409, "(uid-old) does not match the UID in record"),
        (to("Pod", "other"), 400, "to pod running with different serviceaccount name."),
        (to("Deployment", "d"), 400, "cannot bind token to object of type /v1, Kind=Deployment"),
        ({"metadata": {"name": "other"}}, 422, "must match the service account name"),
        ({"metadata": {"namespace": "other"}}, 422, "must match the service account namespace"),
        ({"metadata": {"uid": "uid-old"}}, 409, "does not match the UID of the service account"),
        ({"spec": {"expirationSeconds": 599}}, 422, "may not specify a duration less than 10 minutes"),
        ({"spec": {"audiences": ["x" * 300] * 50}}, 422, "spec.audiences: Too long"),
    ],
)
def test_a_request_that_may_not_be_is_refused_with_its_reason(document: dict[str, Any], code: int, text: str):
    error = World().refused(document)
    assert error.code == code
    assert text in error.message
    assert len(error.message) < 500


def test_no_such_account():
    error = World().refused({}, "nobody")
    assert (error.code, error.message) == (404, 'serviceaccounts "nobody" not found')


def test_the_maximum_shortens():
    world = World(max_expiration=7200)
    answered, warnings, claims = world.answer({"spec": {"expirationSeconds": 8000, "audiences": ["x"]}})
    assert warnings == ["requested expiration of 8000 seconds shortened to 7200 seconds"]
    assert claims["exp"] == AT + 7200
    assert answered["spec"] == {"expirationSeconds": 7200, "audiences": ["x"]}
    assert answered["status"]["expirationTimestamp"] == "2026-06-01T14:00:00Z"


def test_tokens_of_pods_live_longer_than_they_say():
    document = to("Pod", "pod-1", expirationSeconds=3607)
    answered, warnings, claims = World().answer(document)
    assert claims["exp"] == AT + YEAR
    assert claims["kubernetes.io"]["warnafter"] == AT + 3607
    assert answered["spec"]["expirationSeconds"] == 3607
    assert answered["status"]["expirationTimestamp"] == "2026-06-01T13:00:07Z"
    assert warnings == []
    for world, asked in (
        (World(), to("Pod", "pod-1", expirationSeconds=3607, audiences=["vault"])),
        (World(), to("Secret", "secret-1", expirationSeconds=3607)),
    ):
        claims = world.answer(asked)[2]
        assert claims["exp"] == AT + 3607
        assert "warnafter" not in claims["kubernetes.io"]
