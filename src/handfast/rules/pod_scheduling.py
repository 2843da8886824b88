# SPDX-License-Identifier: Apache-2.0
"""What a Pod gets for its scheduler: its priority, and how long it stays on a node that is not ready.

It looks up nothing, and schedules nothing: the class is given. Who may name a class is not asked here, nor in Kubernetes.

1. A class that is named is there. A Pod that names none gets the default class, the one with the lowest value if there are several.
2. The number and the preemption policy are those of the class; without a class 0, and lower priorities may be displaced. A Pod that says
   another is refused: it would go before others.
3. An update that leaves them out keeps them. That they do not change is validation's rule.
4. A Pod that says nothing of nodes that are not ready, or cannot be reached, tolerates them for five minutes.
5. There is one default class. Another one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from handfast.api import jsonpath, objects
from handfast.rules import decision

RULE: Final = "Priority"
POLICY: Final = "PreemptLowerPriority"
SECONDS: Final = 300
_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EFFECT: Final = "NoExecute"
_KEPT: Final = ("priority", "preemptionPolicy")


def named(pod: objects.Document) -> str:
    """The class that a Pod names; empty: none."""
    return jsonpath.text(pod, "spec", "priorityClassName")


def absent(name: str) -> decision.Deny:
    """1. a class that is named is there"""
    return _refuse(f"no PriorityClass with name {name} was found")


def default_class(classes: Iterable[objects.Document]) -> objects.Document | None:
    """1. the default class, if there is one"""
    defaults = [each for each in classes if each.get("globalDefault") is True]
    return min(defaults, key=lambda each: jsonpath.number(each, "value"), default=None)


def prioritize(pod: objects.Document, chosen: objects.Document | None) -> decision.Deny | None:
    """Fill in what the chosen class gives, or say why the Pod is refused."""
    spec = pod["spec"]
    # 2. the number and the policy of the class
    number = jsonpath.number(chosen, "value")
    if spec.get("priority") not in {None, number}:
        how = f"priority admission controller computed {number} from the given PriorityClass name"
        return _refuse(f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; {how}")
    policy = jsonpath.text(chosen, "preemptionPolicy") or POLICY
    if spec.get("preemptionPolicy") not in {None, policy}:
        how = f"priority admission controller computed {policy} from the given PriorityClass name"
        said = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']})"
        return _refuse(f"{said} must not be provided in pod spec; {how}")
    spec |= {"priority": number, "preemptionPolicy": policy}
    if chosen is not None:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    return None


def keep(pod: objects.Document, old: objects.Document) -> None:
    """3. an update that leaves them out keeps them"""
    spec = pod["spec"]
    before = jsonpath.mapping(old, "spec")
    for key in _KEPT:
        if spec.get(key) is None and key in before:
            spec[key] = before[key]


def tolerate(pod: objects.Document) -> None:
    """4. five minutes, where the Pod says nothing else"""
    spec = pod["spec"]
    tolerations = jsonpath.mappings(spec, "tolerations")
    missing = [taint for taint in _TAINTS if not any(_is_about(row, taint) for row in tolerations)]
    if missing:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *map(_toleration, missing)]


def _is_about(toleration: dict[str, Any], taint: str) -> bool:
    key, effect = jsonpath.text(toleration, "key"), jsonpath.text(toleration, "effect")
    return key in {"", taint} and effect in {"", _EFFECT}


def _toleration(taint: str) -> dict[str, Any]:
    return {"key": taint, "operator": "Exists", "effect": _EFFECT, "tolerationSeconds": SECONDS}


def only_default(name: str, priority_class: objects.Document, default: objects.Document | None) -> decision.Deny | None:
    """5. one default class; `name` is that of the class that is written"""
    if priority_class.get("globalDefault") is not True or default is None or default["metadata"]["name"] == name:
        return None
    other = default["metadata"]["name"]
    return _refuse(f"PriorityClass {other} is already marked as default. Only one default can exist")


def _refuse(sentence: str) -> decision.Deny:
    return decision.Deny("NotAllowed", sentence, RULE)
