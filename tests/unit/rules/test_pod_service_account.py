# SPDX-License-Identifier: Apache-2.0
"""What a Pod gets from its ServiceAccount. Looking the account up, and waiting for it, is tested in the API server."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import objects
from handfast.rules import decision, pod_service_account

PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
NAME = "kube-api-access-abcde"
MOUNT = {"name": NAME, "readOnly": True, "mountPath": PATH}
VOLUME = {
    "name": NAME,
    "projected": {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    },
}


def pod(**spec: Any) -> objects.Document:
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": copy.deepcopy(spec)}


def account(annotations: Any = None, **fields: Any) -> objects.Document:
    return {"metadata": {"name": "robot", "namespace": "ns", "annotations": annotations}, **fields}


def said(refusal: decision.Deny | None) -> str:
    return "" if refusal is None else refusal.sentence


@pytest.mark.parametrize(
    "spec, name",
    [
        pytest.param({}, "default", id="none"),
        pytest.param({"serviceAccountName": ""}, "default", id="empty"),
        pytest.param({"serviceAccountName": "robot"}, "robot", id="given"),
        pytest.param({"serviceAccountName": "robot", "serviceAccount": "other"}, "robot", id="the new name counts"),
    ],
)
def test_the_name_of_the_account(spec: Any, name: str) -> None:
    document = pod(**spec)
    assert pod_service_account.choose(document) == name
    assert document["spec"] == {"serviceAccountName": name, "serviceAccount": name}


def test_no_such_account() -> None:
    sentence = 'error looking up service account ns/robot: serviceaccount "robot" not found'
    assert pod_service_account.absent("ns", "robot").sentence == sentence


@pytest.mark.parametrize(
    "of_pod, of_account, mounted",
    [
        (None, None, True),
        (None, True, True),
        (None, False, False),
        (True, None, True),
        (True, False, True),
        (False, None, False),
        (False, True, False),
    ],
)
def test_who_says_whether_the_token_is_mounted(of_pod: Any, of_account: Any, mounted: bool) -> None:
    document = pod(automountServiceAccountToken=of_pod, containers=[{"name": "c"}])
    given = account(automountServiceAccountToken=of_account)
    assert pod_service_account.apply(document, given, "abcde") is None
    assert ("volumes" in document["spec"]) is mounted
    assert ("volumeMounts" in document["spec"]["containers"][0]) is mounted


def test_every_container_mounts_the_token() -> None:
    own = {"name": "data", "mountPath": "/data"}
    document = pod(
        initContainers=[{"name": "i"}],
        containers=[{"name": "c", "volumeMounts": [own]}, {"name": "d", "volumeMounts": None}],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    assert pod_service_account.apply(document, account(), "abcde") is None
    spec = document["spec"]
    assert spec["initContainers"] == [{"name": "i", "volumeMounts": [MOUNT]}]
    assert spec["containers"] == [{"name": "c", "volumeMounts": [own, MOUNT]}, {"name": "d", "volumeMounts": [MOUNT]}]
    assert spec["volumes"] == [{"name": "data", "emptyDir": {}}, VOLUME]


def test_what_is_mounted_there_already_stays() -> None:
    own = {"name": "mine", "mountPath": PATH}
    document = pod(containers=[{"name": "c", "volumeMounts": [own]}, {"name": "d"}])
    pod_service_account.apply(document, account(), "abcde")
    assert document["spec"]["containers"][0]["volumeMounts"] == [own]
    assert document["spec"]["containers"][1]["volumeMounts"] == [MOUNT]
    assert document["spec"]["volumes"] == [VOLUME]


def test_nobody_needs_the_volume() -> None:
    document = pod(containers=[{"name": "c", "volumeMounts": [{"name": "mine", "mountPath": PATH}]}])
    before = copy.deepcopy(document)
    pod_service_account.apply(document, account(), "abcde")
    assert document == before


def test_a_copied_pod_keeps_its_volume() -> None:
    brought = {"name": "kube-api-access-zzzzz", "projected": {"sources": []}}
    document = pod(containers=[{"name": "c"}], volumes=[{"name": "data"}, brought])
    pod_service_account.apply(document, account(), "abcde")
    assert document["spec"]["volumes"] == [{"name": "data"}, brought]
    assert [mount["name"] for mount in document["spec"]["containers"][0]["volumeMounts"]] == [brought["name"]]


@pytest.mark.parametrize(
    "of_pod, of_account, after",
    [
        pytest.param(None, None, None, id="none"),
        pytest.param(None, [{"name": "a"}, {"name": "b"}], [{"name": "a"}, {"name": "b"}], id="of the account"),
        pytest.param([], [{"name": "a"}], [{"name": "a"}], id="the pod has an empty list"),
        pytest.param([{"name": "own"}], [{"name": "a"}], [{"name": "own"}], id="of the pod"),
    ],
)
def test_pull_secrets(of_pod: Any, of_account: Any, after: Any) -> None:
    document = pod(imagePullSecrets=of_pod)
    pod_service_account.apply(document, account(imagePullSecrets=of_account), "abcde")
    assert document["spec"]["imagePullSecrets"] == after


@pytest.mark.parametrize(
    "spec, sentence",
    [
        pytest.param({}, "", id="nothing named"),
        pytest.param({"volumes": [{"name": "v", "hostPath": {}}]}, "", id="a host path"),
        pytest.param({"volumes": [{"name": "v", "projected": {"sources": [{"downwardAPI": {}}]}}]}, "", id="downward"),
        pytest.param(
            {"serviceAccountName": "x"}, "a mirror pod may not reference service accounts", id="service account"
        ),
        pytest.param(
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            "a mirror pod may not reference secrets",
            id="secret",
        ),
        pytest.param(
            {"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}]},
            "a mirror pod may not reference secrets",
            id="secret in the environment",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
            id="projected token",
        ),
    ],
)
def test_mirror_pods(spec: Any, sentence: str) -> None:
    assert said(pod_service_account.mirror(pod(**spec))) == sentence


ENFORCED = {"kubernetes.io/enforce-mountable-secrets": "true"}
WHY = "is not allowed because service account robot does not reference that"


def variable(name: str) -> objects.Document:
    return {"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}


@pytest.mark.parametrize(
    "spec, sentence",
    [
        pytest.param({}, "", id="nothing named"),
        pytest.param({"volumes": [{"name": "v", "secret": {"secretName": "ok"}}]}, "", id="volume, listed"),
        pytest.param(
            {"volumes": [{"name": "v", "secret": {"secretName": "no"}}]},
            f'volume with secret.secretName="no" {WHY} secret',
            id="volume",
        ),
        pytest.param({"containers": [{"name": "c", "env": [variable("ok"), {"name": "B"}]}]}, "", id="env, listed"),
        pytest.param(
            {"containers": [{"name": "c", "env": [variable("no")]}]},
            f'container c with envVar A referencing secret.secretName="no" {WHY} secret',
            id="env",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "env": [variable("no")]}]},
            f'init container i with envVar A referencing secret.secretName="no" {WHY} secret',
            id="env of an init container",
        ),
        pytest.param(
            {"containers": [{"name": "c", "envFrom": [{"configMapRef": {}}, {"secretRef": {"name": "no"}}]}]},
            f'container c with envFrom referencing secret.secretName="no" {WHY} secret',
            id="envFrom",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "no"}}]}]},
            f'init container i with envFrom referencing secret.secretName="no" {WHY} secret',
            id="envFrom of an init container",
        ),
        pytest.param({"imagePullSecrets": [{"name": "pull"}]}, "", id="pull secret, listed"),
        pytest.param(
            {"imagePullSecrets": [{"name": "pull"}, {"name": "no"}]},
            f'imagePullSecrets[1].name="no" {WHY} imagePullSecret',
            id="pull secret",
        ),
    ],
)
def test_accounts_that_enforce_their_secrets(spec: Any, sentence: str) -> None:
    listed = {"secrets": [{"name": "ok"}], "imagePullSecrets": [{"name": "pull"}]}
    assert said(pod_service_account.apply(pod(**spec), account(ENFORCED, **listed), "abcde")) == sentence
    relaxed = {"kubernetes.io/enforce-mountable-secrets": "yes please"}
    assert pod_service_account.apply(pod(**spec), account(relaxed, **listed), "abcde") is None
