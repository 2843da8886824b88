# SPDX-License-Identifier: Apache-2.0
"""The rules for MutatingAdmissionPolicies and their bindings."""

from __future__ import annotations

import pytest

from handfast.api.cel import engine
from tests.properties.changed_documents import REMOVED, begin, created

GROUP = "admissionregistration.k8s.io"
POLICY, BINDING = (GROUP, "mutatingadmissionpolicies"), (GROUP, "mutatingadmissionpolicybindings")
RULE = "spec|matchConstraints|resourceRules|0"
FIRST, SECOND = "spec|mutations|0", "spec|mutations|1"
NOT_WITH = "must not be specified when patchType is"


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        ({f"{RULE}|operations": ["CONNECT", "*"]}, ["spec.matchConstraints.resourceRules[0].operations: "]),
        (
            {f"{RULE}|operations": ["CREATE", "DELETE"]},
            [
                'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONN'
            ],
        ),
        ({"spec|matchConstraints": REMOVED}, ["spec.matchConstraints: Required value"]),
        ({"spec|failurePolicy": "Perhaps"}, ['spec.failurePolicy: Unsupported value: "Perhaps"']),
        ({"spec|reinvocationPolicy": REMOVED}, ["spec.reinvocationPolicy: Required value"]),
        ({"spec|reinvocationPolicy": "Always"}, ['spec.reinvocationPolicy: Unsupported value: "Always"']),
        ({"spec|mutations": []}, ["spec.mutations: Required value: mutations must contain at least one item"]),
        ({f"{FIRST}|patchType": REMOVED}, ["spec.mutations[0].patchType: Required value"]),
        ({f"{FIRST}|patchType": "Merge"}, ['spec.mutations[0].patchType: Unsupported value: "Merge"']),
        (
            {f"{FIRST}|patchType": "JSONPatch"},
            [
                f'spec.mutations[0].applyConfiguration: Invalid value: "{{applyConfiguration}}": {NOT_WITH} JSONPatch',
                "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            ],
        ),
        ({f"{SECOND}|jsonPatch|expression": " "}, ["spec.mutations[1].jsonPatch.expression: Required value"]),
        (
            {f"{SECOND}|jsonPatch|expression": "Object{}"},
            [
                'spec.mutations[1].jsonPatch.expression: Invalid value: "Object{}": compilation failed: must evaluate to l'
            ],
        ),
        (
            {f"{FIRST}|applyConfiguration|expression": "Object{a: params.x, b: variables.m}"},
            ["spec.mutations[0].applyConfiguration.expression: Invalid value: "],
        ),
        (
            {f"{FIRST}|applyConfiguration|expression": "Object{a: authorizer.path('/')}"},
            ["spec.mutations[0].applyConfiguration.expression: Invalid value: "],
        ),
        ({"spec|variables|0|name": "1"}, ['spec.variables[0].name: Invalid value: "1"']),
        ({"spec|variables|0|expression": "Object{a: Object.a{}}"}, []),
        ({"spec|variables|0|expression": "Object{"}, ["spec.variables[0].expression: Invalid value: "]),
        ({"spec|matchConditions|0|expression": "1"}, ["spec.matchConditions[0].expression: Invalid value: "]),
    ],
)
def test_a_policy(changes, causes):
    found = created(*POLICY, changes)
    assert begin(found, causes), found


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        ({"spec|policyName": ""}, ["spec.policyName: Required value"]),
        ({"spec|paramRef|name": REMOVED}, ["spec.paramRef: Required value: one of name or selector must be specified"]),
        (
            {"spec|matchResources|resourceRules|0|operations": ["DELETE"]},
            ['spec.matchResources.resourceRules.operations: Unsupported value: "DELETE"'],
        ),
        ({"spec|matchResources": REMOVED}, []),
        ({"spec|paramRef": REMOVED}, []),
    ],
)
def test_a_binding(changes, causes):
    found = created(*BINDING, changes)
    assert begin(found, causes), found


def test_without_the_evaluator_the_form_is_checked(monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert created(*POLICY, {f"{FIRST}|applyConfiguration|expression": "Object{"}) == []
    assert begin(created(*POLICY, {f"{FIRST}|patchType": ""}), ["spec.mutations[0].patchType: Required value"])
