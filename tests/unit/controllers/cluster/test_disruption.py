# SPDX-License-Identifier: Apache-2.0
"""How many Pods there should be, by the controllers behind them. What follows from it is `rules.disruption`."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
import pytest

from handfast.client import cache
from handfast.controllers.cluster import disruption, slicing
from handfast.rules import disruption as rules
from tests.unit.controllers.cluster.test_slicing import pod
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock


def _owner(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def _pods(kind: str, name: str) -> cache.Informer[slicing.Pod]:
    pods: cache.Informer[slicing.Pod] = cache.Informer(slicing.PODS, slicing.BY_NAMESPACE)
    document = msgspec.to_builtins(pod(1))
    document["metadata"]["ownerReferences"] = _owner(kind, name)
    pods.put(msgspec.convert(document, slicing.Pod))
    return pods


async def _expected(client: FakeClient, pods: cache.Informer[slicing.Pod]) -> Any:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
    client.put("poddisruptionbudgets", "web", "ns", spec=spec)
    await disruption.Budgets(client, MovableClock(), pods).reconcile(("ns", "web"))
    state = client.objects["poddisruptionbudgets", "ns", "web"]["status"]
    return state["conditions"][0]["message"] or state["expectedPods"]


async def test_the_deployment_behind_a_replica_set_decides() -> None:
    client = FakeClient()
    client.put(
        "replicasets", "set", "ns", metadata={"ownerReferences": _owner("Deployment", "web")}, spec={"replicas": 9}
    )
    client.put("deployments", "web", "ns", spec={"replicas": 4})
    assert await _expected(client, _pods("ReplicaSet", "set")) == 4


async def test_deployments_that_own_each_other_are_not_followed_in_circles() -> None:
    client = FakeClient()
    asked: list[str] = []
    client.before = lambda verb, _plural, name: asked.append(name) if verb in {"find", "get"} else None
    for name, owner in (("one", "two"), ("two", "one")):
        client.put(
            "deployments", name, "ns", metadata={"ownerReferences": _owner("Deployment", owner)}, spec={"replicas": 3}
        )
    assert await _expected(client, _pods("Deployment", "one")) == 3
    assert asked.count("one") == 1


def _budget(name: str, **selector: Any) -> disruption.Budget:
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ns"}, "spec": {"selector": selector}}, disruption.Budget
    )


def test_a_selector_is_read_once_however_many_pods_change(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = mock.Mock(wraps=rules.selector)
    monkeypatch.setattr(rules, "selector", counted)
    selecting = disruption.Selectors()
    budgets = [_budget("web", matchLabels={"app": "web"}), _budget("db", matchLabels={"app": "db"}), _budget("all")]
    for budget in budgets:
        selecting.changed(None, budget)
    for number in range(5):
        assert selecting.of(pod(number)) == [("ns", "web"), ("ns", "all")]
    selecting.changed(budgets[2], _budget("all", matchExpressions=7))
    selecting.changed(budgets[0], None)
    assert selecting.of(pod(1)) == []
    selecting.changed(budgets[1], None)
    assert counted.call_count == 4
