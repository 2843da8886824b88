# SPDX-License-Identifier: Apache-2.0
"""The rules for HorizontalPodAutoscalers."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created

HPA = ("autoscaling", "horizontalpodautoscalers")
METRIC = "spec.metrics[0]"
UP, UP_SHOWN = "spec|behavior|scaleUp", "spec.behavior.scaleUp"
VALUE = {"type": "Value", "value": "1"}
AVERAGE = {"type": "AverageValue", "averageValue": "1"}
NAMED = {"metric": {"name": "m"}}


def _metric(kind, **sources):
    return {"spec|metrics": [{"type": kind, **sources}]}


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        ({"spec|minReplicas": REMOVED}, []),
        ({"spec|minReplicas": 0}, ["spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"]),
        (
            {"spec|maxReplicas": 0},
            [
                "spec.maxReplicas: Required value: must be set and greater than 0",
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
            ],
        ),
        (
            {"spec|maxReplicas": -1},
            [
                "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
                "spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
            ],
        ),
        ({"spec|scaleTargetRef|kind": ""}, ["spec.scaleTargetRef.kind: Required value"]),
        ({"spec|scaleTargetRef|apiVersion": "a/b/c"}, ['spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c"']),
        ({"status|currentReplicas": -1}, ["status.currentReplicas: Invalid value: -1"]),
        (
            _metric("", object=None),
            [
                f"{METRIC}.type: Required value: must specify a metric source type",
                f'{METRIC}.type: Unsupported value: "": supported values: "ContainerResource", "External", "Object"',
            ],
        ),
        (_metric("Pods"), [f"{METRIC}.pods: Required value: must populate information for the given metric source"]),
        (_metric("Pods", pods={**NAMED, "target": AVERAGE}), []),
        (
            _metric("Pods", pods={**NAMED, "target": VALUE}),
            [f"{METRIC}.pods.target.averageValue: Required value: must specify a positive target averageValue"],
        ),
        (
            _metric("Pods", pods={**NAMED, "target": AVERAGE}, resource={"name": "cpu", "target": AVERAGE}),
            [f"{METRIC}.resource: Forbidden: must populate the given metric source only"],
        ),
        (_metric("Object", object={**NAMED, "target": VALUE, "describedObject": {"kind": "A", "name": "b"}}), []),
        (
            _metric("Object", object={"metric": {}, "target": {}, "describedObject": {"kind": "A", "name": "b"}}),
            [
                f"{METRIC}.object.metric.name: Required value: must specify a metric name",
                f"{METRIC}.object.target.type: Required value: must specify a metric target type",
                f'{METRIC}.object.target.type: Invalid value: "": must be either Utilization, Value, or AverageValue',
                f"{METRIC}.object.target.averageValue: Required value: must set either a target value or averageValue",
            ],
        ),
        (_metric("External", external={**NAMED, "target": VALUE}), []),
        (
            _metric("External", external={**NAMED, "target": {**VALUE, "averageValue": "1"}}),
            [f"{METRIC}.external.target.value: Forbidden: may not set both a target value for metric"],
        ),
        (
            _metric("External", external={**NAMED, "target": {"type": "Value"}}),
            [f"{METRIC}.external.target.averageValue: Required value: must set either a target value for metric or a"],
        ),
        (
            _metric("External", external={**NAMED, "target": {"type": "Value", "value": "0"}}),
            [f'{METRIC}.external.target.value: Invalid value: "0": must be positive'],
        ),
        (
            _metric("Resource", resource={"target": {"type": "Utilization", "averageUtilization": 0}}),
            [
                f"{METRIC}.resource.name: Required value: must specify a resource name",
                f"{METRIC}.resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
            ],
        ),
        (
            _metric("Resource", resource={"name": "cpu", "target": {"type": "Utilization"}}),
            [f"{METRIC}.resource.target.averageUtilization: Required value: must set either a target raw value or a"],
        ),
        (
            _metric("Resource", resource={"name": "cpu", "target": {**AVERAGE, "averageUtilization": 5}}),
            [f"{METRIC}.resource.target.averageValue: Forbidden: may not set both a target raw value and a target uti"],
        ),
        (_metric("ContainerResource", containerResource={"name": "cpu", "container": "a", "target": AVERAGE}), []),
        (
            _metric("ContainerResource", containerResource={"name": "cpu", "target": AVERAGE}),
            [f"{METRIC}.containerResource.container: Required value: must specify a container"],
        ),
        (
            {f"{UP}|stabilizationWindowSeconds": -1},
            [f"{UP_SHOWN}.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero"],
        ),
        (
            {f"{UP}|stabilizationWindowSeconds": 3601},
            [f"{UP_SHOWN}.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600"],
        ),
        ({f"{UP}|selectPolicy": "X"}, [f'{UP_SHOWN}.selectPolicy: Unsupported value: "X"']),
        ({f"{UP}|policies": []}, [f"{UP_SHOWN}.policies: Required value: must specify at least one Policy"]),
        (
            {f"{UP}|policies": [{"type": "X", "value": 0, "periodSeconds": 1801}]},
            [
                f'{UP_SHOWN}.policies[0].type: Unsupported value: "X": supported values: "Percent", "Pods"',
                f"{UP_SHOWN}.policies[0].value: Invalid value: 0: must be greater than zero",
                f"{UP_SHOWN}.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ],
        ),
        ({"spec|behavior": REMOVED}, []),
    ],
)
def test_what_an_autoscaler_has_to_be_like(changes, causes):
    assert begin(created(*HPA, changes), causes), created(*HPA, changes)
