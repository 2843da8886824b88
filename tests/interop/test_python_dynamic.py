# SPDX-License-Identifier: Apache-2.0
"""The official Python client's dynamic half: discovery, every verb, watching, and server-side apply."""

from __future__ import annotations

import itertools

import pytest
from kubernetes import client, dynamic
from kubernetes.dynamic import exceptions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def api_dynamic(api: client.ApiClient, tmp_path_factory: pytest.TempPathFactory) -> dynamic.DynamicClient:
    cache = tmp_path_factory.mktemp("discovery") / "cache.json"
    return dynamic.DynamicClient(api, cache_file=str(cache))


def _config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"own": ""}}, "data": data}


def test_resources_are_found_by_kind_and_by_short_name(api_dynamic):
    deployments = api_dynamic.resources.get(api_version="apps/v1", kind="Deployment")
    assert (deployments.name, deployments.namespaced) == ("deployments", True)
    assert set(deployments.subresources) == {"status", "scale"}
    assert "ConfigMap" in {found.kind for found in api_dynamic.resources.search(short_names=["cm"])}
    events = {found.group_version for found in api_dynamic.resources.search(kind="Event")}
    assert events == {"v1", "events.k8s.io/v1"}
    with pytest.raises(exceptions.ResourceNotFoundError):
        api_dynamic.resources.get(api_version="v1", kind="Unicorn")


def test_every_verb(api_dynamic, namespace):
    maps = api_dynamic.resources.get(api_version="v1", kind="ConfigMap")
    made = maps.create(body=_config_map("one", a="1"), namespace=namespace)
    assert maps.get(name="one", namespace=namespace).to_dict() == made.to_dict()
    for kind, body in (
        ("application/merge-patch+json", {"data": {"b": "2"}}),
        ("application/strategic-merge-patch+json", {"data": {"a": None}}),
        ("application/json-patch+json", [{"op": "add", "path": "/data/c", "value": "3"}]),
    ):
        changed = maps.patch(name="one", namespace=namespace, body=body, content_type=kind)
    assert changed.data.to_dict() == {"b": "2", "c": "3"}
    body = changed.to_dict()
    body["data"] = {"d": "4"}
    assert maps.replace(body=body, namespace=namespace).data.to_dict() == {"d": "4"}
    with pytest.raises(exceptions.ConflictError):
        maps.replace(body=body, namespace=namespace)
    listed = maps.get(namespace=namespace, label_selector="own")
    assert (listed.kind, [item.metadata.name for item in listed.items]) == ("ConfigMapList", ["one"])
    assert maps.delete(name="one", namespace=namespace).status == "Success"
    with pytest.raises(exceptions.NotFoundError):
        maps.get(name="one", namespace=namespace)
    with pytest.raises(exceptions.UnprocessibleEntityError):
        maps.create(body=_config_map("Bad_Name"), namespace=namespace)


def test_status_subresource(api_dynamic, namespace):
    pods = api_dynamic.resources.get(api_version="v1", kind="Pod")
    spec = {"containers": [{"name": "main", "image": "nginx"}]}
    pods.create(body={"metadata": {"name": "web"}, "spec": spec}, namespace=namespace)
    body = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    pods.status.patch(name="web", namespace=namespace, body=body, content_type="application/merge-patch+json")
    assert pods.get(name="web", namespace=namespace).status.phase == "Running"
    selected = pods.get(namespace=namespace, field_selector="status.phase=Running")
    assert [item.metadata.name for item in selected.items] == ["web"]


def test_a_watch_yields_what_was_added_and_deleted(api_dynamic, namespace):
    maps = api_dynamic.resources.get(api_version="v1", kind="ConfigMap")
    start = maps.get(namespace=namespace).metadata.resourceVersion
    maps.create(body=_config_map("one"), namespace=namespace)
    maps.delete(name="one", namespace=namespace)
    stream = maps.watch(namespace=namespace, resource_version=start, timeout=30)
    found = [(event["type"], event["object"].metadata.name) for event in itertools.islice(stream, 2)]
    assert found == [("ADDED", "one"), ("DELETED", "one")]


def test_server_side_apply(api_dynamic, namespace):
    maps = api_dynamic.resources.get(api_version="v1", kind="ConfigMap")

    def apply(manager: str, force: bool = False, **data: str):
        return maps.server_side_apply(
            body=_config_map("shared", **data), namespace=namespace, field_manager=manager, force_conflicts=force
        )

    made = apply("mine", a="1", b="1")
    assert apply("mine", a="1", b="1").metadata.resourceVersion == made.metadata.resourceVersion
    with pytest.raises(exceptions.ConflictError) as raised:
        apply("yours", a="2")
    assert 'conflict with \\"mine\\": .data.a' in str(raised.value.body)
    assert apply("yours", force=True, a="2").data.to_dict() == {"a": "2", "b": "1"}
    assert apply("mine").data.to_dict() == {"a": "2"}
    managers = {
        row.manager: row.operation for row in maps.get(name="shared", namespace=namespace).metadata.managedFields
    }
    assert managers == {"mine": "Apply", "yours": "Apply"}
