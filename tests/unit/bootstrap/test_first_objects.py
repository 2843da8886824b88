# SPDX-License-Identifier: Apache-2.0
"""The objects that make a cluster joinable: what they grant to whom, and that kubeadm can read what it reads."""

import datetime

import pytest
import yaml

from handfast.bootstrap import cluster_info, first_objects, tokens
from tests.unit.pki import making

JOINING = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": first_objects.NODE_GROUP}
NODES = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
ANONYMOUS = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}
CSR = "system:certificates.k8s.io:certificatesigningrequests"


def by_title():
    return {each.title: each.document for each in first_objects.access()}


def test_the_names_are_kubeadms():
    assert list(by_title()) == [
        "ClusterRole kubeadm:get-nodes",
        "ClusterRoleBinding kubeadm:get-nodes",
        "ClusterRoleBinding kubeadm:kubelet-bootstrap",
        "ClusterRoleBinding kubeadm:node-autoapprove-bootstrap",
        "ClusterRoleBinding kubeadm:node-autoapprove-certificate-rotation",
        "Role kube-public/kubeadm:bootstrap-signer-clusterinfo",
        "RoleBinding kube-public/kubeadm:bootstrap-signer-clusterinfo",
        "Role kube-system/kubeadm:nodes-kubeadm-config",
        "RoleBinding kube-system/kubeadm:nodes-kubeadm-config",
        "Role kube-system/kubeadm:kubelet-config",
        "RoleBinding kube-system/kubeadm:kubelet-config",
    ]


def test_who_is_bound_to_what():
    found = {
        title: (document["roleRef"]["name"], document["subjects"])
        for title, document in by_title().items()
        if "roleRef" in document
    }
    assert found == {
        "ClusterRoleBinding kubeadm:get-nodes": ("kubeadm:get-nodes", [JOINING]),
        "ClusterRoleBinding kubeadm:kubelet-bootstrap": ("system:node-bootstrapper", [JOINING]),
        "ClusterRoleBinding kubeadm:node-autoapprove-bootstrap": (f"{CSR}:nodeclient", [JOINING]),
        "ClusterRoleBinding kubeadm:node-autoapprove-certificate-rotation": (f"{CSR}:selfnodeclient", [NODES]),
        "RoleBinding kube-public/kubeadm:bootstrap-signer-clusterinfo": (
            "kubeadm:bootstrap-signer-clusterinfo",
            [ANONYMOUS],
        ),
        "RoleBinding kube-system/kubeadm:nodes-kubeadm-config": ("kubeadm:nodes-kubeadm-config", [JOINING, NODES]),
        "RoleBinding kube-system/kubeadm:kubelet-config": ("kubeadm:kubelet-config", [JOINING, NODES]),
    }


def test_every_role_reads_one_thing():
    rules = {title: document["rules"] for title, document in by_title().items() if "rules" in document}

    def one(name):
        return [{"apiGroups": [""], "resourceNames": [name], "resources": ["configmaps"], "verbs": ["get"]}]

    assert rules == {
        "ClusterRole kubeadm:get-nodes": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
        "Role kube-public/kubeadm:bootstrap-signer-clusterinfo": one("cluster-info"),
        "Role kube-system/kubeadm:nodes-kubeadm-config": one("kubeadm-config"),
        "Role kube-system/kubeadm:kubelet-config": one("kubelet-config"),
    }


def test_paths_and_names_agree():
    for each in first_objects.access():
        assert (each.group, each.version) == ("rbac.authorization.k8s.io", "v1")
        assert each.plural == each.document["kind"].lower() + "s"
        assert each.namespaced is bool(each.namespace)
        assert each.name.startswith("kubeadm:")


def test_cluster_info():
    made = first_objects.cluster_info_map("text")
    assert made.title == "ConfigMap kube-public/cluster-info"
    assert made.document["data"] == {"kubeconfig": "text"}
    assert (made.group, made.version, made.plural, made.namespaced) == ("", "v1", "configmaps", True)


def test_kubeadm_config():
    made = first_objects.kubeadm_config("[::1]:6443", "v1.37.0")
    assert made.title == "ConfigMap kube-system/kubeadm-config"
    found = yaml.safe_load(made.document["data"]["ClusterConfiguration"])
    assert (found["apiVersion"], found["kind"]) == ("kubeadm.k8s.io/v1beta4", "ClusterConfiguration")
    assert found["controlPlaneEndpoint"] == "[::1]:6443"
    assert found["kubernetesVersion"] == "v1.37.0"
    assert found["networking"] == {"dnsDomain": "cluster.local", "serviceSubnet": "10.96.0.0/12"}


def test_kubelet_config():
    made = first_objects.kubelet_config()
    assert made.title == "ConfigMap kube-system/kubelet-config"
    found = yaml.safe_load(made.document["data"]["kubelet"])
    assert (found["apiVersion"], found["kind"]) == ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration")
    assert found["rotateCertificates"] is True
    assert found["authentication"]["anonymous"] == {"enabled": False}
    assert found["clusterDNS"] == ["10.96.0.10"]


def test_first_token():
    until = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    found = tokens.read(first_objects.first_token(tokens.parse("abcdef.0123456789abcdef"), until))
    assert found.usages == ("authentication", "signing")
    assert found.extra_groups == first_objects.NODE_GROUP
    assert found.expiration == "2030-01-01T00:00:00Z"
    assert found.description == "The default bootstrap token generated by 'handfast init'."


def test_an_object_that_grants_something_else_differs():
    wanted = next(each for each in first_objects.access() if each.title == "ClusterRoleBinding kubeadm:get-nodes")
    there = {**wanted.document, "metadata": {"name": "x", "uid": "y"}}
    assert not first_objects.differs(there, wanted)
    assert first_objects.differs({**there, "subjects": [NODES]}, wanted)
    assert not first_objects.differs({"data": {"kubeconfig": "other"}}, first_objects.cluster_info_map("text"))


ONE, TWO = making.ca("one").pem, making.ca("two").pem


def published(servers=("https://a:1", "https://b"), ca=ONE, cluster_id="x"):
    return cluster_info.build(cluster_info.ClusterInfo(servers, ca, cluster_id))


@pytest.mark.parametrize(
    ("text", "different"),
    [
        (published(), False),
        # kubeadm writes no identifier; an order, a spelling and blank lines mean nothing.
        (published(cluster_id=""), False),
        (published(("https://B:443/", "https://a:1")), False),
        (published(ca=b"\n" + ONE), False),
        (published(("https://a:1",)), True),
        (published(ca=TWO), True),
        (published(ca=ONE + TWO), True),
        (published(ca=None), True),
        (published(ca=b"no certificate"), True),
        ("theirs", True),
        ("", True),
    ],
)
def test_a_cluster_info_that_leads_elsewhere_is_told_apart(text, different):
    wanted = first_objects.cluster_info_map(published())
    assert wanted.title == first_objects.CLUSTER_INFO
    assert first_objects.differs({"data": {"kubeconfig": text, "jws-kubeconfig-abcdef": "s"}}, wanted) == different
    assert first_objects.differs({}, wanted)


def test_other_config_maps_are_the_operators():
    assert not first_objects.differs({"data": {"kubelet": "theirs"}}, first_objects.kubelet_config())
