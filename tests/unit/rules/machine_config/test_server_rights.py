# SPDX-License-Identifier: Apache-2.0
"""What the machine-config server may do, and what it may not."""

from __future__ import annotations

from handfast.rules.machine_config import server_rights
from handfast.rules.machines import bootstrapper

DOCUMENTS = [each.document for each in server_rights.first()]
ROLES = [each for each in DOCUMENTS if "rules" in each]


def test_it_may_write_nothing():
    assert {verb for role in ROLES for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}


def test_secrets_are_read_in_one_namespace():
    places = [
        role["metadata"].get("namespace") for role in ROLES for rule in role["rules"] if "secrets" in rule["resources"]
    ]
    assert places == [bootstrapper.NAMESPACE]


def test_config_maps_are_read_by_name():
    rules = [rule for role in ROLES for rule in role["rules"] if "configmaps" in rule["resources"]]
    assert [rule["resourceNames"] for rule in rules] == [
        ["kubeconfig-data"],
        ["kubelet-bootstrap-kubeconfig"],
        ["kubelet-bootstrap-kubeconfig"],
    ]


def test_every_role_has_its_binding():
    assert [(each.plural, each.namespaced) for each in server_rights.first()] == [
        ("clusterroles", False),
        ("clusterrolebindings", False),
        *[("roles", True), ("rolebindings", True)] * 3,
    ]
    subjects = [each["subjects"] for each in DOCUMENTS if "subjects" in each]
    assert all(row[0]["name"] == "system:machine-config-server" for row in subjects)


def test_another_cluster_gets_an_account_and_the_namespaces():
    documents = server_rights.manifest()
    assert [each["kind"] for each in documents[:4]] == ["ServiceAccount", "Namespace", "Namespace", "Namespace"]
    subjects = [each["subjects"][0] for each in documents if "subjects" in each]
    assert (
        subjects
        == [{"kind": "ServiceAccount", "name": "handfast-machine-config-server", "namespace": "kube-system"}] * 4
    )
