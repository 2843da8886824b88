# SPDX-License-Identifier: Apache-2.0
"""Which paths and operations a kind has, and what kubectl looks for in them."""

from __future__ import annotations

from typing import Any

from handfast.api import kinds
from handfast.api.openapi import names
from handfast.api.openapi import paths as openapi_paths


def row(**changes: Any) -> kinds.Kind:
    fields: dict[str, Any] = {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
        "plural": "deployments",
        "singular": "deployment",
        "namespaced": True,
        "message": "apps.v1.Deployment",
    }
    return kinds.Kind(**{**fields, **changes})


def paths(kind: kinds.Kind) -> dict[str, Any]:
    return openapi_paths.of_kind(kind, {sub.name: f"C.{sub.name}" for sub in kind.subresources})


def parameters(item: dict[str, Any]) -> list[str]:
    return [parameter["name"] for parameter in item["parameters"]]


def test_namespaced_kinds_have_three_paths():
    found = paths(row())
    prefix = "/apis/apps/v1"
    assert {path: sorted(item) for path, item in found.items()} == {
        f"{prefix}/deployments": ["get"],
        f"{prefix}/namespaces/{{namespace}}/deployments": ["delete", "get", "parameters", "post"],
        f"{prefix}/namespaces/{{namespace}}/deployments/{{name}}": ["delete", "get", "parameters", "patch", "put"],
    }
    item = found[f"{prefix}/namespaces/{{namespace}}/deployments/{{name}}"]
    assert parameters(item) == ["namespace", "name"]


def test_cluster_scoped_kinds_have_two():
    found = paths(row(group="", kind="Node", plural="nodes", namespaced=False))
    assert sorted(found) == ["/api/v1/nodes", "/api/v1/nodes/{name}"]
    assert sorted(found["/api/v1/nodes"]) == ["delete", "get", "post"]


def test_what_kubectl_looks_for_on_patch():
    patch = paths(row())["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "kind": "Deployment", "version": "v1"}
    assert patch["x-kubernetes-action"] == "patch"
    assert {"fieldValidation", "dryRun", "fieldManager", "force"} <= set(parameters(patch))
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]


def test_custom_resources_have_no_strategic_merge():
    found = paths(row(message="", schema={"type": "object"}))
    patch = found["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert sorted(patch["requestBody"]["content"]) == [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ]


def test_bodies_and_answers():
    found = paths(row())
    collection = found["/apis/apps/v1/namespaces/{namespace}/deployments"]
    assert collection["post"]["requestBody"]["content"]["*/*"]["schema"] == names.reference(
        "io.k8s.api.apps.v1.Deployment"
    )
    assert list(collection["post"]["responses"]) == ["201"]
    listed = collection["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert listed == names.reference("io.k8s.api.apps.v1.DeploymentList")
    assert "requestBody" not in collection["get"]
    assert "watch" in parameters(collection["get"])
    item = found["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert item["delete"]["requestBody"]["content"]["*/*"]["schema"]["allOf"][0]["$ref"].endswith(".DeleteOptions")


def test_a_subresource_has_a_path_with_its_verbs_and_its_kind():
    scale = kinds.Subresource(name="scale", kind="Scale", group="autoscaling", version="v1", verbs=("get", "update"))
    token = kinds.Subresource(name="binding", kind="Binding", verbs=("create",))
    found = paths(row(subresources=(scale, token)))
    item = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    assert sorted(found[f"{item}/scale"]) == ["get", "parameters", "put"]
    assert found[f"{item}/scale"]["get"]["x-kubernetes-group-version-kind"] == {
        "group": "autoscaling",
        "kind": "Scale",
        "version": "v1",
    }
    binding = found[f"{item}/binding"]["post"]
    assert binding["x-kubernetes-group-version-kind"] == {"group": "apps", "kind": "Binding", "version": "v1"}
    assert binding["requestBody"]["content"]["*/*"]["schema"] == names.reference("C.binding")


def test_create_only_kinds_show_a_patch_that_is_not_served():
    found = paths(row(group="", kind="Review", plural="reviews", namespaced=False, verbs=("create",)))
    assert list(found) == ["/api/v1/reviews"]
    patch = found["/api/v1/reviews"]["patch"]
    assert parameters(patch) == ["fieldValidation"]
    assert list(patch["responses"]) == ["405"]
    assert patch["operationId"] == "patchCoreV1Review"
    found = paths(row(group="authentication.k8s.io", kind="Review", plural="reviews", verbs=("create",)))
    (path,) = found.values()
    assert path["patch"]["operationId"] == "patchAuthenticationK8sIoV1NamespacedReview"


def test_namespaced_create_only_kinds_are_not_listed_everywhere():
    found = paths(row(verbs=("create",)))
    assert list(found) == ["/apis/apps/v1/namespaces/{namespace}/deployments"]
