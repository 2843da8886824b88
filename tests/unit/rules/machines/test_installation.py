# SPDX-License-Identifier: Apache-2.0
"""What a fleet begins with: the objects, and above all the rights that are not given."""

from __future__ import annotations

import base64
import datetime

from handfast.rules.machines import bootstrapper, credential_end, credentials, installation

NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


def titles():
    return [each.title for each in installation.before_machines()]


def test_namespaces_come_before_what_is_in_them():
    there: set[str] = set()
    for each in installation.before_machines():
        if each.document["kind"] == "Namespace":
            there.add(each.name)
        assert not each.namespaced or each.namespace in there, each.title
    assert len(there) == 5
    assert "ServiceAccount openshift-machine-config-operator/node-bootstrapper" in titles()


def test_the_kinds_of_machines_are_defined():
    assert [title for title in titles() if title.startswith("CustomResourceDefinition")] == [
        "CustomResourceDefinition machines.machine.openshift.io",
        "CustomResourceDefinition machineconfigs.machineconfiguration.openshift.io",
        "CustomResourceDefinition machineconfigpools.machineconfiguration.openshift.io",
    ]


def test_nobody_is_given_what_would_go_round_the_inventory():
    bindings = [each.document for each in installation.before_machines() if each.plural == "clusterrolebindings"]
    granted = [(each["roleRef"]["name"], subject["name"]) for each in bindings for subject in each["subjects"]]
    assert granted == [
        ("system:node-bootstrapper", "node-bootstrapper"),
        ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
    ]


def test_the_controllers_create_secrets_in_one_namespace():
    role, binding = (
        each.document for each in installation.before_machines() if each.plural in {"roles", "rolebindings"}
    )
    assert role["metadata"] == binding["metadata"]
    assert role["metadata"]["namespace"] == bootstrapper.NAMESPACE
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == ["system:kube-controller-manager"]


def test_there_are_pools_for_masters_and_workers():
    assert [each.title for each in installation.pools()] == [
        "MachineConfigPool master",
        "MachineConfigPool worker",
    ]


def test_the_masters_trust_may_have_an_end():
    signer = credentials.bundle(credentials.master(NOW).signer)
    assert credential_end.KEY not in installation.trust(signer, None).document["data"]
    ending = installation.trust(signer, NOW).document["data"]
    assert ending == {bootstrapper.BUNDLE_KEY: signer.decode(), credential_end.KEY: "2026-01-31T12:00:00Z"}


def test_the_kubeconfig_is_a_secret():
    secret = installation.kubeconfig(b"text")
    assert secret.title == "Secret openshift-machine-config-operator/kubelet-bootstrap-kubeconfig"
    assert base64.b64decode(secret.document["data"]["kubeconfig"]) == b"text"


def test_the_marker_says_when():
    assert installation.marker(NOW).document["data"] == dict.fromkeys(
        ("installed", "configurations"), "2026-01-31T12:00:00Z"
    )
