# SPDX-License-Identifier: Apache-2.0
"""Who is a node and who is a service account, by their names."""

from __future__ import annotations

import pytest

from handfast.rules import user_names


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        ("system:node:a", ()),
        ("system:node:a", ("system:nodes:a", "system:authenticated")),
        ("a", ("system:nodes",)),
        ("System:node:a", ("system:nodes",)),
        (" system:node:a", ("system:nodes",)),
        ("system:nodes:a", ("system:nodes",)),
        ("system:node", ("system:nodes",)),
        ("system:serviceaccount:system:node:a", ("system:nodes",)),
        ("", ("system:nodes",)),
    ],
)
def test_half_a_node_is_none(user: str, groups: tuple[str, ...]) -> None:
    assert user_names.node(user, groups) is None


@pytest.mark.parametrize("name", ["", "a", "node0", "a:b", "system:node:x", "../x"])
def test_everything_after_the_prefix_is_the_name(name: str) -> None:
    assert user_names.node(f"system:node:{name}", ("x", "system:nodes")) == name
    assert user_names.node_user(name) == f"system:node:{name}"
    assert user_names.node_named(f"system:node:{name}") == name
    subject = user_names.node_subject(name)
    assert (subject.common_name, subject.organizations) == (f"system:node:{name}", ("system:nodes",))


@pytest.mark.parametrize("user", ["", "jane", "system:nodes", "system:node", "system:node-recovery:a", "SYSTEM:NODE:a"])
def test_a_user_that_names_no_node(user: str) -> None:
    assert user_names.node_named(user) == ""


def test_a_service_account() -> None:
    assert user_names.service_account("system:serviceaccount:prod:robot") == ("prod", "robot")
    assert user_names.service_account_user("prod", "robot") == "system:serviceaccount:prod:robot"
    assert user_names.service_account_groups("prod") == ("system:serviceaccounts", "system:serviceaccounts:prod")


@pytest.mark.parametrize(
    "user",
    [
        "",
        "robot",
        "system:serviceaccount",
        "system:serviceaccount:",
        "system:serviceaccount:prod",
        "system:serviceaccount:prod:",
        "system:serviceaccount::robot",
        "system:serviceaccount:a:b:c",
        "System:serviceaccount:prod:robot",
        "system:serviceaccounts:prod:robot",
    ],
)
def test_what_only_looks_like_a_service_account(user: str) -> None:
    assert user_names.service_account(user) is None
