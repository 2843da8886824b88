# SPDX-License-Identifier: Apache-2.0
"""Autoscalers in two versions: nothing is lost on the way, and nothing strange comes in by an annotation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handfast.api import autoscaler_versions

PREFIX = "autoscaling.alpha.kubernetes.io/"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
PODS = {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}}


def _v2(**more: Any) -> dict[str, Any]:
    spec = {"maxReplicas": 3, "metrics": [PODS, CPU], "behavior": {"scaleUp": {"selectPolicy": "Max"}}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": spec,
        **more,
    }


def test_the_cpu_has_a_field_of_its_own_and_the_rest_is_carried():
    current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 5}}}
    document = _v2(status={"currentReplicas": 1, "currentMetrics": [current], "conditions": [{"type": "AbleToScale"}]})
    old = autoscaler_versions.to_v1(document)
    assert old["apiVersion"] == "autoscaling/v1"
    assert old["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}
    assert old["status"] == {"currentReplicas": 1, "currentCPUUtilizationPercentage": 5}
    assert json.loads(old["metadata"]["annotations"][f"{PREFIX}metrics"]) == [PODS]
    assert autoscaler_versions.to_v2(old) == document


def test_what_has_nothing_to_carry_has_no_annotations():
    document = {"metadata": {"annotations": {"a": "b"}}, "spec": {"metrics": [CPU]}}
    old = autoscaler_versions.to_v1(document)
    assert old["metadata"] == {"annotations": {"a": "b"}}
    assert "status" not in old
    assert autoscaler_versions.to_v2(old)["spec"] == {"metrics": [CPU]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics", "{"),
        ("metrics", "{}"),
        ("metrics", "[1]"),
        ("metrics", '[{"type": 5}]'),
        ("metrics", '[{"strange": 5}]'),
        ("metrics", '[{"type": "\\ud800"}]'),
        ("behavior", "[]"),
        ("metrics", 7),
    ],
)
def test_an_annotation_that_holds_something_else_is_left_out(name, text):
    document = {"metadata": {"annotations": {f"{PREFIX}{name}": text}}, "spec": {"maxReplicas": 1}}
    changed = autoscaler_versions.to_v2(document)
    assert changed["spec"] == {"maxReplicas": 1}
    assert "annotations" not in changed["metadata"]


def test_a_cpu_that_is_not_measured_is_not_shown():
    row = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "1"}}}
    assert (
        "currentCPUUtilizationPercentage"
        not in autoscaler_versions.to_v1(_v2(status={"currentMetrics": [row]}))["status"]
    )


def test_without_the_cpu_there_is_no_percentage():
    old = autoscaler_versions.to_v1({"spec": {"metrics": [PODS]}})
    assert "targetCPUUtilizationPercentage" not in old["spec"]
