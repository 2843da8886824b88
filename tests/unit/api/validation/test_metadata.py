# SPDX-License-Identifier: Apache-2.0
"""The rules for the metadata of all kinds."""

from __future__ import annotations

import pytest

from handfast.api.validation import metadata
from tests.properties.changed_documents import REMOVED, begin, created, updated

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
CONFIG = ("", "configmaps")


@pytest.mark.parametrize(
    ("resource", "changes", "causes"),
    [
        (CONFIG, {"metadata|name": REMOVED}, ["metadata.name: Required value: name or generateName is required"]),
        (CONFIG, {"metadata|name": "A"}, ['metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must']),
        (
            ("", "namespaces"),
            {"metadata|name": "a.b"},
            ['metadata.name: Invalid value: "a.b": a lowercase RFC 1123 lab'],
        ),
        (("", "services"), {"metadata|name": "1a"}, ['metadata.name: Invalid value: "1a": a DNS-1035 label must']),
        (("rbac.authorization.k8s.io", "roles"), {"metadata|name": "system:A b"}, []),
        (
            ("rbac.authorization.k8s.io", "roles"),
            {"metadata|name": "a/b"},
            ["metadata.name: Invalid value: \"a/b\": may not contain '/'"],
        ),
        (("certificates.k8s.io", "certificatesigningrequests"), {"metadata|name": "node-csr-A_b"}, []),
        (CONFIG, {"metadata|generateName": "web-"}, []),
        (CONFIG, {"metadata|generateName": "-"}, ['metadata.generateName: Invalid value: "-": a lowercase']),
        (CONFIG, {"metadata|generateName": "W-"}, ['metadata.generateName: Invalid value: "W-": a lowercase']),
        (CONFIG, {"metadata|namespace": REMOVED}, ["metadata.namespace: Required value"]),
        (CONFIG, {"metadata|namespace": "a.b"}, ['metadata.namespace: Invalid value: "a.b": a lowercase']),
        (("", "nodes"), {"metadata|namespace": "a"}, ["metadata.namespace: Forbidden: not allowed on this type"]),
        (CONFIG, {"metadata|labels": {"a/b/c": "x"}}, ['metadata.labels: Invalid value: "a/b/c": prefix part']),
        (CONFIG, {"metadata|labels": {"a": "x y"}}, ['metadata.labels: Invalid value: "x y": a valid label must be']),
        (CONFIG, {"metadata|labels": {"": "x"}}, ['metadata.labels: Invalid value: "": name part must be non-empty']),
        (CONFIG, {"metadata|labels": {"a": 5}}, []),
        (CONFIG, {"metadata|annotations": {"Example.com/a": "x y", "b": None}}, []),
        (CONFIG, {"metadata|annotations": {"a b": ""}}, ['metadata.annotations: Invalid value: "a b": name part must']),
        (
            CONFIG,
            {"metadata|annotations": {"a": "x" * 262144}},
            ["metadata.annotations: Too long: must have at most 262144 bytes"],
        ),
        (CONFIG, {"metadata|annotations": {"a": "x" * 262143}}, []),
        (CONFIG, {"metadata|ownerReferences": [OWNER]}, []),
        (
            CONFIG,
            {"metadata|ownerReferences": [{}]},
            [
                'metadata.ownerReferences[0].apiVersion: Invalid value: "": version must not be empty',
                'metadata.ownerReferences[0].kind: Invalid value: "": kind must not be empty',
                'metadata.ownerReferences[0].name: Invalid value: "": name must not be empty',
                'metadata.ownerReferences[0].uid: Invalid value: "": uid must not be empty',
            ],
        ),
        (CONFIG, {"metadata|ownerReferences": [{**OWNER, "kind": "Event"}]}, ["metadata.ownerReferences[0]: Invalid"]),
        (
            CONFIG,
            {"metadata|ownerReferences": [{**OWNER, "controller": True}, {**OWNER, "name": "m", "controller": True}]},
            ["metadata.ownerReferences: Invalid value: [{"],
        ),
        (CONFIG, {"metadata|finalizers": ["example.com/a", "orphan"]}, []),
        (CONFIG, {"metadata|finalizers": ["a b"]}, ['metadata.finalizers[0]: Invalid value: "a b": name part']),
        (
            CONFIG,
            {"metadata|finalizers": ["orphan", "foregroundDeletion"]},
            ['metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer foregroundDeletion and'],
        ),
    ],
)
def test_wrong_metadata_have_kubernetes_causes(resource, changes, causes):
    found = created(resource[0], resource[1], changes)
    assert begin(found, causes), found


@pytest.mark.parametrize("key", ["name", "namespace", "uid", "creationTimestamp"])
def test_what_never_changes(key):
    assert updated(*CONFIG, {f"metadata|{key}": "other"}) == [
        f'metadata.{key}: Invalid value: "other": field is immutable'
    ]


@pytest.mark.parametrize("key", ["uid", "creationTimestamp"])
def test_what_is_left_out_is_no_change(key):
    assert updated(*CONFIG, {f"metadata|{key}": REMOVED}) == []


def test_an_object_being_deleted_gets_no_new_finalizers():
    deleted = {"metadata|deletionTimestamp": "2026-01-02T03:04:05Z", "metadata|finalizers": ["a/b"]}
    assert updated(*CONFIG, {"metadata|finalizers": []}, deleted) == []
    assert updated(*CONFIG, {"metadata|finalizers": ["a/b", "c/d"]}, deleted) == [
        (
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
            'found new finalizers []string{"c/d"}'
        )
    ]
    assert updated(*CONFIG, {"metadata|finalizers": ["c/d"]}) == []


def test_the_limit_is_the_one_of_kubernetes():
    assert metadata.ANNOTATIONS_LIMIT == 262144
