# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI documents: names, extensions and references as stock kubectl reads them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.api import kinds
from handfast.api.openapi import descriptions, names, openapi
from handfast.api.schema import schema

CRON_TAB = kinds.Kind(
    group="stable.example.com",
    version="v1",
    kind="CronTab",
    plural="crontabs",
    singular="crontab",
    namespaced=True,
    schema={"type": "object", "properties": {"spec": {"type": "object"}}},
    subresources=(kinds.Subresource(name="status", kind="CronTab"),),
)


def rows(group: str, version: str) -> list[kinds.Kind]:
    return [row for row in kinds.builtin() if (row.group, row.version) == (group, version)]


@pytest.fixture(scope="module")
def core() -> dict[str, Any]:
    return openapi.document("", "v1", rows("", "v1"))


def test_the_index_names_each_group_version_with_its_hash():
    assert openapi.index({("apps", "v1"): "B", ("", "v1"): "A"}) == {
        "paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=A"},
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=B"},
        }
    }


def test_fingerprint_tells_documents_apart():
    assert openapi.fingerprint(b"a") != openapi.fingerprint(b"b")
    assert openapi.fingerprint(b"a") == openapi.fingerprint(b"a")


def test_a_kind(core):
    pod = core["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert pod["description"] == descriptions.of("core.v1.Pod")
    assert pod["properties"]["apiVersion"] == {"type": "string", "description": descriptions.shared("apiVersion")}
    assert pod["properties"]["metadata"] == {
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
        "description": descriptions.shared("metadata"),
    }
    listed = core["components"]["schemas"]["io.k8s.api.core.v1.PodList"]
    assert listed["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "PodList", "version": "v1"}]


def test_a_property_has_its_type_and_how_lists_and_maps_merge(core):
    schemas = core["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers == {
        "type": "array",
        "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
    }
    assert "containers" in schemas["io.k8s.api.core.v1.PodSpec"]["required"]
    secret = schemas["io.k8s.api.core.v1.Secret"]["properties"]
    assert secret["data"] == {
        "type": "object",
        "additionalProperties": {"type": "string", "format": "byte"},
        "description": descriptions.of("core.v1.Secret", "data"),
    }
    assert secret["immutable"]["type"] == "boolean"
    assert schemas["io.k8s.api.core.v1.ObjectReference"]["x-kubernetes-map-type"] == "atomic"
    assert schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"] == {"type": "string", "format": "date-time"}
    assert schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"] == "int-or-string"
    assert schemas["io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"] == {"type": "object"}


def test_bare_arrays_are_written_out():
    document = openapi.document("certificates.k8s.io", "v1", rows("certificates.k8s.io", "v1"))
    spec = document["components"]["schemas"]["io.k8s.api.certificates.v1.CertificateSigningRequestSpec"]
    assert spec["properties"]["extra"]["additionalProperties"] == {"type": "array", "items": {"type": "string"}}
    assert "io.k8s.api.certificates.v1.ExtraValue" not in document["components"]["schemas"]


def test_schemas_of_schemas():
    document = openapi.document("apiextensions.k8s.io", "v1", rows("apiextensions.k8s.io", "v1"))
    package = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
    schemas = document["components"]["schemas"]
    assert schemas[package + "JSON"] == {}
    assert schemas[package + "JSONSchemaPropsOrBool"] == {}
    assert "$ref" in schemas[package + "JSONSchemaProps"]["properties"]


def test_a_message_without_fields_has_no_properties():
    document = openapi.document("apiextensions.k8s.io", "v1", rows("apiextensions.k8s.io", "v1"))
    name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus"
    assert document["components"]["schemas"][name] == {"type": "object"}


def test_subresources_bring_their_own_kinds(core):
    schemas = core["components"]["schemas"]
    assert schemas["io.k8s.api.policy.v1.Eviction"]["x-kubernetes-group-version-kind"] == [
        {"group": "policy", "kind": "Eviction", "version": "v1"}
    ]
    binding = core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/binding"]["post"]
    assert binding["x-kubernetes-group-version-kind"] == {"group": "", "kind": "Binding", "version": "v1"}
    assert "io.k8s.api.core.v1.Binding" in schemas


def test_custom_resources_bring_their_own_schema():
    document = openapi.document("stable.example.com", "v1", [CRON_TAB])
    schemas = document["components"]["schemas"]
    assert schemas["com.example.stable.v1.CronTab"] == {
        "type": "object",
        "properties": {
            "spec": {"type": "object"},
            # What every object has and no definition says, or `explain` would not show it.
            "apiVersion": {"type": "string", "description": descriptions.shared("apiVersion")},
            "kind": {"type": "string", "description": descriptions.shared("kind")},
            "metadata": {
                **names.reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
                "description": descriptions.shared("metadata"),
            },
        },
        "x-kubernetes-group-version-kind": [{"group": "stable.example.com", "kind": "CronTab", "version": "v1"}],
    }
    status = document["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}/status"]
    assert status["put"]["requestBody"]["content"]["*/*"]["schema"] == {
        "allOf": [{"$ref": "#/components/schemas/com.example.stable.v1.CronTab"}]
    }
    assert {f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}" for name in ("ObjectMeta", "ListMeta")} <= schemas.keys()
    items = schemas["com.example.stable.v1.CronTabList"]["properties"]["items"]
    assert items["items"] == {"allOf": [{"$ref": "#/components/schemas/com.example.stable.v1.CronTab"}]}


def test_a_kind_that_nobody_described_says_nothing():
    document = openapi.document("storage.k8s.io", "v1", rows("storage.k8s.io", "v1"))
    driver = document["components"]["schemas"]["io.k8s.api.storage.v1.CSIDriver"]
    assert "description" not in driver
    assert "description" not in driver["properties"]["spec"]


def test_custom_resources_without_schema_say_that_anything_goes():
    bare = kinds.Kind(group="a.b", version="v1", kind="C", plural="cs", singular="c", namespaced=False)
    schemas = openapi.document("a.b", "v1", [bare])["components"]["schemas"]
    assert schemas["b.a.v1.C"]["x-kubernetes-preserve-unknown-fields"] is True


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(child) for child in value.values()))
    if isinstance(value, list):
        return set().union(*(references(child) for child in value))
    return set()


def test_every_reference_is_there_and_every_operation_has_its_own_name():
    groups = {(row.group, row.version) for row in kinds.builtin()}
    for group, version in groups:
        document = openapi.document(group, version, rows(group, version))
        names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert references(document) <= names
        operations = [
            operation["operationId"]
            for item in document["paths"].values()
            for method, operation in item.items()
            if method != "parameters"
        ]
        assert len(operations) == len(set(operations))
        assert msgspec.json.decode(msgspec.json.encode(document)) == document


def test_create_only_kinds_have_no_list():
    data = next(row for row in schema.kind_rows() if row["kind"] == "SelfSubjectAccessReview")
    review = kinds.Kind(
        group=data["group"],
        version="v1",
        kind=data["kind"],
        plural=data["plural"],
        singular=data["singular"],
        namespaced=False,
        message=data["message"],
        verbs=("create",),
    )
    schemas = openapi.document(review.group, "v1", [review])["components"]["schemas"]
    assert "io.k8s.api.authorization.v1.SelfSubjectAccessReview" in schemas
    assert "io.k8s.api.authorization.v1.SelfSubjectAccessReviewList" not in schemas
