# SPDX-License-Identifier: Apache-2.0
"""Who may use a limited token. The names of the table in `rules/tokens/use.py` are here."""

from __future__ import annotations

import base64
import datetime
import hashlib
from typing import Any

import pytest

from handfast import errors
from handfast.bootstrap import token_limits
from handfast.pki import keys, names, pem, pins, requests
from handfast.rules import decision
from handfast.rules.tokens import use
from tests.unit.bootstrap.test_token_limits import secret

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)
USER = "system:bootstrap:foobar"
ONE, OTHER = (keys.generate(keys.Kind.P256) for _ in range(2))
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"


def encoded(request: bytes, signer: str = SIGNER) -> dict[str, Any]:
    return {"spec": {"signerName": signer, "request": base64.b64encode(request).decode()}}


def csr(name: str = "system:node:worker-1", key: keys.PrivateKey = ONE, signer: str = SIGNER) -> dict[str, Any]:
    subject = names.Subject(common_name=name, organizations=("system:nodes",))
    return encoded(requests.build(subject, names.Sans(), key), signer)


def fingerprint(key: keys.PrivateKey) -> str:
    return str(pins.of_public_key(key.public.spki))


def decide(
    made: dict[str, Any] | None, request: dict[str, Any], *, user: str = USER, source: str = "192.0.2.7"
) -> decision.Decision | use.Reserve:
    return use.decide(use.Attempt(user=user, source=source, request=request, secret=made, now=NOW))


def used(made: dict[str, Any], request: dict[str, Any], **more: str) -> dict[str, Any]:
    """The Secret after a use that was let in."""
    verdict = decide(made, request, **more)
    assert isinstance(verdict, use.Reserve)
    return token_limits.written(made, token_limits.record(made).with_use(verdict.use))


def refused(verdict: decision.Decision | use.Reserve, reason: str) -> str:
    assert isinstance(verdict, decision.Deny)
    assert verdict.reason == reason
    return verdict.sentence


def test_a_use_is_written_down() -> None:
    verdict = decide(secret(max_uses="1"), csr())
    assert verdict == use.Reserve(token_limits.Use(time=NOW, node="worker-1", key=fingerprint(ONE), source="192.0.2.7"))


@pytest.mark.parametrize(
    "user",
    [
        *("jane", "system:node:worker-1", "system:bootstrappers:foobar", "xsystem:bootstrap:a"),
        *("system:bootstrap:", "system:bootstrap:fooba", "system:bootstrap:FOOBAR", "system:bootstrap:foobar\n"),
    ],
)
def test_others_are_not_judged(user: str) -> None:
    assert use.token_id(user) is None
    assert isinstance(decide(secret(max_uses="1", use_count="1"), csr(), user=user), decision.NotMine)


def test_a_token_that_is_gone() -> None:
    assert "foobar was deleted" in refused(decide(None, csr()), "TokenGone")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"type": "Opaque"}, "type: must be"),
        ({"data": None}, "data: must be a mapping"),
        ({"metadata": {"name": "bootstrap-token-barfoo", "namespace": "kube-system"}}, "the name must be"),
        ({"metadata": {"name": "bootstrap-token-foobar", "namespace": "default"}}, "bootstrap tokens are only"),
    ],
)
def test_what_is_no_token_any_more_is_refused(change: dict[str, Any], word: str) -> None:
    assert f"is no token any more ({word}" in refused(decide({**secret(), **change}, csr()), "TokenGone")


def test_a_token_that_is_being_deleted() -> None:
    made = secret()
    made["metadata"]["deletionTimestamp"] = "2026-11-15T12:00:00Z"
    assert "foobar is being deleted" in refused(decide(made, csr()), "TokenGone")


def test_what_was_read_of_a_secret_is_not_read_again() -> None:
    asked = use.Attempt(
        user="system:bootstrap:foobar",
        source="10.0.0.7",
        request=csr(),
        secret=secret(),
        now=NOW,
        standing=use.Standing("is no more"),
    )
    assert "foobar is no more" in refused(use.decide(asked), "TokenGone")


@pytest.mark.parametrize(("seconds", "good"), [(1, True), (0, False), (-1, False)])
def test_an_expired_token_is_refused(seconds: int, good: bool) -> None:
    made = secret()
    until = (NOW + datetime.timedelta(seconds=seconds)).isoformat().encode()
    made["data"]["expiration"] = base64.b64encode(until).decode()
    verdict = decide(made, csr())
    if good:
        assert isinstance(verdict, use.Reserve)
    else:
        assert "foobar has expired" in refused(verdict, "TokenExpired")


def test_a_second_key_is_refused() -> None:
    made = used(secret(max_uses="1"), csr())
    sentence = refused(decide(made, csr("system:node:worker-2", OTHER)), "TokenUsedUp")
    assert "made for 1 use, and none is left" in sentence
    assert "handfast token explain foobar" in sentence
    # Nor for the first one's name.
    refused(decide(made, csr(key=OTHER)), "TokenUsedUp")


def test_the_same_key_may_ask_again() -> None:
    made = used(secret(max_uses="1"), csr())
    assert isinstance(decide(made, csr()), decision.Approve)
    assert isinstance(decide(made, csr(), source="198.51.100.1"), decision.Approve)
    assert isinstance(decide(made, csr(signer="kubernetes.io/kubelet-serving")), decision.Approve)


def test_as_many_as_allowed() -> None:
    made = secret(max_uses="2")
    made = used(used(made, csr()), csr(key=OTHER))
    assert "made for 2 uses" in refused(decide(made, csr(key=keys.generate(keys.Kind.P256))), "TokenUsedUp")


def test_another_name_is_another_use() -> None:
    made = used(secret(max_uses="1"), csr())
    refused(decide(made, csr("system:node:worker-2")), "TokenUsedUp")


def test_a_limit_lowered_later_keeps_who_is_in() -> None:
    made = used(used(secret(), csr()), csr(key=OTHER))
    made["metadata"]["annotations"]["handfast.dev/max-uses"] = "1"
    assert isinstance(decide(made, csr()), decision.Approve)
    refused(decide(made, csr(key=keys.generate(keys.Kind.P256))), "TokenUsedUp")


@pytest.mark.parametrize(
    ("nodes", "name"), [("worker-1", "worker-1"), ("db-*,worker-?", "worker-1"), ("*", "worker-1.example.com")]
)
def test_a_name_that_is_allowed(nodes: str, name: str) -> None:
    assert isinstance(decide(secret(allowed_nodes=nodes), csr(f"system:node:{name}")), use.Reserve)


def test_another_nodes_name_is_refused() -> None:
    sentence = refused(decide(secret(allowed_nodes="db-*"), csr()), "TokenNotForThisNode")
    assert "is for 'db-*', and the request asks for 'system:node:worker-1'" in sentence
    assert "--node" in sentence


@pytest.mark.parametrize(
    "name", ["", "worker-1", "jane", "system:node:", "system:node:Worker-1", "system:nodes:a", "system:node:a b"]
)
def test_what_is_no_nodes_name_is_refused(name: str) -> None:
    refused(decide(secret(allowed_nodes="*"), csr(name)), "TokenNotForThisNode")


def test_a_long_list_of_nodes_is_not_quoted_whole() -> None:
    nodes = ",".join(f"db-{number}" for number in range(1000))
    assert len(refused(decide(secret(allowed_nodes=nodes), csr()), "TokenNotForThisNode")) < 800


def test_what_is_quoted_is_whole_up_to_256_characters() -> None:
    for length, shown in ((256, "'{}'"), (257, "'{}…'")):
        name = "x" * length
        sentence = refused(decide(secret(allowed_nodes="db-*"), csr(name)), "TokenNotForThisNode")
        assert f"asks for {shown.format('x' * 256)}:" in sentence


def test_the_nodes_are_asked_before_the_uses() -> None:
    refused(decide(secret(allowed_nodes="db-*", max_uses="1", use_count="1"), csr()), "TokenNotForThisNode")


@pytest.mark.parametrize("name", ["jane", "system:node:Worker-1", "system:node:a/b", "system:node:"])
def test_a_name_no_node_can_have_is_written_down_as_a_digest(name: str) -> None:
    verdict = decide(secret(), csr(name))
    assert isinstance(verdict, use.Reserve)
    assert verdict.use.key == fingerprint(ONE)
    # So that one key cannot ask for one such name after the other.
    assert verdict.use.node == "sha256:" + hashlib.sha256(name.encode()).hexdigest()[:32]


def tampered() -> dict[str, Any]:
    """Somebody else's key, signed by nobody who holds it."""
    der = bytearray(requests.parse(requests.build(names.Subject(common_name="a"), names.Sans(), ONE)).der)
    der[-1] ^= 1
    return encoded(pem.encode(pem.CERTIFICATE_REQUEST, bytes(der)))


UNREADABLE = {"no key": tampered(), "no PEM": encoded(b"hello"), "no base64": {"spec": {"request": "!"}}, "nothing": {}}


@pytest.mark.parametrize("noted", [{"max_uses": "9"}, {"allowed_nodes": "*"}], ids=["uses", "nodes"])
@pytest.mark.parametrize("request_", UNREADABLE.values(), ids=UNREADABLE)
def test_a_request_that_proves_no_key_is_refused(noted: dict[str, str], request_: dict[str, Any]) -> None:
    verdict = decide(secret(**noted), request_)
    assert isinstance(verdict, decision.Deny)
    assert "is limited, and the request cannot be read" in verdict.sentence


@pytest.mark.parametrize("noted", [{}, {"allowed_cidrs": "192.0.2.0/24"}], ids=["nothing", "networks"])
@pytest.mark.parametrize("request_", UNREADABLE.values(), ids=UNREADABLE)
def test_where_nothing_is_limited_any_request_goes(noted: dict[str, str], request_: dict[str, Any]) -> None:
    assert isinstance(decide(secret(**noted), request_), decision.NotMine)


@pytest.mark.parametrize(
    "noted",
    [
        {"max_uses": "none"},
        {"allowed_nodes": ""},
        {"allowed_cidrs": "anywhere"},
        {"uses": "[]]"},
        {"use_count": "few"},
    ],
    ids=lambda noted: next(iter(noted)),
)
def test_what_cannot_be_read_lets_nobody_in(noted: dict[str, str]) -> None:
    sentence = refused(decide(secret(**noted), csr()), "BadTokenLimits")
    assert "the limits of bootstrap token foobar cannot be read: handfast.dev/" in sentence


@pytest.mark.parametrize(
    ("cidrs", "address", "allowed"),
    [
        ("192.0.2.0/24", "192.0.2.7", True),
        ("192.0.2.0/24", "::ffff:192.0.2.7", True),
        ("10.0.0.0/8,192.0.2.7/32", "192.0.2.7", True),
        ("fd00::/8", "fd00::1", True),
        ("192.0.2.0/24", "198.51.100.1", False),
        ("192.0.2.0/24", "fd00::1", False),
        ("0.0.0.0/0,::/0", "", False),
        ("0.0.0.0/0", "unix", False),
    ],
)
def test_from_elsewhere(cidrs: str, address: str, allowed: bool) -> None:
    made = secret(allowed_cidrs=cidrs)
    found = use.sources(made)
    assert found is not None
    verdict = use.from_here(found, address)
    judged = decide(made, csr(), source=address)
    if allowed:
        assert isinstance(verdict, decision.Approve)
        assert isinstance(judged, use.Reserve)
    else:
        assert isinstance(verdict, decision.Deny)
        assert verdict.reason == "TokenNotFromHere"
        refused(judged, "TokenNotFromHere")


def test_only_networks_that_cannot_be_read_are_refused_at_the_door() -> None:
    assert use.sources(secret()) is None
    # Only the networks matter at the door: what else is wrong is told where it can be explained.
    assert use.sources(secret(max_uses="none", allowed_nodes="")) is None
    with pytest.raises(errors.Refused, match="allowed-cidrs"):
        use.sources(secret(allowed_cidrs="anywhere"))


def test_a_flood_of_uses_is_bounded() -> None:
    made = secret()
    for number in range(token_limits.KEPT + 5):
        made = used(made, csr(f"system:node:worker-{number}"))
    assert len(token_limits.uses(made)) == token_limits.KEPT
    assert token_limits.count(made) == token_limits.KEPT + 5
    # Who came first is not flushed out by who comes last.
    assert token_limits.uses(made)[0].node == "worker-0"
    # Asking again and again for the same adds nothing.
    assert isinstance(decide(made, csr(f"system:node:worker-{number}")), decision.Approve)
