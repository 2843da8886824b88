# SPDX-License-Identifier: Apache-2.0
"""What a pod says where its author said nothing."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.defaulting import pods
from tests.properties import sample_documents


def _pod(**spec):
    document = {"spec": {"containers": [{"name": "a", "image": "a:1"}], **spec}}
    pods.pod(document)
    return document


def test_a_minimal_pod():
    assert _pod() == {
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "image": "a:1",
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "resources": {},
                }
            ],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {},
            "enableServiceLinks": True,
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }


def test_what_is_said_is_kept():
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "enableServiceLinks": False}
    kept = _pod(**spec)["spec"]
    assert {key: kept[key] for key in spec} == spec


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("web", "Always"),
        ("web:latest", "Always"),
        ("registry:5000/web", "Always"),
        ("web:1", "IfNotPresent"),
        ("web@sha256:00", "IfNotPresent"),
        ("web:latest@sha256:00", "Always"),
        ("registry:5000/web:1", "IfNotPresent"),
    ],
)
def test_pull_policy(image, policy):
    assert pods.pull_policy(image) == policy


def test_the_parts_of_a_full_pod():
    document = sample_documents.document(sample_documents.kind("", "pods"))
    pods.pod(document)
    spec = document["spec"]
    assert spec["serviceAccount"] == "builder"
    web = spec["containers"][0]
    assert web["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP", "hostPort": 8080}]
    assert web["env"][1]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert web["livenessProbe"] == {
        "httpGet": {"port": 8080, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert web["readinessProbe"]["grpc"] == {"port": 1, "service": ""}
    assert web["lifecycle"]["preStop"]["httpGet"]["scheme"] == "HTTP"
    assert web["resources"]["requests"] == {"cpu": "0.1", "memory": "1Gi"}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["config"]["configMap"]["defaultMode"] == 420
    assert volumes["scratch"]["emptyDir"] == {}
    assert volumes["host"]["hostPath"]["type"] == ""
    assert volumes["claim"]["ephemeral"]["volumeClaimTemplate"]["spec"]["volumeMode"] == "Filesystem"
    assert volumes["info"]["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] == "v1"
    sources = volumes["all"]["projected"]["sources"]
    assert sources[0]["serviceAccountToken"]["expirationSeconds"] == 3600
    assert sources[1]["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] == "v1"
    # The status a kubelet reported stays; what it did not say is added.
    assert (document["status"]["phase"], document["status"]["qosClass"]) == ("Running", "Burstable")


def test_the_old_name_of_the_service_account_is_read():
    assert _pod(serviceAccount="x")["spec"]["serviceAccountName"] == "x"


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "0", "example.com/gpu": "1"}}], "BestEffort"),
        ([{"limits": {"cpu": "100m", "memory": "1Gi"}, "requests": {"cpu": "0.1", "memory": "1024Mi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "100m", "memory": "1Gi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0.5", "memory": "1Gi"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
    ],
)
def test_qos_class(resources, qos):
    containers = [{"name": f"c{index}", "image": "a:1", "resources": row} for index, row in enumerate(resources)]
    assert _pod(containers=containers)["status"]["qosClass"] == qos


def test_what_the_pod_says_as_a_whole_is_its_class():
    both = {"cpu": "1", "memory": "1Gi"}
    assert _pod(resources={"requests": {"memory": "1Gi"}})["status"]["qosClass"] == "Burstable"
    assert _pod(resources={"requests": both, "limits": both})["status"]["qosClass"] == "Guaranteed"


def test_a_pod_without_spec_gets_none():
    document = {"spec": "odd"}
    pods.pod(document)
    assert document == {"spec": "odd", "status": {"phase": "Pending", "qosClass": "BestEffort"}}


def test_a_template_has_no_service_links():
    owner: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    pods.template(owner)
    assert owner["template"]["spec"]["restartPolicy"] == "Always"
    assert "enableServiceLinks" not in owner["template"]["spec"]
