# SPDX-License-Identifier: Apache-2.0
"""What a user's watches hang on, and when they are told that it is gone."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.apiserver import identity
from handfast.apiserver.access import bonds
from tests.unit.apiserver import admission_world

SECRETS, PODS, ACCOUNTS = ("", "secrets"), ("", "pods"), ("", "serviceaccounts")
POD_UID = {"authentication.kubernetes.io/pod-uid": ("p-uid",)}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (identity.User("jane", ()), ()),
        (identity.ANONYMOUS, ()),
        (identity.User("system:bootstrap:abcdef", ()), ("system:bootstrap:abcdef",)),
        (identity.User("system:serviceaccount:a:b", (), uid="b-uid"), ("b-uid",)),
        (identity.User("system:serviceaccount:a:b", (), uid="b-uid", extra=POD_UID), ("b-uid", "p-uid")),
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
    assert parted.bonds == ["system:bootstrap:abcdef"] * 2


def test_other_secrets() -> None:
    parted = Parted()
    for name, namespace in (("bootstrap-token-abcdef", "default"), ("other", "kube-system")):
        parted.put(SECRETS, name, namespace)
        parted.drop(SECRETS, name, namespace)
    assert parted.bonds == []


@pytest.mark.parametrize("resource", [PODS, ACCOUNTS])
def test_accounts_and_pods(resource: tuple[str, str]) -> None:
    parted = Parted()
    parted.put(resource, "x", "a")
    parted.put(resource, "x", "a", metadata={"labels": {"a": "b"}})
    assert parted.bonds == []
    parted.drop(resource, "x", "a")
    assert parted.bonds == ["x-uid"]
