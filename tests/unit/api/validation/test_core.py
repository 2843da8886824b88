# SPDX-License-Identifier: Apache-2.0
"""The rules for Secrets, ConfigMaps, Namespaces, Nodes and Events."""

from __future__ import annotations

import pytest

from handfast.api.validation import core
from tests.properties.changed_documents import REMOVED, begin, created, updated
from tests.properties.sample_documents import encoded

FROZEN = "Forbidden: field is immutable when `immutable` is set"


@pytest.mark.parametrize("key", ["a", "tls.crt", "A_b-c.d", "x" * 253])
def test_keys_of_data(key):
    assert core.data_key(key) is None


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("x" * 254, "must be no more than 253 bytes"),
        ("", "a valid config key must consist of"),
        ("a b", "a valid config key must consist of"),
        ("a\n", "a valid config key must consist of"),
        (".", "must not be '.'"),
        ("..", "must not be '..'"),
        ("..a", "must not start with '..'"),
    ],
)
def test_what_is_no_key_of_data(key, text):
    assert (core.data_key(key) or "").startswith(text)


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"data|a b": "eA=="}, ['data[a b]: Invalid value: "a b": a valid config key']),
        ({"data|a": None}, []),
        ({"data|a": "hunter2"}, ['data[a]: Invalid value: "<secret contents redacted>": must be base64 encoded']),
        ({"data|a": 5}, ['data[a]: Invalid value: "<secret contents redacted>": must be base64 encoded']),
        ({"data|a": encoded("x" * 1048575), "data|b": REMOVED}, []),
        ({"data|a": encoded("x" * 1048576)}, ["data: Too long: must have at most 1048576 bytes"]),
        ({"type": "bootstrap.kubernetes.io/token"}, []),
        ({"type": "kubernetes.io/tls"}, ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        ({"type": "kubernetes.io/tls", "data|tls.crt": "", "data|tls.key": ""}, []),
        ({"type": "kubernetes.io/basic-auth"}, ["data[username]: Required value", "data[password]: Required value"]),
        ({"type": "kubernetes.io/basic-auth", "data|username": "eA=="}, []),
        ({"type": "kubernetes.io/ssh-auth", "data|ssh-privatekey": ""}, ["data[ssh-privatekey]: Required value"]),
        ({"type": "kubernetes.io/ssh-auth", "data|ssh-privatekey": "eA=="}, []),
        ({"type": "kubernetes.io/dockercfg"}, ["data[.dockercfg]: Required value"]),
        (
            {"type": "kubernetes.io/dockerconfigjson", "data|.dockerconfigjson": encoded("[]")},
            ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": must be a JSON object'],
        ),
        (
            {"type": "kubernetes.io/dockerconfigjson", "data|.dockerconfigjson": encoded("{")},
            ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": must be a JSON object'],
        ),
        ({"type": "kubernetes.io/dockerconfigjson", "data|.dockerconfigjson": encoded("{}")}, []),
        (
            {"type": "kubernetes.io/service-account-token"},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        (
            {
                "type": "kubernetes.io/service-account-token",
                "metadata|annotations": {"kubernetes.io/service-account.name": "default"},
            },
            [],
        ),
    ],
)
def test_a_wrong_secret_has_kubernetes_causes_without_its_values(changes, causes):
    found = created("", "secrets", changes)
    assert begin(found, causes), found
    assert "hunter2" not in str(found)


def test_changes_of_a_secret():
    assert updated("", "secrets", {"type": "x"}) == ['type: Invalid value: "x": field is immutable']
    assert updated("", "secrets", {"data|a": "eQ==", "immutable": True}) == []
    frozen = {"immutable": True}
    assert updated("", "secrets", {"metadata|labels": {"a": "b"}}, frozen) == []
    assert updated("", "secrets", {"data|a": "eQ=="}, frozen) == [f"data: {FROZEN}"]
    assert updated("", "secrets", {"immutable": False}, frozen) == [f"immutable: {FROZEN}"]


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"data|a b": ""}, ['data[a b]: Invalid value: "a b": a valid config key']),
        ({"binaryData|..": "eA=="}, ["binaryData[..]: Invalid value: \"..\": must not be '..'"]),
        ({"binaryData|a": "eA=="}, ['data[a]: Invalid value: "a": duplicate of key present in binaryData']),
        ({"binaryData|b": "%"}, ['binaryData[b]: Invalid value: "b": must be base64 encoded']),
        ({"data|a": "x" * 1048577}, ["[]: Too long: must have at most 1048576 bytes"]),
        ({"data|a": 5}, []),
    ],
)
def test_a_wrong_configmap_has_kubernetes_causes(changes, causes):
    found = created("", "configmaps", changes)
    assert begin(found, causes), found


def test_changes_of_a_configmap():
    assert updated("", "configmaps", {"binaryData|b": ""}, {"immutable": True}) == [f"binaryData: {FROZEN}"]
    assert updated("", "configmaps", {"binaryData|b": ""}) == []


def test_finalizers_of_a_namespace():
    found = created("", "namespaces", {"spec|finalizers": ["kubernetes", "a/b", "c", "d e"]})
    assert begin(
        found,
        [
            'spec.finalizers[2]: Invalid value: "c": name is neither a standard finalizer name nor is it fully',
            'spec.finalizers[3]: Invalid value: "d e": name part',
        ],
    ), found


def test_wrong_taints_and_pod_cidrs_of_a_node_have_kubernetes_causes():
    taints = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "a", "effect": "NoSchedule"},
        {"value": "x y", "effect": "Never"},
    ]
    found = created("", "nodes", {"spec|taints": taints, "spec|podCIDRs": ["10.0.0.0/24", "10.0.0.1", "x/y"]})
    assert begin(
        found,
        [
            'spec.taints[1]: Duplicate value: {"key":"a","effect":"NoSchedule"}',
            "spec.taints[2].key: Required value",
            'spec.taints[2].value: Invalid value: "x y": a valid label',
            'spec.taints[2].effect: Unsupported value: "Never": supported values: "NoExecute", "NoSchedule", "Prefer',
            'spec.podCIDRs[1]: Invalid value: "10.0.0.1": must be a valid CIDR value',
            'spec.podCIDRs[2]: Invalid value: "x/y": must be a valid CIDR value',
        ],
    ), found


def test_changes_of_a_node():
    assert updated("", "nodes", {"spec|podCIDRs": ["10.9.0.0/24"]}) == [
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'
    ]
    assert updated("", "nodes", {"spec|providerID": "a"}) == []
    assert updated("", "nodes", {"spec|providerID": "b"}, {"spec|providerID": "a"}) == [
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid'
    ]


@pytest.mark.parametrize(
    ("own", "other", "fits"),
    [
        ("default", "default", True),
        ("default", "", True),
        ("kube-system", "", True),
        ("web", "", False),
        ("web", "default", False),
    ],
)
def test_namespace_of_an_event(own, other, fits):
    found = created("", "events", {"metadata|namespace": own, "involvedObject|namespace": other})
    wrong = [f'involvedObject.namespace: Invalid value: "{other}": does not match event.namespace']
    assert found == ([] if fits else wrong)


def test_what_a_new_event_has_to_say():
    group, gone = "events.k8s.io", REMOVED
    assert created(group, "events", {"reportingController": gone, "eventTime": gone, "type": "Bad"}) == [
        "eventTime: Required value",
        "reportingController: Required value",
        'type: Unsupported value: "Bad": supported values: "Normal", "Warning"',
    ]
    assert created(group, "events", {"regarding|namespace": "x"}) == [
        'regarding.namespace: Invalid value: "x": does not match event.namespace'
    ]
    stored = {"involvedObject": {"namespace": "default"}, "reportingComponent": "a b", "reportingController": gone}
    assert begin(created(group, "events", stored), ['reportingController: Invalid value: "a b": name part'])
