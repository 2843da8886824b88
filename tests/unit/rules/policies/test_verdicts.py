# SPDX-License-Identifier: Apache-2.0
"""What a policy says of a write."""

from __future__ import annotations

import math
from typing import Any

import pytest

from handfast.api.cel import engine, expressions
from handfast.rules.policies import configurations, verdicts


def judge(
    *, params: Any = (None,), budget: verdicts.Budget | None = None, data: Any = None, **spec: Any
) -> verdicts.Verdict:
    policy = configurations.policy({"metadata": {"name": "p"}, "spec": spec})
    values = {"object": {"spec": {"n": 3}, "metadata": {}}, "request": {"operation": "CREATE"}, **(data or {})}
    return verdicts.Judge(policy).judge(values, list(params), budget or verdicts.Budget())


def said(verdict: verdicts.Verdict) -> list[str]:
    return [finding.message for finding in verdict.findings]


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ({"expression": "object.spec.n > 2"}, None),
        ({"expression": "object.spec.n > 5 "}, "failed expression: object.spec.n > 5"),
        ({"expression": "object.spec.n > 5", "message": " small "}, "small"),
        ({"expression": "object.spec.n > 5", "messageExpression": "'got ' + string(object.spec.n)"}, "got 3"),
        ({"expression": "object.spec.n > 5", "message": "m", "messageExpression": "object.nope"}, "m"),
        ({"expression": "object.spec.n > 5", "message": "m", "messageExpression": "'a\\nb'"}, "m"),
        ({"expression": "object.spec.n > 5", "message": "m", "messageExpression": "object.spec.n"}, "m"),
        ({"expression": "object.spec.n > 5", "message": "m", "messageExpression": "'a' +"}, "m"),
        ({"expression": "object.spec.n"}, "failed expression: object.spec.n"),
    ],
)
def test_what_is_false_is_said(validation, message):
    assert said(judge(validations=[validation])) == ([] if message is None else [message])


def test_the_reason_is_the_validations():
    (finding,) = judge(validations=[{"expression": "true"}, {"expression": "false", "reason": "Forbidden"}]).findings
    assert (finding.reason, finding.index) == ("Forbidden", 1)


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_what_cannot_be_evaluated_is_refused(policy):
    texts = ("object.nope == 1", "object.spec.n == ")
    verdict = judge(failurePolicy=policy, validations=[{"expression": text} for text in texts])
    if policy == "Ignore":
        assert said(verdict) == []
    else:
        first, second = said(verdict)
        assert first == "expression 'object.nope == 1' resulted in error: no such key: nope"
        assert second.startswith("compilation error: compilation failed: ERROR: <input>:1:18: Syntax error")


def test_conditions_decide_whether_it_applies():
    no = [{"expression": "false"}]
    assert (
        said(judge(validations=no, matchConditions=[{"name": "a", "expression": "request.operation == 'UPDATE'"}]))
        == []
    )
    assert (
        len(said(judge(validations=no, matchConditions=[{"name": "a", "expression": "request.operation == 'CREATE'"}])))
        == 1
    )
    broken = {"name": "b", "expression": "object.nope"}
    assert said(judge(validations=no, matchConditions=[broken, {"name": "c", "expression": "false"}])) == []
    (message,) = said(judge(validations=no, matchConditions=[broken, {"name": "c", "expression": "1 +"}]))
    assert message.startswith("expression 'object.nope' resulted in error: no such key: nope; compilation error")


def test_each_of_the_params_has_to_hold():
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    validations = [{"expression": "object.spec.n <= params.max", "messageExpression": "'max ' + string(params.max)"}]
    verdict = judge(paramKind=kind, validations=validations, params=({"max": 5}, {"max": 2}, {"max": 1}))
    assert said(verdict) == ["max 2", "max 1"]
    (message,) = said(judge(paramKind=kind, validations=validations))
    assert "resulted in error" in message


def test_variables_are_evaluated():
    variables = [{"name": "n", "expression": "object.spec.n"}]
    assert said(judge(variables=variables, validations=[{"expression": "variables.n == 3"}])) == []


def test_annotations_are_noted():
    notes = [
        {"key": "a", "valueExpression": "'n is ' + string(object.spec.n)"},
        {"key": "b", "valueExpression": "null"},
        {"key": "c", "valueExpression": "object.nope"},
        {"key": "d", "valueExpression": "1"},
    ]
    verdict = judge(auditAnnotations=notes)
    assert verdict.notes == {"a": "n is 3"}
    assert [message.split(":")[0] for message in said(verdict)] == [
        "expression 'object.nope' resulted in error",
        "compilation error",
    ]


def test_an_object_that_is_too_large_is_an_error():
    data = {"object": {"list": ["a"] * 100_000, "text": "b" * 100_000}}
    (message,) = said(judge(validations=[{"expression": "object.list.all(x, object.text.contains(x))"}], data=data))
    assert "call cost exceeds limit" in message


def test_one_write_has_so_many_evaluations():
    budget = verdicts.Budget(3)
    verdict = judge(validations=[{"expression": "true"}] * 5, budget=budget)
    assert len(said(verdict)) == 2
    assert "running out of cost budget" in said(verdict)[0]


@pytest.mark.parametrize(("policy", "count"), [("Fail", 1), ("Ignore", 0)])
def test_without_the_evaluator_policies_that_fail_closed_refuse(monkeypatch, policy, count):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    verdict = judge(failurePolicy=policy, validations=[{"expression": "true"}])
    assert said(verdict) == [verdicts.UNAVAILABLE] * count


@pytest.mark.parametrize(("policy", "count"), [("Fail", 1), ("Ignore", 0)])
def test_what_another_policy_spent_lets_nothing_pass(policy, count):
    budget = verdicts.Budget(1)
    judge(validations=[{"expression": "true"}] * 2, failurePolicy="Ignore", budget=budget)
    verdict = judge(validations=[{"expression": "true"}], failurePolicy=policy, params=[None] * 9, budget=budget)
    assert len(said(verdict)) == count


def test_a_policy_knows_what_must_be_compiled_first(monkeypatch):
    spec = {
        "matchConditions": [{"name": "a", "expression": "object.cold == 1"}],
        "validations": [{"expression": "object.cold == 2", "messageExpression": "'cold'"}, {"expression": "nope ="}],
        "auditAnnotations": [{"key": "a", "valueExpression": "'cold' + ''"}],
    }
    cold = verdicts.Judge(configurations.policy({"metadata": {"name": "p"}, "spec": spec}))
    sizes = expressions.Sizes({"object": {}})
    assert cold.price(sizes) == math.inf
    with monkeypatch.context() as without:
        without.setattr(engine, "_cel", lambda: None)
        cold.prepare()
    assert cold.price(sizes) == verdicts.price((("a", "object.cold == 1"),), sizes) == math.inf
    cold.prepare()
    assert 0 < verdicts.price((("a", "object.cold == 1"),), sizes) < verdicts.LIGHT_COST
    # What does not compile is never ready.
    assert cold.price(sizes) == math.inf


def test_what_is_not_evaluated_costs_nothing():
    text = "object.list.filter(x, x > 0).size() > 0"
    judge(validations=[{"expression": text}], data={"object": {"list": []}})
    policy = configurations.policy({"metadata": {"name": "p"}, "spec": {"validations": [{"expression": text}]}})
    warm = verdicts.Judge(policy)
    prices = [warm.price(expressions.Sizes({"object": {"list": [1] * count}})) for count in (10, 1000, 2000)]
    assert prices[0] < verdicts.LIGHT_COST < prices[1]
    assert prices[2] == 0


def test_the_evaluations_of_one_write_cost_so_much_and_no_more():
    """A text of a megabyte has few values; 2,000 evaluations of it took seconds."""
    data = {"object": {"text": "x" * 1_000_000}}
    verdict = judge(validations=[{"expression": "object.text.size() > 1"}] * 1500, data=data)
    assert 0 < len(said(verdict)) < 1400
    assert "running out of cost budget" in said(verdict)[0]


def test_an_object_whose_lists_are_too_long_is_an_error():
    data = {"object": {"list": [1] * 9000}}
    (message,) = said(judge(validations=[{"expression": "object.list.filter(x, x > 0).size() > 0"}], data=data))
    assert "call cost exceeds limit for a list or map of 9000 elements" in message
