# SPDX-License-Identifier: Apache-2.0
"""The binding that would allow it: no wider than it has to be, and safe to paste."""

from __future__ import annotations

from handfast.api import handfast_kinds, resources
from handfast.rules.console import access


def test_a_kind_of_the_cluster_takes_a_cluster_role():
    role, binding = access.grant(resources.NODES, "", "anna")
    assert role == "kubectl create clusterrole handfast-console:nodes --verb=get,list,watch --resource=nodes"
    assert binding == (
        "kubectl create clusterrolebinding handfast-console:nodes --clusterrole=handfast-console:nodes --user=anna"
    )


def test_one_namespace_takes_a_role_there():
    role, binding = access.grant(resources.LEASES, "kube-node-lease", "anna")
    assert "--namespace=kube-node-lease --verb=get,list,watch --resource=leases.coordination.k8s.io" in role
    assert binding.startswith("kubectl create rolebinding ")


def test_a_group_is_named_and_a_name_is_quoted():
    role, binding = access.grant(handfast_kinds.REVOCATION, "", "a; rm -rf /")
    assert "--resource=revocations.handfast.dev" in role
    assert binding.endswith("--user='a; rm -rf /'")
    assert access.grant(resources.NODES, "", "")[1].endswith("--user=NAME")
