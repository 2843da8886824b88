# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI 2 document: complete, in both forms, and such that its readers can read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.api import handfast_kinds, kinds
from handfast.api.openapi import swagger
from tests.unit.api.openapi import test_gnostic as wire

FOO = kinds.Kind(
    group="example.com",
    version="v1",
    kind="Foo",
    plural="foos",
    singular="foo",
    namespaced=True,
    schema={"type": "object", "properties": {"spec": {"type": "object"}}},
    subresources=(kinds.Subresource(name="scale", kind="Scale", group="autoscaling", version="v1"),),
)


def pieces(form: swagger.Form) -> list[swagger.Pieces]:
    custom = [swagger.custom_pieces(row, form) for row in (*handfast_kinds.rows(), FOO)]
    return [swagger.builtin_pieces(kinds.builtin(), form), *custom]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(swagger.document(pieces(swagger.JSON), swagger.JSON))
    return decoded


@pytest.fixture(scope="module")
def protobuf() -> bytes:
    return swagger.document(pieces(swagger.PROTOBUF), swagger.PROTOBUF)


def levels(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    children = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for child in children:
        if isinstance(child, dict):
            yield from levels(child)


def test_it_says_what_it_is(document):
    assert document["swagger"] == "2.0"
    assert document["info"]["title"] == "Handfast"


def test_every_kind_is_there_and_says_which_it_is(document):
    marks = [
        (mark["group"], mark["version"], mark["kind"])
        for schema in document["definitions"].values()
        for mark in schema.get("x-kubernetes-group-version-kind", ())
    ]
    rows = (*kinds.builtin(), *handfast_kinds.rows(), FOO)
    assert {(row.group, row.version, row.kind) for row in rows} <= set(marks)
    assert len(marks) == len(set(marks))


def test_every_reference_is_there_and_every_list_has_items(document):
    for schema in document["definitions"].values():
        for level in levels(schema):
            if "$ref" in level:
                assert level["$ref"].removeprefix("#/definitions/") in document["definitions"]
            # kubectl reads no document that has one without.
            assert level.get("type") != "array" or "items" in level
            assert not level.keys() & {"allOf", "oneOf", "anyOf", "not", "nullable"}


def test_forms_that_version_2_has_no_word_for_are_texts(document):
    definitions = document["definitions"]
    either = definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
    assert either == {"type": "string", "format": "int-or-string"}
    assert definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] == {"type": "string"}


def test_a_reference_keeps_what_stands_beside_it(document):
    metadata = document["definitions"]["io.k8s.api.core.v1.Secret"]["properties"]["metadata"]
    assert metadata["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert metadata["description"].startswith("Standard object's metadata")


def test_operations_say_what_they_take_and_give(document):
    item = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/foos/{name}"]
    assert [each["name"] for each in item["parameters"]] == ["namespace", "name"]
    put = item["put"]
    assert put["parameters"][0] == {
        "in": "body",
        "name": "body",
        "required": True,
        "schema": {"$ref": "#/definitions/com.example.v1.Foo"},
    }
    assert {"in": "query", "name": "fieldValidation", "type": "string", "uniqueItems": True} in put["parameters"]
    assert put["responses"] == {"200": {"description": "OK", "schema": {"$ref": "#/definitions/com.example.v1.Foo"}}}
    assert item["patch"]["consumes"] == [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ]
    assert item["get"]["consumes"] == ["*/*"]
    assert "required" not in item["delete"]["parameters"][0]
    assert document["paths"]["/apis/authorization.k8s.io/v1/subjectaccessreviews"]["patch"]["responses"] == {
        "405": {"description": "Method Not Allowed"}
    }


def test_both_forms_have_the_same_paths_and_definitions(document, protobuf):
    paths = [wire.only(each, 1).decode() for each in wire.fields(wire.only(protobuf, 8))[2]]
    definitions = [wire.only(each, 1).decode() for each in wire.fields(wire.only(protobuf, 9))[1]]
    assert paths == list(document["paths"])
    assert definitions == list(document["definitions"])


def test_what_is_built_in_stays_what_it_is_whatever_is_defined():
    mimic = kinds.Kind(
        group="core.api.k8s.io", version="v1", kind="Pod", plural="pods", singular="pod", namespaced=True
    )
    fixed = swagger.builtin_pieces([kinds.row("pods")], swagger.JSON)
    parts = [fixed, swagger.custom_pieces(mimic, swagger.JSON)]
    decoded = json.loads(swagger.document(parts, swagger.JSON))
    assert decoded["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", swagger.PROTOBUF),
        ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf, */*", swagger.PROTOBUF),
        ("application/json", swagger.JSON),
        ("", swagger.JSON),
    ],
)
def test_the_form_is_the_one_that_is_asked_for(accept, form):
    assert swagger.form_for(accept) is form
