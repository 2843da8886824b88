# SPDX-License-Identifier: Apache-2.0
"""Objects that no mutating policy changes."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import handfast_kinds, kinds, machine_config_kinds, machine_kinds
from handfast.rules import untouched
from handfast.rules.webhooks import configurations


def is_untouched(kind: kinds.Kind, subresource: str = "", place: tuple[str, str] = ("a", "x"), **document: Any) -> bool:
    return untouched.is_untouched(kind, subresource, place, (document, None))


@pytest.mark.parametrize("subresource", ["", "approval", "status"])
def test_requests_for_certificates_are_left_alone(subresource):
    row = kinds.row("certificatesigningrequests", "certificates.k8s.io")
    assert is_untouched(row, subresource)
    assert untouched.is_untouched_kind(row, subresource)


@pytest.mark.parametrize("plural", ["roles", "clusterroles", "rolebindings", "clusterrolebindings"])
def test_roles_are_left_alone(plural):
    assert is_untouched(kinds.row(plural, "rbac.authorization.k8s.io"))


def test_tokens_are_left_alone():
    secrets, accounts = kinds.row("secrets"), kinds.row("serviceaccounts")
    for kind in ("bootstrap.kubernetes.io/token", "kubernetes.io/service-account-token"):
        assert is_untouched(secrets, type=kind)
        # What was one, too.
        assert untouched.is_untouched(secrets, "", ("a", "x"), ({"type": "Opaque"}, {"type": kind}))
    assert not is_untouched(secrets, type="Opaque")
    assert is_untouched(accounts, "token")
    assert not is_untouched(accounts)
    assert is_untouched(kinds.row("tokenreviews", "authentication.k8s.io"))
    assert is_untouched(kinds.row("subjectaccessreviews", "authorization.k8s.io"))


def test_handfasts_own_kinds_are_left_alone():
    own = (handfast_kinds.REVOCATION, handfast_kinds.ISSUANCE_LOG, handfast_kinds.MESH_POLICY, machine_kinds.MACHINE)
    for row in (*own, machine_config_kinds.MACHINE_CONFIG):
        assert is_untouched(row)


@pytest.mark.parametrize(
    ("place", "is_left"),
    [
        (("kube-system", "extension-apiserver-authentication"), True),
        (("kube-system", "handfast-client-ca-history"), True),
        (("kube-public", "cluster-info"), True),
        (("openshift-cluster-machine-approver", "machine-approver-config"), True),
        (("openshift-config", "admin-kubeconfig-client-ca"), True),
        (("default", "cluster-info"), False),
        (("kube-system", "kubeadm-config"), False),
    ],
)
def test_configmaps_of_trust_are_left_alone(place, is_left):
    assert is_untouched(kinds.row("configmaps"), place=place) is is_left


def test_other_objects_are_not():
    assert not is_untouched(kinds.row("pods"))
    assert not is_untouched(kinds.row("deployments", "apps"))


def test_who_names_them_is_told():
    rows = [
        {"apiGroups": ["rbac.authorization.k8s.io", "apps"], "resources": ["*"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token", "pods"]},
        {"apiGroups": ["*"], "resources": ["*"]},
    ]
    rules = [configurations.rule({"operations": ["*"], "apiVersions": ["*"], **row}) for row in rows]
    assert untouched.named(rules) == ["rbac.authorization.k8s.io", "serviceaccounts/token"]
    assert untouched.named(rules[2:]) == []
