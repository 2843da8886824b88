# SPDX-License-Identifier: Apache-2.0
"""What a configuration says of its webhooks, and what it leaves out."""

from __future__ import annotations

import base64

import pytest

from handfast.api import selectors
from handfast.rules.webhooks import configurations as webhooks
from handfast.rules.webhooks import matching
from tests.unit.rules.webhook_cases import PODS, rule, webhook


def test_everything_is_parsed():
    found = webhooks.parse(
        {
            "metadata": {"name": "config"},
            "webhooks": [
                {
                    "name": "one.example.com",
                    "clientConfig": {
                        "service": {"namespace": "system", "name": "hook", "path": "/check", "port": 8443},
                        "caBundle": base64.b64encode(b"PEM").decode(),
                    },
                    "rules": [rule("CREATE,UPDATE", ",apps", "v1", "pods,pods/*,*/*", "Namespaced")],
                    "failurePolicy": "Ignore",
                    "matchPolicy": "Exact",
                    "namespaceSelector": {"matchLabels": {"a": "b"}},
                    "objectSelector": {"matchExpressions": [{"key": "c", "operator": "Exists"}]},
                    "sideEffects": "NoneOnDryRun",
                    "timeoutSeconds": 30,
                    "admissionReviewVersions": ["v1beta1", "v1"],
                    "reinvocationPolicy": "IfNeeded",
                    "matchConditions": [{"name": "x", "expression": "true"}],
                }
            ],
        }
    )
    assert found == (
        webhooks.Webhook(
            configuration="config",
            index=0,
            name="one.example.com",
            url="",
            service=webhooks.Service(namespace="system", name="hook", path="/check", port=8443),
            ca_bundle=b"PEM",
            rules=(
                webhooks.Rule(
                    operations=frozenset({"CREATE", "UPDATE"}),
                    groups=frozenset({"", "apps"}),
                    versions=frozenset({"v1"}),
                    resources=(("pods", ""), ("pods", "*"), ("*", "*")),
                    scope="Namespaced",
                ),
            ),
            fails_open=True,
            exact=True,
            namespace_selector=selectors.parse_labels("a=b"),
            object_selector=selectors.parse_labels("c"),
            dry_run=True,
            seconds=30,
            reinvoked=True,
            conditions=(("x", "true"),),
        ),
    )


def test_what_is_left_out_is_the_strict_choice():
    found = webhooks.parse(
        {"metadata": {"name": "c"}, "webhooks": [{"clientConfig": {"service": {}}, "rules": [{"resources": ["pods"]}]}]}
    )[0]
    assert not found.fails_open
    assert not found.exact
    assert not found.dry_run
    assert not found.reinvoked
    assert not found.conditions
    assert found.seconds == 10
    assert found.ca_bundle is None
    assert found.service == webhooks.Service(namespace="", name="", path="/", port=443)
    assert found.namespace_selector.empty
    assert found.object_selector.empty
    assert found.rules[0].scope == "*"


@pytest.mark.parametrize(("seconds", "used"), [(1, 1), (30, 30), (0, 10), (31, 10), (-1, 10), ("5", 10), (True, 10)])
def test_the_time_allowed_is_bounded(seconds, used):
    assert webhook(timeoutSeconds=seconds).seconds == used


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, ""),
        ({"admissionReviewVersions": ["v1beta1"]}, "webhook does not accept v1 AdmissionReview"),
        ({"clientConfig": {"caBundle": "!"}}, "clientConfig.caBundle is not base64"),
        ({"objectSelector": {"matchLabels": {"a": 1}}}, "objectSelector: matchLabels: Invalid value: must be a map"),
        ({"namespaceSelector": {"matchExpressions": [{"key": "a"}]}}, 'namespaceSelector: "None" is not a valid'),
    ],
)
def test_what_cannot_be_used_is_known_and_still_matches(more, wrong):
    found = webhook(rule(), **more)
    assert found.wrong.startswith(wrong)
    assert bool(found.wrong) is bool(wrong)
    assert matching.matched(found, "CREATE", [PODS], "") is PODS
    assert matching.selects(found, {}, [{"metadata": {}}])


def test_configurations_are_asked_by_name_and_webhooks_as_listed():
    def configuration(name: str, *names: str) -> tuple[webhooks.Webhook, ...]:
        return webhooks.parse({"metadata": {"name": name}, "webhooks": [{"name": each} for each in names]})

    configurations = {name: configuration(name, f"{name}2", f"{name}1") for name in ("b", "a", "B")}
    assert [each.name for each in webhooks.ordered(configurations)] == ["B2", "B1", "a2", "a1", "b2", "b1"]
