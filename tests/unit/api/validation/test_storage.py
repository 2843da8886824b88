# SPDX-License-Identifier: Apache-2.0
"""The rules for volumes, claims, the storage kinds and runtime classes."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created, updated

PV, PVC = ("", "persistentvolumes"), ("", "persistentvolumeclaims")
CLASS, ATTACHMENT = ("storage.k8s.io", "storageclasses"), ("storage.k8s.io", "volumeattachments")
CSI_NODE, CSI_DRIVER, RUNTIME = (
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csidrivers"),
    ("node.k8s.io", "runtimeclasses"),
)
ATTRIBUTES = ("storage.k8s.io", "volumeattributesclasses")
CAPACITY = ("storage.k8s.io", "csistoragecapacities")
MODES = "spec.accessModes"
EXACTLY_ONE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


@pytest.mark.parametrize(
    ("resource", "changes", "causes"),
    [
        (PV, {"spec|accessModes": []}, [f"{MODES}: Required value: at least 1 access mode is required"]),
        (PV, {"spec|accessModes": ["X"]}, [f'{MODES}: Unsupported value: "X": supported values: "ReadOnlyMany", "R']),
        (
            PV,
            {"spec|accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
            [f"{MODES}: Forbidden: may not use ReadWriteOncePod with other access modes"],
        ),
        (PV, {"spec|accessModes": ["ReadWriteOncePod"]}, []),
        (PV, {"spec|capacity": {}}, ["spec.capacity: Required value"]),
        (PV, {"spec|capacity|storage": "0"}, ['spec.capacity[storage]: Invalid value: "0": must be greater than zero']),
        (PV, {"spec|hostPath": REMOVED}, ["spec: Required value: must specify a volume type"]),
        (PV, {"spec|nfs": {}}, ["spec.nfs: Forbidden: may not specify more than 1 volume type"]),
        (
            PV,
            {"spec|persistentVolumeReclaimPolicy": "X"},
            ['spec.persistentVolumeReclaimPolicy: Unsupported value: "X"'],
        ),
        (PV, {"spec|volumeMode": "X"}, ['spec.volumeMode: Unsupported value: "X"']),
        (PVC, {"spec|resources": REMOVED}, ["spec.resources[storage]: Required value"]),
        (PVC, {"spec|resources|requests|storage": "-1"}, ['spec.resources[storage]: Invalid value: "-1": must be gr']),
        (PVC, {"spec|storageClassName": "A"}, ['spec.storageClassName: Invalid value: "A"']),
        (CLASS, {"provisioner": ""}, ["provisioner: Required value"]),
        (CAPACITY, {"nodeTopology": REMOVED, "capacity": REMOVED}, []),
        (ATTRIBUTES, {}, []),
        (ATTRIBUTES, {"driverName": ""}, ["driverName: Required value"]),
        (ATTRIBUTES, {"parameters": {}}, ["parameters: Required value: must contain at least one key/value pair"]),
        (ATTRIBUTES, {"parameters": {"": "a"}}, ['parameters: Invalid value: "": field can not be empty.']),
        (ATTRIBUTES, {"parameters": {"a": "b" * (256 << 10)}}, ["parameters: Too long: must have at most 262144 by"]),
        (
            ATTRIBUTES,
            {"parameters": {str(n): "" for n in range(513)}},
            ["parameters: Too many: 513: must have at most"],
        ),
        (CAPACITY, {"nodeTopology": {"matchLabels": {"a b": "c"}}}, ['nodeTopology.matchLabels: Invalid value: "a b"']),
        (CAPACITY, {"storageClassName": ""}, ['storageClassName: Invalid value: ""']),
        (CAPACITY, {"capacity": "-1"}, ['capacity: Invalid value: "-1": must be greater than or equal to 0']),
        (
            CLASS,
            {"reclaimPolicy": "X"},
            ['reclaimPolicy: Unsupported value: "X": supported values: "Delete", "Retain"'],
        ),
        (CLASS, {"volumeBindingMode": ""}, ["volumeBindingMode: Required value"]),
        (CSI_NODE, {"spec|drivers|0|nodeID": ""}, ["spec.drivers[0].nodeID: Required value"]),
        (
            CSI_NODE,
            {"spec|drivers|1": {"name": "csi.example.com", "nodeID": "x"}},
            ['spec.drivers[1].name: Duplicate value: "csi.example.com"'],
        ),
        (CSI_DRIVER, {"metadata|name": "x" * 64}, ["metadata.name: Too long: must have at most 63 bytes"]),
        (CSI_DRIVER, {"spec|fsGroupPolicy": "X"}, ['spec.fsGroupPolicy: Unsupported value: "X"']),
        (CSI_DRIVER, {"spec|volumeLifecycleModes": ["X"]}, ['spec.volumeLifecycleModes: Unsupported value: "X"']),
        (ATTACHMENT, {"spec|attacher": ""}, ["spec.attacher: Required value"]),
        (ATTACHMENT, {"spec|source": {}}, [f"spec.source: Required value: {EXACTLY_ONE}"]),
        (ATTACHMENT, {"spec|source|inlineVolumeSpec": {"nfs": {}}}, [f"spec.source: Forbidden: {EXACTLY_ONE}"]),
        (RUNTIME, {"handler": ""}, ["handler: Required value"]),
        (RUNTIME, {"handler": "A"}, ['handler: Invalid value: "A": a lowercase RFC 1123 label']),
    ],
)
def test_a_wrong_volume_claim_or_storage_kind_has_kubernetes_causes(resource, changes, causes):
    found = created(resource[0], resource[1], changes)
    assert begin(found, causes), found


@pytest.mark.parametrize(
    ("resource", "changes", "causes"),
    [
        (PV, {"spec|capacity|storage": "6Gi", "spec|claimRef": None}, []),
        (
            PV,
            {"spec|hostPath|path": "/y"},
            ["spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is imm"],
        ),
        (PV, {"spec|hostPath": REMOVED, "spec|nfs": {}}, ["spec.persistentvolumesource: Forbidden: "]),
        (PV, {"spec|volumeMode": "Block"}, ['spec.volumeMode: Invalid value: "Block": field is immutable']),
        (PVC, {"spec|resources|requests|storage": "6Gi"}, []),
        (
            PVC,
            {"spec|resources|requests|storage": "4Gi"},
            ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
        ),
        (
            PVC,
            {"spec|volumeName": "w"},
            ["spec: Forbidden: spec is immutable after creation except resources.requests"],
        ),
        (CLASS, {"parameters": {"a": "b"}}, ["parameters: Forbidden: updates to parameters are forbidden."]),
        (CLASS, {"provisioner": "x.y"}, ["provisioner: Forbidden: updates to provisioner are forbidden."]),
        (CLASS, {"volumeBindingMode": "WaitForFirstConsumer"}, ["volumeBindingMode: Invalid value: "]),
        (ATTACHMENT, {"spec|nodeName": "n2"}, ["spec: Invalid value: {"]),
        (RUNTIME, {"handler": "kata"}, ['handler: Invalid value: "kata": field is immutable']),
    ],
)
def test_a_forbidden_change_of_a_storage_kind_has_kubernetes_causes(resource, changes, causes):
    found = updated(resource[0], resource[1], changes)
    assert begin(found, causes), found


def test_an_unbound_claim_can_be_bound_but_not_grown():
    pending = {"spec|volumeName": REMOVED, "status": {"phase": "Pending"}}
    found = updated(*PVC, {"spec|resources|requests|storage": "6Gi"}, pending)
    assert begin(found, ["spec: Forbidden: spec is immutable"])
    bound = updated(*PVC, {"spec|volumeName": "v"}, {"spec|volumeName": "", "status": {"phase": "Pending"}})
    assert bound == []


def test_a_claim_does_not_move_to_another_class_by_its_old_name():
    free = {"volume.beta.kubernetes.io/storage-class": "free"}
    (cause,) = updated(*PVC, {"metadata|annotations": free})
    assert cause.startswith("metadata.annotations[volume.beta.kubernetes.io/storage-class]: Invalid value: ")
    assert updated(*PVC, {"metadata|annotations": {"a": "b", **free}}, {"metadata|annotations": free}) == []


def test_what_a_capacity_is_of_stays():
    assert updated(*CAPACITY, {"storageClassName": "slow"}) == [
        'storageClassName: Invalid value: "slow": field is immutable'
    ]
    assert not updated(*CAPACITY, {"capacity": "1Gi"})


def test_a_class_of_volume_attributes_is_made_anew_and_not_changed():
    changed = updated(*ATTRIBUTES, {"driverName": "other.example.com", "parameters": {"iops": "1"}})
    assert changed == [
        "driverName: Forbidden: updates to driverName are forbidden.",
        "parameters: Forbidden: updates to parameters are forbidden.",
    ]
    assert not updated(*ATTRIBUTES, {})
