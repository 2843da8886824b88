# SPDX-License-Identifier: Apache-2.0
"""The rules for pods, and what of a pod may change."""

from __future__ import annotations

import pytest

from handfast.api.validation import pods
from tests.properties.changed_documents import REMOVED, begin, created, updated

WEB = "spec|containers|0"
IN = "spec.containers[0]"


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"spec|containers": []}, ["spec.containers: Required value"]),
        ({f"{WEB}|name": ""}, [f"{IN}.name: Required value"]),
        ({f"{WEB}|name": "A"}, [f'{IN}.name: Invalid value: "A": a lowercase RFC 1123 label']),
        ({f"{WEB}|name": "prepare"}, [f'{IN}.name: Duplicate value: "prepare"']),
        ({f"{WEB}|image": ""}, [f"{IN}.image: Required value"]),
        (
            {f"{WEB}|image": " web"},
            [f'{IN}.image: Invalid value: " web": must not have leading or trailing whitespace'],
        ),
        (
            {f"{WEB}|imagePullPolicy": "Often"},
            [f'{IN}.imagePullPolicy: Unsupported value: "Often": supported values: "Always", "IfNotPresent", "Never"'],
        ),
        ({f"{WEB}|terminationMessagePolicy": "X"}, [f'{IN}.terminationMessagePolicy: Unsupported value: "X"']),
        ({f"{WEB}|ports|0|name": "uP"}, [f'{IN}.ports[0].name: Invalid value: "uP": must contain only alpha-numeric']),
        ({f"{WEB}|ports|0|containerPort": 0}, [f"{IN}.ports[0].containerPort: Required value"]),
        ({f"{WEB}|ports|0|containerPort": 70000}, [f"{IN}.ports[0].containerPort: Invalid value: 70000: must be be"]),
        ({f"{WEB}|ports|0|hostPort": 70000}, [f"{IN}.ports[0].hostPort: Invalid value: 70000: must be between"]),
        (
            {f"{WEB}|ports|1": {"name": "http", "containerPort": 1, "protocol": "X"}},
            [f'{IN}.ports[1].name: Duplicate value: "http"', f'{IN}.ports[1].protocol: Unsupported value: "X"'],
        ),
        ({f"{WEB}|ports|0|name": REMOVED, f"{WEB}|ports|0|hostPort": REMOVED}, []),
        ({f"{WEB}|env|0|name": ""}, [f"{IN}.env[0].name: Required value"]),
        ({f"{WEB}|env|0|name": "A=B"}, [f'{IN}.env[0].name: Invalid value: "A=B": a valid environment variable name']),
        (
            {f"{WEB}|env|1|value": "password"},
            [f"{IN}.env[1].valueFrom: Forbidden: may not be specified when `value` is not empty"],
        ),
        ({f"{WEB}|volumeMounts|0|name": ""}, [f"{IN}.volumeMounts[0].name: Required value"]),
        ({f"{WEB}|volumeMounts|0|name": "gone"}, [f'{IN}.volumeMounts[0].name: Not found: "gone"']),
        ({f"{WEB}|volumeMounts|0|mountPath": ""}, [f"{IN}.volumeMounts[0].mountPath: Required value"]),
        (
            {f"{WEB}|volumeMounts|1": {"name": "scratch", "mountPath": "/etc/web"}},
            [f'{IN}.volumeMounts[1].mountPath: Invalid value: "/etc/web": must be unique'],
        ),
        (
            {"spec|overhead": {"cpu": "-1"}},
            ['spec.overhead[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        (
            {"spec|resources": {"requests": {"memory": "-1"}, "limits": {"cpu": "50m"}}},
            [
                'spec.resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0',
                f'{IN}.resources.limits: Invalid value: "100m": must be less than or equal to pod limits of 50m',
            ],
        ),
        (
            {f"{WEB}|resources|requests|cpu": "200m"},
            [f'{IN}.resources.requests: Invalid value: "200m": must be less than or equal to cpu limit of 100m'],
        ),
        (
            {f"{WEB}|resources|requests|cpu": "-1"},
            [f'{IN}.resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        ({f"{WEB}|livenessProbe": {}}, [f"{IN}.livenessProbe: Required value: must specify a handler type"]),
        (
            {"spec|restartPolicy": "Sometimes"},
            ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'],
        ),
        ({"spec|dnsPolicy": "X"}, ['spec.dnsPolicy: Unsupported value: "X"']),
        (
            {"spec|activeDeadlineSeconds": 2**31},
            ["spec.activeDeadlineSeconds: Invalid value: 2147483648: must be between 1 and 2147483647, inclusive"],
        ),
        ({"spec|activeDeadlineSeconds": 2**31 - 1}, []),
        (
            {"spec|activeDeadlineSeconds": 0},
            ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147"],
        ),
        ({"spec|nodeSelector": {"a b": ""}}, ['spec.nodeSelector: Invalid value: "a b"']),
        ({"spec|serviceAccountName": "A"}, ['spec.serviceAccountName: Invalid value: "A"']),
        ({"spec|hostname": "a.b"}, ['spec.hostname: Invalid value: "a.b"']),
        ({"spec|volumes|1|name": "config"}, ['spec.volumes[1].name: Duplicate value: "config"']),
        ({"spec|volumes|1|emptyDir": REMOVED}, ["spec.volumes[1]: Required value: must specify a volume type"]),
        (
            {"spec|volumes|0|emptyDir": {}},
            ["spec.volumes[0].configMap: Forbidden: may not specify more than 1 volume type"],
        ),
        ({"spec|tolerations": [{}]}, ['spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists']),
        (
            {"spec|tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            [
                "spec.tolerations[0].operator: Invalid value: \"Exists\": value must be empty when `operator` is 'Exists'"
            ],
        ),
        (
            {"spec|tolerations": [{"key": "a b", "operator": "Like", "effect": "X", "tolerationSeconds": 1}]},
            [
                'spec.tolerations[0].key: Invalid value: "a b"',
                'spec.tolerations[0].operator: Unsupported value: "Like"',
                'spec.tolerations[0].effect: Unsupported value: "X"',
                "spec.tolerations[0].effect: Invalid value: \"X\": effect must be 'NoExecute' when",
            ],
        ),
    ],
)
def test_a_wrong_pod_has_kubernetes_causes(changes, causes):
    found = created("", "pods", changes)
    assert begin(found, causes), found


def test_the_value_of_a_variable_is_never_shown():
    found = created("", "pods", {f"{WEB}|env|1|value": "password"})
    assert len(found) == 1
    assert "password" not in found[0]


@pytest.mark.parametrize(
    "changes",
    [
        {f"{WEB}|image": "web:2"},
        {"spec|initContainers|0|image": "tool:2"},
        {"spec|activeDeadlineSeconds": 5},
        {"spec|tolerations|2": {"key": "new", "operator": "Exists"}},
        {"spec|tolerations|1|tolerationSeconds": 50},
        {"spec|overhead": {}},
        {"metadata|labels": {"a": "b"}},
        {"status|phase": "Failed"},
    ],
)
def test_what_may_change(changes):
    assert updated("", "pods", changes) == []


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"spec|nodeName": "n2"}, ["spec: Forbidden: pod updates may not change fields other than"]),
        ({f"{WEB}|env|0|value": "c"}, ["spec: Forbidden: pod updates may not change fields other than"]),
        ({"spec|schedulingGates": [{"name": "a/b"}]}, ["spec: Forbidden: pod updates may not change"]),
        (
            {"spec|initContainers": []},
            ["spec.initContainers: Forbidden: pod updates may not add or remove containers"],
        ),
        (
            {"spec|tolerations": []},
            ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
        ),
    ],
)
def test_what_may_not_change(changes, causes):
    found = updated("", "pods", changes)
    assert begin(found, causes), found


MIRROR = "metadata|annotations"
MIRROR_FIELD = "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: "
REPLACED = f"{MIRROR_FIELD}may not remove or update mirror pod annotation"


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        pytest.param("x", "x", [], id="kept"),
        pytest.param("", "", [], id="kept, and empty"),
        pytest.param("x", None, [REPLACED], id="removed"),
        pytest.param("", None, [REPLACED], id="removed, and empty"),
        pytest.param("x", "y", [REPLACED], id="changed"),
        pytest.param("x", "", [REPLACED], id="emptied"),
        pytest.param(None, "x", [f"{MIRROR_FIELD}may not add mirror pod annotation"], id="added"),
        pytest.param(None, "", [f"{MIRROR_FIELD}may not add mirror pod annotation"], id="added, and empty"),
    ],
)
def test_a_mirror_pod_stays_one(before, after, causes):
    new, old = ({"x/y": "z"} | ({pods.MIRROR: value} if value is not None else {}) for value in (after, before))
    assert updated("", "pods", {MIRROR: new}, {MIRROR: old}) == causes


def test_a_deadline_only_comes_closer():
    before = {"spec|activeDeadlineSeconds": 10}
    path = "spec.activeDeadlineSeconds"
    assert updated("", "pods", {"spec|activeDeadlineSeconds": 5}, before) == []
    assert updated("", "pods", {"spec|activeDeadlineSeconds": 11}, before) == [
        f"{path}: Invalid value: 11: must be less than or equal to previous value"
    ]
    assert updated("", "pods", {"spec|activeDeadlineSeconds": None}, before) == [
        f"{path}: Invalid value: null: must not update from a positive integer to nil value"
    ]


def test_gates_can_be_taken_away_and_a_negative_grace_period_put_right():
    before = {"spec|schedulingGates": [{"name": "a/b"}], "spec|terminationGracePeriodSeconds": -1}
    assert updated("", "pods", {"spec|schedulingGates": [], "spec|terminationGracePeriodSeconds": 1}, before) == []


def test_containers_of_an_odd_type_are_compared_as_they_are():
    assert list(pods.pod_update({"spec": {"containers": [5]}}, {"spec": {"containers": [5]}})) == []
    found = pods.pod_update({"spec": {"containers": [5]}}, {"spec": {"containers": [6]}})
    assert [cause.field for cause in found] == ["spec"]
