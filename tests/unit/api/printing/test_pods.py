# SPDX-License-Identifier: Apache-2.0
"""The one word that says how a pod is, and what is counted beside it."""

from __future__ import annotations

import datetime

import pytest

from handfast.api.printing import pods

NOW = datetime.datetime(2026, 1, 2, 4, 4, 5, tzinfo=datetime.UTC)
RUNNING = {"ready": True, "state": {"running": {}}}


def _cells(status, *, init=1, deleted=False, spec=None):
    document = {
        "metadata": {"name": "p", **({"deletionTimestamp": "2026-01-02T04:00:00Z"} if deleted else {})},
        "spec": {
            "containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": f"i{index}"} for index in range(init)],
            **(spec or {}),
        },
        "status": status,
    }
    return pods.cells(document, NOW)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({}, "<unknown>"),
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "SchedulingGated",
        ),
        ({"initContainerStatuses": [{"state": {"terminated": {"exitCode": 1}}}]}, "Init:ExitCode:1"),
        ({"initContainerStatuses": [{"state": {"terminated": {"exitCode": 1, "signal": 9}}}]}, "Init:Signal:9"),
        ({"initContainerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}, "Init:Error"),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, "Init:ErrImagePull"),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}, "Init:0/1"),
        ({"initContainerStatuses": [{"state": {"running": {}}}]}, "Init:0/1"),
        ({"phase": "Running", "containerStatuses": [RUNNING]}, "Running"),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            "CrashLoopBackOff",
        ),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}, RUNNING]},
            "ExitCode:3",
        ),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}, RUNNING]},
            "NotReady",
        ),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [RUNNING, {"state": {"terminated": {"reason": "Completed"}}}],
            },
            "Running",
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]},
            "Completed",
        ),
    ],
)
def test_the_word(status, word):
    assert _cells(status)[2] == word


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    ],
)
def test_the_word_of_a_pod_being_deleted(status, word):
    assert _cells(status, deleted=True)[2] == word


def test_restarts_of_init_containers_count_until_the_containers_run():
    waiting = {"restartCount": 5, "state": {"running": {}}, "name": "i0"}
    assert _cells({"initContainerStatuses": [waiting]})[3] == "5"
    done = {"restartCount": 5, "state": {"terminated": {"exitCode": 0}}, "name": "i0"}
    assert _cells({"initContainerStatuses": [done], "containerStatuses": [{"restartCount": 1}]})[3] == "1"


def test_the_last_restart_is_the_latest():
    rows = [
        {"restartCount": 1, "lastState": {"terminated": {"finishedAt": f"2026-01-02T04:0{minute}:05Z"}}}
        for minute in (1, 3, 2)
    ]
    assert _cells({"containerStatuses": rows})[3] == "3 (60s ago)"


def test_sidecars_count_as_containers_once_they_are_started():
    spec = {"initContainers": [{"name": "side", "restartPolicy": "Always"}]}
    status = {
        "initContainerStatuses": [{"name": "side", "started": True, "ready": False}],
        "containerStatuses": [RUNNING],
    }
    assert _cells(status, spec=spec)[1] == "1/3"
    status["initContainerStatuses"][0]["ready"] = True
    assert _cells(status, spec=spec)[1] == "2/3"


def test_wide_cells():
    assert _cells({"podIP": "10.0.0.1"})[5:] == ["10.0.0.1", "<none>", "<none>", "<none>"]
    gates = {"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}
    status = {"conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}]}
    assert _cells(status, spec=gates)[8] == "1/2"
