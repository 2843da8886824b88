# SPDX-License-Identifier: Apache-2.0
"""What LimitRanges make of a new Pod, and whether a Pod or a claim keeps to them.

1. A container that says nothing of a resource gets the range's default limit and default request.
2. Each container, and the Pod as the sum of them, has at least the minimum, and at most the maximum.
3. A limit is at most so many times its request.
4. A claim asks for storage within the bounds of claims.

Only new Pods are judged: their containers never change. Whoever may write LimitRanges decides; the default roles for tenants may not.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_limit_ranges.py |
|---|---|---|---|---|
| a tenant | `edit` in a namespace | a container without limits | 1 | test_what_a_container_does_not_say_is_filled_in |
| a tenant | `edit` | many small containers in one Pod | 2 | test_the_containers_of_a_pod_add_up |
| a tenant | `edit` | a tiny request with a huge limit | 3 | test_a_limit_is_bounded_by_its_request |
| a tenant | `edit` | a claim that is larger than allowed | 4 | test_a_claim_has_bounds_of_its_own |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from handfast.api import jsonpath
from handfast.api.defaulting import pods
from handfast.api.schema import quantities
from handfast.rules import decision, pod_resources

OUTSIDE: Final = "OutsideLimitRange"
_RULE: Final = "LimitRanger"
_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_KINDS: Final = (("containers", "container"), ("initContainers", "init container"))


def fill_in(limit_range: Mapping[str, Any], pod: dict[str, Any]) -> None:
    """Give the containers of a new Pod what they do not say themselves, and note that on the Pod."""
    limits, requests = (_defaults(limit_range, key) for key in ("default", "defaultRequest"))
    notes: list[str] = []
    for key, words in _KINDS:
        for container in jsonpath.mappings(pod, "spec", key):
            # 1. what it says nothing of
            for kind, defaults in (("request", requests), ("limit", limits)):
                names = _filled(container, f"{kind}s", defaults)
                if names:
                    notes.append(f"{', '.join(names)} {kind} for {words} {jsonpath.text(container, 'name')}")
    if notes:
        annotations = pod.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[_ANNOTATION] = "LimitRanger plugin set: " + "; ".join(notes)
        pod.setdefault("status", {})["qosClass"] = pods.qos_class(jsonpath.mapping(pod, "spec"))


def _defaults(limit_range: Mapping[str, Any], key: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for row in _rows(limit_range, "Container"):
        merged.update(jsonpath.mapping(row, key))
    return merged


def _rows(limit_range: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    return (row for row in jsonpath.mappings(limit_range, "spec", "limits") if row.get("type") == kind)


def _filled(container: dict[str, Any], key: str, defaults: Mapping[str, Any]) -> list[str]:
    own = jsonpath.mapping(container, "resources", key)
    missing = {name: value for name, value in defaults.items() if name not in own}
    if missing:
        resources = container.get("resources")
        kept = resources if isinstance(resources, dict) else {}
        container["resources"] = {**kept, key: {**own, **missing}}
    return sorted(missing)


def decide_pod(limit_range: Mapping[str, Any], pod: Mapping[str, Any]) -> decision.Deny | None:
    """Whether a new Pod keeps to the range."""
    return _verdict(_pod_problems(limit_range, pod))


def decide_claim(limit_range: Mapping[str, Any], claim: Mapping[str, Any]) -> decision.Deny | None:
    """Whether a claim keeps to the range."""
    return _verdict(_claim_problems(limit_range, claim))


def _verdict(problems: Iterable[str]) -> decision.Deny | None:
    texts = list(dict.fromkeys(problems))
    if not texts:
        return None
    return decision.Deny(OUTSIDE, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]", _RULE)


def _pod_problems(limit_range: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    spec = jsonpath.mapping(pod, "spec")
    containers = [
        [pod_resources.amounts(jsonpath.mapping(container, "resources", key)) for key in ("requests", "limits")]
        for container in (*jsonpath.mappings(spec, "containers"), *jsonpath.mappings(spec, "initContainers"))
    ]
    for row in _rows(limit_range, "Container"):
        yield from _problems("Container", row, containers)
    for row in _rows(limit_range, "Pod"):
        whole = [pod_resources.of_pod(spec, key, overhead=False) for key in ("requests", "limits")]
        yield from _problems("Pod", row, [whole])


def _problems(kind: str, row: Mapping[str, Any], amounts: Iterable[Sequence[Mapping[str, Decimal]]]) -> Iterator[str]:
    """What is wrong with the requests and limits of each, in the order of what they have."""
    least, most, ratios = (list(_bounds(row, key)) for key in ("min", "max", "maxLimitRequestRatio"))
    for requests, limits in amounts:
        # 2. at least the minimum, at most the maximum
        for name, bound, text in least:
            words = f"minimum {name} usage per {kind} is {text}"
            yield from _too_little(words, name, bound, requests.get(name), limits.get(name))
        for name, bound, text in most:
            words = f"maximum {name} usage per {kind} is {text}"
            yield from _too_much(words, name, bound, requests.get(name), limits.get(name))
        # 3. a limit is at most so many times its request
        for name, bound, text in ratios:
            words = f"{name} max limit to request ratio per {kind} is {text}"
            yield from _too_far(words, bound, requests.get(name), limits.get(name))


def _bounds(row: Mapping[str, Any], key: str) -> Iterator[tuple[str, Decimal, str]]:
    for name, value in jsonpath.mapping(row, key).items():
        bound = quantities.parse(value)
        if bound is not None:
            yield name, bound, _text(bound, name)


def _text(amount: Decimal, name: str) -> str:
    return quantities.text(amount, binary=name.endswith(("memory", "storage")))


def _too_little(words: str, name: str, bound: Decimal, request: Decimal | None, limit: Decimal | None) -> Iterator[str]:
    if request is None:
        yield f"{words}.  No request is specified"
    elif request < bound:
        yield f"{words}, but request is {_text(request, name)}"
    elif limit is not None and limit < bound:
        yield f"{words}, but limit is {_text(limit, name)}"


def _too_much(words: str, name: str, bound: Decimal, request: Decimal | None, limit: Decimal | None) -> Iterator[str]:
    if limit is None:
        yield f"{words}.  No limit is specified"
    elif limit > bound:
        yield f"{words}, but limit is {_text(limit, name)}"
    elif request is not None and request > bound:
        yield f"{words}, but request is {_text(request, name)}"


def _too_far(words: str, bound: Decimal, request: Decimal | None, limit: Decimal | None) -> Iterator[str]:
    if not request:
        yield f"{words}, but no request is specified or request is 0"
    elif not limit:
        yield f"{words}, but no limit is specified or limit is 0"
    elif limit / request > bound:
        yield f"{words}, but provided ratio is {float(limit / request):f}"


def _claim_problems(limit_range: Mapping[str, Any], claim: Mapping[str, Any]) -> Iterator[str]:
    # 4. what a claim asks for
    requests = pod_resources.amounts(jsonpath.mapping(claim, "spec", "resources", "requests"))
    kind = "PersistentVolumeClaim"
    for row in _rows(limit_range, kind):
        for name, bound, text in _bounds(row, "min"):
            yield from _too_little(f"minimum {name} usage per {kind} is {text}", name, bound, requests.get(name), None)
        for name, bound, text in _bounds(row, "max"):
            words, request = f"maximum {name} usage per {kind} is {text}", requests.get(name)
            if request is None:
                yield f"{words}.  No request is specified"
            elif request > bound:
                yield f"{words}, but request is {_text(request, name)}"
