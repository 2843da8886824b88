# SPDX-License-Identifier: Apache-2.0
"""Bindings that go round the inventory."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.machines import bootstrapper, bypass

ROLE = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
NODE_CLIENT = {
    "rules": [
        {
            "verbs": ["create"],
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests/nodeclient"],
        }
    ]
}
EVERYTHING = {"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}
READS = {"rules": [{"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]}]}
NAMED = {"rules": [{**NODE_CLIENT["rules"][0], "resourceNames": ["x"]}]}
USER = {"kind": "User", "name": bootstrapper.USER}
ACCOUNT = {"kind": "ServiceAccount", "name": bootstrapper.ACCOUNT, "namespace": bootstrapper.NAMESPACE}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": name}


def binding(*subjects: dict[str, str], kind: str = "ClusterRole") -> dict[str, Any]:
    return {
        "metadata": {"name": "too-wide"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": ROLE},
        "subjects": list(subjects),
    }


@pytest.mark.parametrize("role", [NODE_CLIENT, EVERYTHING])
@pytest.mark.parametrize(
    "subject",
    [
        USER,
        ACCOUNT,
        *map(group, bootstrapper.GROUPS),
        group("system:authenticated"),
    ],
    ids=lambda subject: subject["name"],
)
def test_a_binding_that_goes_round_the_inventory_is_named(subject, role):
    said = bypass.judge(binding(subject), role)
    assert said is not None
    assert f'ClusterRoleBinding "too-wide" of ClusterRole "{ROLE}"' in said
    assert "take that subject out of the ClusterRoleBinding too-wide" in said


@pytest.mark.parametrize(
    ("there", "role"),
    [
        pytest.param(binding(group("system:bootstrappers")), NODE_CLIENT, id="bootstrap tokens"),
        pytest.param(binding(USER), READS, id="a role without that right"),
        pytest.param(binding(USER), NAMED, id="a right on single objects"),
        pytest.param(binding(USER), None, id="a role that is not there"),
        pytest.param(binding(USER, kind="Role"), NODE_CLIENT, id="a Role"),
        pytest.param(binding(), NODE_CLIENT, id="nobody"),
    ],
)
def test_what_gives_the_bootstrapper_nothing_is_not_told_of(there, role):
    assert bypass.judge(there, role) is None


def test_the_operators_identities_are_looked_at():
    other = bootstrapper.Identity("joiner", frozenset({"fleet"}))
    assert bypass.judge(binding(group("fleet")), NODE_CLIENT) is None
    assert bypass.judge(binding(group("fleet")), NODE_CLIENT, (bootstrapper.NODE_BOOTSTRAPPER, other)) is not None
