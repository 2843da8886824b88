# SPDX-License-Identifier: Apache-2.0
"""MeshPolicies as they are read: whom they are about, whom they let in, and what becomes of what cannot be read."""

from __future__ import annotations

import pytest

from handfast.api import handfast_kinds
from handfast.api.custom import structural, structural_values
from handfast.rules.mesh import policy_documents
from handfast.rules.mesh.policy_documents import Row, Target

WEB = Target(namespace="shop", account="web", labels={"app": "web", "tier": "front"})


def document(**spec):
    return {"metadata": {"namespace": "shop", "name": "p"}, "spec": spec}


def parse(**spec):
    return policy_documents.parse(document(**spec))


def problems(**spec):
    """What the server says of it, after what it fills in."""
    schema = handfast_kinds.MESH_POLICY.schema or {}
    written = document(**spec)
    structural.prune(schema, written)
    structural.fill(schema, written)
    return [cause.field for cause in structural_values.check(schema, written)]


def test_a_policy_is_about_its_own_namespace_alone():
    policy = parse(clients=[])
    assert policy.title == "shop/p"
    assert policy.is_about(WEB)
    assert not policy.is_about(Target(namespace="bank", account="web"))


@pytest.mark.parametrize(
    ("targets", "is_about"),
    [
        ({}, True),
        ({"serviceAccounts": ["web"]}, True),
        ({"serviceAccounts": ["api", "web"]}, True),
        ({"serviceAccounts": ["api"]}, False),
        ({"podSelector": {}}, True),
        ({"podSelector": {"matchLabels": {"app": "web"}}}, True),
        ({"podSelector": {"matchLabels": {"app": "api"}}}, False),
        ({"podSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]}}, True),
        ({"serviceAccounts": ["web"], "podSelector": {"matchLabels": {"app": "api"}}}, False),
        ({"serviceAccounts": ["api"], "podSelector": {"matchLabels": {"app": "web"}}}, False),
    ],
)
def test_whatever_targets_give_has_to_fit(targets, is_about):
    assert problems(targets=targets, clients=[]) == []
    assert parse(targets=targets, clients=[]).is_about(WEB) is is_about


def test_ports_are_those_of_the_pod():
    policy = parse(targets={"ports": [8080]}, clients=[])
    assert policy.is_about_port(WEB, 8080)
    assert not policy.is_about_port(WEB, 80)
    assert parse(clients=[]).is_about_port(WEB, 80)
    assert not parse(targets={"serviceAccounts": ["api"]}, clients=[]).is_about_port(WEB, 80)


def test_each_kind_of_row_is_read():
    clients = [
        {"serviceAccount": {"namespace": "bank", "name": "api"}},
        {"serviceAccount": {"name": "api"}},
        {"namespace": "bank"},
        {"identity": "a.b.sa.linkerd-identity.linkerd.cluster.local"},
        {"unauthenticated": True},
    ]
    assert problems(clients=clients) == []
    policy = parse(clients=clients)
    assert policy.rows == (
        Row(account=("bank", "api")),
        Row(account=("shop", "api")),
        Row(namespace="bank"),
        Row(identity="a.b.sa.linkerd-identity.linkerd.cluster.local"),
        Row(anyone=True),
    )
    assert policy.problem == ""
    assert [row.title for row in policy.rows] == [
        "serviceAccount bank/api",
        "serviceAccount shop/api",
        "namespace bank",
        "identity a.b.sa.linkerd-identity.linkerd.cluster.local",
        "unauthenticated",
    ]
    assert Row().title == "(unreadable)"


def test_modes_and_conditions_are_read():
    assert parse(clients=[]).enforced
    assert parse(clients=[], mode="enforce").enforced
    assert not parse(clients=[], mode="audit").enforced
    policy = parse(requireIdentity={"inbound": True, "outbound": False})
    assert (policy.rows, policy.needs_inbound, policy.needs_outbound) == (None, True, False)
    assert not parse(clients=[]).needs_inbound


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, "spec.clients"),
        ({"clients": "all"}, "spec.clients"),
        ({"clients": [{"unauthenticated": False}]}, "spec.clients[0]"),
        ({"clients": [{"unauthenticated": 1}, {}]}, "spec.clients[0], spec.clients[1]"),
        ({"clients": [{"namespace": ""}]}, "spec.clients[0]"),
        ({"clients": [{"identity": ""}]}, "spec.clients[0]"),
        ({"clients": [{"serviceAccount": {"name": ""}}]}, "spec.clients[0]"),
        ({"clients": [{"serviceAccount": {"name": "a", "namespace": 1}}]}, "spec.clients[0]"),
        ({"clients": [{"namespace": "a", "identity": "b"}]}, "spec.clients[0]"),
        ({"clients": [7]}, "spec.clients[0]"),
        ({"targets": [], "clients": [{"unauthenticated": True}]}, "spec.targets"),
        ({"targets": {"serviceAccounts": []}, "clients": [{"unauthenticated": True}]}, "spec.targets.serviceAccounts"),
        ({"targets": {"serviceAccounts": [1]}, "requireIdentity": {"inbound": True}}, "spec.targets.serviceAccounts"),
        ({"targets": {"ports": [True]}, "clients": [{"unauthenticated": True}]}, "spec.targets.ports"),
        (
            {"targets": {"podSelector": {"matchLabels": {"a b": "c"}}}, "clients": [{"unauthenticated": True}]},
            "spec.targets.podSelector",
        ),
        ({"targets": {"podSelector": 1}, "clients": [{"unauthenticated": True}]}, "spec.targets.podSelector"),
    ],
)
def test_what_cannot_be_read_lets_in_nobody(spec, problem):
    policy = parse(**spec)
    assert problem in policy.problem
    assert policy.is_about_port(WEB, 80)
    assert policy.enforced
    assert policy.rows is not None
    assert all(row == Row() for row in policy.rows)


@pytest.mark.parametrize("value", [1, "yes", {"inbound": "no", "outbound": 0}, {"inbound": {}, "outbound": []}, []])
def test_a_condition_that_cannot_be_read_holds(value):
    policy = parse(clients=[], requireIdentity=value)
    assert policy.needs_inbound
    assert policy.needs_outbound


def test_a_mode_that_nobody_knows_is_enforced():
    assert parse(clients=[], mode="Audit").enforced


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec"),
        ({"targets": {}}, "spec"),
        ({"requireIdentity": {}}, "spec.requireIdentity"),
        ({"requireIdentity": {"inbound": "yes"}}, "spec.requireIdentity.inbound"),
        ({"clients": [], "mode": "off"}, "spec.mode"),
        ({"clients": [{}]}, "spec.clients[0]"),
        ({"clients": [{"namespace": "a", "unauthenticated": True}]}, "spec.clients[0]"),
        ({"clients": [{"unauthenticated": False}]}, "spec.clients[0].unauthenticated"),
        ({"clients": [{"namespace": "A"}]}, "spec.clients[0].namespace"),
        ({"clients": [{"identity": "*.a.sa.linkerd-identity.linkerd.cluster.local"}]}, "spec.clients[0].identity"),
        ({"clients": [{"serviceAccount": {}}]}, "spec.clients[0].serviceAccount.name"),
        ({"clients": [{"serviceAccount": {"name": "a.b"}}]}, "spec.clients[0].serviceAccount.name"),
        ({"clients": [{"namespace": "a"}] * 257}, "spec.clients"),
        ({"clients": [], "targets": {"serviceAccounts": []}}, "spec.targets.serviceAccounts"),
        ({"clients": [], "targets": {"ports": [0]}}, "spec.targets.ports[0]"),
        ({"clients": [], "targets": {"ports": [65536]}}, "spec.targets.ports[0]"),
        ({"clients": [], "targets": {"ports": []}}, "spec.targets.ports"),
        (
            {"clients": [], "targets": {"podSelector": {"matchLabels": {"a": "b c"}}}},
            "spec.targets.podSelector.matchLabels.a",
        ),
        (
            {"clients": [], "targets": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
            "spec.targets.podSelector.matchExpressions[0]",
        ),
        (
            {"clients": [], "targets": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}},
            "spec.targets.podSelector.matchExpressions[0].operator",
        ),
    ],
)
def test_the_schema_refuses_at_the_field(spec, field):
    assert any(found == field or found.startswith(f"{field}.") for found in problems(**spec)), problems(**spec)


def test_more_rows_than_can_be_kept_let_in_nobody():
    rows = [{"namespace": f"team-{number}"} for number in range(256)]
    ports = [
        policy_documents.parse(
            {
                "metadata": {"namespace": "shop", "name": f"ports-{number}"},
                "spec": {"targets": {"ports": list(range(60 * number + 1, 60 * number + 61))}, "clients": rows},
            }
        )
        for number in range(2)
    ]
    condition = parse(requireIdentity={"inbound": True}, targets={"ports": [80]})
    assert policy_documents.bounded([ports[1], ports[0]]) == ports
    closed = policy_documents.bounded([condition, *ports, parse(clients=rows, mode="audit")])
    assert {(each.rows, each.ports) for each in closed} == {(None, frozenset()), ((), frozenset())}
    assert [each.enforced for each in closed].count(False) == 1
    assert all("more than 65536" in each.problem for each in closed)
    assert closed[0].needs_inbound
