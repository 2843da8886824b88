# SPDX-License-Identifier: Apache-2.0
"""Acting as somebody else. The names of the table in `apiserver/access/impersonation.py` are here."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from handfast.api import status
from handfast.apiserver.access import impersonation
from handfast.apiserver.identity import User
from handfast.rules import access, decision
from handfast.rules.rbac import policy_rules, scopes

ALICE = User("alice", ("system:authenticated",), method="x509")


class Allows:
    """Allows what it was told, and remembers what it was asked: (resource, namespace, name)."""

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self._allowed = allowed
        self.asked: list[tuple[str, str, str]] = []

    def decide(self, attributes: access.Attributes) -> decision.Decision:
        resource = f"{attributes.plural}/{attributes.subresource}" if attributes.subresource else attributes.plural
        question = (
            f"{resource}.{attributes.group}" if attributes.group else resource,
            attributes.namespace,
            attributes.name,
        )
        assert (attributes.user, attributes.verb) == ("alice", "impersonate")
        self.asked.append(question)
        if question in self._allowed:
            return decision.Approve("Test", "allowed by a test", "test")
        return decision.NotMine("Test", "", "test")


def headers(*rows: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(rows))


def acted(rows: list[tuple[str, str]], *allowed: tuple[str, str, str]) -> User | None:
    return impersonation.apply(ALICE, headers(*rows), access.Authorizers([Allows(*allowed)]))


def test_nobody_is_named() -> None:
    assert not impersonation.named(headers(("Accept", "x"), ("If-None-Match", "y"), ("imp", "z")))
    assert acted([("Accept", "x")]) is None


@pytest.mark.parametrize(
    "header", ["Impersonate-User", "impersonate-group", "IMPERSONATE-UID", "Impersonate-Extra-Scopes"]
)
def test_somebody_is_named(header: str) -> None:
    assert impersonation.named(headers((header, "x")))


def test_a_user() -> None:
    user = acted([("Impersonate-User", "bob")], ("users", "", "bob"))
    assert user is not None
    assert (user.name, user.groups, user.method) == ("bob", ("system:authenticated",), "x509 impersonation")


def test_without_permission() -> None:
    with pytest.raises(status.StatusError) as caught:
        acted([("Impersonate-User", "bob")])
    assert caught.value.code == 403
    assert caught.value.message == (
        'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group "" at the cluster scope'
    )


def test_only_the_named_user() -> None:
    with pytest.raises(status.StatusError, match='users "carol" is forbidden') as caught:
        acted([("Impersonate-User", "carol")], ("users", "", "bob"))
    assert caught.value.reason == "Forbidden"


def test_every_part_is_asked() -> None:
    rows = [
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "system:masters"),
        ("Impersonate-Group", "developers"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Example.com%2fscopes", "a"),
        ("Impersonate-Extra-Example.com%2fscopes", "b"),
    ]
    needed = [
        ("users", "", "bob"),
        ("groups", "", "system:masters"),
        ("groups", "", "developers"),
        ("uids.authentication.k8s.io", "", "7"),
        ("userextras/example.com/scopes.authentication.k8s.io", "", "a"),
        ("userextras/example.com/scopes.authentication.k8s.io", "", "b"),
    ]
    user = acted(rows, *needed)
    assert user is not None
    assert user.groups == ("system:masters", "developers", "system:authenticated")
    assert (user.uid, user.extra) == ("7", {"example.com/scopes": ("a", "b")})
    for missing in needed:
        with pytest.raises(status.StatusError) as caught:
            acted(rows, *(row for row in needed if row != missing))
        assert caught.value.code == 403


def test_scopes_are_a_part_like_any_other() -> None:
    rows = [("Impersonate-User", "bob"), ("Impersonate-Extra-Scopes.Authorization.OpenShift.io", "user:info")]
    user = acted(
        rows,
        ("users", "", "bob"),
        ("userextras/scopes.authorization.openshift.io.authentication.k8s.io", "", "user:info"),
    )
    assert user is not None
    assert user.extra == {access.SCOPES: ("user:info",)}
    with pytest.raises(status.StatusError, match=r"userextras/scopes\.authorization\.openshift\.io"):
        acted(rows, ("users", "", "bob"))


def test_a_caller_with_scopes_cannot_leave_them() -> None:
    limited = User("alice", ALICE.groups, extra={access.SCOPES: ("role:edit:a",)})
    judges = access.Authorizers([Allows(("users", "", "bob"))], scopes.Scopes(lambda _: policy_rules.FULL))
    with pytest.raises(status.StatusError, match="prevent this action"):
        impersonation.apply(limited, headers(("Impersonate-User", "bob")), judges)


@pytest.mark.parametrize(
    "row", [("Impersonate-Group", "system:masters"), ("Impersonate-Uid", "1"), ("Impersonate-Extra-A", "b")]
)
def test_groups_without_a_user(row: tuple[str, str]) -> None:
    with pytest.raises(status.StatusError) as caught:
        acted([row], ("groups", "", "system:masters"))
    assert caught.value.code == 400


def test_parts_are_bounded() -> None:
    groups = [f"g{number}" for number in range(255)]
    rows = [
        ("Impersonate-User", "bob"),
        *(("Impersonate-Group", group) for group in groups),
        ("Impersonate-Extra-A", "b"),
    ]
    needed = [("users", "", "bob"), *(("groups", "", group) for group in groups)]
    needed.append(("userextras/a.authentication.k8s.io", "", "b"))
    assert acted(rows, *needed) is not None
    with pytest.raises(status.StatusError) as caught:
        acted([*rows, ("Impersonate-Group", "g0")], *needed)
    assert caught.value.code == 400


def test_an_empty_user() -> None:
    with pytest.raises(status.StatusError) as caught:
        acted([("Impersonate-User", "")])
    assert caught.value.code == 400


def test_a_service_account() -> None:
    rows = [("Impersonate-User", "system:serviceaccount:prod:robot")]
    user = acted(rows, ("serviceaccounts", "prod", "robot"))
    assert user is not None
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:prod", "system:authenticated")
    named = acted([*rows, ("Impersonate-Group", "mine")], ("serviceaccounts", "prod", "robot"), ("groups", "", "mine"))
    assert named is not None
    assert named.groups == ("mine", "system:authenticated")


@pytest.mark.parametrize(
    "name", ["system:serviceaccount:prod", "system:serviceaccount::x", "system:serviceaccount:a:b:c"]
)
def test_what_only_looks_like_a_service_account(name: str) -> None:
    assert acted([("Impersonate-User", name)], ("users", "", name)) is not None


def test_one_of_the_two_groups_of_the_server_is_added_and_never_both() -> None:
    user = acted([("Impersonate-User", "system:anonymous")], ("users", "", "system:anonymous"))
    assert user is not None
    assert user.groups == ("system:unauthenticated",)
    named = acted(
        [("Impersonate-User", "bob"), ("Impersonate-Group", "system:authenticated")],
        ("users", "", "bob"),
        ("groups", "", "system:authenticated"),
    )
    assert named is not None
    assert named.groups == ("system:authenticated",)
