# SPDX-License-Identifier: Apache-2.0
"""Which writes a policy is about."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import kinds
from handfast.rules.policies import configurations

GROUP = "admissionregistration.k8s.io"
PODS, DEPLOYMENTS = kinds.row("pods"), kinds.row("deployments", "apps")


def rule(**more: Any) -> dict[str, Any]:
    return {"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods"], **more}


def match(**constraints: Any) -> configurations.Match:
    return configurations.policy({"spec": {"matchConstraints": {"resourceRules": [rule()], **constraints}}}).match


@pytest.mark.parametrize(
    ("constraints", "operation", "kind", "name", "matches"),
    [
        ({}, "CREATE", PODS, "a", True),
        ({}, "UPDATE", PODS, "a", False),
        ({}, "CREATE", DEPLOYMENTS, "a", False),
        ({"resourceRules": []}, "UPDATE", DEPLOYMENTS, "a", True),
        ({"resourceRules": [rule(resourceNames=["b"])]}, "CREATE", PODS, "a", False),
        ({"resourceRules": [rule(resourceNames=["b"])]}, "CREATE", PODS, "b", True),
        ({"excludeResourceRules": [rule(resourceNames=["b"])]}, "CREATE", PODS, "b", False),
        ({"excludeResourceRules": [rule(resourceNames=["b"])]}, "CREATE", PODS, "a", True),
        (
            {"resourceRules": [rule(resources=["*"])]},
            "CREATE",
            kinds.row("validatingadmissionpolicies", GROUP),
            "a",
            False,
        ),
    ],
)
def test_rules_choose_writes(constraints, operation, kind, name, matches):
    found = match(**constraints)
    assert (found.matched(operation, (kind,), "", name) is not None) == matches
    if matches and constraints.get("resourceRules") != []:
        assert found.about(operation, (kind,), "") == kind


def test_policies_themselves_are_nobodys():
    own = kinds.row("validatingadmissionpolicies", GROUP)
    assert match(resourceRules=[rule(resources=["*"])]).about("CREATE", (own,), "") is None


def test_other_names_of_the_same_objects_will_do():
    old = match(resourceRules=[rule(apiVersions=["v1"], apiGroups=["events.k8s.io"], resources=["events"])])
    core, new = kinds.row("events"), kinds.row("events", "events.k8s.io")
    assert old.matched("CREATE", (core, new), "", "") == new
    exact = match(resourceRules=[rule(apiGroups=["events.k8s.io"], resources=["events"])], matchPolicy="Exact")
    assert exact.matched("CREATE", (core, new), "", "") is None


def test_selectors_select():
    found = match(namespaceSelector={"matchLabels": {"a": "b"}}, objectSelector={"matchLabels": {"c": "d"}})
    document = {"metadata": {"labels": {"c": "d"}}}
    assert found.selects({"a": "b"}, (document, None))
    assert not found.selects({"a": "x"}, (document, None))
    assert not found.selects({"a": "b"}, ({"metadata": {}}, None))
    assert match(objectSelector={"matchExpressions": [{"key": "a", "operator": "Nope"}]}).wrong


def test_bindings_are_read():
    found = configurations.binding(
        {
            "metadata": {"name": "b"},
            "spec": {
                "policyName": "p",
                "validationActions": ["Deny", "Audit"],
                "paramRef": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "namespace": "n",
                    "parameterNotFoundAction": "Deny",
                },
            },
        }
    )
    assert (found.policy, found.actions, found.param_namespace, found.denies_missing) == (
        "p",
        ("Deny", "Audit"),
        "n",
        True,
    )
    assert found.param_selector is not None
    assert found.param_selector.match({"a": "b"})
    assert configurations.binding({"spec": {}}).param_selector is None


def test_params_have_a_kind():
    assert configurations.policy({"spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}).param_kind == (
        "v1",
        "ConfigMap",
    )
