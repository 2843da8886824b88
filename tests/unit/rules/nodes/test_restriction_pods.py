# SPDX-License-Identifier: Apache-2.0
"""Pods and nodes: the rows of Kubernetes' own table, by its names. What else nodes write is in test_node_restriction."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import objects
from handfast.rules import decision
from tests.unit.rules import node_cases
from tests.unit.rules.node_cases import CREATE, DELETE, PODS, UPDATE

ME = 'node "mynode"'
ONLY_MIRRORS = f'pod does not have "kubernetes.io/config.mirror" annotation, {ME} can only create mirror pods'
NO_UPDATE = f'unexpected operation "UPDATE", {ME} can only create and delete mirror pods'
NOT_MINE_CREATE = f"{ME} can only create pods with spec.nodeName set to itself"
NOT_MINE_DELETE = f"{ME} can only delete pods with spec.nodeName set to itself"
NOT_MINE_STATUS = f"{ME} can only update pod status for pods with spec.nodeName set to itself"
NOT_MINE_EVICT = "node mynode can only evict pods with spec.nodeName set to itself"

Case = tuple[str, str, str, objects.Document | None, objects.Document | None, str]


def matrix() -> list[Any]:
    """Mirror and normal Pods, bound to the node, to another, to none; every operation on every subresource."""
    rows = []
    for document in node_cases.EXISTING:
        name = document["metadata"]["name"]
        mine = name.startswith("my")
        mirror = "mirror" in name
        named = {"metadata": {"name": name, "namespace": "ns"}}
        unnamed: objects.Document = {"metadata": {"namespace": "ns"}}
        created = "" if mine and mirror else NOT_MINE_CREATE if mirror else ONLY_MIRRORS
        cases: tuple[Case, ...] = (
            ("create", "", CREATE, document, None, created),
            ("update", "", UPDATE, document, document, NO_UPDATE),
            ("delete", "", DELETE, None, document, "" if mine else NOT_MINE_DELETE),
            ("delete, looked up", "", DELETE, None, None, "" if mine else NOT_MINE_DELETE),
            ("create of status", "status", CREATE, document, None, 'unexpected operation "CREATE"'),
            ("update of status", "status", UPDATE, document, document, "" if mine else NOT_MINE_STATUS),
            ("delete of status", "status", DELETE, None, None, 'unexpected operation "DELETE"'),
            ("eviction", "eviction", CREATE, named, None, "" if mine else NOT_MINE_EVICT),
            ("update of eviction", "eviction", UPDATE, named, None, "unexpected operation UPDATE"),
            ("delete of eviction", "eviction", DELETE, named, None, "unexpected operation DELETE"),
            ("unnamed eviction", "eviction", CREATE, unnamed, None, "" if mine else NOT_MINE_EVICT),
            ("binding", "binding", CREATE, named, None, BINDING),
        )
        rows += [pytest.param(name, *case[1:], id=f"{name}: {case[0]}") for case in cases]
    return rows


BINDING = "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed"


@pytest.mark.parametrize("name, subresource, operation, document, old, sentence", matrix())
def test_a_node_touches_only_mirror_pods_and_pods_bound_to_it(
    name: str, subresource: str, operation: str, document: Any, old: Any, sentence: str
) -> None:
    asked = node_cases.write(
        operation, PODS, subresource=subresource, namespace="ns", name=name, document=document, old=old
    )
    assert node_cases.said(node_cases.decide(asked)) == sentence


@pytest.mark.parametrize("operation, subresource", [(CREATE, ""), (UPDATE, ""), (DELETE, ""), (CREATE, "status")])
def test_users_are_not_restricted(operation: str, subresource: str) -> None:
    document = node_cases.pod("unboundpod", "")
    asked = node_cases.write(
        operation, PODS, subresource=subresource, name="unboundpod", document=document, user="bob", groups=()
    )
    assert isinstance(node_cases.decide(asked), decision.NotMine)


@pytest.mark.parametrize(
    "operation, subresource, name, document, sentence",
    [
        pytest.param(DELETE, "", "gone", None, 'pod "gone" not found', id="delete of unknown pod"),
        pytest.param(
            CREATE, "eviction", "gone", {"metadata": {"name": "gone"}}, 'pod "gone" not found', id="eviction of unknown"
        ),
        pytest.param(CREATE, "eviction", "gone", {"metadata": {}}, 'pod "gone" not found', id="unnamed, of unknown"),
        pytest.param(CREATE, "eviction", "", {"metadata": {"name": "mypod"}}, "", id="the document names it"),
        pytest.param(
            CREATE, "eviction", "otherpod", {"metadata": {"name": "mypod"}}, NOT_MINE_EVICT, id="the URL counts"
        ),
        pytest.param(
            CREATE, "eviction", "", {"metadata": {}}, "could not determine pod from request data", id="nobody names it"
        ),
        pytest.param(CREATE, "eviction", "", None, "could not determine pod from request data", id="no document"),
        pytest.param(CREATE, "", "mypod", None, ONLY_MIRRORS, id="create without a document"),
    ],
)
def test_pods_that_are_not_there(operation: str, subresource: str, name: str, document: Any, sentence: str) -> None:
    asked = node_cases.write(operation, PODS, subresource=subresource, namespace="ns", name=name, document=document)
    verdict = node_cases.decide(asked)
    assert node_cases.said(verdict) == sentence
    if sentence.endswith("not found"):
        assert isinstance(verdict, decision.Missing)
        assert (verdict.kind, verdict.name) == ("pod", name)


MINE = node_cases.pod("mypod", "mynode")
A, AB = {"label-a": "value-a"}, {"label-a": "value-a", "label-b": "value-b"}
CLAIMS = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "one"}]}
ALLOCATABLE = {"resourceClaimName": "c", "containers": ["m"], "mapping": [{"name": "cpu", "quantity": "1"}]}
OVERHEAD = {"resourceClaimName": "c", "overhead": [{"name": "memory", "perPod": "1Gi"}]}
LABELS = f"{ME} cannot update labels through pod status"


def with_status(**status: Any) -> objects.Document:
    return node_cases.pod("mypod", "mynode", status=status)


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        pytest.param(node_cases.labelled(MINE, A), node_cases.labelled(MINE, AB), LABELS, id="add a label to others"),
        pytest.param(node_cases.labelled(MINE, AB), node_cases.labelled(MINE, A), LABELS, id="remove one label"),
        pytest.param(node_cases.labelled(MINE, A), MINE, LABELS, id="remove all labels"),
        pytest.param(MINE, node_cases.labelled(MINE, A), LABELS, id="add the first label"),
        pytest.param(node_cases.labelled(MINE, A), node_cases.labelled(MINE, {"label-a": "x"}), LABELS, id="change"),
        pytest.param(node_cases.labelled(MINE, {}), node_cases.labelled(MINE, None), "", id="no labels in two ways"),
        pytest.param(node_cases.labelled(MINE, A), node_cases.labelled(MINE, A), "", id="the same labels"),
        pytest.param(MINE, with_status(phase="Running"), "", id="report the phase"),
        pytest.param(with_status(**CLAIMS), with_status(**CLAIMS, phase="Running"), "", id="the same claims"),
        pytest.param(MINE, with_status(resourceClaimStatuses=[]), "", id="no claims in two ways"),
        pytest.param(with_status(resourceClaimStatuses=[]), MINE, "", id="and the other way round"),
        pytest.param(
            MINE, with_status(**CLAIMS), f"{ME} cannot update resource claim statues", id="resource claim status"
        ),
        pytest.param(
            with_status(**CLAIMS),
            with_status(resourceClaimStatuses=[{"name": "c", "resourceClaimName": "two"}]),
            f"{ME} cannot update resource claim statues",
            id="another resource claim",
        ),
        pytest.param(
            MINE,
            with_status(extendedResourceClaimStatus={"resourceClaimName": "myclaim"}),
            f"{ME} cannot update extended resource claim status",
            id="extended resource claim status",
        ),
        pytest.param(
            MINE,
            with_status(nodeAllocatableResourceClaimStatuses=[ALLOCATABLE]),
            f"{ME} cannot update node allocatable resource claim statuses",
            id="node allocatable resource claim status",
        ),
        pytest.param(
            MINE,
            with_status(nodeAllocatableResourceClaimStatuses=[OVERHEAD]),
            f"{ME} cannot update node allocatable resource claim statuses",
            id="node allocatable overhead",
        ),
        pytest.param(
            node_cases.pod("mypod", "othernode"), MINE, NOT_MINE_STATUS, id="the stored Pod says where it runs"
        ),
        pytest.param(None, MINE, NOT_MINE_STATUS, id="nothing stored"),
        pytest.param(node_cases.labelled(MINE, A), None, LABELS, id="nothing sent"),
    ],
)
def test_pod_status(old: Any, new: Any, sentence: str) -> None:
    asked = node_cases.write(UPDATE, PODS, subresource="status", namespace="ns", name="mypod", document=new, old=old)
    assert node_cases.said(node_cases.decide(asked)) == sentence


MY_OWN = "can only create pods with an owner reference set to itself"
BLOCKS = "must not set blockOwnerDeletion on an owner reference"
CONTROLS = "can only create pods with a controller owner reference set to itself"


@pytest.mark.parametrize(
    "owners, sentence",
    [
        pytest.param([node_cases.owner()], "", id="valid owner"),
        pytest.param([node_cases.owner(blockOwnerDeletion=False)], "", id="said not to block"),
        pytest.param(None, f"{ME} {MY_OWN}", id="no owner"),
        pytest.param([], f"{ME} {MY_OWN}", id="an empty list"),
        pytest.param(
            [node_cases.owner(), node_cases.owner()],
            f"{ME} can only create pods with a single owner reference set to itself",
            id="duplicate owner",
        ),
        pytest.param([node_cases.owner(name="other")], f"{ME} {MY_OWN}", id="invalid name"),
        pytest.param([node_cases.owner(apiVersion="v2")], f"{ME} {MY_OWN}", id="invalid API version"),
        pytest.param([node_cases.owner(kind="Pod")], f"{ME} {MY_OWN}", id="invalid kind"),
        pytest.param([node_cases.owner(controller=None)], f"{ME} {CONTROLS}", id="nil controller"),
        pytest.param([node_cases.owner(controller=False)], f"{ME} {CONTROLS}", id="false controller"),
        pytest.param([node_cases.owner(blockOwnerDeletion=True)], f"{ME} {BLOCKS}", id="invalid blockOwnerDeletion"),
        pytest.param(
            [node_cases.owner(uid="other-uid")],
            "node mynode UID mismatch: expected other-uid got mynode-uid",
            id="invalid UID",
        ),
        pytest.param([node_cases.owner(uid=None)], "node mynode UID mismatch: expected  got mynode-uid", id="no UID"),
    ],
)
def test_a_mirror_pod_is_owned_by_its_own_node_alone(owners: Any, sentence: str) -> None:
    document = node_cases.pod("test", "mynode", mirror=True)
    document["metadata"]["ownerReferences"] = owners
    asked = node_cases.write(CREATE, PODS, namespace="ns", name="test", document=document)
    assert node_cases.said(node_cases.decide(asked)) == sentence


def test_the_owner_has_to_exist() -> None:
    document = node_cases.pod("test", "mynode", mirror=True)
    verdict = node_cases.decide(node_cases.write(CREATE, PODS, namespace="ns", document=document), {})
    assert isinstance(verdict, decision.Missing)
    assert (verdict.sentence, verdict.kind, verdict.name) == ('node "mynode" not found', "node", "mynode")


def volume(**source: Any) -> objects.Document:
    return {"volumes": [{"name": "v", **source}]}


def projected(**source: Any) -> objects.Document:
    return volume(projected={"sources": [{"downwardAPI": {}}, source]})


def env(kind: str, key: str) -> objects.Document:
    return {kind: [{"name": "c", "env": [{"name": "A", "valueFrom": {key: {"name": "foo", "key": "k"}}}]}]}


SECRET_REF = {"secretRef": {"name": "foo"}}


@pytest.mark.parametrize(
    "spec, named",
    [
        pytest.param({"serviceAccountName": "foo"}, "serviceaccounts", id="service account"),
        pytest.param(volume(secret={"secretName": "foo"}), "secrets", id="secret"),
        pytest.param(volume(secret={"secretName": ""}), "secrets (via secret volumes)", id="secret without a name"),
        pytest.param(volume(configMap={"name": "foo"}), "configmaps", id="configmap"),
        pytest.param(volume(configMap={}), "configmaps (via configmap volumes)", id="configmap without a name"),
        pytest.param({"imagePullSecrets": [{"name": "foo"}]}, "secrets", id="pull secret"),
        pytest.param(env("containers", "secretKeyRef"), "secrets", id="secret in env"),
        pytest.param(env("initContainers", "secretKeyRef"), "secrets", id="secret in env of an init container"),
        pytest.param(env("ephemeralContainers", "secretKeyRef"), "secrets", id="secret in env, ephemeral"),
        pytest.param(env("containers", "configMapKeyRef"), "configmaps", id="configmap in env"),
        pytest.param({"containers": [{"name": "c", "envFrom": [SECRET_REF]}]}, "secrets", id="secret in envFrom"),
        pytest.param(
            {"containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "foo"}}]}]},
            "configmaps",
            id="configmap in envFrom",
        ),
        pytest.param(volume(azureFile={"secretName": "foo"}), "secrets", id="azureFile"),
        pytest.param(volume(azureFile={}), "secrets (via azureFile volumes)", id="azureFile without a name"),
        pytest.param(volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "s"}}), "secrets", id="csi secret"),
        pytest.param(volume(csi={"driver": "d"}), "csidrivers (via CSI volumes)", id="csi"),
        *(
            pytest.param(volume(**{kind: SECRET_REF}), "secrets", id=kind)
            for kind in ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")
        ),
        pytest.param(volume(glusterfs={}), "endpoints (via glusterFS volumes)", id="glusterfs"),
        pytest.param(volume(persistentVolumeClaim={"claimName": "foo"}), "persistentvolumeclaims", id="claim"),
        pytest.param(volume(ephemeral={}), "persistentvolumeclaims (via ephemeral volumes)", id="ephemeral"),
        pytest.param(projected(clusterTrustBundle={"name": "foo"}), "clustertrustbundles", id="clustertrustbundle"),
        pytest.param(projected(podCertificate={}), "podcertificates", id="podcertificate"),
        pytest.param(projected(secret={"name": "foo"}), "secrets", id="projected secret"),
        pytest.param(projected(secret={}), "secrets (via projected volumes)", id="projected secret without a name"),
        pytest.param(projected(configMap={"name": "foo"}), "configmaps", id="projected configmap"),
        pytest.param(projected(configMap={}), "configmaps (via projected volumes)", id="projected, no name"),
        pytest.param(
            projected(serviceAccountToken={"path": "t"}), "serviceaccounts (via projected volumes)", id="token"
        ),
        pytest.param(
            {"resourceClaims": [{"name": "c", "resourceClaimName": "external"}]}, "resourceclaims", id="resourceclaim"
        ),
        pytest.param({"resourceClaims": [{"name": "c"}]}, "resourceclaims", id="resourceclaim without a name"),
        pytest.param(volume(emptyDir={}, secret={}), "secrets (via secret volumes)", id="two kinds in one"),
    ],
)
def test_mirror_pods_stand_alone(spec: Any, named: str) -> None:
    document = node_cases.pod("test", "mynode", mirror=True, **copy.deepcopy(spec))
    verdict = node_cases.decide(node_cases.write(CREATE, PODS, namespace="ns", document=document))
    assert node_cases.said(verdict) == f"{ME} can not create pods that reference {named}"


@pytest.mark.parametrize(
    "spec",
    [
        *(
            pytest.param(volume(**{kind: {}}), id=kind)
            for kind in [
                "awsElasticBlockStore",
                "azureDisk",
                "cephfs",
                "cinder",
                "downwardAPI",
                "emptyDir",
                "fc",
                "flexVolume",
                "flocker",
                "gcePersistentDisk",
                "gitRepo",
                "hostPath",
                "image",
                "iscsi",
                "nfs",
                "photonPersistentDisk",
                "portworxVolume",
                "quobyte",
                "rbd",
                "scaleIO",
                "storageos",
                "vsphereVolume",
            ]
        ),
        pytest.param(projected(downwardAPI={}), id="projected downwardAPI"),
        pytest.param(volume(hostPath={"path": "/x"}, secret=None), id="null is nothing"),
        pytest.param({"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}]}, id="plain env"),
    ],
)
def test_what_mirror_pods_may_use(spec: Any) -> None:
    document = node_cases.pod("test", "mynode", mirror=True, **spec)
    assert isinstance(
        node_cases.decide(node_cases.write(CREATE, PODS, namespace="ns", document=document)), decision.Approve
    )


@pytest.mark.parametrize(
    "spec, why",
    [
        pytest.param(volume(), 'unknown volume type for volume  "v"', id="no kind"),
        pytest.param(volume(telepathy={}), 'unknown volume type for volume  "v"', id="unknown kind"),
        pytest.param({"volumes": [{"telepathy": {}}]}, 'unknown volume type for volume  ""', id="no name"),
        pytest.param(
            {"volumes": [{"name": "bücher", "telepathy": {}}]},
            'unknown volume type for volume  "bücher"',
            id="no ASCII",
        ),
        pytest.param(projected(), 'unknown source for projected volume "v"', id="no source"),
        pytest.param(projected(dream={}), 'unknown source for projected volume "v"', id="unknown source"),
    ],
)
def test_unknown_volumes_are_refused(spec: Any, why: str) -> None:
    document = node_cases.pod("test", "mynode", mirror=True, **spec)
    verdict = node_cases.decide(node_cases.write(CREATE, PODS, namespace="ns", document=document))
    assert node_cases.said(verdict) == f"error checking mirror pod for API references: {why}"
