# SPDX-License-Identifier: Apache-2.0
"""Cells of autoscalers beyond the samples of `test_printers`."""

from __future__ import annotations

import datetime

import pytest

from handfast.api.printing import limits

NOW = datetime.datetime(2026, 1, 2, 4, 4, 5, tzinfo=datetime.UTC)
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}


def _targets(*metrics, measured=()):
    document = {"spec": {"metrics": list(metrics), "minReplicas": 1}, "status": {"currentMetrics": list(measured)}}
    return limits.horizontalpodautoscaler(document, NOW)[1]


@pytest.mark.parametrize(
    ("metric", "measured", "text"),
    [
        (CPU, {}, "cpu: <unknown>/80%"),
        (CPU, {"resource": {"current": {"averageUtilization": 40}}}, "cpu: 40%/80%"),
        ({"type": "Resource", "resource": {"name": "cpu", "target": {}}}, {}, "cpu: <unknown>/<auto>"),
        (
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "target": {"averageValue": "2"}}},
            {"containerResource": {"current": {"averageValue": "1"}}},
            "cpu: 1/2",
        ),
        ({"type": "Pods", "pods": {"target": {"averageValue": "2"}}}, {}, "<unknown>/2"),
        ({"type": "Object", "object": {"target": {"value": "2"}}}, {"object": {"current": {"value": "1"}}}, "1/2"),
        ({"type": "External", "external": {"target": {"averageValue": "2"}}}, {}, "<unknown>/2 (avg)"),
        ({"type": "X"}, {}, "<unknown type>"),
    ],
)
def test_a_metric_is_shown_as_it_is_and_as_it_should_be(metric, measured, text):
    assert _targets(metric, measured=[measured]) == text


def test_of_many_metrics_two_are_shown():
    assert _targets(CPU, CPU, CPU) == "cpu: <unknown>/80%, cpu: <unknown>/80% + 1 more..."
