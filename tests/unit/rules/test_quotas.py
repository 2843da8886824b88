# SPDX-License-Identifier: Apache-2.0
"""What objects use and what quotas allow. The names of the table in `rules/quotas.py` are here."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from handfast.rules import decision, quotas

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
MAPS = ("", "configmaps")


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> quotas.Quota:
    used = dict.fromkeys(hard, "0") if used is None else used
    return quotas.read({"metadata": {"name": "few"}, "spec": spec, "status": {"hard": hard, "used": used}})


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def container(name: str = "main", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


def judged(
    limits: quotas.Quota, resource: tuple[str, str], document: dict[str, Any], old: dict[str, Any] | None = None
) -> dict[str, str] | str:
    """What is used afterwards, or the sentence of the refusal."""
    verdict = quotas.decide(limits, quotas.change(resource, document, old, NOW))
    return verdict.sentence if isinstance(verdict, decision.Deny) else quotas.written(verdict.used)


@pytest.mark.parametrize(
    ("resource", "document", "used"),
    [
        (MAPS, {}, {"count/configmaps": 1, "configmaps": 1}),
        (("apps", "deployments"), {}, {"count/deployments.apps": 1}),
        (("", "events"), {}, {}),
        (quotas.SERVICES, {}, {"count/services": 1, "services": 1}),
        (
            quotas.SERVICES,
            {"spec": {"type": "NodePort", "ports": [{}, {}]}},
            {"count/services": 1, "services": 1, "services.nodeports": 2},
        ),
        (
            quotas.SERVICES,
            {"spec": {"type": "LoadBalancer", "ports": [{}]}},
            {"count/services": 1, "services": 1, "services.nodeports": 1, "services.loadbalancers": 1},
        ),
        (
            quotas.SERVICES,
            {"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{}, {"nodePort": 7}]}},
            {"count/services": 1, "services": 1, "services.nodeports": 1, "services.loadbalancers": 1},
        ),
        (
            quotas.CLAIMS,
            {"spec": {"resources": {"requests": {"storage": "5"}}}},
            {"count/persistentvolumeclaims": 1, "persistentvolumeclaims": 1, "requests.storage": 5},
        ),
        (
            quotas.CLAIMS,
            {"spec": {"storageClassName": "fast"}},
            {
                "count/persistentvolumeclaims": 1,
                "persistentvolumeclaims": 1,
                "requests.storage": 0,
                "fast.storageclass.storage.k8s.io/persistentvolumeclaims": 1,
                "fast.storageclass.storage.k8s.io/requests.storage": 0,
            },
        ),
        (
            quotas.PODS,
            pod(
                {
                    "resources": {
                        "requests": {"cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "3", "strange": "4"},
                        "limits": {"cpu": "2", "example.com/gpu": "2"},
                    }
                }
            ),
            {
                "count/pods": 1,
                "pods": 1,
                "cpu": 1,
                "requests.cpu": 1,
                "limits.cpu": 2,
                "requests.example.com/gpu": 2,
                "hugepages-2Mi": 3,
                "requests.hugepages-2Mi": 3,
            },
        ),
        (quotas.PODS, {"status": {"phase": "Failed"}}, {"count/pods": 1}),
        (
            quotas.PODS,
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}},
            {"count/pods": 1},
        ),
        (
            quotas.PODS,
            {"metadata": {"deletionTimestamp": "2026-01-01T23:59:50Z", "deletionGracePeriodSeconds": 30}},
            {"count/pods": 1, "pods": 1},
        ),
    ],
)
def test_what_an_object_uses(resource, document, used):
    assert quotas.usage(resource, document, NOW) == used


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("count/deployments.apps", ("apps", "deployments")),
        ("count/pods", quotas.PODS),
        ("secrets", ("", "secrets")),
        ("services.nodeports", quotas.SERVICES),
        ("requests.storage", quotas.CLAIMS),
        ("fast.storageclass.storage.k8s.io/requests.storage", quotas.CLAIMS),
        ("requests.example.com/gpu", quotas.PODS),
    ],
)
def test_every_limited_name_is_of_some_resource(name, resource):
    assert quotas.counted_resource(name) == resource


def test_what_fits_is_added():
    assert judged(quota({"configmaps": "2", "pods": "1"}, {"configmaps": "1", "pods": "0"}), MAPS, {}) == {
        "configmaps": "2",
        "pods": "0",
    }


def test_what_is_more_than_the_limit_is_refused():
    assert judged(
        quota({"configmaps": "1", "count/configmaps": "5"}, {"configmaps": "1", "count/configmaps": "1"}), MAPS, {}
    ) == ("exceeded quota: few, requested: configmaps=1, used: configmaps=1, limited: configmaps=1")


def test_amounts_are_shown_as_kubernetes_writes_them():
    limits = quota(
        {"requests.memory": "1Gi", "requests.cpu": "1"}, {"requests.memory": "768Mi", "requests.cpu": "500m"}
    )
    assert judged(limits, quotas.PODS, pod(container(memory="512Mi", cpu="700m"))) == (
        "exceeded quota: few, requested: requests.cpu=700m,requests.memory=512Mi, "
        "used: requests.cpu=500m,requests.memory=768Mi, limited: requests.cpu=1,requests.memory=1Gi"
    )


def test_a_quota_that_limits_something_else_is_not_asked():
    limits = quota({"pods": "0"})
    assert judged(limits, MAPS, {}) == {"pods": "0"}


def test_a_pod_has_to_say_what_it_wants():
    limits = quota({"requests.cpu": "5", "limits.cpu": "5"})
    assert judged(limits, quotas.PODS, pod(container("b", cpu="1"), container("a"))) == (
        "failed quota: few: must specify limits.cpu for: a,b; requests.cpu for: a"
    )
    assert judged(limits, quotas.PODS, pod(container(), resources={"limits": {"cpu": "1"}})) == {
        "requests.cpu": "1",
        "limits.cpu": "1",
    }
    # Saying something else says nothing of this.
    assert judged(limits, quotas.PODS, pod(container(cpu="1"), resources={"requests": {"memory": "1"}})) == (
        "failed quota: few: must specify limits.cpu for: main"
    )


def test_a_pod_asks_for_no_less_than_its_containers():
    limits = quota({"requests.cpu": "5"})
    refused = judged(limits, quotas.PODS, pod(container(cpu="9"), resources={"requests": {"cpu": "1m"}}))
    assert "exceeded quota: few, requested: requests.cpu=9" in refused


def test_what_was_never_counted_is_refused():
    assert judged(quota({"configmaps": "5"}, {}), MAPS, {}) == "status unknown for quota: few, resources: configmaps"


def test_a_quota_without_a_status_limits_nothing():
    document = {"metadata": {"name": "new"}, "spec": {"hard": {"configmaps": "0"}}}
    assert judged(quotas.read(document), MAPS, {}) == {}


def test_nothing_uses_less_than_nothing():
    assert judged(quota({"requests.cpu": "5"}), quotas.PODS, pod(container(cpu="-1"))) == (
        "quota usage is negative for resource(s): cpu,requests.cpu"
    )


def test_of_a_change_only_what_is_more_counts():
    limits = quota({"services": "1", "services.nodeports": "2"}, {"services": "1", "services.nodeports": "1"})
    before = {"spec": {"type": "NodePort", "ports": [{}]}}
    assert judged(limits, quotas.SERVICES, before, before) == {"services": "1", "services.nodeports": "1"}
    larger = {"spec": {"type": "NodePort", "ports": [{}, {}, {}]}}
    assert judged(limits, quotas.SERVICES, larger, {}) == (
        "exceeded quota: few, requested: services.nodeports=3, used: services.nodeports=1, limited: services.nodeports=2"
    )
    smaller: dict[str, Any] = {"spec": {"type": "ClusterIP"}}
    assert judged(limits, quotas.SERVICES, smaller, before) == {"services": "1", "services.nodeports": "1"}


def _selected(scope: str, operator: str, *values: str) -> dict[str, Any]:
    row = {"scopeName": scope, "operator": operator, "values": list(values)}
    return {"scopeSelector": {"matchExpressions": [row]}}


PRIORITY = pod(priorityClassName="high")
AFFINITY = {"podAffinityTerm": {"namespaces": ["x"]}}


@pytest.mark.parametrize(
    ("spec", "document", "is_in"),
    [
        ({"scopes": ["Terminating"]}, pod(activeDeadlineSeconds=5), True),
        ({"scopes": ["Terminating"]}, pod(), False),
        ({"scopes": ["NotTerminating"]}, pod(), True),
        ({"scopes": ["BestEffort"]}, pod(container()), True),
        ({"scopes": ["BestEffort"]}, pod(container(cpu="1")), False),
        ({"scopes": ["NotBestEffort"]}, pod(container(cpu="1")), True),
        ({"scopes": ["NotBestEffort", "Terminating"]}, pod(container(cpu="1")), False),
        (_selected("PriorityClass", "In", "high"), PRIORITY, True),
        (_selected("PriorityClass", "NotIn", "high"), PRIORITY, False),
        (_selected("PriorityClass", "Exists"), PRIORITY, True),
        (_selected("PriorityClass", "DoesNotExist"), PRIORITY, False),
        (_selected("Strange", "Exists"), PRIORITY, False),
        (
            {"scopes": ["CrossNamespacePodAffinity"]},
            pod(affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [AFFINITY]}}),
            True,
        ),
        (
            {"scopes": ["CrossNamespacePodAffinity"]},
            pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}),
            False,
        ),
    ],
)
def test_a_quota_concerns_the_pods_in_its_scopes(spec, document, is_in):
    used = judged(quota({"pods": "5"}, **spec), quotas.PODS, document)
    assert used == {"pods": "1" if is_in else "0"}


def test_scopes_of_pods_are_about_nothing_else():
    assert judged(quota({"configmaps": "0"}, scopes=["BestEffort"]), MAPS, {}) == {"configmaps": "0"}
    claims = quota({"persistentvolumeclaims": "1"}, **_selected("VolumeAttributesClass", "In", "gold"))
    assert judged(claims, quotas.CLAIMS, {"spec": {"volumeAttributesClassName": "gold"}}) == {
        "persistentvolumeclaims": "1"
    }
    assert judged(claims, quotas.CLAIMS, {}) == {"persistentvolumeclaims": "0"}


def test_a_pod_that_comes_into_a_scope_counts_from_then_on():
    limits = quota({"pods": "1"}, scopes=["Terminating"])
    assert judged(limits, quotas.PODS, pod(activeDeadlineSeconds=5), pod()) == {"pods": "1"}
    assert judged(limits, quotas.PODS, pod(activeDeadlineSeconds=5), pod(activeDeadlineSeconds=9)) == {"pods": "0"}


@pytest.mark.parametrize(
    ("counted", "noted", "now", "used"),
    [
        pytest.param(1, 1, 1, 1, id="nothing happened"),
        pytest.param(1, 3, 3, 1, id="something is gone"),
        pytest.param(3, 1, 1, 3, id="somebody wrote too little"),
        pytest.param(3, 2, 3, 3, id="what was reserved is counted already"),
        pytest.param(2, 2, 3, 3, id="what was reserved is not stored yet"),
        pytest.param(1, 3, 4, 2, id="something is gone and something was reserved"),
    ],
)
def test_what_was_reserved_during_a_count_counts_in_any_case(counted, noted, now, used):
    amounts = [{"a": Decimal(number)} for number in (counted, noted, now)]
    assert quotas.recounted(*amounts) == {"a": used}


def test_what_was_never_noted_is_as_it_was_counted():
    assert quotas.recounted({"a": Decimal(1)}, {}, {"a": Decimal(5)}) == {"a": 1}
