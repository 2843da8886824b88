# SPDX-License-Identifier: Apache-2.0
"""Rules in a schema, judged when they are defined."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.cel import engine
from handfast.api.custom import rules

S, INT = {"type": "string"}, {"type": "integer"}
PROPERTIES: dict[str, Any] = {
    "n": INT,
    "s": {**S, "maxLength": 20},
    "long": S,
    "list": {
        "type": "array",
        "maxItems": 100,
        "items": {"type": "object", "properties": {"name": {**S, "maxLength": 63}}},
    },
    "endless": {"type": "array", "items": {**S, "maxLength": 10}},
    "map": {"type": "object", "additionalProperties": S},
}


def spec(*listed: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": PROPERTIES, rules.KEY: list(listed), **more}},
    }


def problems(schema: dict[str, Any]) -> list[tuple[str, str]]:
    prefix = f"p.properties[spec].{rules.KEY}"
    return [(cause.field.removeprefix(prefix), cause.message) for cause in rules.problems(schema, "p")]


@pytest.mark.parametrize(
    "rule",
    [
        "self.n > 0",
        "self.list.all(x, self.list.exists_one(y, x.name == y.name))",
        "!has(self.map) || 'a' in self.map",
        "self.endless.size() < 5 && self.s.matches('^[a-z]+$')",
        "self.n > oldSelf.n",
        "quantity(self.s).isLessThan(quantity('5'))",
    ],
)
def test_usual_rules_are_taken(rule):
    assert problems(spec({"rule": rule, "message": "m", "messageExpression": "'n is ' + string(self.n)"})) == []


@pytest.mark.parametrize(
    ("row", "field", "said"),
    [
        ({}, "[0].rule", "Required value: rule is not specified"),
        ({"rule": " "}, "[0].rule", "Required value"),
        ({"rule": "true", "message": " "}, "[0].message", "must be non-empty if specified"),
        ({"rule": "true", "message": "a\nb"}, "[0].message", "must not contain line breaks"),
        ({"rule": "true", "message": "a" * 2049}, "[0].message", "maximum length of 2048"),
        ({"rule": "true", "messageExpression": ""}, "[0].messageExpression", "must be non-empty if specified"),
        ({"rule": "true", "reason": "Nope"}, "[0].reason", "Unsupported value"),
        ({"rule": "true", "fieldPath": ".nope"}, "[0].fieldPath", "must be a valid path"),
        ({"rule": "true", "fieldPath": "n"}, "[0].fieldPath", "must be a valid path"),
        ({"rule": "true", "fieldPath": ".n.x.y"}, "[0].fieldPath", "must be a valid path"),
        ({"rule": "true", "fieldPath": ""}, "[0].fieldPath", "must be a valid path"),
        ({"rule": "true", "optionalOldSelf": True}, "[0].optionalOldSelf", "may not be set if oldSelf is not used"),
        ({"rule": "true", "messageExpression": "1"}, "[0].messageExpression", "must evaluate to a string"),
        ({"rule": "true", "messageExpression": "self.nope"}, "[0].messageExpression", "compilation failed"),
        (
            {"rule": "true", "messageExpression": "self.endless.map(x, x + x).join('')"},
            "[0].messageExpression",
            "exceeds budget",
        ),
    ],
)
def test_what_a_rule_says_beside_its_expression(row, field, said):
    (where, message), *_ = problems(spec(row))
    assert where == field
    assert said in message


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("self = 42", "compilation failed: ERROR: <input>:1:6: Syntax error"),
        ("self.z == 1", "compilation failed: ERROR: <input>:1:5: undefined field 'z'"),
        ("self.metadata.name == 'a'", "undefined field 'metadata'"),
        ("self.n", "compilation failed: cel expression must evaluate to a bool"),
        ("self.s", "cel expression must evaluate to a bool"),
        ("self.n + self.s == 1", "found no matching overload"),
        ("authorizer.group('')", "undeclared reference to 'authorizer'"),
    ],
)
def test_what_does_not_compile_is_refused(rule, said):
    ((where, message),) = problems(spec({"rule": rule}))
    assert where == "[0].rule"
    assert said in message


def test_a_rule_that_costs_too_much_is_refused():
    inner = {"type": "array", "items": S, rules.KEY: [{"rule": "self.all(s, s == 'string constant')"}]}
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": inner}}}
    one, total = rules.problems(schema, "p")
    assert one.field == f"p.properties[x].items.{rules.KEY}[0].rule"
    assert "estimated rule cost exceeds budget by factor of more than 100x" in one.message
    assert (total.field, "total for entire OpenAPIv3 schema exceeds budget" in total.message) == ("p", True)
    ((_, message),) = problems(spec({"rule": "self.list.all(a, self.list.all(b, self.list.all(c, a == b && b == c)))"}))
    assert "exceeds budget by factor of" in message
    assert "more than" not in message


def test_a_value_that_grows_is_refused():
    names = "abcdefghij"
    text = f"{names[-1]}.size() > 1"
    for before, name in reversed(list(zip("s" + names, names, strict=False))):
        text = f"cel.bind({name}, {'self.long' if before == 's' else before} + {'self.long' if before == 's' else before}, {text})"
    ((_, message),) = problems(spec({"rule": text}))
    assert "a value could take more than 64 MiB" in message


def test_a_pattern_costs_what_its_program_does():
    ((_, message), *_) = problems(spec({"rule": "self.long.matches('(.{1,200}){1,5}z')"}))
    assert "exceeds budget" in message
    assert problems(spec({"rule": "self.long.matches('^[a-z]+$')"})) == []


def test_old_values_are_there_where_things_have_an_identity():
    def element(**kind: Any) -> list[str]:
        item = {
            "type": "object",
            "properties": {"k": {**S, "maxLength": 5}},
            rules.KEY: [{"rule": "self.k == oldSelf.k"}],
        }
        holder = {"type": "array", "maxItems": 10, "items": item, **kind}
        return [cause.message for cause in rules.problems({"type": "object", "properties": {"l": holder}}, "p")]

    assert element(**{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}) == []
    assert "uncorrelatable" in element()[0]
    fixed = {"type": "object", "properties": {"n": {**INT, rules.KEY: [{"rule": "self == oldSelf"}]}}}
    assert list(rules.problems(fixed, "p")) == []
    (cause,) = rules.problems({**fixed, "x-kubernetes-map-type": "atomic"}, "p")
    assert "uncorrelatable" in cause.message


def test_rules_stand_where_objects_are_shaped():
    schema = {"type": "object", "anyOf": [{rules.KEY: [{"rule": "true"}]}], "not": {rules.KEY: [{"rule": "true"}]}}
    assert [cause.field for cause in rules.problems(schema, "p")] == [f"p.anyOf[0].{rules.KEY}", f"p.not.{rules.KEY}"]


def test_entries_of_maps_have_rules_too():
    entry = {**S, "maxLength": 5, rules.KEY: [{"rule": "self == 'a'"}]}
    schema = {"type": "object", "additionalProperties": entry, "maxProperties": 10}
    assert list(rules.problems(schema, "p")) == []


def test_so_many_rules_and_no_more():
    ((where, message),) = problems(spec(*([{"rule": "true"}] * 101)))
    assert (where, "Too many: 101" in message) == ("", True)


def test_without_the_evaluator_only_the_form_is_checked(monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert problems(spec({"rule": "self ="})) == []
    assert [where for where, _ in problems(spec({}))] == ["[0].rule"]


def test_properties_that_are_no_schemas_are_passed_over():
    assert list(rules.problems({"type": "object", "properties": {"a": True}}, "p")) == []


def test_all_rules_together_have_so_many_characters(monkeypatch):
    monkeypatch.setattr(rules, "MAX_CHARACTERS", 100)
    rows = [{"rule": "true", "messageExpression": "'twenty-five characters '"}] * 9
    (cause,) = rules.problems({"type": "object", rules.KEY: rows}, "p")
    assert (cause.field, cause.reason) == ("p.x-kubernetes-validations[3].rule", "FieldValueForbidden")
