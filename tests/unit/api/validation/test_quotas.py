# SPDX-License-Identifier: Apache-2.0
"""The rules for ResourceQuotas and LimitRanges."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created, updated

QUOTA, LIMITS = ("", "resourcequotas"), ("", "limitranges")
PLAIN = {"spec|scopes": REMOVED, "spec|scopeSelector": REMOVED}
EXPRESSIONS = "spec.scopeSelector.matchExpressions"


def _hard(amounts, **more):
    return {**PLAIN, "spec|hard": amounts, **more}


def _selector(*rows):
    return {**PLAIN, "spec|scopeSelector": {"matchExpressions": list(rows)}}


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        (_hard({"count/deployments.apps": "1", "example.com/gpu": "1", "requests.hugepages-2Mi": "1"}), []),
        (
            _hard({"strange": "1"}),
            [
                'spec.hard[strange]: Invalid value: "strange": must be a standard resource type or fully qualified',
                'spec.hard[strange]: Invalid value: "strange": must be a standard resource for quota',
            ],
        ),
        (_hard({"storage": "1"}), ['spec.hard[storage]: Invalid value: "storage": must be a standard resource for']),
        (
            _hard({"a b": "1"}),
            [
                'spec.hard[a b]: Invalid value: "a b": name part',
                'spec.hard[a b]: Invalid value: "a b": must be a stand',
            ],
        ),
        (_hard({"pods": "-1"}), ['spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0']),
        (_hard({"pods": "1500m"}), ['spec.hard[pods]: Invalid value: "1500m": must be an integer']),
        (_hard({"cpu": "1500m", "kubernetes.io/x": "1500m", "requests.example.com/x": "1500m"}), []),
        ({"status|used|pods": "-1"}, ['status.used[pods]: Invalid value: "-1"']),
        (_hard({"pods": "1"}, **{"spec|scopes": ["X"]}), ['spec.scopes: Invalid value: ["X"]: unsupported scope']),
        (_hard({"pods": "1"}, **{"spec|scopes": [7]}), ["spec.scopes: Invalid value: [7]: unsupported scope"]),
        (
            _hard({"services": "1", "count/x": "1"}, **{"spec|scopes": ["BestEffort"]}),
            ['spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource'],
        ),
        (
            _hard({"pods": "1"}, **{"spec|scopes": ["BestEffort", "NotBestEffort"]}),
            ['spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes'],
        ),
        (
            _selector({"scopeName": "X", "operator": "Exists"}),
            [f'{EXPRESSIONS}.scopeName: Invalid value: "X": unsupported scope'],
        ),
        (
            _selector({"scopeName": "Terminating", "operator": "DoesNotExist"}),
            [f"{EXPRESSIONS}.operator: Invalid value: \"DoesNotExist\": must be 'Exists' when scope is any of"],
        ),
        (_selector({"scopeName": "PriorityClass", "operator": "In"}), [f"{EXPRESSIONS}.values: Required value"]),
        (
            _selector({"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}),
            [f'{EXPRESSIONS}.values: Invalid value: ["a"]: must be no value when'],
        ),
        (
            _selector({"scopeName": "PriorityClass", "operator": "Like"}),
            [f'{EXPRESSIONS}.operator: Invalid value: "Like": not a valid selector operator'],
        ),
    ],
)
def test_what_a_quota_has_to_be_like(changes, causes):
    assert begin(created(*QUOTA, changes), causes), created(*QUOTA, changes)


def test_the_scopes_of_a_quota_stay():
    assert updated(*QUOTA, {"spec|scopes": ["Terminating"]}) == [
        'spec.scopes: Invalid value: ["Terminating"]: field is immutable'
    ]
    assert not updated(*QUOTA, {"spec|hard|pods": "11"})


def _limits(*rows):
    return {"spec|limits": list(rows)}


def _container(**lists):
    return _limits({"type": "Container", **lists})


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        (_limits({"type": "a b"}), ['spec.limits[0].type: Invalid value: "a b": name part']),
        (_limits({"type": "X"}), ['spec.limits[0].type: Invalid value: "X": must be a standard limit type or fully']),
        (_limits({"type": "example.com/X"}), []),
        (_limits({"type": "Pod"}, {"type": "Pod"}), ['spec.limits[1].type: Duplicate value: "Pod"']),
        (
            _limits({"type": "Pod", "default": {"cpu": "1"}}),
            ["spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"],
        ),
        (
            _limits({"type": "PersistentVolumeClaim"}),
            ["spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither"],
        ),
        (
            _container(max={"pods": "1"}),
            ['spec.limits[0].max[pods]: Invalid value: "pods": must be a standard resource for containers'],
        ),
        (_container(max={"example.com/gpu": "1", "hugepages-2Mi": "2Mi", "kubernetes.io/x": "1"}), []),
        (
            _container(max={"requests.example.com/gpu": "1"}),
            [
                'spec.limits[0].max[requests.example.com/gpu]: Invalid value: "requests.example.com/gpu": doesn\'t follow'
            ],
        ),
        (
            _limits({"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
            ['spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'],
        ),
        (
            _container(min={"cpu": "2"}, defaultRequest={"cpu": "1"}),
            ['spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request val'],
        ),
        (
            _container(max={"cpu": "1"}, default={"cpu": "2"}, defaultRequest={"cpu": "1"}),
            ['spec.limits[0].default[cpu]: Invalid value: "1": default value 2 is greater than max value 1'],
        ),
        (
            _container(maxLimitRequestRatio={"cpu": "500m"}),
            ['spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1'],
        ),
        (
            _limits({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}),
            [
                'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000'
            ],
        ),
        (
            _container(default={"example.com/gpu": "2"}, defaultRequest={"example.com/gpu": "1"}),
            [
                'spec.limits[0].defaultRequest[example.com/gpu]: Invalid value: "1": default value 2 must equal to',
            ],
        ),
    ],
)
def test_limit_ranges(changes, causes):
    assert begin(created(*LIMITS, changes), causes), created(*LIMITS, changes)
