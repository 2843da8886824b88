# SPDX-License-Identifier: Apache-2.0
"""The steps that keep the worker's credential, and what is remembered of tokens."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib

import pytest

from handfast.rules.machines import bootstrap_token as rules
from handfast.rules.tokens import service_accounts

ACCOUNT = rules.Account("uid-a")
SECRET = rules.Secret(
    "uid-s", "kubernetes.io/service-account-token", "node-bootstrapper", account_uid="uid-a", digest="d1"
)
SEEN = rules.Seen(True, account=dataclasses.replace(ACCOUNT, tokens={"d1": "uid-s"}), secret=SECRET)


def seen(account: rules.Account | None = SEEN.account, secret: rules.Secret | None = SECRET) -> rules.Seen:
    return rules.Seen(True, account=account, secret=secret)


def account(**tokens: str) -> rules.Account:
    return dataclasses.replace(ACCOUNT, tokens=tokens)


def secret(**more: object) -> rules.Secret:
    return dataclasses.replace(SECRET, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (SEEN, rules.Done()),
        (seen(account=None), rules.MakeAccount()),
        (seen(account=None, secret=None), rules.MakeAccount()),
        (seen(secret=None), rules.MakeSecret("uid-a")),
        # The annotation with the UID is the controller's that fills it in: it may come later.
        (seen(secret=secret(account_uid="")), rules.Done()),
        (seen(secret=secret(account_uid="uid-before")), rules.DropSecret("uid-s")),
        (seen(account()), rules.Remember({"d1": "uid-s"})),
        (seen(account(d0="uid-before")), rules.Remember({"d0": "uid-before", "d1": "uid-s"})),
    ],
)
def test_the_next_step(there: rules.Seen, expected: rules.Step):
    assert rules.step(there) == expected


@pytest.mark.parametrize(
    ("there", "reason", "loud"),
    [
        (rules.Seen(False), "NamespaceMissing", False),
        (dataclasses.replace(SEEN, ends=True), "NamespaceTerminating", False),
        (seen(rules.Account("uid-a", deleting=True)), "AccountTerminating", False),
        (seen(secret=secret(deleting=True)), "SecretTerminating", False),
        (seen(account(), secret(digest="")), "TokenNotFilledIn", False),
        (seen(account(), secret(digest="", age=59.9)), "TokenNotFilledIn", False),
        (seen(account(), secret(digest="", age=60.0)), "TokenNotFilledIn", True),
    ],
)
def test_what_waits_has_a_reason(there: rules.Seen, reason: str, loud: bool):
    step = rules.step(there)
    assert isinstance(step, rules.Wait)
    assert (step.reason, step.loud) == (reason, loud)
    assert step.sentence
    assert reason in rules.REASONS


@pytest.mark.parametrize(
    "other", [{"type": "Opaque"}, {"account": "machine-config-operator"}, {"account": ""}, {"type": "", "digest": ""}]
)
def test_somebody_elses_secret_is_never_touched(other: dict[str, str]):
    step = rules.step(seen(secret=secret(**other, account_uid="uid-before")))
    assert isinstance(step, rules.Wait)
    assert (step.reason, step.loud) == ("NotTheTokenSecret", True)
    assert "delete it, and it is made anew" in step.sentence


def test_a_token_that_returns_ends_with_its_account():
    before = account(d1="uid-before", d2="uid-later")
    assert rules.step(seen(before)) == rules.ReplaceAccount("uid-a")
    # A token that differs is as good as any.
    assert isinstance(rules.step(seen(before, secret(digest="d3"))), rules.Remember)


def test_a_token_that_was_taken_out_is_revoked():
    step = rules.step(seen(account(d0="uid-before", d1="uid-s"), secret(digest="")))
    assert step == rules.Remember({"d0": "uid-before", "d1": "-"})
    assert isinstance(step, rules.Remember)
    known = dataclasses.replace(ACCOUNT, tokens=step.tokens)
    assert isinstance(rules.step(seen(known, secret(digest=""))), rules.Wait)
    assert rules.step(seen(known)) == rules.ReplaceAccount("uid-a")


def test_only_so_many_are_remembered():
    many = {f"d{number}": f"uid-{number}" for number in range(100, 164)}
    step = rules.step(seen(account(**many)))
    assert isinstance(step, rules.Remember)
    assert len(step.tokens) == rules.REMEMBERED == 64
    assert (next(iter(step.tokens)), list(step.tokens)[-1]) == ("d101", "d1")


def test_what_is_remembered_survives_the_way():
    tokens = {"d0": "uid-before", "d1": "-"}
    assert rules.written(tokens) == "d0:uid-before d1:-"
    assert rules.read(rules.written(tokens)) == tokens
    for text in ("", " ", "d0", ":uid", "d0:", "  :  "):
        assert rules.read(text) == {}
    assert rules.read("junk d0:uid-s :") == {"d0": "uid-s"}


def test_only_digests_are_remembered():
    token = "header.claims.signature"
    packed = base64.b64encode(token.encode()).decode()
    assert rules.digest(packed) == hashlib.sha256(token.encode()).hexdigest()
    assert rules.digest("") == ""
    # What is no base64 is still told from anything else.
    assert len({rules.digest(text) for text in ("no base64!", "a", packed)}) == 3


def test_what_is_made():
    assert rules.account_document() == {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "node-bootstrapper", "namespace": "openshift-machine-config-operator"},
    }
    assert rules.secret_document("uid-a") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "node-bootstrapper-token",
            "namespace": "openshift-machine-config-operator",
            "annotations": {
                "kubernetes.io/service-account.name": "node-bootstrapper",
                "kubernetes.io/service-account.uid": "uid-a",
            },
        },
        "type": service_accounts.LEGACY_TYPE,
    }


def test_what_is_read():
    metadata = {"uid": "uid-a", "deletionTimestamp": "2030-01-01T00:00:00Z", "annotations": {rules.MEMORY: "d0:u0"}}
    assert rules.read_account({"metadata": metadata}) == rules.Account("uid-a", deleting=True, tokens={"d0": "u0"})
    assert rules.read_account({"metadata": {"uid": "uid-a"}}) == rules.Account("uid-a")
    document = rules.secret_document("uid-a", "node-bootstrapper-token-next")
    document["metadata"] |= {"uid": "uid-s", "creationTimestamp": "2030-01-01T00:00:00Z"}
    now = datetime.datetime(2030, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)
    read = rules.read_secret({**document, "data": {"token": "YQ=="}}, now)
    assert read == secret(digest=rules.digest("YQ=="), age=5.0)
