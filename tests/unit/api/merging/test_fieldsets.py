# SPDX-License-Identifier: Apache-2.0
"""Sets of fields: from documents by schema, to and from FieldsV1, and their algebra."""

from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.api.merging import fieldsets, shapes

FieldSet = fieldsets.FieldSet


def fields_of(document: dict[str, Any], types: Any) -> dict[str, Any]:
    return FieldSet.of(document, shapes.shape_of(types)).fields_v1()


@pytest.mark.parametrize(
    ("types", "document", "fields"),
    [
        (None, {}, {}),
        # Structs are frames; entries of maps and elements of lists are members themselves.
        (
            "core.v1.ConfigMap",
            {"metadata": {"labels": {"a": "b"}}, "data": {"k": "v"}, "immutable": True},
            {"f:metadata": {"f:labels": {"f:a": {}}}, "f:data": {"f:k": {}}, "f:immutable": {}},
        ),
        ("core.v1.ConfigMap", {"data": {}, "odd": {"x": 1}}, {"f:data": {}, "f:odd": {".": {}, "f:x": {}}}),
        (
            "core.v1.Pod",
            {"spec": {"containers": [{"name": "a", "args": ["x"], "ports": [{"containerPort": 80}]}]}},
            {
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"a"}': {
                            ".": {},
                            "f:name": {},
                            "f:args": {},
                            "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                        }
                    }
                }
            },
        ),
        (
            "core.v1.Pod",
            {"spec": {"nodeSelector": {"a": "b"}, "volumes": []}},
            {"f:spec": {"f:nodeSelector": {}, "f:volumes": {}}},
        ),
        (
            "core.v1.Pod",
            {"metadata": {"finalizers": ["x"], "ownerReferences": [{"uid": "1", "name": "n"}]}},
            {"f:metadata": {"f:finalizers": {'v:"x"': {}}, "f:ownerReferences": {'k:{"uid":"1"}': {}}}},
        ),
        # A field's own map type overrides its message's.
        ("core.v1.PersistentVolume", {"spec": {"claimRef": {"name": "a"}}}, {"f:spec": {"f:claimRef": {"f:name": {}}}}),
        ("rbac.v1.RoleBinding", {"roleRef": {"name": "a"}}, {"f:roleRef": {}}),
        # JSON that is no object of fields is owned as what it is.
        (
            "certificates.v1.CertificateSigningRequest",
            {"spec": {"extra": {"a": ["b"]}}},
            {"f:spec": {"f:extra": {"f:a": {}}}},
        ),
        ("core.v1.Service", {"spec": {"x": None}}, {"f:spec": {"f:x": {}}}),
        (
            None,
            {"spec": {"l": [{"a": 1}], "m": {"n": 1}}},
            {"f:spec": {".": {}, "f:l": {}, "f:m": {".": {}, "f:n": {}}}},
        ),
        (None, {"metadata": {"finalizers": ["x"]}}, {"f:metadata": {"f:finalizers": {'v:"x"': {}}}}),
    ],
)
def test_of_a_document(types, document, fields):
    assert fields_of(document, types) == fields
    assert FieldSet.parse(fields).fields_v1() == fields


CRD = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "atom": {"type": "object", "x-kubernetes-map-type": "atomic"},
                "rows": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "kind"],
                    "items": {"type": "object", "properties": {"name": {}, "kind": {"default": "K"}, "v": {}}},
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "free": {"type": "array", "items": {"type": "string"}},
                "byName": {"additionalProperties": {"properties": {"x": {}}}},
                "open": {"x-kubernetes-preserve-unknown-fields": True, "additionalProperties": True},
            },
        }
    },
}


def test_of_a_custom_resource():
    document = {
        "apiVersion": "x/v1",
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "atom": {"x": 1},
            "rows": [{"name": "n", "v": 1}],
            "tags": ["t"],
            "free": ["f"],
            "byName": {"m": {"x": 1}},
            "open": {"p": {"q": 1}},
        },
    }
    assert fields_of(document, CRD) == {
        "f:apiVersion": {},
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {
            "f:atom": {},
            "f:rows": {'k:{"kind":"K","name":"n"}': {".": {}, "f:name": {}, "f:v": {}}},
            "f:tags": {'v:"t"': {}},
            "f:free": {},
            "f:byName": {"f:m": {".": {}, "f:x": {}}},
            "f:open": {"f:p": {".": {}, "f:q": {}}},
        },
    }


def test_shapes_where_nothing_is_known():
    root = shapes.shape_of(None)
    assert root.default("protocol") == "TCP"
    assert root.element() is shapes.UNKNOWN
    assert shapes.UNKNOWN.element() is shapes.UNKNOWN
    assert root.declares("metadata")
    assert not root.declares("spec")


def test_parse_is_canonical():
    parsed = FieldSet.parse({".": {}, "f:a": {'k:{"b": 1, "a": 2}': {}, 'v:"x"': {}, "i:3": {}}})
    assert parsed.fields_v1() == {"f:a": {'k:{"a":2,"b":1}': {}, 'v:"x"': {}, "i:3": {}}}
    assert not FieldSet.parse({})
    assert FieldSet.parse({}).fields_v1() == {}


@pytest.mark.parametrize(
    "fields",
    [
        *(None, [], {"f:a": 1}, {"a": {}}, {"k:1": {}}, {"k:{": {}}, {"v:x": {}}, {"i:x": {}}),
        {"v:" + "[" * 100_000: {}},
        # Half of a character: it could not be stored.
        *({'k:{"a":"\\ud800"}': {}}, {'v:"\\ud800"': {}}),
    ],
)
def test_malformed_fields(fields):
    with pytest.raises(errors.Refused, match=r"^fieldsV1 "):
        FieldSet.parse(fields)


def test_parse_is_bounded():
    fields: dict[str, Any] = {}
    for _ in range(fieldsets._MAX_DEPTH):
        fields = {"f:a": fields}
    assert FieldSet.parse(fields).fields_v1() == fields
    for more in (1, 1000):
        for _ in range(more):
            fields = {"f:a": fields}
        with pytest.raises(errors.Refused, match="must be objects of path elements"):
            FieldSet.parse(fields)


def test_union_intersection_and_difference_are_those_of_sets():
    one = FieldSet.parse({"f:a": {".": {}, "f:x": {}}, "f:b": {}})
    other = FieldSet.parse({"f:a": {"f:x": {}, "f:y": {}}, "f:c": {}})
    assert one.union(other).fields_v1() == {"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}, "f:c": {}}
    assert one.intersection(other).fields_v1() == {"f:a": {"f:x": {}}}
    assert one.difference(other).fields_v1() == {"f:a": {}, "f:b": {}}
    assert other.difference(one).fields_v1() == {"f:a": {"f:y": {}}, "f:c": {}}
    assert not one.difference(one)
    assert one.intersection(one) == one
    assert not FieldSet.parse({"f:a": {}}).intersection(FieldSet.parse({"f:a": {"f:b": {}}}))


def test_the_union_of_many_is_that_of_one_after_the_other():
    sets = [
        FieldSet.parse({"f:a": {f"f:{number % 3}": {}}, f"f:{number}": {".": {}, "f:x": {}}}) for number in range(9)
    ]
    expected = FieldSet()
    for each in sets:
        expected = expected.union(each)
    assert FieldSet.union_of(sets) == expected
    assert FieldSet.union_of([]) == FieldSet()


def test_parents_come_before_what_is_in_them():
    fields = FieldSet.parse({"f:a": {".": {}, "f:x": {}}, "f:b": {"f:c": {}}})
    assert list(fields.paths()) == [("f:a",), ("f:a", "f:x"), ("f:b", "f:c")]


def test_path_texts():
    path = ("f:spec", 'k:{"containerPort":80,"protocol":"TCP"}', "f:x", 'v:"y"', "i:3")
    assert fieldsets.path_text(path) == '.spec[containerPort=80,protocol="TCP"].x[="y"][3]'
