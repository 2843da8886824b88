# SPDX-License-Identifier: Apache-2.0
"""What a new Pod gets from the RuntimeClass that it names: its overhead, and where it may be scheduled.

It looks up nothing, and runs nothing: the class is given. Whether a node has its handler is that node's business.

1. A class that is named is there.
2. The overhead is that of the class. A Pod that says another, or says one where the class has none, or there is no class, is refused:
   quotas count it.
3. The node selector of the class is added; a Pod that wants another value for one of its keys is refused.
4. The tolerations of the class are added where the Pod does not have them.
"""

from __future__ import annotations

from handfast.api import jsonpath, objects
from handfast.rules import decision

RULE = "RuntimeClass"


def named(pod: objects.Document) -> str:
    """The class that a Pod names; empty: none."""
    return jsonpath.text(pod, "spec", "runtimeClassName")


def absent(name: str) -> decision.Deny:
    """1. a class that is named is there"""
    return _refuse(f'pod rejected: RuntimeClass "{name}" not found')


def apply(pod: objects.Document, runtime_class: objects.Document) -> decision.Deny | None:
    """Fill in what the class gives, or say why the Pod is refused."""
    spec = pod["spec"]
    # 2. its overhead
    wanted, fixed = spec.get("overhead") or {}, jsonpath.mapping(runtime_class, "overhead", "podFixed")
    if wanted and not fixed:
        return _refuse("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if wanted and wanted != fixed:
        return _refuse("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if fixed:
        spec["overhead"] = dict(fixed)
    # 3. its node selector
    selector = jsonpath.mapping(runtime_class, "scheduling", "nodeSelector")
    own = spec.get("nodeSelector") or {}
    for key, value in selector.items():
        if own.get(key, value) != value:
            where = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}"
            return _refuse(f"{where}; pod.spec.nodeSelector[{key}] = {own[key]}")
    if selector:
        spec["nodeSelector"] = {**own, **selector}
    # 4. its tolerations
    tolerations = spec.get("tolerations") or []
    added = [row for row in jsonpath.mappings(runtime_class, "scheduling", "tolerations") if row not in tolerations]
    if added:
        spec["tolerations"] = [*tolerations, *added]
    return None


def _refuse(sentence: str) -> decision.Deny:
    return decision.Deny("NotAllowed", sentence, RULE)
