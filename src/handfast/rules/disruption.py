# SPDX-License-Identifier: Apache-2.0
"""May this Pod be evicted? What PodDisruptionBudgets say of it, and what the status of a budget is.

1. A Pod that has ended, never started or is being deleted disrupts nobody: no budget is asked.
2. A Pod that more budgets than one select is not evicted: nobody could take from both at once.
3. A Pod that is not ready may go if the budget allows that always, or if enough others are healthy. It takes nothing from the
   budget, but must still not be ready when it is deleted.
4. Any other needs a disruption that the budget allows, by a status that was counted for the budget as it is now. It is taken from
   the status by compare-and-swap, and the Pod is noted, so that it no longer counts as healthy.
5. Healthy is who is ready, not being deleted, and not noted within the last two minutes.

Only evictions ask. Whoever may delete Pods may delete them; a node that is silent is no eviction.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_disruption.py |
|---|---|---|---|---|
| whoever drains | `pods/eviction` | evict two Pods where one may go | 4 | test_an_eviction_takes_from_the_budget |
| whoever drains | `pods/eviction` | evict by a status from before the budget was changed | 4 | test_a_budget_that_was_not_counted_allows_nothing |
| whoever drains | `pods/eviction` | evict again before the first Pod is gone | 5 | test_who_is_noted_is_not_healthy |
| a tenant | `edit` in a namespace | raise what is allowed | RBAC: no role for tenants writes `poddisruptionbudgets/status` | test_no_role_for_tenants_writes_the_status |
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from handfast.api import jsonpath, objects, selectors, status
from handfast.api.printing import ages

T = TypeVar("T")

BUDGET: Final = "DisruptionBudget"
SUFFICIENT, INSUFFICIENT, FAILED = "SufficientPods", "InsufficientPods", "SyncFailed"
_ALLOWED: Final = "DisruptionAllowed"
_VIOLATES: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_UNDISTURBED: Final = frozenset({"Succeeded", "Failed", "Pending"})
# For how long a Pod that was to be evicted counts as gone.
NOTED: Final = datetime.timedelta(minutes=2)
_MOST_NOTED: Final = 2000
_WAIT: Final = 10


def is_exempt(pod: Mapping[str, Any]) -> bool:
    """Whether no budget is asked."""
    # 1. it disrupts nobody
    phase = jsonpath.text(pod, "status", "phase")
    return phase in _UNDISTURBED or jsonpath.at(pod, "metadata", "deletionTimestamp") is not None


def selector(budget: Mapping[str, Any]) -> selectors.LabelSelector | None:
    """Whom a budget selects; None: nobody. It costs in proportion to the selector, matching far less."""
    said = jsonpath.at(budget, "spec", "selector")
    if not isinstance(said, dict):
        return None
    try:
        return selectors.from_label_selector(said)
    except status.StatusError:
        return None


def concerns(budget: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Whether a budget selects Pods with these labels. An empty selector selects all, none at all selects none."""
    selected = selector(budget)
    return selected is not None and selected.match(labels)


def the_budget(budgets: Sequence[T]) -> T | None:
    """The one budget of a Pod, if it has one; 500 if it has two."""
    # 2. not two
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise status.StatusError("InternalError", text)
    return budgets[0] if budgets else None


def is_ready(pod: Mapping[str, Any]) -> bool:
    rows = jsonpath.mappings(pod, "status", "conditions")
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in rows)


def spares(budget: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a Pod that is not ready may go without taking from the budget."""
    # 3. not ready, and that is allowed, or enough others are healthy
    if is_ready(pod):
        return False
    if jsonpath.at(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = (jsonpath.number(budget, "status", key) for key in ("currentHealthy", "desiredHealthy"))
    return healthy >= desired > 0


def taken(budget: Mapping[str, Any], pod_name: str, now: datetime.datetime) -> dict[str, Any]:
    """The budget with one disruption less, and the Pod noted; 429 if it allows none."""
    # 4. counted for the budget as it is now
    name = jsonpath.text(budget, "metadata", "name")
    state = jsonpath.mapping(budget, "status")
    if jsonpath.number(state, "observedGeneration") < jsonpath.number(budget, "metadata", "generation"):
        raise too_early(name)
    allowed, noted = jsonpath.number(state, "disruptionsAllowed"), jsonpath.mapping(state, "disruptedPods")
    if allowed < 0 or len(noted) > _MOST_NOTED:
        why = "pdb disruptions allowed is negative" if allowed < 0 else "too many evictions not confirmed"
        raise status.forbidden("poddisruptionbudgets", "policy", name, why)
    if allowed == 0:
        raise status.StatusError("TooManyRequests", _VIOLATES, causes=[status.Cause(BUDGET, _why(name, state))])
    after = {**state, "disruptionsAllowed": allowed - 1, "disruptedPods": {**noted, pod_name: objects.timestamp(now)}}
    if allowed == 1:
        after["conditions"] = conditions(state, INSUFFICIENT, "", jsonpath.number(state, "observedGeneration"), now)
    return {**budget, "status": after}


def too_early(name: str) -> status.StatusError:
    """429: nobody knows yet what the budget allows, or the Pod has just become ready."""
    cause = status.Cause(BUDGET, f"The disruption budget {name} is still being processed by the server.")
    return status.StatusError("TooManyRequests", _VIOLATES, causes=[cause], retry_after=_WAIT)


def _why(name: str, state: Mapping[str, Any]) -> str:
    rows = [row for row in jsonpath.mappings(state, "conditions") if row.get("type") == _ALLOWED]
    message = jsonpath.text(rows[0], "message") if rows else ""
    if message and rows[0].get("reason") == FAILED:
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
    healthy, desired = (jsonpath.number(state, key) for key in ("currentHealthy", "desiredHealthy"))
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"The disruption budget {name} does not allow evicting pods currently"


# --- the status of a budget


class Pod(msgspec.Struct, frozen=True):
    """A Pod that a budget selects."""

    name: str
    is_ready: bool
    is_ending: bool


def counted(budget: Mapping[str, Any], pods: Sequence[Pod], expected: int, now: datetime.datetime) -> dict[str, Any]:
    """The status of a budget, from its Pods and how many of them there should be."""
    noted = _still_noted(jsonpath.mapping(budget, "status", "disruptedPods"), pods, now)
    # 5. ready, not ending, not noted
    healthy = sum(1 for pod in pods if pod.is_ready and not pod.is_ending and pod.name not in noted)
    desired = _desired(jsonpath.mapping(budget, "spec"), expected)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    return _status(
        budget, SUFFICIENT if allowed else INSUFFICIENT, "", (expected, healthy, desired, allowed), noted, now
    )


def failed(budget: Mapping[str, Any], message: str, now: datetime.datetime) -> dict[str, Any]:
    """The status of a budget of which nobody can say how many Pods there should be: it allows nothing."""
    state = jsonpath.mapping(budget, "status")
    numbers = [jsonpath.number(state, key) for key in ("expectedPods", "currentHealthy", "desiredHealthy")]
    noted = jsonpath.mapping(state, "disruptedPods")
    return _status(budget, FAILED, message, (numbers[0], numbers[1], numbers[2], 0), noted, now)


def needs_expected(budget: Mapping[str, Any]) -> bool:
    """Whether the number of Pods that there should be counts, and not that of those that are there."""
    spec = jsonpath.mapping(budget, "spec")
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def _status(
    budget: Mapping[str, Any],
    reason: str,
    message: str,
    numbers: tuple[int, int, int, int],
    noted: Mapping[str, Any],
    now: datetime.datetime,
) -> dict[str, Any]:
    generation = jsonpath.number(budget, "metadata", "generation")
    expected, healthy, desired, allowed = numbers
    return {
        "observedGeneration": generation,
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "conditions": conditions(jsonpath.mapping(budget, "status"), reason, message, generation, now),
        **({"disruptedPods": dict(noted)} if noted else {}),
    }


def conditions(
    state: Mapping[str, Any], reason: str, message: str, generation: int, now: datetime.datetime
) -> list[dict[str, Any]]:
    """The conditions with that of the budget; its time is that of the last change of its status."""
    value = "True" if reason == SUFFICIENT else "False"
    rows = jsonpath.mappings(state, "conditions")
    before = next((row for row in rows if row.get("type") == _ALLOWED), {})
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    row = {
        "type": _ALLOWED,
        "status": value,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": since or objects.timestamp(now),
    }
    return [*(other for other in rows if other.get("type") != _ALLOWED), row]


def _still_noted(noted: Mapping[str, Any], pods: Iterable[Pod], now: datetime.datetime) -> dict[str, Any]:
    """Those who were to be evicted, are there, and are not being deleted; not for longer than two minutes."""
    here = {pod.name for pod in pods if not pod.is_ending}
    return {
        name: since
        for name, since in noted.items()
        if name in here and (noted_at := ages.instant(since)) is not None and now - noted_at < NOTED
    }


def _desired(spec: Mapping[str, Any], expected: int) -> int:
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is not None:
        return max(0, expected - _amount(most, expected))
    return _amount(least, expected)


def _amount(value: Any, expected: int) -> int:
    """A number, or a percentage of what there should be, rounded up; nothing said means all but none."""
    if isinstance(value, str):
        return math.ceil(int(value.removesuffix("%")) * expected / 100)
    return value if isinstance(value, int) else 0
