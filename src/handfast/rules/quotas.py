# SPDX-License-Identifier: Apache-2.0
"""May this object be added to its namespace? What it uses, which ResourceQuotas limit that, and what is left of them.

1. An object uses one of `count/<resource>[.<group>]`, and what its kind has beside that: Pods their requests and limits, Services
   node ports and load balancers, claims their storage.
2. A Pod that has ended uses nothing but its count.
3. A quota concerns an object if it limits something that the object uses and all its scopes fit the object.
4. Where a quota limits CPU or memory, every container has to say how much of it it wants.
5. What is used and what is added may not be more than the limit, of each thing that is limited.
6. Of an object that changes, only what it uses more counts.
7. What a quota limits is what its status says: until the controller has counted for the first time, it limits nothing.

It counts nothing that is stored: `used` is written by admission and by the controller, both by compare-and-swap.

| who | holding | tries | stopped by | shown in tests/unit/rules/test_quotas.py |
|---|---|---|---|---|
| a tenant | `edit` in a namespace | more objects than the quota allows | 5 | test_what_is_more_than_the_limit_is_refused |
| a tenant | `edit` | a Pod that does not say what it wants | 4 | test_a_pod_has_to_say_what_it_wants |
| a tenant | `edit` | a Pod that says less than its containers do | a Pod's request counts where it is more | test_a_pod_asks_for_no_less_than_its_containers |
| a tenant | `edit` | a small object that grows by an update | 6 | test_of_a_change_only_what_is_more_counts |
| a tenant | `edit` | a negative amount, to make room | refused as negative | test_nothing_uses_less_than_nothing |
| a tenant | `edit` | a Service with node ports, made a cluster IP first | 6 | test_of_a_change_only_what_is_more_counts |
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, objects
from handfast.api.defaulting import pods
from handfast.api.schema import quantities
from handfast.rules import decision, pod_resources

EXCEEDED: Final = "QuotaExceeded"
UNSAID: Final = "QuotaNeedsResources"
UNCOUNTED: Final = "QuotaNotCounted"
NEGATIVE: Final = "QuotaNegative"
_RULE: Final = "ResourceQuota"
_ONE: Final = Decimal(1)
_ZERO: Final = Decimal(0)
PODS: Final = ("", "pods")
SERVICES: Final = ("", "services")
CLAIMS: Final = ("", "persistentvolumeclaims")
# What may use more by an update; all others are counted when they are created.
CHANGING: Final = frozenset({PODS, SERVICES, CLAIMS})
# Nobody counts these: they come and go by themselves.
_UNCOUNTED: Final = frozenset({("", "events"), ("events.k8s.io", "events")})
_PLAIN: Final = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets", "services"})
_NEEDED: Final = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
_REQUESTED: Final = ("cpu", "memory", "ephemeral-storage")
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_CLASS: Final = ".storageclass.storage.k8s.io/"
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


class Requirement(msgspec.Struct, frozen=True):
    """A scope that an object has to be in, or not."""

    scope: str
    operator: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota as its status has it."""

    name: str
    hard: Mapping[str, Decimal]
    used: Mapping[str, Decimal]
    requirements: tuple[Requirement, ...]


def read(document: Mapping[str, Any]) -> Quota:
    """The quota of a document."""
    # 7. by its status
    return Quota(
        jsonpath.text(document, "metadata", "name"),
        pod_resources.amounts(jsonpath.mapping(document, "status", "hard")),
        pod_resources.amounts(jsonpath.mapping(document, "status", "used")),
        requirements(document),
    )


def requirements(document: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """The scopes of a quota, however they are written."""
    spec = jsonpath.mapping(document, "spec")
    rows = jsonpath.mappings(spec, "scopeSelector", "matchExpressions")
    return (
        *(Requirement(scope, "Exists", ()) for scope in jsonpath.texts(spec, "scopes")),
        *(
            Requirement(
                jsonpath.text(row, "scopeName"), jsonpath.text(row, "operator"), tuple(jsonpath.texts(row, "values"))
            )
            for row in rows
        ),
    )


def count_name(resource: tuple[str, str]) -> str:
    """`count/deployments.apps`."""
    group, plural = resource
    return f"count/{plural}.{group}" if group else f"count/{plural}"


def counted_resource(name: str) -> tuple[str, str]:
    """The resource whose objects a limited name is about; what is nobody else's is of Pods."""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return group, plural
    if name in {"persistentvolumeclaims", "requests.storage"} or _CLASS in name:
        return CLAIMS
    if name.startswith("services"):
        return SERVICES
    return ("", name) if name in _PLAIN else PODS


def usage(resource: tuple[str, str], document: Mapping[str, Any], now: datetime.datetime) -> dict[str, Decimal]:
    """What an object uses, by the names that quotas have for it."""
    # 1. its count, and what its kind has beside that
    if resource in _UNCOUNTED:
        return {}
    used = {count_name(resource): _ONE}
    if resource == PODS:
        used |= _pod(document, now)
    elif resource == SERVICES:
        used |= _service(jsonpath.mapping(document, "spec"))
    elif resource == CLAIMS:
        used |= _claim(document)
    elif not resource[0] and resource[1] in _PLAIN:
        used[resource[1]] = _ONE
    return used


def has_ended(document: Mapping[str, Any], now: datetime.datetime) -> bool:
    """Whether a Pod takes nothing of a node any more: it has ended, or should have by now."""
    if jsonpath.text(document, "status", "phase") in _ENDED:
        return True
    deleted = jsonpath.text(document, "metadata", "deletionTimestamp")
    grace = jsonpath.number(document, "metadata", "deletionGracePeriodSeconds")
    return bool(deleted) and now > objects.parse_timestamp(deleted) + datetime.timedelta(seconds=grace)


def _pod(document: Mapping[str, Any], now: datetime.datetime) -> dict[str, Decimal]:
    # 2. one that has ended
    if has_ended(document, now):
        return {}
    spec = jsonpath.mapping(document, "spec")
    requests, limits = (pod_resources.of_pod(spec, key) for key in ("requests", "limits"))
    return {"pods": _ONE, **_compute(requests, limits)}


def _compute(requests: Mapping[str, Decimal], limits: Mapping[str, Decimal]) -> dict[str, Decimal]:
    used: dict[str, Decimal] = {}
    for name, amount in requests.items():
        if name in _REQUESTED or name.startswith("hugepages-"):
            used[name] = amount
        if name in _REQUESTED or name.startswith("hugepages-") or "/" in name:
            used[f"requests.{name}"] = amount
    used.update((f"limits.{name}", amount) for name, amount in limits.items() if name in _REQUESTED)
    return used


def _service(spec: dict[str, Any]) -> dict[str, Decimal]:
    kind, ports = jsonpath.text(spec, "type"), jsonpath.mappings(spec, "ports")
    used = {"services": _ONE}
    if kind == "NodePort":
        used["services.nodeports"] = Decimal(len(ports))
    elif kind == "LoadBalancer":
        used["services.loadbalancers"] = _ONE
        drawn = spec.get("allocateLoadBalancerNodePorts") is not False
        used["services.nodeports"] = Decimal(sum(1 for port in ports if drawn or port.get("nodePort")))
    return used


def _claim(document: Mapping[str, Any]) -> dict[str, Decimal]:
    spec = jsonpath.mapping(document, "spec")
    storage = pod_resources.amounts(jsonpath.mapping(spec, "resources", "requests")).get("storage", _ZERO)
    used = {"persistentvolumeclaims": _ONE, "requests.storage": storage}
    annotation = jsonpath.mapping(document, "metadata", "annotations").get(_OLD_CLASS)
    name = annotation or jsonpath.text(spec, "storageClassName")
    if name:
        used |= {f"{name}{_CLASS}{key}": amount for key, amount in used.items()}
    return used


# --- which quotas concern an object


def fits(quota: Iterable[Requirement], resource: tuple[str, str], document: Mapping[str, Any]) -> bool:
    """Whether an object is in all scopes of a quota."""
    return all(_in_scope(row, resource, document) for row in quota)


def _in_scope(row: Requirement, resource: tuple[str, str], document: Mapping[str, Any]) -> bool:
    spec = jsonpath.mapping(document, "spec")
    if resource == CLAIMS:
        return row.scope == "VolumeAttributesClass" and _chosen(row, jsonpath.text(spec, "volumeAttributesClassName"))
    if resource != PODS:
        return False
    if row.scope in {"Terminating", "NotTerminating"}:
        return _is_terminating(spec) == (row.scope == "Terminating")
    if row.scope in {"BestEffort", "NotBestEffort"}:
        return (pods.qos_class(spec) == "BestEffort") == (row.scope == "BestEffort")
    if row.scope == "CrossNamespacePodAffinity":
        return _crosses_namespaces(jsonpath.mapping(spec, "affinity"))
    return row.scope == "PriorityClass" and _chosen(row, jsonpath.text(spec, "priorityClassName"))


def _is_terminating(spec: dict[str, Any]) -> bool:
    deadline = spec.get("activeDeadlineSeconds")
    return isinstance(deadline, int) and deadline >= 0


def _chosen(row: Requirement, value: str) -> bool:
    if row.operator == "Exists":
        return bool(value)
    if row.operator == "DoesNotExist":
        return not value
    return (value in row.values) == (row.operator == "In")


def _crosses_namespaces(affinity: dict[str, Any]) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = jsonpath.mapping(affinity, kind)
        terms = jsonpath.mappings(rules, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred = jsonpath.mappings(rules, "preferredDuringSchedulingIgnoredDuringExecution")
        for term in (*terms, *(jsonpath.mapping(row, "podAffinityTerm") for row in preferred)):
            if jsonpath.sequence(term, "namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False


# --- the verdict


class Change(msgspec.Struct, frozen=True):
    """An object that is to be stored, and what was there before: what they use, and what its containers do not say.

    Making one costs in proportion to the object; a decision by it does not, but for scopes.
    """

    resource: tuple[str, str]
    document: Mapping[str, Any]
    old: Mapping[str, Any] | None
    used: Mapping[str, Decimal]
    before: Mapping[str, Decimal]
    # Containers of a new Pod, by what they have to say where it is limited.
    silent: Mapping[str, Sequence[str]]


def change(
    resource: tuple[str, str], document: Mapping[str, Any], old: Mapping[str, Any] | None, now: datetime.datetime
) -> Change:
    """A change; `now` decides which Pods have ended."""
    return Change(
        resource,
        document,
        old,
        usage(resource, document, now),
        {} if old is None else usage(resource, old, now),
        _silent(document) if resource == PODS and old is None else {},
    )


def decide(quota: Quota, change: Change) -> Quota | decision.Deny:
    """The quota with what the change uses; itself, if the change does not concern it."""
    used = change.used
    limited = sorted(quota.hard.keys() & used.keys() | _needed(quota, change.resource))
    # 3. something that it limits, and all its scopes
    if not limited or not fits(quota.requirements, change.resource, change.document):
        return quota
    # 4. every container says how much it wants
    unsaid = [f"{name} for: {','.join(change.silent[name])}" for name in limited if name in change.silent]
    if unsaid:
        return decision.Deny(UNSAID, f"failed quota: {quota.name}: must specify {'; '.join(unsaid)}", _RULE)
    uncounted = [name for name in limited if name not in quota.used]
    if uncounted:
        sentence = f"status unknown for quota: {quota.name}, resources: {','.join(uncounted)}"
        return decision.Deny(UNCOUNTED, sentence, _RULE)
    negative = sorted(name for name, amount in used.items() if amount < 0)
    if negative:
        sentence = f"quota usage is negative for resource(s): {','.join(negative)}"
        return decision.Deny(NEGATIVE, sentence, _RULE)
    return _added(quota, _more(quota, change))


def _needed(quota: Quota, resource: tuple[str, str]) -> set[str]:
    """What Pods have to say, whether or not this one does."""
    return set(quota.hard) & _NEEDED if resource == PODS else set()


def _silent(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """The containers that do not say how much they want, by what that is."""
    spec = jsonpath.mapping(document, "spec")
    # What the Pod says for all of them, they need not say.
    said = _compute(*(pod_resources.of_pod_itself(spec, key) for key in ("requests", "limits")))
    needed = _NEEDED.difference(said)
    missing: dict[str, list[str]] = {}
    for container in (*jsonpath.mappings(spec, "containers"), *jsonpath.mappings(spec, "initContainers")):
        own = [pod_resources.amounts(jsonpath.mapping(container, "resources", key)) for key in ("requests", "limits")]
        for name in needed.difference(_compute(own[0], own[1])):
            missing.setdefault(name, []).append(jsonpath.text(container, "name"))
    return {name: sorted(names) for name, names in missing.items()}


def _more(quota: Quota, change: Change) -> dict[str, Decimal]:
    """What the change adds to what the quota limits."""
    # 6. what it has used already, if that was this quota's
    counts = change.old is not None and fits(quota.requirements, change.resource, change.old)
    before = change.before if counts else {}
    added = {name: amount - before.get(name, _ZERO) for name, amount in change.used.items() if name in quota.hard}
    return {name: amount for name, amount in added.items() if amount > 0}


def _added(quota: Quota, more: Mapping[str, Decimal]) -> Quota | decision.Deny:
    if not more:
        return quota
    after = {name: quota.used[name] + amount for name, amount in more.items()}
    # 5. no more than the limit
    over = sorted(name for name, amount in after.items() if amount > quota.hard[name])
    if over:
        texts = (_shown(over, each) for each in (more, quota.used, quota.hard))
        requested, used, limited = texts
        sentence = f"exceeded quota: {quota.name}, requested: {requested}, used: {used}, limited: {limited}"
        return decision.Deny(EXCEEDED, sentence, _RULE)
    return replace(quota, used={**quota.used, **after})


def _is_binary(name: str) -> bool:
    return name.endswith(("memory", "storage")) or "hugepages-" in name


def _shown(names: Iterable[str], values: Mapping[str, Decimal]) -> str:
    return ",".join(f"{name}={quantities.text(values[name], binary=_is_binary(name))}" for name in names)


def written(used: Mapping[str, Decimal]) -> dict[str, str]:
    """Amounts as a quota's status has them."""
    return {name: quantities.text(amount, binary=_is_binary(name)) for name, amount in used.items()}


# --- counting anew


def recounted(
    counted: Mapping[str, Decimal], noted: Mapping[str, Decimal], now: Mapping[str, Decimal]
) -> dict[str, Decimal]:
    """What is used, after a count: and what was reserved while it lasted, from `noted` to `now`.

    An object that was reserved before the count began is stored by then, or never will be. One that was reserved since may
    be counted or not. So it is no more than the count with all of these, and no more than what admission has: the smaller of
    both counts. If nothing was reserved, it is the count.
    """
    used = dict(counted)
    for name in counted.keys() & noted.keys():
        reserved = now.get(name, _ZERO) - noted[name]
        if reserved > 0:
            used[name] = min(now[name], counted[name] + reserved)
    return used
