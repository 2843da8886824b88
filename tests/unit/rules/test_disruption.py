# SPDX-License-Identifier: Apache-2.0
"""What disruption budgets say of evictions. The names of the table in `rules/disruption.py` are here."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.api import status
from handfast.rules import disruption
from handfast.rules.rbac import default_roles

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


def budget(state: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "generation": 2},
        "spec": spec,
        "status": {"observedGeneration": 2, **(state or {})},
    }


@pytest.mark.parametrize(
    ("pod", "is_exempt"),
    [
        (READY, False),
        ({"status": {"phase": "Failed"}}, True),
        ({"status": {"phase": "Pending"}}, True),
        ({**READY, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
    ],
)
def test_who_disrupts_nobody_is_not_asked_about(pod, is_exempt):
    assert disruption.is_exempt(pod) is is_exempt


@pytest.mark.parametrize(
    ("selector", "concerned"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "api"}}, False),
        ({}, True),
        (None, False),
        ({"matchExpressions": [{"key": "app", "operator": "Strange"}]}, False),
    ],
)
def test_a_budget_is_about_the_pods_that_it_selects(selector, concerned):
    assert disruption.concerns(budget(selector=selector), {"app": "web"}) is concerned


def test_a_pod_of_two_budgets_is_not_evicted():
    assert disruption.the_budget([]) is None
    assert disruption.the_budget([1]) == 1
    with pytest.raises(status.StatusError, match="more than one PodDisruptionBudget") as caught:
        disruption.the_budget([1, 2])
    assert caught.value.code == 500


@pytest.mark.parametrize(
    ("policy", "state", "pod", "spared"),
    [
        ("AlwaysAllow", {}, {}, True),
        ("AlwaysAllow", {}, READY, False),
        ("IfHealthyBudget", {"currentHealthy": 2, "desiredHealthy": 2}, {}, True),
        (None, {"currentHealthy": 1, "desiredHealthy": 2}, {}, False),
        (None, {"currentHealthy": 0, "desiredHealthy": 0}, {}, False),
    ],
)
def test_a_pod_that_is_not_ready_may_go_if_others_are(policy, state, pod, spared):
    assert disruption.spares(budget(state, unhealthyPodEvictionPolicy=policy), pod) is spared


def refusal(of: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(status.StatusError) as caught:
        disruption.taken(of, "a", NOW)
    return caught.value.code, caught.value.causes[0].message if caught.value.causes else caught.value.message


def test_an_eviction_takes_from_the_budget():
    first = disruption.taken(budget({"disruptionsAllowed": 2}), "a", NOW)["status"]
    assert first["disruptionsAllowed"] == 1
    assert first["disruptedPods"] == {"a": "2026-01-02T00:00:00Z"}
    second = disruption.taken(budget(first), "b", NOW)["status"]
    assert second["disruptedPods"].keys() == {"a", "b"}
    assert second["conditions"][0]["reason"] == "InsufficientPods"
    assert refusal(budget({**second, "currentHealthy": 1, "desiredHealthy": 1})) == (
        429,
        "The disruption budget web needs 1 healthy pods and has 1 currently",
    )


def test_a_budget_that_was_not_counted_allows_nothing():
    old = budget({"disruptionsAllowed": 5, "observedGeneration": 1})
    assert refusal(old) == (429, "The disruption budget web is still being processed by the server.")


def test_a_budget_says_why_it_allows_nothing():
    failed = {"type": "DisruptionAllowed", "reason": "SyncFailed", "message": "no controller"}
    assert refusal(budget({"conditions": [failed]}))[1].endswith("because it failed sync: no controller")
    assert refusal(budget({"currentHealthy": 3, "desiredHealthy": 2}))[1] == (
        "The disruption budget web does not allow evicting pods currently"
    )


def test_a_status_that_makes_no_sense_allows_nothing():
    assert refusal(budget({"disruptionsAllowed": -1}))[0] == 403
    many = {f"p{number}": "2026-01-01T00:00:00Z" for number in range(2001)}
    assert refusal(budget({"disruptionsAllowed": 1, "disruptedPods": many}))[0] == 403


def pods(*states: str) -> list[disruption.Pod]:
    return [disruption.Pod(f"p{index}", "r" in state, "e" in state) for index, state in enumerate(states)]


@pytest.mark.parametrize(
    ("spec", "expected", "desired", "allowed"),
    [
        ({"minAvailable": 1}, 3, 1, 1),
        ({"minAvailable": "50%"}, 3, 2, 0),
        ({"maxUnavailable": 1}, 3, 2, 0),
        ({"maxUnavailable": "34%"}, 3, 1, 1),
        ({"maxUnavailable": 5}, 3, 0, 2),
        ({}, 3, 0, 2),
        ({"minAvailable": 0}, 0, 0, 0),
    ],
)
def test_the_status_says_how_many_may_go(spec, expected, desired, allowed):
    state = disruption.counted(budget(**spec), pods("r", "r", "re", ""), expected, NOW)
    assert (state["expectedPods"], state["currentHealthy"]) == (expected, 2)
    assert (state["desiredHealthy"], state["disruptionsAllowed"]) == (desired, allowed)
    assert state["conditions"][0]["status"] == ("True" if allowed else "False")
    assert state["observedGeneration"] == 2
    assert "disruptedPods" not in state


@pytest.mark.parametrize(
    ("since", "counts"), [("9999-12-31T23:59:59Z", True), ("0001-01-01T00:00:00+14:00", False), ("never", False)]
)
def test_whatever_instant_somebody_noted_is_counted_with(since, counts):
    state = disruption.counted(budget({"disruptedPods": {"p0": since}}, minAvailable=1), pods("r", "r", "re"), 3, NOW)
    assert ("disruptedPods" in state) is counts


def test_who_is_noted_is_not_healthy():
    noted = {"p0": "2026-01-01T23:59:00Z", "p1": "2026-01-01T23:57:00Z", "gone": "2026-01-01T23:59:00Z", "p2": None}
    state = disruption.counted(budget({"disruptedPods": noted}, minAvailable=1), pods("r", "r", "re"), 3, NOW)
    assert state["disruptedPods"] == {"p0": "2026-01-01T23:59:00Z"}
    assert state["currentHealthy"] == 1


def test_a_condition_keeps_its_time_while_its_status_stays():
    before = {"type": "DisruptionAllowed", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    other = {"type": "Other"}
    rows = disruption.conditions({"conditions": [other, before]}, disruption.INSUFFICIENT, "", 3, NOW)
    assert rows[0] == other
    assert rows[1]["lastTransitionTime"] == "2025-01-01T00:00:00Z"
    changed = disruption.conditions({"conditions": [before]}, disruption.SUFFICIENT, "", 3, NOW)
    assert changed[0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"


def test_a_budget_of_which_nobody_knows_enough_allows_nothing():
    state = disruption.failed(budget({"disruptionsAllowed": 3, "currentHealthy": 4}), "no controller", NOW)
    assert (state["disruptionsAllowed"], state["currentHealthy"]) == (0, 4)
    assert state["conditions"][0]["message"] == "no controller"


@pytest.mark.parametrize(
    ("spec", "needed"), [({"minAvailable": 1}, False), ({"minAvailable": "1%"}, True), ({"maxUnavailable": 1}, True)]
)
def test_percentages_are_of_what_there_should_be(spec, needed):
    assert disruption.needs_expected(budget(**spec)) is needed


def test_no_role_for_tenants_writes_the_status():
    for role in ("system:aggregate-to-view", "system:aggregate-to-edit", "system:aggregate-to-admin"):
        for rule in default_roles.CLUSTER_ROLES[role]:
            if "poddisruptionbudgets/status" in rule.resources:
                assert set(rule.verbs) <= set(default_roles.READ)
