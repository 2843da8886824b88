# SPDX-License-Identifier: Apache-2.0
"""The rules for the kinds that keep pods running."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created, updated

DEPLOYMENTS = ("apps", "deployments")
EXPRESSION = "spec.selector.matchExpressions[0]"
JOBS, CRONJOBS = ("batch", "jobs"), ("batch", "cronjobs")


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"spec|selector": REMOVED}, ["spec.selector: Required value"]),
        ({"spec|selector": {}}, ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]),
        (
            {"spec|selector": {"matchLabels": {"app": "other"}}},
            [
                'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`',
            ],
        ),
        (
            {"spec|selector|matchExpressions": [{"key": "app", "operator": "Like"}]},
            [f'{EXPRESSION}.operator: Invalid value: "Like": not a valid selector operator'],
        ),
        (
            {"spec|selector|matchExpressions": [{"key": "app", "operator": "In"}]},
            [f"{EXPRESSION}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
        ),
        (
            {"spec|selector|matchExpressions": [{"key": "app", "operator": "Exists", "values": ["x"]}]},
            [f"{EXPRESSION}.values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"],
        ),
        (
            {"spec|selector|matchExpressions": [{"key": "a b", "operator": "DoesNotExist"}]},
            [f'{EXPRESSION}.key: Invalid value: "a b"'],
        ),
        ({"spec|replicas": -1}, ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]),
        ({"spec|template|spec|containers": []}, ["spec.template.spec.containers: Required value"]),
        (
            {"spec|template|spec|restartPolicy": "Never"},
            ['spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'],
        ),
        (
            {"spec|template|spec|activeDeadlineSeconds": 5},
            [
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"
            ],
        ),
        (
            {"spec|strategy|type": "Recreate"},
            ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
        ),
        (
            {"spec|strategy": {"type": "X"}},
            ['spec.strategy.type: Unsupported value: "X": supported values: "Recreate"'],
        ),
        (
            {"spec|strategy|rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}},
            ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
        ),
    ],
)
def test_a_wrong_deployment_has_kubernetes_causes(changes, causes):
    found = created(*DEPLOYMENTS, changes)
    assert begin(found, causes), found


@pytest.mark.parametrize("plural", ["deployments", "replicasets", "daemonsets"])
def test_a_selector_stays(plural):
    found = updated("apps", plural, {"spec|selector": {"matchLabels": {"app": "web"}}})
    assert found == ['spec.selector: Invalid value: {"matchLabels":{"app":"web"}}: field is immutable']
    assert updated("apps", plural, {"spec|template|metadata|annotations": {"a": "b"}}) == []


@pytest.mark.parametrize(("plural", "word"), [("replicasets", "replica set"), ("daemonsets", "daemonset")])
def test_empty_selectors_of_others(plural, word):
    found = created("apps", plural, {"spec|selector": {}})
    assert found == [f"spec.selector: Invalid value: {{}}: empty selector is invalid for {word}"]


def test_a_wrong_statefulset_or_a_forbidden_change_has_kubernetes_causes():
    changes = {"spec|podManagementPolicy": "X", "spec|updateStrategy": {"type": "OnDelete"}}
    assert created("apps", "statefulsets", changes) == [
        'spec.podManagementPolicy: Unsupported value: "X": supported values: "OrderedReady", "Parallel"'
    ]
    assert updated("apps", "statefulsets", {"spec|replicas": 5}) == []
    assert begin(
        updated("apps", "statefulsets", {"spec|serviceName": "other"}),
        ["spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "],
    )


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"spec|selector": {}}, ["spec.selector: Required value"]),
        ({"spec|selector": {"a": "b"}}, ["spec.template.metadata.labels: Invalid value: "]),
        ({"spec|replicas": -1}, ["spec.replicas: Invalid value: -1"]),
    ],
)
def test_replication_controller(changes, causes):
    found = created("", "replicationcontrollers", changes)
    assert begin(found, causes), found


def test_a_replication_controller_needs_a_template():
    assert "spec.template: Required value" in created("", "replicationcontrollers", {"spec|template": REMOVED})


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"spec|selector": REMOVED}, []),
        ({"spec|selector": REMOVED, "spec|manualSelector": True}, ["spec.selector: Required value"]),
        ({"spec|selector": {"matchLabels": {"a": "b"}}}, ["spec.template.metadata.labels: Invalid value: {"]),
        ({"spec|parallelism": -1}, ["spec.parallelism: Invalid value: -1: must be greater than or equal to 0"]),
        ({"spec|completionMode": "X"}, ['spec.completionMode: Unsupported value: "X"']),
        (
            {"spec|template|spec|restartPolicy": "Always"},
            ['spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnFailure", "Never"'],
        ),
    ],
)
def test_a_wrong_job_has_kubernetes_causes(changes, causes):
    found = created(*JOBS, changes)
    assert begin(found, causes), found


def test_changes_of_a_job():
    assert updated(*JOBS, {"spec|parallelism": 5, "spec|suspend": True}) == []
    assert updated(*JOBS, {"spec|completions": 5}) == ["spec.completions: Invalid value: 5: field is immutable"]
    assert updated(*JOBS, {"spec|completions": 5}, {"spec|completionMode": "Indexed"}) == []
    image = {"spec|template|spec|containers|0|image": "x"}
    assert begin(updated(*JOBS, image), ["spec.template: Invalid value: {"])
    assert updated(*JOBS, image, {"spec|suspend": True}) == []


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"spec|schedule": ""}, ["spec.schedule: Required value"]),
        ({"spec|schedule": "@daily"}, []),
        ({"spec|schedule": "1 2"}, ['spec.schedule: Invalid value: "1 2": expected exactly 5 fields, found 2: [1 2]']),
        ({"spec|schedule": "TZ=UTC * * * * *"}, ['spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ']),
        (
            {"spec|concurrencyPolicy": "X"},
            ['spec.concurrencyPolicy: Unsupported value: "X": supported values: "Allow"'],
        ),
        ({"spec|startingDeadlineSeconds": -1}, ["spec.startingDeadlineSeconds: Invalid value: -1"]),
        ({"metadata|name": "x" * 53}, ['metadata.name: Invalid value: "' + "x" * 53 + '": must be no more than 52']),
        (
            {"spec|jobTemplate|spec|manualSelector": True, "spec|jobTemplate|spec|completions": -1},
            [
                "spec.jobTemplate.spec.manualSelector: Unsupported value: true",
                "spec.jobTemplate.spec.completions: Invalid value: -1",
            ],
        ),
    ],
)
def test_cron_job(changes, causes):
    found = created(*CRONJOBS, changes)
    assert begin(found, causes), found
