# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from handfast.api import handfast_kinds, kinds, machine_config_kinds
from handfast.rules.rbac import default_roles, policy_rules

# Served by no row of the table of kinds, but asked about: reviews, virtual resources, and what tools bring with them.
VIRTUAL = {
    "bindings",
    "controllerrevisions",
    "horizontalpodautoscalers",
    "ingresses",
    "limitranges",
    "localsubjectaccessreviews",
    "networkpolicies",
    "poddisruptionbudgets",
    "resourcequotas",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "selfsubjectrulesreviews",
    "signers",
    "subjectaccessreviews",
    "tokenreviews",
    "*",
}
ALL = [
    *default_roles.CLUSTER_ROLES.items(),
    *((f"{namespace}/{name}", rules) for (namespace, name), rules in default_roles.ROLES.items()),
]


@pytest.mark.parametrize("name, rules", ALL, ids=[name for name, _ in ALL])
def test_resources_are_spelt_as_served(name: str, rules: tuple[policy_rules.PolicyRule, ...]):
    # MachineConfigs are there where a fleet is.
    served = {kind.resource for kind in (*kinds.builtin(), *handfast_kinds.rows(), machine_config_kinds.MACHINE_CONFIG)}
    for rule in rules:
        for group in rule.api_groups:
            for resource in rule.resources:
                plural = resource.partition("/")[0]
                assert plural in VIRTUAL or (group, plural) in served, (group, resource)


@pytest.mark.parametrize("name, rules", ALL, ids=[name for name, _ in ALL])
def test_rules_are_valid(name: str, rules: tuple[policy_rules.PolicyRule, ...]):
    assert rules
    for rule in rules:
        assert rule.verbs
        assert bool(rule.non_resource_urls) != bool(rule.resources)
        assert bool(rule.api_groups) == bool(rule.resources)
        assert not (rule.non_resource_urls and "/" in name)
        assert policy_rules.parse([rule.document()]) == (rule,)


@pytest.mark.parametrize(
    "signer", ["kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown"]
)
def test_who_approves_for_one_signer_does_that_and_nothing_else(signer: str):
    role = default_roles.CLUSTER_ROLES[f"system:certificates.k8s.io:{signer}-approver"]
    assert [rule.document() for rule in role] == [
        {
            "verbs": ["approve"],
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["signers"],
            "resourceNames": [f"kubernetes.io/{signer}"],
        }
    ]


@pytest.mark.parametrize(
    "name, resource",
    [
        ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", "nodeclient"),
        ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "selfnodeclient"),
        ("system:certificates.k8s.io:certificatesigningrequests:selfnodeserver", "selfnodeserver"),
        ("system:csr-approver:approve-node-client-csr", "nodeclient"),
        ("handfast:node-recovery", "nodeclient"),
    ],
)
def test_whose_requests_are_approved_by_themselves(name: str, resource: str):
    """The approving controller asks whether the requester may `create` this."""
    assert [rule.document() for rule in default_roles.CLUSTER_ROLES[name]] == [
        {
            "verbs": ["create"],
            "apiGroups": ["certificates.k8s.io"],
            "resources": [f"certificatesigningrequests/{resource}"],
        }
    ]


def test_the_older_name_says_the_same():
    roles = default_roles.CLUSTER_ROLES
    older = roles["system:csr-approver:approve-node-client-csr"]
    assert older == roles["system:certificates.k8s.io:certificatesigningrequests:nodeclient"]
