# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import decision, pod_scheduling

HIGH: dict[str, Any] = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}


def refused(verdict: decision.Deny | None) -> str:
    return "" if verdict is None else verdict.sentence


def test_a_pod_gets_the_number_and_the_policy_of_its_class():
    pod: dict[str, Any] = {"spec": {"priorityClassName": "high"}}
    assert pod_scheduling.named(pod) == "high"
    for _ in range(2):
        assert pod_scheduling.prioritize(pod, HIGH) is None
        assert pod["spec"] == {"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "Never"}


def test_a_pod_without_a_class_gets_the_default_one_or_zero():
    pod: dict[str, Any] = {"spec": {}}
    assert pod_scheduling.named(pod) == ""
    assert pod_scheduling.prioritize(pod, None) is None
    assert pod["spec"] == {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    pod = {"spec": {}}
    assert pod_scheduling.prioritize(pod, HIGH) is None
    assert pod["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"priority": 7}, "the integer value of priority (7) must not be provided in pod spec; priority admission"),
        ({"preemptionPolicy": "PreemptLowerPriority"}, "computed Never from the given PriorityClass name"),
    ],
)
def test_a_pod_that_says_another_priority_is_refused(spec: dict[str, Any], sentence: str):
    assert sentence in refused(pod_scheduling.prioritize({"spec": spec}, HIGH))


def test_a_class_that_is_not_there():
    assert refused(pod_scheduling.absent("no")) == "no PriorityClass with name no was found"


def test_the_default_class_is_the_lowest_one_that_says_so():
    classes = [HIGH, {**HIGH, "value": 5, "globalDefault": True}, {**HIGH, "value": 3, "globalDefault": True}]
    assert pod_scheduling.default_class(classes) == classes[2]
    assert pod_scheduling.default_class([HIGH]) is None


def test_there_is_one_default_class():
    default = {**HIGH, "globalDefault": True}
    other = {"metadata": {"name": "other"}, "globalDefault": True}
    assert pod_scheduling.only_default("other", other, None) is None
    assert pod_scheduling.only_default("high", default, default) is None
    assert pod_scheduling.only_default("other", HIGH, default) is None
    found = refused(pod_scheduling.only_default("other", other, default))
    assert found == "PriorityClass high is already marked as default. Only one default can exist"


def test_an_update_that_leaves_the_priority_out_keeps_it():
    pod: dict[str, Any] = {"spec": {"preemptionPolicy": "Never"}}
    pod_scheduling.keep(pod, {"spec": {"priority": 7, "preemptionPolicy": "PreemptLowerPriority"}})
    assert pod == {"spec": {"priority": 7, "preemptionPolicy": "Never"}}
    pod_scheduling.keep(pod, {"spec": {}})
    assert pod["spec"]["priority"] == 7


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"key": "a", "operator": "Exists"}], [NOT_READY, UNREACHABLE]),
        ([{**NOT_READY, "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{**NOT_READY, "tolerationSeconds": 5}], [UNREACHABLE]),
        ([{"key": UNREACHABLE["key"], "operator": "Exists"}], [NOT_READY]),
        ([{"operator": "Exists"}], []),
    ],
)
def test_a_pod_tolerates_for_five_minutes_what_it_is_silent_about(own: list[Any], added: list[Any]):
    pod: dict[str, Any] = {"spec": {"tolerations": own}}
    for _ in range(2):
        pod_scheduling.tolerate(pod)
        assert pod["spec"]["tolerations"] == [*own, *added]


def test_a_pod_that_has_no_tolerations_gets_them():
    pod: dict[str, Any] = {"spec": {}}
    pod_scheduling.tolerate(pod)
    assert pod["spec"]["tolerations"] == [NOT_READY, UNREACHABLE]
