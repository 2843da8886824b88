# SPDX-License-Identifier: Apache-2.0
"""The rules for disruption budgets, priority classes, pod templates and revisions."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created, updated

BUDGET, PRIORITY = ("policy", "poddisruptionbudgets"), ("scheduling.k8s.io", "priorityclasses")
TEMPLATE, REVISION = ("", "podtemplates"), ("apps", "controllerrevisions")
RESERVED = (
    "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: "
)


@pytest.mark.parametrize(
    ("resource", "changes", "causes"),
    [
        (BUDGET, {}, []),
        (BUDGET, {"spec|selector": REMOVED}, []),
        (BUDGET, {"spec|maxUnavailable": 1}, ["spec: Invalid value: {"]),
        (BUDGET, {"spec|minAvailable": "101%"}, ['spec.minAvailable: Invalid value: "101%": must not be greater than']),
        (
            BUDGET,
            {"spec|minAvailable": "9999999%"},
            ['spec.minAvailable: Invalid value: "9999999%": must not be great'],
        ),
        (BUDGET, {"spec|minAvailable": "0000100%"}, []),
        (BUDGET, {"spec|minAvailable": "0%"}, []),
        (BUDGET, {"spec|minAvailable": "half"}, ['spec.minAvailable: Invalid value: "half": a valid percent string']),
        (
            BUDGET,
            {"spec|minAvailable": -1},
            ["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (BUDGET, {"spec|selector|matchLabels": {"a b": "c"}}, ["spec.selector.matchLabels: Invalid value"]),
        (
            BUDGET,
            {"spec|unhealthyPodEvictionPolicy": "X"},
            [
                'spec.unhealthyPodEvictionPolicy: Unsupported value: "X": supported values: "AlwaysAllow", "IfHealthyBudg'
            ],
        ),
        (BUDGET, {"status|expectedPods": -1}, ["status.expectedPods: Invalid value: -1"]),
        (PRIORITY, {}, []),
        (
            PRIORITY,
            {"value": 1_000_000_001},
            ["value: Forbidden: maximum allowed value of a user defined priority is 1"],
        ),
        (PRIORITY, {"preemptionPolicy": "X"}, ['preemptionPolicy: Unsupported value: "X"']),
        (PRIORITY, {"metadata|name": "system-x"}, [f"{RESERVED}system-x is not a known system priority class"]),
        (
            PRIORITY,
            {"metadata|name": "system-node-critical"},
            [f"{RESERVED}value of system-node-critical PriorityClass must be 2000001000"],
        ),
        (
            PRIORITY,
            {"metadata|name": "system-cluster-critical", "value": 2_000_000_000},
            [f"{RESERVED}globalDefault of system-cluster-critical PriorityClass must be false"],
        ),
        (
            PRIORITY,
            {"metadata|name": "system-cluster-critical", "value": 2_000_000_000, "globalDefault": False},
            [],
        ),
        (TEMPLATE, {}, []),
        (TEMPLATE, {"template|spec|containers": []}, ["template.spec.containers: Required value"]),
        (TEMPLATE, {"template|metadata|labels": {"a b": "c"}}, ["template.metadata.labels: Invalid value"]),
        (REVISION, {}, []),
        (REVISION, {"data": None}, ["data: Required value: data is mandatory"]),
        (REVISION, {"data": [1]}, ["data: Required value: data must be a valid JSON object"]),
        (REVISION, {"revision": -1}, ["revision: Invalid value: -1: must be greater than or equal to 0"]),
    ],
)
def test_what_a_new_object_has_to_be_like(resource, changes, causes):
    group, plural = resource
    assert begin(created(group, plural, changes), causes), created(group, plural, changes)


@pytest.mark.parametrize(
    ("resource", "changes", "causes"),
    [
        (PRIORITY, {"value": 1}, ["value: Forbidden: may not be changed in an update."]),
        (PRIORITY, {"preemptionPolicy": "Never"}, ['preemptionPolicy: Invalid value: "Never": field is immutable']),
        (PRIORITY, {"description": "x"}, []),
        (REVISION, {"data": {}}, ["data: Invalid value: {}: field is immutable"]),
        (REVISION, {"revision": 4}, []),
    ],
)
def test_what_may_not_change(resource, changes, causes):
    group, plural = resource
    assert begin(updated(group, plural, changes), causes), updated(group, plural, changes)
