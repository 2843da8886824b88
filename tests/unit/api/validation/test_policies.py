# SPDX-License-Identifier: Apache-2.0
"""What is asked of policies, bindings and match conditions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import kinds
from handfast.api.cel import engine, expressions
from handfast.api.defaulting import defaults
from handfast.api.validation import policies

GROUP = "admissionregistration.k8s.io"
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def policy(**spec: Any) -> dict[str, Any]:
    document = {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [copy.deepcopy(RULE)]},
            "validations": [{"expression": "true"}],
            **spec,
        },
    }
    defaults.apply(kinds.row("validatingadmissionpolicies", GROUP), document)
    return document


def binding(**spec: Any) -> dict[str, Any]:
    document = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"], **spec}}
    defaults.apply(kinds.row("validatingadmissionpolicybindings", GROUP), document)
    return document


def shown(causes: Any) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in causes]


def test_defaults_are_filled_in():
    spec = policy()["spec"]
    assert (spec["failurePolicy"], spec["matchConstraints"]["matchPolicy"]) == ("Fail", "Equivalent")
    assert spec["matchConstraints"]["resourceRules"][0]["scope"] == "*"
    assert spec["matchConstraints"]["namespaceSelector"] == {}
    assert binding(matchResources={})["spec"]["matchResources"]["matchPolicy"] == "Equivalent"


def test_usual_policies_are_taken():
    usual = policy(
        paramKind={"apiVersion": "rules.example.com/v1", "kind": "Limit"},
        matchConditions=[{"name": "not-nodes", "expression": "!('system:nodes' in request.userInfo.groups)"}],
        variables=[{"name": "n", "expression": "object.spec.replicas"}, {"name": "m", "expression": "variables.n + 1"}],
        validations=[
            {
                "expression": "variables.m <= params.max",
                "messageExpression": "'at most ' + string(params.max)",
                "message": "too many",
                "reason": "Forbidden",
            }
        ],
        auditAnnotations=[{"key": "replicas", "valueExpression": "string(variables.n)"}],
    )
    assert shown(policies.policy(usual)) == []
    assert shown(policies.binding(binding(paramRef={"name": "x", "parameterNotFoundAction": "Deny"}))) == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"failurePolicy": "Sometimes"}, "spec.failurePolicy: Unsupported value"),
        ({"paramKind": {}}, "spec.paramKind.apiVersion: Required value"),
        ({"paramKind": {"apiVersion": "A/v1", "kind": "X"}}, "spec.paramKind.apiVersion: Invalid value"),
        ({"paramKind": {"apiVersion": "v1", "kind": ""}}, "spec.paramKind.kind: Required value"),
        ({"matchConstraints": None}, "spec.matchConstraints: Required value"),
        ({"matchConstraints": {}}, "spec.matchConstraints.resourceRules: Required value"),
        (
            {"matchConstraints": {"resourceRules": [{}]}},
            "spec.matchConstraints.resourceRules[0].operations: Required value",
        ),
        (
            {"matchConstraints": {"resourceRules": [RULE], "matchPolicy": "X"}},
            "spec.matchConstraints.matchPolicy: Unsupported",
        ),
        (
            {"matchConstraints": {"resourceRules": [{**RULE, "resourceNames": ["a", "a"]}]}},
            'spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a"',
        ),
        ({"matchConditions": [{"name": "a", "expression": " "}]}, "spec.matchConditions[0].expression: Required value"),
        ({"matchConditions": [{"name": "", "expression": "true"}]}, "spec.matchConditions[0].name: Required value"),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
            "spec.matchConditions[1].name: Duplicate value",
        ),
        ({"matchConditions": [{"name": "a", "expression": "true"}] * 65}, "spec.matchConditions: Too many: 65"),
        (
            {"matchConditions": [{"name": "a", "expression": "object ="}]},
            "spec.matchConditions[0].expression: Invalid value",
        ),
        (
            {"variables": [{"name": " ", "expression": "1"}]},
            "spec.variables[0].name: Required value: name is not specified",
        ),
        ({"variables": [{"name": "a-b", "expression": "1"}]}, "must be a valid CEL identifier"),
        ({"variables": [{"name": "a", "expression": "variables.b"}]}, "spec.variables[0].expression: Invalid value"),
        ({"validations": []}, "spec.validations: Required value: validations or auditAnnotations must contain"),
        ({"validations": [{"expression": ""}]}, "spec.validations[0].expression: Required value"),
        ({"validations": [{"expression": "nobody"}]}, "compilation failed: ERROR: <input>:1:1: undeclared reference"),
        ({"validations": [{"expression": "true", "messageExpression": " "}]}, "must be non-empty if specified"),
        ({"validations": [{"expression": "true", "messageExpression": "1"}]}, "must evaluate to string"),
        ({"validations": [{"expression": "true", "message": " "}]}, "must be non-empty if specified"),
        ({"validations": [{"expression": "true", "message": "a\nb"}]}, "must not contain line breaks"),
        ({"validations": [{"expression": "true", "reason": "Nope"}]}, "spec.validations[0].reason: Unsupported value"),
        (
            {"auditAnnotations": [{"key": "a/b", "valueExpression": "'x'"}]},
            "spec.auditAnnotations[0].key: Invalid value",
        ),
        ({"auditAnnotations": [{"key": "a", "valueExpression": "1"}]}, "must evaluate to string or null"),
        ({"auditAnnotations": [{"key": "a", "valueExpression": "'" + "x" * 6000 + "'"}]}, "must not exceed 5120 bytes"),
        (
            {"auditAnnotations": [{"key": "a", "valueExpression": "'x'"}] * 2},
            "spec.auditAnnotations[1].key: Duplicate value",
        ),
        (
            {"auditAnnotations": [{"key": "a", "valueExpression": "'x'"}] * 21},
            "must not have more than 20 auditAnnotations",
        ),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(spec, said):
    assert said in "\n".join(shown(policies.policy(policy(**spec))))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"policyName": ""}, "spec.policyName: Required value"),
        ({"validationActions": []}, "spec.validationActions: Required value"),
        ({"validationActions": ["X"]}, "spec.validationActions[0]: Unsupported value"),
        ({"validationActions": ["Deny", "Deny"]}, "spec.validationActions[1]: Duplicate value"),
        ({"validationActions": ["Deny", "Warn"]}, "must not contain both Deny and Warn"),
        ({"paramRef": {"parameterNotFoundAction": "Allow"}}, "one of name or selector must be specified"),
        ({"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Allow"}}, "mutually exclusive"),
        ({"paramRef": {"name": "a"}}, "spec.paramRef.parameterNotFoundAction: Required value"),
        ({"matchResources": {"matchPolicy": "X"}}, "spec.matchResources.matchPolicy: Unsupported value"),
    ],
)
def test_what_is_wrong_with_a_binding_is_said(spec, said):
    assert said in "\n".join(shown(policies.binding(binding(**spec))))


def test_conditions_of_webhooks_are_judged():
    hook = {"name": "a.b.c", "matchConditions": [{"name": "x", "expression": "nobody"}]}
    for judge in (policies.validating_webhooks, policies.mutating_webhooks):
        assert "webhooks[0].matchConditions[0].expression: Invalid value" in "\n".join(
            shown(judge({"webhooks": [hook]}))
        )


def test_without_the_evaluator_only_the_form_is_judged(monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert shown(policies.policy(policy(validations=[{"expression": "nobody"}]))) == []


def test_all_expressions_together_have_so_many_characters(monkeypatch):
    monkeypatch.setattr(expressions, "MAX_TOTAL", 2000)
    long = " && ".join(["object.a == 1"] * 20)
    spec: dict[str, Any] = {"variables": [{"name": "long", "expression": long}]}
    spec["validations"] = [{"expression": f"variables.long || {index} == 1"} for index in range(200)]
    (said,) = shown(policies.policy(policy(**spec)))
    # Each is as long as its variable: a few are compiled, and the rest is not looked at.
    assert said.startswith("spec.validations[4].expression: Forbidden")
    assert "all expressions together may have 65536 characters, each with the variables that it names" in said


def test_many_that_do_not_compile_are_not_all_looked_at():
    wrong = [{"expression": f"nope{index} == 1"} for index in range(50)]
    said = shown(policies.policy(policy(validations=wrong)))
    assert (len(said), "together" in said[-1]) == (6, True)
