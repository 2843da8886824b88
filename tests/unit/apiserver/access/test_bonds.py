# SPDX-License-Identifier: Apache-2.0
"""What a user's watches hang on, and when they are told that it is gone."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.apiserver import identity
from handfast.apiserver.access import bonds
from handfast.apiserver.state import items
from handfast.rules.tokens import service_accounts as rules
from tests.unit.apiserver import admission_world

SECRETS, PODS, ACCOUNTS, NODES = ("", "secrets"), ("", "pods"), ("", "serviceaccounts"), ("", "nodes")
POD_UID = {"authentication.kubernetes.io/pod-uid": ("p-uid",)}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (identity.User("jane", ()), ()),
        (identity.ANONYMOUS, ()),
        (identity.User("system:bootstrap:abcdef", ()), ("system:bootstrap:abcdef",)),
        (identity.User("system:serviceaccount:a:b", (), uid="b-uid"), ("b-uid",)),
        (identity.User("system:serviceaccount:a:b", (), uid="b-uid", extra=POD_UID), ("b-uid", "p-uid")),
        (identity.User("system:serviceaccount:a:b", (), uid="b-uid", bonds=("s-uid",)), ("b-uid", "s-uid")),
    ],
)
def test_a_user_is_bound_to_what_its_credential_rests_on(user: identity.User, expected: tuple[str, ...]) -> None:
    assert bonds.of(user) == expected


class Parted:
    def __init__(self) -> None:
        self.world = admission_world.World()
        self.bonds: list[str] = []
        bonds.Bonds(self.world.replica, self.bonds.append).load()

    def put(self, resource: tuple[str, str], name: str, namespace: str, **fields: Any) -> None:
        self.world.put(resource, name, namespace, **fields)

    def put_bytes(self, resource: tuple[str, str], name: str, namespace: str, body: bytes) -> None:
        kind = admission_world.KINDS[resource]
        item = items.Item(namespace, name, 98, body)
        self.world.replica.collection(kind.prefix).apply(namespace, name, item, 98)

    def drop(self, resource: tuple[str, str], name: str, namespace: str) -> None:
        kind = admission_world.KINDS[resource]
        self.world.replica.collection(kind.prefix).apply(namespace, name, None, 99)


def test_bootstrap_tokens() -> None:
    parted = Parted()
    name, namespace = "bootstrap-token-abcdef", "kube-system"
    parted.put(SECRETS, name, namespace, data={"token-secret": "eA=="})
    parted.put(SECRETS, name, namespace, data={"token-secret": "eA=="}, metadata={"annotations": {"used": "today"}})
    assert parted.bonds == []
    parted.put(SECRETS, name, namespace, data={"token-secret": "eQ=="})
    assert parted.bonds == ["system:bootstrap:abcdef"]
    parted.drop(SECRETS, name, namespace)
    assert parted.bonds.count("system:bootstrap:abcdef") == 2


def test_other_secrets() -> None:
    parted = Parted()
    for name, namespace in (("bootstrap-token-abcdef", "default"), ("other", "kube-system")):
        parted.put(SECRETS, name, namespace)
        parted.drop(SECRETS, name, namespace)
    assert not any(bond.startswith("system:bootstrap:") for bond in parted.bonds)


TOKEN = {"token": "eA==", "ca.crt": "eQ=="}
HELD, ENDING = bonds.of_legacy("a", "x", "b-uid")


@pytest.mark.parametrize(
    ("after", "ends"),
    [
        ({"data": {**TOKEN, "ca.crt": "eg=="}}, False),
        ({"data": TOKEN, "metadata": {"labels": {rules.LAST_USED: "2026-11-17"}}}, False),
        ({"data": {**TOKEN, "token": "eg=="}}, True),
        ({"data": {"ca.crt": "eQ=="}}, True),
        ({}, True),
        ({"data": {"token": None}}, True),
        ({"data": {"token": 5}}, True),
        ({"data": TOKEN, "metadata": {"deletionTimestamp": "2026-11-17T00:00:00Z"}}, True),
        ({"data": TOKEN, "metadata": {"labels": {rules.INVALID_SINCE: "2026-11-17"}}}, True),
    ],
)
def test_a_legacy_token_rests_on_what_its_secret_holds(after: dict[str, Any], ends: bool) -> None:
    parted = Parted()
    parted.put(SECRETS, "x", "a", data=TOKEN)
    parted.put(SECRETS, "x", "a", **after)
    assert parted.bonds == ([HELD] if ends else [])


def test_a_secret_that_goes_ends_what_lives_in_it_and_what_is_bound_to_it() -> None:
    parted = Parted()
    parted.put(SECRETS, "x", "a", data=TOKEN)
    parted.drop(SECRETS, "x", "a")
    assert parted.bonds == [HELD, "x-uid"]


def test_an_account_that_is_being_deleted_ends_legacy_tokens_at_once() -> None:
    parted = Parted()
    parted.put(ACCOUNTS, "b", "a")
    parted.put(ACCOUNTS, "b", "a", metadata={"deletionTimestamp": "2026-11-17T00:00:00Z"})
    assert parted.bonds == [ENDING]
    parted.drop(ACCOUNTS, "b", "a")
    assert parted.bonds == [ENDING, "b-uid"]


@pytest.mark.parametrize("resource", [SECRETS, ACCOUNTS, PODS, NODES])
def test_what_is_no_document_stops_nobody(resource: tuple[str, str]) -> None:
    parted = Parted()
    namespace = "" if resource == NODES else "kube-system"
    for name in ("x", "bootstrap-token-abcdef"):
        parted.put_bytes(resource, name, namespace, b'{"metadata":{"uid":5},"data":')
        parted.put_bytes(resource, name, namespace, b'{"metadata":{},"data":')
        parted.drop(resource, name, namespace)
    # Nobody is bound to a UID that is empty. The tokens in the Secrets end with them.
    tokens = {"system:bootstrap:abcdef", *(f"token in kube-system/{name}" for name in ("x", "bootstrap-token-abcdef"))}
    assert set(parted.bonds) == {"", *(tokens if resource == SECRETS else ())}


@pytest.mark.parametrize("resource", [PODS, ACCOUNTS, NODES])
def test_accounts_pods_and_nodes(resource: tuple[str, str]) -> None:
    parted = Parted()
    parted.put(resource, "x", "a")
    parted.put(resource, "x", "a", metadata={"labels": {"a": "b"}})
    assert parted.bonds == []
    parted.drop(resource, "x", "a")
    assert parted.bonds == ["x-uid"]
