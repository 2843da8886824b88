# SPDX-License-Identifier: Apache-2.0
"""What policies say of a certificate request, and why."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.cel import engine
from handfast.rules.policies import explanation

RULE = {
    "operations": ["*"],
    "apiGroups": ["certificates.k8s.io"],
    "apiVersions": ["v1"],
    "resources": ["certificatesigningrequests"],
}
BINDING = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
REQUEST = {
    "metadata": {"name": "csr-1"},
    "spec": {"signerName": "a/b", "username": "jane", "groups": ["dev"], "usages": ["client auth"]},
}


def explain(
    *texts: str, resources: tuple[str, ...] = ("certificatesigningrequests",), **spec: Any
) -> list[explanation.Row]:
    policy = {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [{**RULE, "resources": list(resources)}]},
            "validations": [{"expression": text, "message": "m"} for text in texts],
            **spec,
        },
    }
    return explanation.explain([policy], [BINDING, {"spec": {"policyName": "other"}}], REQUEST)


@pytest.mark.parametrize(
    ("text", "part", "inputs"),
    [
        ("object.spec.username == 'x'", "object.spec.username == 'x'", {"object.spec.username": '"jane"'}),
        (
            "object.spec.username == 'jane' && (object.spec.signerName != 'a/b' && size('(') > 0)",
            "object.spec.signerName != 'a/b'",
            {"object.spec.signerName": '"a/b"'},
        ),
        (
            "has(object.spec) && object.spec.groups.exists(g, g == 'ops') && true",
            "object.spec.groups.exists(g, g == 'ops')",
            {"object.spec.groups": '["dev"]'},
        ),
        ('((variables.who == "(\\""))', 'variables.who == "(\\""', {"variables.who": '"jane"'}),
        ("(false) && (true)", "false", {}),
        ("1 > 2 || request.operation == 'x'", "1 > 2 || request.operation == 'x'", {"request.operation": '"CREATE"'}),
    ],
)
def test_the_part_that_was_false_is_shown_with_its_values(text, part, inputs):
    (row,) = explain(text, variables=[{"name": "who", "expression": "object.spec.username"}])
    assert (row.result, row.message, row.expression) == (explanation.FAILS, "m", text)
    assert (row.part, dict(row.inputs)) == (part, inputs)


def test_what_holds_is_said_too():
    (row,) = explain("request.userInfo.username == 'jane'")
    assert (row.policy, row.binding, row.operation, row.actions, row.result) == ("p", "b", "CREATE", ("Deny",), "holds")


def test_approval_is_by_somebody_who_is_not_known():
    both = ("certificatesigningrequests/approval",)
    known, unknown = explain(
        "object.status.conditions.exists(c, c.type == 'Denied')", "request.userInfo.username == 'x'", resources=both
    )
    assert (known.operation, known.result) == ("UPDATE/approval", explanation.FAILS)
    assert (unknown.result, unknown.message) == (explanation.UNKNOWN, "no such key: userInfo")


def test_what_cannot_be_known_here_is_said():
    (row,) = explain("params.x", paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    assert (row.result, row.message) == (explanation.UNKNOWN, "its params are not read here")
    (row,) = explain("object.nope ==")
    assert (row.result, row.part, row.inputs) == (explanation.UNKNOWN, "object.nope ==", ())
    (row,) = explain("object.nope == 1")
    assert dict(row.inputs) == {"object.nope": "no such key: nope"}


def test_conditions_can_leave_a_request_out():
    (row,) = explain("false", matchConditions=[{"name": "a", "expression": "object.spec.username == 'x'"}])
    assert (row.result, row.message) == (explanation.HOLDS, "its matchConditions leave this request out")


def test_what_does_not_match_is_not_shown():
    assert explain("false", resources=("pods",)) == []


def test_long_values_are_cut():
    (row,) = explain(
        "object.spec.username.replace('', 'xxxxxxxxxxxxxxxxxxxx') == variables.long",
        variables=[{"name": "long", "expression": "object.spec.signerName.replace('', '" + "y" * 300 + "')"}],
    )
    assert dict(row.inputs)["variables.long"].endswith("…")


def test_without_the_evaluator_nothing_is_known(monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    (row,) = explain("true")
    assert (row.result, "pip install" in row.message) == (explanation.UNKNOWN, True)


def test_a_bracket_that_never_closes_is_left_alone():
    assert explanation._bare("(a') && (b)") == "(a') && (b)"
