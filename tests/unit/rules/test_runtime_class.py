# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import decision, runtime_class

KATA: dict[str, Any] = {
    "overhead": {"podFixed": {"cpu": "10m"}},
    "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
}


def refused(verdict: decision.Deny | None) -> str:
    return "" if verdict is None else verdict.sentence


def test_a_pod_gets_what_its_class_gives():
    pod: dict[str, Any] = {
        "spec": {"runtimeClassName": "kata", "nodeSelector": {"a": "b"}, "tolerations": [{"key": "x"}]}
    }
    assert runtime_class.named(pod) == "kata"
    for _ in range(2):
        assert runtime_class.apply(pod, KATA) is None
        assert pod["spec"] == {
            "runtimeClassName": "kata",
            "overhead": {"cpu": "10m"},
            "nodeSelector": {"a": "b", "kata": "yes"},
            "tolerations": [{"key": "x"}, {"key": "kata", "operator": "Exists"}],
        }


def test_a_class_that_gives_nothing_changes_nothing():
    pod: dict[str, Any] = {"spec": {"runtimeClassName": "runc"}}
    assert runtime_class.apply(pod, {"handler": "runc"}) is None
    assert pod == {"spec": {"runtimeClassName": "runc"}}
    assert runtime_class.named({"spec": {}}) == ""


@pytest.mark.parametrize(
    ("spec", "given", "sentence"),
    [
        ({"overhead": {"cpu": "1"}}, {}, "Pod Overhead set without corresponding RuntimeClass defined Overhead"),
        ({"overhead": {"cpu": "1"}}, KATA, "Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        ({"nodeSelector": {"kata": "no"}}, KATA, "nodeSelector[kata] = yes; pod.spec.nodeSelector[kata] = no"),
    ],
)
def test_a_pod_that_contradicts_its_class_is_refused(spec: dict[str, Any], given: dict[str, Any], sentence: str):
    assert sentence in refused(runtime_class.apply({"spec": spec}, given))


def test_a_class_that_is_not_there():
    assert refused(runtime_class.absent("no")) == 'pod rejected: RuntimeClass "no" not found'
