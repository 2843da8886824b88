# SPDX-License-Identifier: Apache-2.0
"""The webhook's object: what it is asked for, whom it leaves alone, and whose the bundle is."""

from __future__ import annotations

import copy

import pytest

from handfast.api import kinds, selectors
from handfast.rules.mesh import control_plane, rights, settings, webhook

DOCUMENT = webhook.configuration("linkerd", settings.Settings()).document
WEBHOOK = DOCUMENT["webhooks"][0]


def test_it_is_asked_for_pods_and_services_that_are_created():
    assert WEBHOOK["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods", "services"],
            "scope": "Namespaced",
        }
    ]
    assert WEBHOOK["clientConfig"]["service"] == {
        "name": "linkerd-proxy-injector",
        "namespace": "linkerd",
        "path": "/",
        "port": 443,
    }
    assert (WEBHOOK["admissionReviewVersions"], WEBHOOK["timeoutSeconds"]) == (["v1", "v1beta1"], 10)
    assert webhook.server_name("linkerd") == "linkerd-proxy-injector.linkerd.svc"


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_what_happens_without_it_is_the_operators_choice(policy):
    chosen = settings.Settings(failure_policy=policy)
    assert webhook.configuration("linkerd", chosen).document["webhooks"][0]["failurePolicy"] == policy


@pytest.mark.parametrize(
    ("labels", "asked"),
    [
        ({"kubernetes.io/metadata.name": "shop"}, True),
        ({"kubernetes.io/metadata.name": "shop", webhook.LABEL: "disabled"}, False),
        ({"kubernetes.io/metadata.name": "shop", webhook.LABEL: "enabled"}, True),
        ({"kubernetes.io/metadata.name": "kube-system"}, False),
        ({"kubernetes.io/metadata.name": "cert-manager"}, False),
        ({"kubernetes.io/metadata.name": "linkerd"}, False),
    ],
)
def test_the_control_plane_and_labelled_namespaces_are_left_alone(labels, asked):
    assert selectors.from_label_selector(WEBHOOK["namespaceSelector"]).match(labels) is asked


def test_no_field_is_left_to_the_servers_defaults():
    row = kinds.row(webhook.PLURAL, webhook.GROUP)
    assert (row.kind, row.version) == (webhook.KIND, "v1")
    assert set(WEBHOOK) == {
        *("name", "admissionReviewVersions", "clientConfig", "failurePolicy", "matchPolicy", "namespaceSelector"),
        *("objectSelector", "reinvocationPolicy", "rules", "sideEffects", "timeoutSeconds"),
    }


def test_a_bundle_is_read_as_it_was_written():
    assert webhook.bundle(DOCUMENT) == b""
    with_one = webhook.with_bundle(DOCUMENT, b"-----BEGIN")
    assert webhook.bundle(with_one) == b"-----BEGIN"
    assert webhook.with_bundle(with_one, b"") == DOCUMENT
    broken = copy.deepcopy(with_one)
    broken["webhooks"][0]["clientConfig"]["caBundle"] = "é"
    assert webhook.bundle(broken) == b""
    assert webhook.bundle({"webhooks": [{"name": "another.example"}]}) == b""


def test_what_is_written_again_keeps_the_bundle():
    there = webhook.with_bundle({**DOCUMENT, "metadata": {"name": webhook.NAME, "uid": "1"}}, b"mine")
    there["webhooks"][0]["failurePolicy"] = "Ignore"
    kept = webhook.kept(there, webhook.configuration("linkerd", settings.Settings(failure_policy="Fail")))
    assert webhook.bundle(kept) == b"mine"
    assert kept["webhooks"][0]["failurePolicy"] == "Fail"
    assert kept["metadata"]["uid"] == "1"


def test_webhooks_of_others_in_the_object_stay_as_they_are():
    other = {"name": "another.example", "clientConfig": {"caBundle": "AA=="}}
    both = webhook.with_bundle({**DOCUMENT, "webhooks": [*DOCUMENT["webhooks"], other]}, b"mine")
    assert both["webhooks"][1] == other


def test_the_account_changes_its_own_secret_and_makes_none():
    (rule,) = [rule for rule in rights.OWN[control_plane.INJECTOR] if "secrets" in rule.resources]
    assert rule.resource_names == (webhook.pair("linkerd").name,)
    assert set(rule.verbs) == {"get", "list", "patch", "update", "watch"}
    assert "data" not in webhook.pair("linkerd").document


def test_a_webhook_belongs_to_the_mesh_of_one_namespace():
    assert webhook.is_ours(DOCUMENT, "linkerd")
    assert not webhook.is_ours(DOCUMENT, "mesh-two")
    assert not webhook.is_ours({}, "linkerd")
