# SPDX-License-Identifier: Apache-2.0
"""What is used of a quota, and who may be evicted.

Proves that the status of quotas follows what comes and goes, custom resources included, with two copies at work; that a
count never loses a reservation; and that budgets follow their Pods and the controllers behind them.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from typing import Any

import pytest

from handfast.api import resources, status
from handfast.client import api
from tests.scenarios import controlled as c

pytestmark = [pytest.mark.slow, pytest.mark.on_etcd]
copies = pytest.mark.parametrize("copies", [1, 2])
CLAIMS = api.Resource("", "v1", "persistentvolumeclaims", True)
DEPLOYMENTS = api.Resource("apps", "v1", "deployments", True)
REPLICA_SETS = api.Resource("apps", "v1", "replicasets", True)
DEFINITIONS = api.Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", False)
WIDGETS = api.Resource("example.com", "v1", "widgets", True)
QUOTA, BUDGET = "resourcequota-controller", "disruption-controller"
CONTAINER = {"name": "main", "image": "image", "resources": {"requests": {"cpu": "1"}}}


async def make_quota(story: c.Story, name: str = "few", **spec: Any) -> None:
    document = {"metadata": {"name": name}, "spec": spec}
    await story.client.create(resources.RESOURCE_QUOTAS, document, namespace="default")


async def used(story: c.Story, wanted: dict[str, str], name: str = "few") -> None:
    async def says() -> bool:
        document = await story.find(resources.RESOURCE_QUOTAS, name)
        return wanted == (document.get("status") or {}).get("used")

    await story.eventually(says, f"{name} has {wanted}")


async def make_pod(story: c.Story, name: str, **more: Any) -> None:
    metadata = {"name": name, "labels": {"app": "web"}, **more.pop("metadata", {})}
    document = {"metadata": metadata, "spec": {"containers": [CONTAINER], **more}}
    await story.client.create(c.PODS, document, namespace="default")


async def has_status(story: c.Story, name: str, **state: Any) -> None:
    await story.client.patch(c.PODS, name, {"status": state}, namespace="default", subresource="status")


@copies
async def test_a_quota_follows_what_comes_and_goes(tmp_path: pathlib.Path, copies: int) -> None:
    async with c.controlled(tmp_path, QUOTA, copies=copies) as story:
        await story.config_map("first")
        await make_quota(story, hard={"configmaps": "5", "pods": "5", "requests.cpu": "3", "count/pods": "5"})
        await used(story, {"configmaps": "1", "pods": "0", "requests.cpu": "0", "count/pods": "0"})
        await story.config_map("second")
        await make_pod(story, "a")
        await make_pod(story, "b")
        await used(story, {"configmaps": "2", "pods": "2", "requests.cpu": "2", "count/pods": "2"})
        await has_status(story, "a", phase="Succeeded")
        await used(story, {"configmaps": "2", "pods": "1", "requests.cpu": "1", "count/pods": "2"})
        await story.client.delete(c.PODS, "b", namespace="default", grace_seconds=0)
        await story.client.delete(c.CONFIG_MAPS, "first", namespace="default")
        await used(story, {"configmaps": "1", "pods": "0", "requests.cpu": "0", "count/pods": "1"})
        quota = await story.find(resources.RESOURCE_QUOTAS, "few")
        quota["spec"]["hard"] = {"configmaps": "1"}
        await story.client.update(resources.RESOURCE_QUOTAS, quota)
        await used(story, {"configmaps": "1"})
        await story.client.delete(resources.RESOURCE_QUOTAS, "few", namespace="default")
        await story.config_map("third")


async def test_custom_resources_are_counted(tmp_path: pathlib.Path) -> None:
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    async with c.controlled(tmp_path, QUOTA) as story:
        await make_quota(story, hard={"count/widgets.example.com": "1", "count/gadgets.example.com": "1"})
        nothing = {"count/widgets.example.com": "0", "count/gadgets.example.com": "0"}
        await used(story, nothing)
        await story.client.create(DEFINITIONS, {"metadata": {"name": "widgets.example.com"}, "spec": spec})
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
        await story.client.create(WIDGETS, widget, namespace="default")
        await used(story, {**nothing, "count/widgets.example.com": "1"})
        widget["metadata"] = {"name": "b"}
        with pytest.raises(status.StatusError, match="exceeded quota"):
            await story.client.create(WIDGETS, widget, namespace="default")
        await story.client.delete(WIDGETS, "a", namespace="default")
        await used(story, nothing)


async def test_a_quota_with_a_scope_counts_the_pods_in_it(tmp_path: pathlib.Path) -> None:
    async with c.controlled(tmp_path, QUOTA) as story:
        await make_quota(story, hard={"pods": "5", "count/secrets": "5"}, scopes=["Terminating"])
        await make_pod(story, "endless")
        await make_pod(story, "ends", activeDeadlineSeconds=60)
        await used(story, {"pods": "1", "count/secrets": "0"})


async def test_counting_and_reserving_at_once_lets_nobody_in_too_many(tmp_path: pathlib.Path) -> None:
    async with c.controlled(tmp_path, QUOTA, copies=2) as story:
        await make_quota(story, hard={"configmaps": "8"})
        await used(story, {"configmaps": "0"})

        async def come(name: str) -> None:
            with contextlib.suppress(status.StatusError):
                await story.config_map(name)
            assert len(await story.client.list(c.CONFIG_MAPS, api.Scope(namespace="default"))) <= 8

        for round_ in range(3):
            # What is reserved is stored within the time that the controller waits: half of it passes while they come.
            await asyncio.gather(*(come(f"m{number}-{round_}") for number in range(8)), story.clock.advance(0.5))
            # It counts what came, while the next come.
            await story.clock.advance(0.5)
        await used(story, {"configmaps": "8"})


async def allowed(story: c.Story, **numbers: Any) -> None:
    async def says() -> bool:
        document = await story.find(resources.POD_DISRUPTION_BUDGETS, "web")
        state = document.get("status") or {}
        return all(state.get(key) == value for key, value in numbers.items())

    await story.eventually(says, f"the budget has {numbers}")


async def make_budget(story: c.Story, **spec: Any) -> None:
    document = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}
    await story.client.create(resources.POD_DISRUPTION_BUDGETS, document, namespace="default")


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@copies
async def test_a_budget_follows_its_pods(tmp_path: pathlib.Path, copies: int) -> None:
    async with c.controlled(tmp_path, BUDGET, copies=copies) as story:
        await make_budget(story, minAvailable=1)
        await allowed(story, expectedPods=0, disruptionsAllowed=0)
        for name in ("a", "b"):
            await make_pod(story, name)
            await has_status(story, name, **READY)
        await allowed(story, expectedPods=2, currentHealthy=2, desiredHealthy=1, disruptionsAllowed=1)
        eviction: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "a", "namespace": "default"},
        }
        await story.client.create(c.PODS, eviction, namespace="default", name="a", subresource="eviction")
        await story.gone(c.PODS, "a")
        await allowed(story, expectedPods=1, currentHealthy=1, disruptionsAllowed=0)
        eviction["metadata"] = {"name": "b", "namespace": "default"}
        with pytest.raises(status.StatusError, match="disruption budget") as caught:
            await story.client.create(c.PODS, eviction, namespace="default", name="b", subresource="eviction")
        assert caught.value.code == 429
        await story.client.delete(resources.POD_DISRUPTION_BUDGETS, "web", namespace="default")


async def test_a_percentage_is_of_what_the_controllers_want(tmp_path: pathlib.Path) -> None:
    async with c.controlled(tmp_path, BUDGET) as story:
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
        spec = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        behind = await story.client.create(
            DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, namespace="default"
        )
        owner = {**c.owner(behind, "Deployment", "apps/v1"), "controller": True}
        metadata = {"name": "web-1", "ownerReferences": [owner]}
        document = {"metadata": metadata, "spec": {**spec, "replicas": 9}}
        set_ = await story.client.create(REPLICA_SETS, document, namespace="default")
        mine = {**c.owner(set_, "ReplicaSet", "apps/v1"), "controller": True}
        await make_budget(story, maxUnavailable="25%")
        for name in ("a", "b"):
            await make_pod(story, name, metadata={"ownerReferences": [mine]})
        await allowed(story, expectedPods=4, desiredHealthy=3, disruptionsAllowed=0)
        strange = {"apiVersion": "example.com/v1", "kind": "Strange", "name": "x", "uid": "u", "controller": True}
        await make_pod(story, "c", metadata={"ownerReferences": [strange]})

        async def failed() -> bool:
            document = await story.find(resources.POD_DISRUPTION_BUDGETS, "web")
            return bool(document["status"]["conditions"][0]["reason"] == "SyncFailed")

        await story.eventually(failed, "nobody knows what a stranger wants")
