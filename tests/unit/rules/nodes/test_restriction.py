# SPDX-License-Identifier: Apache-2.0
"""What nodes write besides Pods and tokens: the rows of Kubernetes' own table, and where this is stricter."""

from __future__ import annotations

import base64
import functools
from typing import Any

import pytest

from handfast.api import objects
from handfast.pki import keys, names, requests
from handfast.rules import decision
from handfast.rules.nodes import restricted_write, restriction
from tests.unit.rules import node_cases
from tests.unit.rules.node_cases import CREATE, DELETE, NODES, UPDATE

ME = 'node "mynode"'
LEASES = ("coordination.k8s.io", "leases")
CSI_NODES = ("storage.k8s.io", "csinodes")
CLAIMS = ("", "persistentvolumeclaims")
REQUESTS = ("certificates.k8s.io", "certificatesigningrequests")


@pytest.mark.parametrize(
    "user, groups, verdict, sentence",
    [
        pytest.param("bob", (), decision.NotMine, "", id="unrelated user"),
        pytest.param("system:node:mynode", (), decision.NotMine, "", id="the name without the group"),
        pytest.param("system:node:mynode", ("system:nodes:x",), decision.NotMine, "", id="a longer group"),
        pytest.param("system:node:mynode", ("x", "system:nodes"), decision.Approve, "", id="node"),
        pytest.param(
            "system:node:", ("system:nodes",), decision.Deny, 'user "system:node:"', id="the prefix and no name"
        ),
        pytest.param("bob", ("system:nodes",), decision.Deny, 'user "bob"', id="the group without the name"),
        pytest.param("mynode", ("system:nodes",), decision.Deny, 'user "mynode"', id="the name without its prefix"),
        pytest.param("", ("system:nodes",), decision.Deny, 'user ""', id="no name at all"),
        pytest.param('b"\nb', ("system:nodes",), decision.Deny, r'user "b\"\nb"', id="a name that would break out"),
    ],
)
def test_who_is_a_node(user: str, groups: tuple[str, ...], verdict: Any, sentence: str) -> None:
    found = node_cases.decide(node_cases.write(CREATE, ("", "configmaps"), user=user, groups=groups))
    assert type(found) is verdict
    assert node_cases.said(found) == (f"could not determine node from {sentence}" if sentence else "")


@pytest.mark.parametrize("operation", [CREATE, UPDATE, DELETE])
@pytest.mark.parametrize("resource", [("", "configmaps"), ("", "events"), ("apps", "pods"), ("example.com", "nodes")])
def test_unrelated_objects_are_not_restricted(operation: str, resource: tuple[str, str]) -> None:
    asked = node_cases.write(operation, resource, namespace="ns", name="x", document={}, old={})
    assert isinstance(node_cases.decide(asked), decision.Approve)


def node(
    name: str = "mynode", labels: Any = None, owners: Any = None, finalizers: Any = None, **spec: Any
) -> objects.Document:
    metadata = {
        "name": name,
        "uid": f"{name}-uid",
        "labels": labels,
        "ownerReferences": owners,
        "finalizers": finalizers,
    }
    return {"metadata": {key: value for key, value in metadata.items() if value is not None}, "spec": spec}


CONFIG_A = {"configMap": {"name": "foo", "namespace": "bar", "uid": "fooUID", "kubeletConfigKey": "kubelet"}}
CONFIG_B = {"configMap": {"name": "qux", "namespace": "bar", "uid": "quxUID", "kubeletConfigKey": "kubelet"}}
TAINT_A, TAINT_B = [{"key": "mykey", "value": "A"}], [{"key": "mykey", "value": "B"}]
OWNER_A, OWNER_B = [{"name": "fooerA", "controller": True}], [{"name": "fooerB", "controller": True}]
OTHER = f'{ME} is not allowed to modify node "othernode"'
NEW_CONFIG = f"{ME} is not allowed to update configSource to a new non-nil configSource"
TAINTS = f"{ME} is not allowed to modify taints"
OWNERS = f"{ME} is not allowed to modify ownerReferences"
ITSELF = f"{ME} is not allowed to delete its own node"
FINALIZERS = f"{ME} is not allowed to modify finalizers"


@pytest.mark.parametrize(
    "operation, name, new, old, sentence",
    [
        pytest.param(CREATE, "mynode", node(), None, "", id="create of my node"),
        pytest.param(CREATE, "", node(), None, "", id="create of my node pulling name from object"),
        pytest.param(CREATE, "mynode", node(taints=TAINT_A), None, "", id="create with taints"),
        pytest.param(CREATE, "mynode", node(owners=OWNER_A), None, "", id="create with an owner"),
        pytest.param(
            CREATE,
            "mynode",
            node(configSource=CONFIG_A),
            None,
            f"{ME} is not allowed to create pods with a non-nil configSource",
            id="create with non-nil configSource",
        ),
        pytest.param(UPDATE, "mynode", node(), node(), "", id="update of my node"),
        pytest.param(DELETE, "mynode", None, node(), ITSELF, id="delete of my node"),
        pytest.param(UPDATE, "mynode", node(configSource=CONFIG_A), node(), NEW_CONFIG, id="configSource: nil to A"),
        pytest.param(UPDATE, "mynode", node(configSource={}), node(), NEW_CONFIG, id="configSource: nil to empty"),
        pytest.param(
            UPDATE,
            "mynode",
            node(configSource=CONFIG_B),
            node(configSource=CONFIG_A),
            NEW_CONFIG,
            id="configSource: A to B",
        ),
        pytest.param(
            UPDATE, "mynode", node(configSource=CONFIG_A), node(configSource=CONFIG_A), "", id="configSource: unchanged"
        ),
        pytest.param(UPDATE, "mynode", node(), node(configSource=CONFIG_A), "", id="configSource: A to nil"),
        pytest.param(UPDATE, "mynode", node(taints=TAINT_A), node(taints=TAINT_A), "", id="taints: unchanged"),
        pytest.param(UPDATE, "mynode", node(taints=[]), node(), "", id="taints: none in two ways"),
        pytest.param(
            UPDATE,
            "mynode",
            node(taints=[{"key": "k", "value": ""}]),
            node(taints=[{"key": "k"}]),
            "",
            id="taints: no value in two ways",
        ),
        pytest.param(UPDATE, "mynode", node(taints=TAINT_A), node(), TAINTS, id="taints: add"),
        pytest.param(UPDATE, "mynode", node(), node(taints=TAINT_A), TAINTS, id="taints: remove"),
        pytest.param(UPDATE, "mynode", node(taints=TAINT_A), node(taints=TAINT_B), TAINTS, id="taints: change"),
        pytest.param(
            UPDATE, "mynode", node(taints=TAINT_A + TAINT_B), node(taints=TAINT_A), TAINTS, id="taints: one more"
        ),
        pytest.param(UPDATE, "mynode", node(owners=OWNER_A), node(owners=OWNER_A), "", id="owners: unchanged"),
        pytest.param(UPDATE, "mynode", node(owners=OWNER_A), node(), OWNERS, id="owners: add"),
        pytest.param(UPDATE, "mynode", node(), node(owners=OWNER_A), OWNERS, id="owners: remove"),
        pytest.param(UPDATE, "mynode", node(owners=OWNER_A), node(owners=OWNER_B), OWNERS, id="owners: change"),
        pytest.param(
            UPDATE,
            "mynode",
            node(owners=[{"name": "fooerA", "controller": False}]),
            node(owners=[{"name": "fooerA"}]),
            OWNERS,
            id="owners: false is not nothing",
        ),
        pytest.param(
            CREATE,
            "mynode",
            node(finalizers=["a.b/c"]),
            None,
            f"{ME} is not allowed to set finalizers",
            id="create with finalizers",
        ),
        pytest.param(CREATE, "mynode", node(finalizers=[]), None, "", id="create with no finalizers"),
        pytest.param(
            UPDATE, "mynode", node(finalizers=["a.b/c"]), node(finalizers=["a.b/c"]), "", id="finalizers: unchanged"
        ),
        pytest.param(UPDATE, "mynode", node(finalizers=[]), node(), "", id="finalizers: none in two ways"),
        pytest.param(UPDATE, "mynode", node(finalizers=["a.b/c"]), node(), FINALIZERS, id="finalizers: add"),
        pytest.param(UPDATE, "mynode", node(), node(finalizers=["a.b/c"]), FINALIZERS, id="finalizers: remove"),
        pytest.param(
            UPDATE,
            "mynode",
            node(finalizers=["a.b/d"]),
            node(finalizers=["a.b/c"]),
            FINALIZERS,
            id="finalizers: change",
        ),
        pytest.param(CREATE, "othernode", node("othernode"), None, OTHER, id="create of other node"),
        pytest.param(CREATE, "", node("othernode"), None, OTHER, id="create of other node, name from object"),
        pytest.param(CREATE, "mynode", node("othernode"), None, OTHER, id="what is written counts"),
        pytest.param(UPDATE, "othernode", node("othernode"), node("othernode"), OTHER, id="update of other node"),
        pytest.param(DELETE, "othernode", None, node("othernode"), OTHER, id="delete of other node"),
        pytest.param(
            CREATE, "", {"metadata": {}}, None, f'{ME} is not allowed to modify node ""', id="create without a name"
        ),
        pytest.param(UPDATE, "mynode", node(taints=TAINT_A), None, TAINTS, id="nothing stored"),
        pytest.param(UPDATE, "mynode", None, node(taints=TAINT_A), TAINTS, id="nothing sent"),
    ],
)
def test_a_node_writes_only_its_own_node_and_not_all_of_it(
    operation: str, name: str, new: Any, old: Any, sentence: str
) -> None:
    asked = node_cases.write(operation, NODES, name=name, document=new, old=old)
    assert node_cases.said(node_cases.decide(asked)) == sentence


@pytest.mark.parametrize(
    "name, new, old, sentence",
    [
        pytest.param("mynode", node(), node(), "", id="my node status"),
        pytest.param("othernode", node("othernode"), node("othernode"), OTHER, id="other node status"),
        pytest.param("mynode", node(taints=TAINT_A), node(), TAINTS, id="taints through status"),
        pytest.param(
            "mynode",
            node(labels={"kubernetes.io/x": "1"}),
            node(),
            "is not allowed to modify labels: kubernetes.io/x",
            id="labels through status",
        ),
    ],
)
def test_node_status(name: str, new: Any, old: Any, sentence: str) -> None:
    asked = node_cases.write(UPDATE, NODES, subresource="status", name=name, document=new, old=old)
    assert node_cases.said(node_cases.decide(asked)) == sentence


ALLOWED_LABELS = (
    "foo",
    "kubernetes.io",
    "example.com/foo",
    "xkubernetes.io/foo",
    "kubernetes.io.example.com/foo",
    "kubernetes.io/hostname",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "kubelet.kubernetes.io/foo",
    "foo.kubelet.kubernetes.io/foo",
    "node.kubernetes.io/foo",
    "foo.node.kubernetes.io/foo",
)
FORBIDDEN_LABELS = (
    "foo.node-restriction.kubernetes.io/foo",
    "node-restriction.kubernetes.io/foo",
    "other.k8s.io/foo",
    "other.kubernetes.io/foo",
    "k8s.io/foo",
    "kubernetes.io/hostname2",
    "node-role.kubernetes.io/control-plane",
    "topology.kubernetes.io/rack",
    "xnode.kubernetes.io/foo",
    "node.k8s.io/foo",
)
FORBIDDEN = ", ".join(sorted(FORBIDDEN_LABELS))


@pytest.mark.parametrize("key", ALLOWED_LABELS)
def test_labels_of_the_kubelet(key: str) -> None:
    assert restriction.may_label(key)


@pytest.mark.parametrize("key", FORBIDDEN_LABELS)
def test_labels_of_others(key: str) -> None:
    assert not restriction.may_label(key)


def all_of(keys_: tuple[str, ...], value: str = "value") -> dict[str, str]:
    return dict.fromkeys(keys_, value)


EVERY = ALLOWED_LABELS + FORBIDDEN_LABELS
MODIFIES = f"is not allowed to modify labels: {FORBIDDEN}"


@pytest.mark.parametrize(
    "operation, new, old, sentence",
    [
        pytest.param(CREATE, all_of(ALLOWED_LABELS), None, "", id="create with labels"),
        pytest.param(
            CREATE,
            all_of(EVERY),
            None,
            f"{ME} is not allowed to set the following labels: {FORBIDDEN}",
            id="create with forbidden labels",
        ),
        pytest.param(UPDATE, all_of(ALLOWED_LABELS), {}, "", id="add allowed"),
        pytest.param(UPDATE, {}, all_of(ALLOWED_LABELS), "", id="remove allowed"),
        pytest.param(UPDATE, all_of(ALLOWED_LABELS, "new"), all_of(ALLOWED_LABELS), "", id="modify allowed"),
        pytest.param(UPDATE, all_of(EVERY), all_of(EVERY), "", id="no change"),
        pytest.param(UPDATE, all_of(EVERY), all_of(FORBIDDEN_LABELS), "", id="add allowed, forbidden exist unmodified"),
        pytest.param(
            UPDATE, all_of(FORBIDDEN_LABELS), all_of(EVERY), "", id="remove allowed, forbidden exist unmodified"
        ),
        pytest.param(UPDATE, all_of(EVERY), {}, MODIFIES, id="add forbidden"),
        pytest.param(UPDATE, {}, all_of(EVERY), MODIFIES, id="remove forbidden"),
        pytest.param(UPDATE, all_of(EVERY, "new"), all_of(EVERY, "old"), MODIFIES, id="change forbidden"),
        pytest.param(
            UPDATE,
            {"node-restriction.kubernetes.io/x": ""},
            {},
            "is not allowed to modify labels: node-restriction.kubernetes.io/x",
            id="add an empty one",
        ),
    ],
)
def test_a_node_sets_only_the_labels_that_kubelets_set(operation: str, new: Any, old: Any, sentence: str) -> None:
    before = None if old is None else node(labels=old)
    asked = node_cases.write(operation, NODES, name="mynode", document=node(labels=new), old=before)
    assert node_cases.said(node_cases.decide(asked)) == sentence


@pytest.mark.parametrize(
    "new, old, modified",
    [
        pytest.param({}, {}, set(), id="empty"),
        pytest.param({"x": "1", "y": "2"}, {"x": "1", "y": "2"}, set(), id="no change"),
        pytest.param({}, {"a": "0"}, {"a"}, id="added"),
        pytest.param({"z": "3"}, {}, {"z"}, id="removed"),
        pytest.param({"z": "3"}, {"z": "4"}, {"z"}, id="changed"),
        pytest.param({}, {"a": ""}, {"a"}, id="added empty"),
        pytest.param({"z": ""}, {}, {"z"}, id="removed empty"),
        pytest.param({"z": "3"}, {"z": ""}, {"z"}, id="changed to empty"),
        pytest.param({"z": ""}, {"z": "3"}, {"z"}, id="changed from empty"),
        pytest.param({"a": "1", "b": "2"}, {"a": "2", "c": "3"}, {"a", "b", "c"}, id="added, removed, and changed"),
    ],
)
def test_modified_labels(new: Any, old: Any, modified: Any) -> None:
    assert restriction.modified_labels(new, old) == modified


OTHER_NAMESPACE = 'can only access leases in the "kube-node-lease" system namespace'
OTHER_LEASE = "can only access node lease with the same name as the requesting node"
OTHER_CSI_NODE = "can only access CSINode with the same name as the requesting node"


@pytest.mark.parametrize("operation", [CREATE, UPDATE, DELETE])
@pytest.mark.parametrize(
    "resource, namespace, name, sentence",
    [
        pytest.param(LEASES, "foo", "mynode", OTHER_NAMESPACE, id="lease in another namespace"),
        pytest.param(LEASES, "kube-node-lease", "foo", OTHER_LEASE, id="another node's lease"),
        pytest.param(LEASES, "kube-node-lease", "mynode", "", id="node lease"),
        pytest.param(CSI_NODES, "", "foo", OTHER_CSI_NODE, id="another node's CSINode"),
        pytest.param(CSI_NODES, "", "mynode", "", id="node CSINode"),
    ],
)
def test_leases_and_csi_nodes(operation: str, resource: Any, namespace: str, name: str, sentence: str) -> None:
    document = {"metadata": {"name": name, "namespace": namespace}}
    asked = node_cases.write(
        operation,
        resource,
        namespace=namespace,
        name=name,
        document=None if operation == DELETE else document,
        old=None if operation == CREATE else document,
    )
    assert node_cases.said(node_cases.decide(asked)) == sentence


@pytest.mark.parametrize("resource, sentence", [(LEASES, OTHER_LEASE), (CSI_NODES, OTHER_CSI_NODE)])
def test_the_name_in_the_document_is_the_one_created(resource: Any, sentence: str) -> None:
    asked = node_cases.write(
        CREATE, resource, namespace="kube-node-lease", name="mynode", document={"metadata": {"name": "foo"}}
    )
    assert node_cases.said(node_cases.decide(asked)) == sentence


def claim(status: Any = None, spec: Any = None, **metadata: Any) -> objects.Document:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "foo", "namespace": "default", **metadata},
        "spec": {"volumeName": "volume1", **(spec or {})},
        "status": {"phase": "Bound", **(status or {})},
    }


FIELDS = f"{ME} is not allowed to update fields other than status.quantity and status.conditions: "


@pytest.mark.parametrize(
    "new, old, changed",
    [
        pytest.param(claim(), claim(), "", id="nothing"),
        pytest.param(claim({"capacity": {"storage": "10G"}}), claim(), "", id="capacity"),
        pytest.param(claim({"conditions": [{"type": "Resizing"}]}), claim({"conditions": []}), "", id="conditions"),
        pytest.param(
            claim({"allocatedResources": {"storage": "15G"}}),
            claim({"allocatedResources": {"storage": "10G"}}),
            "",
            id="allocatedResources",
        ),
        pytest.param(
            claim({"allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}}), claim(), "", id="resize status"
        ),
        pytest.param(claim(resourceVersion="2"), claim(resourceVersion="1"), "", id="resourceVersion"),
        pytest.param(claim(managedFields=[{"manager": "kubelet"}]), claim(), "", id="managedFields"),
        pytest.param(claim(labels={}), claim(), "", id="no labels in two ways"),
        pytest.param(claim({"phase": "Lost"}), claim(), "status.phase", id="phase"),
        pytest.param(claim(labels={"a": "b"}), claim(), "metadata.labels", id="label"),
        pytest.param(claim(labels={"a": "b"}), claim(labels={"a": "c"}), "metadata.labels.a", id="one label"),
        pytest.param(claim(finalizers=["x"]), claim(), "metadata.finalizers", id="finalizer"),
        pytest.param(claim(spec={"volumeName": "volume2"}), claim(), "spec.volumeName", id="volume"),
        pytest.param(
            claim({"phase": "Lost"}, annotations={"a": "b"}),
            claim(),
            "metadata.annotations, status.phase",
            id="two fields",
        ),
        pytest.param(None, {}, "", id="nothing sent, nothing stored"),
        pytest.param({"metadata": {"name": "foo"}}, None, "metadata", id="nothing stored"),
    ],
)
def test_of_a_claim_a_node_changes_only_what_growing_changes(new: Any, old: Any, changed: str) -> None:
    asked = node_cases.write(
        UPDATE, CLAIMS, subresource="status", namespace="default", name="foo", document=new, old=old
    )
    assert node_cases.said(node_cases.decide(asked)) == (FIELDS + changed if changed else "")


@pytest.mark.parametrize(
    "operation, subresource, sentence",
    [
        (UPDATE, "", "may only update PVC status"),
        (CREATE, "", "may only update PVC status"),
        (DELETE, "", "may only update PVC status"),
        (CREATE, "status", 'unexpected operation "CREATE"'),
        (DELETE, "status", 'unexpected operation "DELETE"'),
    ],
)
def test_other_writes_of_claims(operation: str, subresource: str, sentence: str) -> None:
    asked = node_cases.write(operation, CLAIMS, subresource=subresource, name="foo", document=claim(), old=claim())
    assert node_cases.said(node_cases.decide(asked)) == sentence


@functools.cache
def request(common_name: str) -> str:
    subject = names.Subject(common_name=common_name, organizations=("system:nodes",))
    made = requests.build(subject, names.Sans(), keys.generate(keys.Kind.P256))
    return base64.b64encode(made).decode()


def signed_by(signer: str, content: str) -> objects.Document:
    return {"metadata": {"name": "csr"}, "spec": {"signerName": f"kubernetes.io/{signer}", "request": content}}


WRONG_NAME = "can only create a node CSR with CN=system:node:mynode"


@pytest.mark.parametrize(
    "signer, common_name, sentence",
    [
        pytest.param("kubelet-serving", "system:node:mynode", "", id="correct node serving"),
        pytest.param("kube-apiserver-client-kubelet", "system:node:mynode", "", id="correct node client"),
        pytest.param("kube-apiserver-client", "some-other-identity", "", id="non-node CSR"),
        pytest.param("kubelet-serving", "system:node:othernode", WRONG_NAME, id="incorrect node serving"),
        pytest.param("kube-apiserver-client-kubelet", "system:node:othernode", WRONG_NAME, id="incorrect node client"),
        pytest.param("kube-apiserver-client-kubelet", "system:node:mynode2", WRONG_NAME, id="a longer name"),
        pytest.param("kube-apiserver-client-kubelet", "System:Node:mynode", WRONG_NAME, id="another case"),
        pytest.param("kube-apiserver-client-kubelet", "mynode", WRONG_NAME, id="without the prefix"),
        pytest.param("kube-apiserver-client-kubelet", "", WRONG_NAME, id="without a name"),
    ],
)
def test_certificate_requests(signer: str, common_name: str, sentence: str) -> None:
    asked = node_cases.write(CREATE, REQUESTS, name="csr", document=signed_by(signer, request(common_name)))
    assert node_cases.said(node_cases.decide(asked)) == sentence


@pytest.mark.parametrize(
    "content, why",
    [
        pytest.param(
            "", "unable to parse csr: expected exactly one PEM block of type CERTIFICATE REQUEST", id="nothing"
        ),
        pytest.param("%%%", "unable to parse csr: spec.request is not base64", id="not base64"),
        pytest.param("é", "unable to parse csr: spec.request is not base64", id="not ASCII"),
        pytest.param(base64.b64encode(b"x").decode(), "unable to parse csr: ", id="not PEM"),
        pytest.param(
            base64.b64encode(
                b"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"
            ).decode(),
            "unable to parse csr: not a PKCS#10 certificate request in DER",
            id="truncated",
        ),
    ],
)
def test_unreadable_requests(content: str, why: str) -> None:
    asked = node_cases.write(CREATE, REQUESTS, name="csr", document=signed_by("kubelet-serving", content))
    assert node_cases.said(node_cases.decide(asked)).startswith(why)


@pytest.mark.parametrize("operation", [UPDATE, DELETE])
def test_requests_are_looked_at_when_they_are_new(operation: str) -> None:
    document = signed_by("kubelet-serving", request("system:node:othernode"))
    asked = node_cases.write(operation, REQUESTS, name="csr", document=document, old=document)
    assert isinstance(node_cases.decide(asked), decision.Approve)


def test_a_refusal_names_its_rule() -> None:
    verdict = node_cases.decide(node_cases.write(DELETE, NODES, name="mynode"))
    assert verdict == decision.Deny("DeletesItself", ITSELF, restricted_write.RULE)


@pytest.mark.parametrize(
    "old, reason, sentence",
    [
        (node(taints=TAINT_A), "Taints", TAINTS),
        (node(owners=OWNER_A), "OwnerReferences", OWNERS),
        (node(finalizers=["a/b"]), "Finalizers", FINALIZERS),
    ],
)
def test_what_a_node_leaves_as_it_is(old: objects.Document, reason: str, sentence: str) -> None:
    asked = node_cases.write(UPDATE, NODES, name="mynode", document=node(), old=old)
    assert node_cases.decide(asked) == decision.Deny(reason, sentence, restricted_write.RULE)
