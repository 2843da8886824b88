# SPDX-License-Identifier: Apache-2.0
"""What Pods and PersistentVolumes refer to: every place there is, and documents of every wrong shape."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.nodes import references as node_references
from handfast.rules.nodes.references import CLAIMS, CONFIG_MAPS, RESOURCE_CLAIMS, SECRETS, SERVICE_ACCOUNTS


def references(spec: dict[str, Any], status: Any = None, **metadata: Any) -> set[tuple[str, str]]:
    document = {"metadata": metadata, "spec": {"nodeName": "a", **spec}, "status": status}
    found = node_references.pod("ns", "pod", document)
    assert (found.namespace, found.name, found.node) == ("ns", "pod", "a")
    return set(found.references)


def env(field: str) -> list[dict[str, Any]]:
    return [{"name": "PLAIN", "value": "x"}, {"name": "A", "valueFrom": {field: {"name": "s", "key": "k"}}}]


VOLUMES: list[tuple[str, dict[str, Any], tuple[str, str]]] = [
    ("secret", {"secretName": "s"}, (SECRETS, "s")),
    ("configMap", {"name": "s"}, (CONFIG_MAPS, "s")),
    ("persistentVolumeClaim", {"claimName": "s"}, (CLAIMS, "s")),
    ("ephemeral", {"volumeClaimTemplate": {"spec": {}}}, (CLAIMS, "pod-vol")),
    ("csi", {"driver": "d", "nodePublishSecretRef": {"name": "s"}}, (SECRETS, "s")),
    ("azureFile", {"secretName": "s"}, (SECRETS, "s")),
    ("cephfs", {"secretRef": {"name": "s"}}, (SECRETS, "s")),
    ("cinder", {"secretRef": {"name": "s"}}, (SECRETS, "s")),
    ("flexVolume", {"secretRef": {"name": "s"}}, (SECRETS, "s")),
    ("iscsi", {"secretRef": {"name": "s"}}, (SECRETS, "s")),
    ("rbd", {"secretRef": {"name": "s"}}, (SECRETS, "s")),
    ("scaleIO", {"secretRef": {"name": "s"}}, (SECRETS, "s")),
    ("storageos", {"secretRef": {"name": "s"}}, (SECRETS, "s")),
    ("projected", {"sources": [{"downwardAPI": {}}, {"secret": {"name": "s"}}]}, (SECRETS, "s")),
    ("projected", {"sources": [{"serviceAccountToken": {}}, {"configMap": {"name": "s"}}]}, (CONFIG_MAPS, "s")),
]


class TestPod:
    @pytest.mark.parametrize("kind", ["containers", "initContainers", "ephemeralContainers"])
    @pytest.mark.parametrize(
        ("container", "expected"),
        [
            ({"env": env("secretKeyRef")}, SECRETS),
            ({"env": env("configMapKeyRef")}, CONFIG_MAPS),
            ({"envFrom": [{"prefix": "P"}, {"secretRef": {"name": "s"}}]}, SECRETS),
            ({"envFrom": [{"configMapRef": {"name": "s"}}]}, CONFIG_MAPS),
        ],
    )
    def test_environments_of_every_kind_of_container_are_followed(
        self, kind: str, container: dict[str, Any], expected: str
    ) -> None:
        assert references({kind: [{"name": "first"}, container]}) == {(expected, "s")}

    @pytest.mark.parametrize(("kind", "source", "expected"), VOLUMES)
    def test_every_kind_of_volume_gives_the_object_that_it_names(
        self, kind: str, source: dict[str, Any], expected: tuple[str, str]
    ) -> None:
        other = {"name": "other", "emptyDir": {}}
        assert references({"volumes": [other, {"name": "vol", kind: source}]}) == {expected}

    def test_service_account_and_pull_secrets(self) -> None:
        spec = {"serviceAccountName": "sa", "imagePullSecrets": [{"name": "a"}, {"name": "b"}, {}]}
        assert references(spec) == {(SERVICE_ACCOUNTS, "sa"), (SECRETS, "a"), (SECRETS, "b")}

    def test_resource_claims(self) -> None:
        spec = {
            "resourceClaims": [
                {"name": "named", "resourceClaimName": "mine"},
                {"name": "made", "resourceClaimTemplateName": "template"},
                {"name": "not-made-yet", "resourceClaimTemplateName": "template"},
                {"name": "not-needed", "resourceClaimTemplateName": "template"},
            ]
        }
        status = {
            "resourceClaimStatuses": [
                {"name": "made", "resourceClaimName": "made-x"},
                {"name": "not-needed", "resourceClaimName": None},
            ],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
        }
        assert references(spec, status) == {(RESOURCE_CLAIMS, name) for name in ("mine", "made-x", "extended")}

    def test_a_status_adds_no_claim_that_the_spec_does_not_ask_for(self) -> None:
        status = {
            "resourceClaimStatuses": [
                {"name": "unasked", "resourceClaimName": "wanted"},
                {"name": "named", "resourceClaimName": "wanted"},
            ]
        }
        spec = {"resourceClaims": [{"name": "named", "resourceClaimName": "mine"}]}
        assert references(spec, status) == {(RESOURCE_CLAIMS, "mine")}

    @pytest.mark.parametrize("value", ["", "true", None, {}])
    def test_mirror_pods_refer_to_nothing(self, value: Any) -> None:
        spec = {"serviceAccountName": "sa", "imagePullSecrets": [{"name": "a"}]}
        assert references(spec, annotations={node_references.MIRROR: value}) == set()
        assert references(spec, annotations={"kubernetes.io/config.source": "api"}) != set()

    def test_pods_without_a_node_refer_to_nothing(self) -> None:
        for spec in ({}, {"nodeName": ""}, {"nodeName": None}, {"nodeName": 7}):
            found = node_references.pod("ns", "pod", {"spec": {"serviceAccountName": "sa", **spec}})
            assert found == node_references.Pod("ns", "pod", "")

    @pytest.mark.parametrize("wrong", [None, [], {}, "text", 7, True, [None], [[]], {"a": []}])
    def test_wrong_shapes_refer_to_nothing(self, wrong: Any) -> None:
        sources = [{name: wrong} for name, _, _ in VOLUMES if name != "ephemeral"]
        for spec in (
            {"containers": wrong, "volumes": wrong, "imagePullSecrets": wrong, "resourceClaims": wrong},
            {"containers": [wrong], "volumes": [wrong], "imagePullSecrets": [wrong], "resourceClaims": [wrong]},
            {"containers": [{"env": wrong, "envFrom": wrong}], "volumes": sources},
            {"containers": [{"env": [{"valueFrom": wrong}], "envFrom": [{"secretRef": wrong}]}]},
            {"volumes": [{"name": wrong, "ephemeral": {}}, {"ephemeral": {}}, {"name": "v", "ephemeral": 1}]},
            {"volumes": [{"projected": {"sources": wrong}}, {"projected": {"sources": [wrong, {"secret": wrong}]}}]},
        ):
            left = references(spec, wrong, annotations=wrong)
            assert left <= {(CLAIMS, "pod-text")}
        assert node_references.pod("ns", "pod", wrong) == node_references.Pod("ns", "pod", "")
        assert node_references.pod("ns", "pod", {"metadata": wrong, "spec": wrong}).references == frozenset()

    def test_names_that_are_no_text_are_no_names(self) -> None:
        assert references({"serviceAccountName": 7, "imagePullSecrets": [{"name": ["a"]}]}) == set()


CLAIM = {"namespace": "apps", "name": "data"}
SECRET = {"name": "s", "namespace": "storage"}


class TestVolume:
    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ({"csi": {"nodePublishSecretRef": SECRET}}, {("storage", "s")}),
            ({"csi": {"nodeStageSecretRef": SECRET}}, {("storage", "s")}),
            ({"csi": {"nodeExpandSecretRef": SECRET}}, {("storage", "s")}),
            ({"csi": {"nodePublishSecretRef": {"name": "s"}}}, set()),
            ({"csi": {"controllerPublishSecretRef": SECRET, "controllerExpandSecretRef": SECRET}}, set()),
            ({"azureFile": {"secretName": "s", "secretNamespace": "storage"}}, {("storage", "s")}),
            ({"azureFile": {"secretName": "s"}}, {("apps", "s")}),
            ({"azureFile": {"secretName": "s", "secretNamespace": None}}, {("apps", "s")}),
            ({"azureFile": {}}, set()),
            *[
                ({kind: {"secretRef": {"name": "s"}}}, {("apps", "s")})
                for kind in ("cephfs", "flexVolume", "iscsi", "rbd", "scaleIO")
            ],
            *[({kind: {"secretRef": {"name": "s"}}}, set()) for kind in ("cinder", "storageos")],
            *[
                ({kind: {"secretRef": SECRET}}, {("storage", "s")})
                for kind in ("cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "cinder", "storageos")
            ],
            ({"hostPath": {"path": "/"}}, set()),
        ],
    )
    def test_secrets_the_kubelet_is_given(self, source: dict[str, Any], expected: set[tuple[str, str]]) -> None:
        found = node_references.volume("pv", {"spec": {"claimRef": CLAIM, **source}})
        assert (found.name, found.claim, set(found.secrets)) == ("pv", ("apps", "data"), expected)

    def test_equal_whatever_the_order(self) -> None:
        secrets = [{"name": name, "namespace": "storage"} for name in "ab"]
        found = [
            node_references.volume(
                "pv", {"spec": {"claimRef": CLAIM, "csi": {"nodeStageSecretRef": x, "nodePublishSecretRef": y}}}
            )
            for x, y in (secrets, reversed(secrets))
        ]
        assert found[0] == found[1]
        assert len(found[0].secrets) == 2

    @pytest.mark.parametrize("claim", [None, {}, {"name": "data"}, {"namespace": "apps"}, "apps/data", [], 7])
    def test_an_unclaimed_volume_refers_to_nothing(self, claim: Any) -> None:
        document = {"spec": {"claimRef": claim, "csi": {"nodePublishSecretRef": SECRET}}}
        assert node_references.volume("pv", document) == node_references.Volume("pv")

    @pytest.mark.parametrize("wrong", [None, [], {}, "text", 7, [None], {"secretRef": 7}, {"nodeStageSecretRef": []}])
    def test_wrong_shapes_refer_to_nothing(self, wrong: Any) -> None:
        assert node_references.volume("pv", wrong) == node_references.Volume("pv")
        assert node_references.volume("pv", {"spec": wrong}) == node_references.Volume("pv")
        found = node_references.volume(
            "pv", {"spec": {"claimRef": CLAIM, "csi": wrong, "rbd": wrong, "azureFile": wrong}}
        )
        assert found.secrets == ()


@pytest.mark.parametrize(
    ("document", "node"),
    [({"spec": {"nodeName": "a"}}, "a"), ({"spec": {}}, ""), ({"spec": {"nodeName": 7}}, ""), (None, ""), ([], "")],
)
def test_an_attachment_is_for_the_node_in_its_spec(document: Any, node: str) -> None:
    assert node_references.attachment(document) == node
