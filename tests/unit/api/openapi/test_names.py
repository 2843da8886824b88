# SPDX-License-Identifier: Apache-2.0
"""Names and references are those that clients of Kubernetes know."""

from __future__ import annotations

import dataclasses

import pytest

from handfast.api import kinds
from handfast.api.openapi import names

WIDGET = kinds.Kind(
    group="shop.example.com", version="v2", kind="Widget", plural="widgets", singular="widget", namespaced=True
)


@pytest.mark.parametrize(
    ("message", "component"),
    [
        ("core.v1.Pod", "io.k8s.api.core.v1.Pod"),
        ("meta.v1.ObjectMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
        ("intstr.IntOrString", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
        ("resource.Quantity", "io.k8s.apimachinery.pkg.api.resource.Quantity"),
        ("runtime.RawExtension", "io.k8s.apimachinery.pkg.runtime.RawExtension"),
        (
            "apiextensions.v1.JSONSchemaProps",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        ),
    ],
)
def test_names_of_components(message, component):
    assert names.of_message(message) == component


def test_a_custom_resource_has_its_group_reversed_and_its_list_the_name_it_chose():
    assert names.of_kind(WIDGET) == "com.example.shop.v2.Widget"
    assert names.of_list(WIDGET) == "com.example.shop.v2.WidgetList"
    assert names.of_list(dataclasses.replace(WIDGET, listed_as="Widgets")) == "com.example.shop.v2.Widgets"


def test_a_built_in_kind_has_the_name_of_its_message():
    assert names.of_kind(kinds.row("pods")) == "io.k8s.api.core.v1.Pod"
    assert names.of_list(kinds.row("pods")) == "io.k8s.api.core.v1.PodList"


def test_references_point_where_each_version_has_its_schemas():
    assert names.reference("a.B") == {"allOf": [{"$ref": "#/components/schemas/a.B"}]}
    assert names.reference_v2("a.B") == {"$ref": "#/definitions/a.B"}
