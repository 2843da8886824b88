# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import datetime
import hmac
import json
from typing import Any, cast

import pytest

from handfast import errors
from handfast.apiserver import identity
from handfast.apiserver.access import bonds, service_account_tokens
from handfast.apiserver.state import envelope, items, replica
from handfast.pki import jwt, keys
from handfast.rules.machines import bootstrapper
from handfast.rules.tokens import claims as token_claims
from handfast.rules.tokens import service_accounts as rules

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
AT = int(NOW.timestamp())
SECOND = datetime.timedelta(seconds=1)
ISSUER = "https://kubernetes.default.svc"
API = ("api",)
KEY = keys.generate()
SIGNER = jwt.Signer(KEY)
KEYS = jwt.KeySet([KEY.public])
JTI = "11111111-2222-4333-8444-555555555555"


class World:
    """A copy of a store that holds what it is told to, and the authenticator over it."""

    def __init__(self, **more: Any) -> None:
        self.replica = replica.Replica(cast("Any", None), envelope.Envelopes())
        self.version = 0
        self.used: list[tuple[str, str]] = []
        self.judge = service_account_tokens.ServiceAccountTokens(
            KEYS, issuers=[ISSUER, "https://old"], api_audiences=API, replica=self.replica, **more
        )
        self.put("serviceaccounts", "builder", "ns")
        self.put("pods", "pod-1", "ns", spec={"serviceAccountName": "builder", "nodeName": "node-1"})
        self.put("secrets", "secret-1", "ns")
        self.put("nodes", "node-1")

    def put(self, plural: str, name: str, namespace: str = "", uid: str = "", **more: Any) -> None:
        metadata = {"name": name, "uid": uid or f"uid-{name}", **more.pop("metadata", {})}
        body = envelope.encode_document({"apiVersion": "v1", "kind": "K", "metadata": metadata, **more})
        self.put_bytes(plural, name, namespace, body)

    def put_bytes(self, plural: str, name: str, namespace: str, body: bytes) -> None:
        self.version += 1
        item = items.Item(namespace, name, self.version, body)
        self.replica.collection(f"core/{plural}/").apply(namespace, name, item, self.version)

    def drop(self, plural: str, name: str, namespace: str = "") -> None:
        self.version += 1
        self.replica.collection(f"core/{plural}/").apply(namespace, name, None, self.version)

    def refused(self, token: str, now: datetime.datetime = NOW, audiences: tuple[str, ...] = API) -> tuple[str, str]:
        with pytest.raises(identity.Unauthorized) as caught:
            self.judge.authenticate(token, audiences, now)
        assert caught.value.message == "Unauthorized"
        assert token not in caught.value.detail
        return caught.value.why, caught.value.detail

    def accepted(
        self, token: str, now: datetime.datetime = NOW, audiences: tuple[str, ...] = API
    ) -> identity.TokenVerdict:
        verdict = self.judge.authenticate(token, audiences, now)
        assert verdict is not None
        return verdict

    def legacy(self, name: str = "builder-token", **more: Any) -> str:
        legacy = token_claims.Legacy(
            namespace="ns", account=token_claims.Reference("builder", "uid-builder"), secret_name=name
        )
        token = SIGNER.sign(token_claims.legacy_claims(token_claims.LEGACY_ISSUER, legacy))
        data = {"token": base64.b64encode(token.encode()).decode(), "ca.crt": "", "namespace": "bnM="}
        self.put("secrets", name, "ns", data=data, **more)
        return token


def test_only_our_own_tokens_of_the_account_are_joins_that_failed() -> None:
    """The operator learns of them; a stranger who writes that account into a token is not heard."""
    account = token_claims.Reference(bootstrapper.ACCOUNT, "uid-gone")
    gone = claims(namespace=bootstrapper.NAMESPACE, account=account)
    ours, forged = SIGNER.sign(gone), jwt.Signer(keys.generate()).sign(gone)
    other = SIGNER.sign(claims(account=token_claims.Reference("nobody", "uid-gone")))

    def bearer(token: str) -> identity.Bearer | None:
        with pytest.raises(identity.Unauthorized) as caught:
            World().judge.authenticate(token, API, NOW)
        return caught.value.bearer

    assert [bearer(token) for token in (ours, forged, other)] == [identity.Bearer("account"), None, None]


def claims(issuer: str = ISSUER, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "namespace": "ns",
        "account": token_claims.Reference("builder", "uid-builder"),
        "audiences": ("api", "vault"),
        "issued_at": AT,
        "not_before": AT,
        "expires": AT + 3600,
        "id": JTI,
    }
    return token_claims.bound_claims(issuer, token_claims.Bound(**{**found, **more}))


def bound(issuer: str = ISSUER, **more: Any) -> str:
    return SIGNER.sign(claims(issuer, **more))


POD = token_claims.Reference("pod-1", "uid-pod-1")
NODE = token_claims.Reference("node-1", "uid-node-1")
SECRET = token_claims.Reference("secret-1", "uid-secret-1")


def test_the_user_of_a_bound_token():
    world = World()
    verdict = world.accepted(bound(pod=POD, node=NODE))
    assert verdict.audiences == ("api",)
    assert verdict.user == identity.User(
        "system:serviceaccount:ns:builder",
        ("system:serviceaccounts", "system:serviceaccounts:ns"),
        uid="uid-builder",
        extra={
            "authentication.kubernetes.io/credential-id": (f"JTI={JTI}",),
            "authentication.kubernetes.io/node-name": ("node-1",),
            "authentication.kubernetes.io/node-uid": ("uid-node-1",),
            "authentication.kubernetes.io/pod-name": ("pod-1",),
            "authentication.kubernetes.io/pod-uid": ("uid-pod-1",),
        },
        method="service-account-token",
        until=NOW + 3600 * SECOND,
    )
    assert world.accepted(bound("https://old", id="")).user.extra == {}
    unknown_node = world.accepted(bound(pod=POD, node=token_claims.Reference("gone", ""))).user.extra
    assert "authentication.kubernetes.io/node-uid" not in unknown_node
    assert unknown_node["authentication.kubernetes.io/node-name"] == ("gone",)
    assert set(world.accepted(bound(node=NODE)).user.extra) == {
        "authentication.kubernetes.io/credential-id",
        "authentication.kubernetes.io/node-name",
        "authentication.kubernetes.io/node-uid",
    }
    assert world.accepted(bound(secret=SECRET)).user.uid == "uid-builder"
    # What its watches end with, besides account and Pod.
    assert world.accepted(bound(secret=SECRET)).user.bonds == ("uid-secret-1",)
    assert world.accepted(bound(node=NODE)).user.bonds == ("uid-node-1",)


def test_a_token_is_good_for_the_audiences_it_names_only():
    world = World()
    assert world.accepted(bound(), audiences=("vault", "x", "api")).audiences == ("vault", "api")
    assert world.accepted(bound(), audiences=()).audiences == ("api",)
    token = bound(audiences=("vault",))
    message = 'token audiences ["vault"] is invalid for the target audiences ["api"]'
    assert world.refused(token) == world.refused(token, audiences=()) == ("WrongAudience", message)
    assert world.accepted(token, audiences=("vault",)).audiences == ("vault",)


def test_api_audiences_are_the_issuers_by_default():
    world = World()
    world.judge = service_account_tokens.ServiceAccountTokens(KEYS, issuers=[ISSUER], replica=world.replica)
    assert world.accepted(bound(audiences=(ISSUER,)), audiences=()).audiences == (ISSUER,)
    assert world.accepted(world.legacy(), audiences=()).audiences == (ISSUER,)


@pytest.mark.parametrize("key", [KEY, keys.generate()], ids=["ours", "foreign"])
def test_other_tokens_are_left_to_others(key: keys.PrivateKey):
    world = World()
    others = [
        jwt.Signer(key).sign({**claims(), "iss": "https://elsewhere"}),
        jwt.Signer(key).sign({**claims(), "iss": ISSUER + "/"}),
        jwt.Signer(key).sign({**claims(), "iss": [ISSUER]}),
        jwt.Signer(key).sign({"sub": "x"}),
    ]
    for token in (*others, "", "abcdef.0123456789abcdef", "a.b.c", "é.é.é", "\udc80.b.c", "x" * (1 << 20)):
        assert world.judge.authenticate(token, API, NOW) is None
    assert world.judge.authenticate(bound(audiences=("x" * jwt.MAX_TOKEN,)), API, NOW) is None


def test_forged_tokens():
    world = World()

    def text(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def forged(header: dict[str, Any], signature: bytes | None = None) -> str:
        signed = f"{text(json.dumps(header).encode())}.{bound().split('.')[1]}"
        if signature is None:
            signature = hmac.digest(KEY.public.spki, signed.encode(), "sha256")
        return f"{signed}.{text(signature)}"

    kid = jwt.key_id(KEY.public)
    good = bound()
    table = {
        forged({"alg": "none"}, b""): "UnsupportedAlgorithm",
        forged({"alg": "HS256", "kid": kid}): "UnsupportedAlgorithm",
        forged({"alg": "ES256", "kid": kid}, bytes(64)): "BadSignature",
        jwt.Signer(keys.generate()).sign(claims()): "UnknownKey",
        # 64 bytes less four: nothing is left of a character that is cut in two.
        good[:-6]: "BadSignature",
        good.rsplit(".", 1)[0] + ".": "BadSignature",
    }
    assert {token: world.refused(token)[0] for token in table} == table
    # The claims of one token with the signature of another.
    header, _, signature = good.split(".")
    other = bound(account=token_claims.Reference("admin", "uid-admin")).split(".")[1]
    assert world.refused(f"{header}.{other}.{signature}")[0] == "BadSignature"


def test_the_issuer_decides_the_shape():
    world = World()
    legacy = token_claims.legacy_claims(
        ISSUER,
        token_claims.Legacy(
            namespace="ns", account=token_claims.Reference("builder", "uid-builder"), secret_name="secret-1"
        ),
    )
    assert world.refused(SIGNER.sign(legacy)) == ("BadClaim", "kubernetes.io claim is missing")
    assert world.refused(bound(token_claims.LEGACY_ISSUER)) == ("BadClaim", "namespace claim is missing")
    with pytest.raises(errors.Refused, match="tokens in Secrets") as caught:
        service_account_tokens.ServiceAccountTokens(KEYS, issuers=[token_claims.LEGACY_ISSUER], replica=world.replica)
    assert caught.value.reason == "BadIssuer"


def test_a_remembered_token_ends():
    world = World()
    token = bound()
    for _ in range(2):
        world.accepted(token)
    world.accepted(token, NOW + 3660 * SECOND)
    assert world.refused(token, NOW + 3661 * SECOND) == ("Expired", "service account token has expired")
    assert world.refused(token, NOW - 61 * SECOND) == ("NotYetValid", "service account token is not valid yet")
    assert world.refused(bound(not_before=0), NOW - 61 * SECOND)[1] == "service account token is issued in the future"
    world.accepted(token)


def test_an_account_made_anew():
    world = World()
    token = bound()
    world.accepted(token)
    world.drop("serviceaccounts", "builder", "ns")
    assert world.refused(token) == ("AccountGone", 'serviceaccounts "builder" not found')
    world.put("serviceaccounts", "builder", "ns", uid="uid-new")
    assert world.refused(token) == (
        "AccountReplaced",
        "service account UID (uid-new) does not match claim (uid-builder)",
    )
    going = {"deletionTimestamp": "2026-06-01T11:58:59Z"}
    world.put("serviceaccounts", "builder", "ns", metadata=going)
    assert world.refused(token) == ("AccountGone", "service account ns/builder has been deleted")
    world.accepted(token, NOW - 1 * SECOND)


def test_a_pod_that_is_gone():
    world = World()
    token = bound(pod=POD, node=NODE)
    world.accepted(token)
    # Where it was may be gone.
    world.drop("nodes", "node-1")
    world.accepted(token)
    world.put("pods", "pod-1", "ns", metadata={"deletionTimestamp": "2026-06-01T12:00:30Z"})
    world.accepted(token)
    assert world.refused(token, NOW + 91 * SECOND)[0] == "BoundObjectGone"
    world.put("pods", "pod-1", "ns", uid="uid-new")
    assert world.refused(token) == (
        "BoundObjectReplaced",
        "pod UID (uid-new) does not match service account pod ref claim (uid-pod-1)",
    )
    world.drop("pods", "pod-1", "ns")
    assert world.refused(token) == ("BoundObjectGone", "service account token has been invalidated")


@pytest.mark.parametrize(
    ("plural", "namespace", "kind", "reference"),
    [("pods", "ns", "pod", POD), ("secrets", "ns", "secret", SECRET), ("nodes", "", "node", NODE)],
)
def test_whatever_it_is_bound_to(plural: str, namespace: str, kind: str, reference: token_claims.Reference):
    world = World()
    more: dict[str, Any] = {kind: reference}
    token = bound(**more)
    world.accepted(token)
    world.put(plural, reference.name, namespace, uid="uid-new")
    assert world.refused(token)[0] == "BoundObjectReplaced"
    world.drop(plural, reference.name, namespace)
    assert world.refused(token)[0] == "BoundObjectGone"


def test_a_secret_that_was_replaced():
    world = World()
    token = world.legacy()
    for _ in range(2):
        verdict = world.accepted(token, NOW + 10**6 * SECOND)
    assert verdict == identity.TokenVerdict(
        identity.User(
            "system:serviceaccount:ns:builder",
            ("system:serviceaccounts", "system:serviceaccounts:ns"),
            uid="uid-builder",
            method="service-account-secret",
            bonds=bonds.of_legacy("ns", "builder-token", "uid-builder"),
        ),
        ("api",),
    )
    assert world.refused(token, audiences=("vault",))[0] == "WrongAudience"
    # ECDSA signs the same claims otherwise each time: the very token is compared.
    again = world.legacy()
    assert again != token
    assert world.refused(token) == ("TokenReplaced", "Token does not match server's copy")
    world.accepted(again)
    for more, why in (
        ({"metadata": {"labels": {rules.INVALID_SINCE: "2026-01-01"}}}, "MarkedInvalid"),
        ({"metadata": {"deletionTimestamp": "2026-06-01T11:59:59Z"}}, "SecretGone"),
    ):
        assert world.refused(world.legacy(**more))[0] == why
    token = world.legacy()
    nothing: tuple[Any, ...] = ({}, None, {"token": ""})
    for data in nothing:
        world.put("secrets", "builder-token", "ns", data=data)
        assert world.refused(token)[0] == "TokenReplaced"
    nonsense: tuple[Any, ...] = ({"token": "not base64!"}, {"token": 5}, [])
    for data in nonsense:
        world.put("secrets", "builder-token", "ns", data=data)
        assert world.refused(token) == ("SecretGone", "Token has been invalidated")
    world.drop("secrets", "builder-token", "ns")
    assert world.refused(token) == ("SecretGone", "Token has been invalidated")
    token = world.legacy()
    world.drop("serviceaccounts", "builder", "ns")
    assert world.refused(token)[0] == "AccountGone"
    world.put("serviceaccounts", "builder", "ns", uid="uid-new")
    assert world.refused(token)[0] == "AccountReplaced"


def test_use_is_told_once_a_day():
    told: list[tuple[str, str]] = []
    world = World(used=lambda namespace, name: told.append((namespace, name)))
    world.accepted(world.legacy(metadata={"labels": {rules.LAST_USED: "2026-06-01", "other": None}}))
    assert told == []
    world.accepted(world.legacy(metadata={"labels": {rules.LAST_USED: "2026-05-31"}}))
    world.accepted(world.legacy())
    assert told == [("ns", "builder-token")] * 2
    world.refused(world.legacy(metadata={"labels": {rules.INVALID_SINCE: "2026-05-31"}}))
    world.accepted(bound())
    assert len(told) == 2


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service_account_tokens, "_REMEMBERED", 2)
    verified: list[str] = []

    class Counting(jwt.KeySet):
        def verify(self, token: str | jwt.Unverified) -> jwt.Claims:
            verified.append(token.text if isinstance(token, jwt.Unverified) else token)
            return super().verify(token)

    world = World()
    world.judge = service_account_tokens.ServiceAccountTokens(
        Counting([KEY.public]), issuers=[ISSUER], api_audiences=API, replica=world.replica
    )
    first, second, third = (bound(id=str(number)) for number in range(3))
    for token in (first, second, second, first, third, first, second):
        world.accepted(token)
    # `second` was not seen for longest when `third` came.
    assert verified == [first, second, third, second]
    # What was refused for its claims is refused again, whatever is remembered; a bad signature is not remembered.
    foreign = jwt.Signer(keys.generate()).sign(claims())
    for _ in range(3):
        world.refused(foreign)
    world.accepted(second)
    assert verified[4:] == [foreign] * 3


def test_what_is_no_document_is_nothing():
    world = World()
    token, for_pod, legacy = bound(), bound(pod=POD), world.legacy()
    broken = b'{"apiVersion":"v1","kind":"K","metadata":{"name":"x","uid":'
    world.put_bytes("pods", "pod-1", "ns", broken)
    assert world.refused(for_pod)[0] == "BoundObjectGone"
    world.put_bytes("secrets", "builder-token", "ns", broken)
    assert world.refused(legacy)[0] == "SecretGone"
    for body in (broken, broken + b"5}}", broken + b'"uid-builder","deletionTimestamp":"soon"}}'):
        world.put_bytes("serviceaccounts", "builder", "ns", body)
        assert world.refused(token)[0] == "AccountGone"
    assert service_account_tokens.Lookups(world.replica).pod("ns", "pod-1") is None


def test_a_copy_that_has_stopped_is_not_believed():
    world = World()
    token = bound()
    world.accepted(token)
    world.replica.failed = RuntimeError("gone")
    assert world.refused(token)[0] == "ReplicaStopped"
    assert world.judge.authenticate("other", API, NOW) is None
