# SPDX-License-Identifier: Apache-2.0
"""Rules evaluated on objects, in Kubernetes' words."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.cel import engine
from handfast.api.custom import rule_values, rules

S, INT = {"type": "string"}, {"type": "integer"}


def spec(*listed: Any, **properties: Any) -> dict[str, Any]:
    below = {"n": INT, "s": S, "list": {"type": "array", "items": INT}, **properties}
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": below, rules.KEY: list(listed)}}}


def check(schema: dict[str, Any], value: Any, old: Any = None) -> list[tuple[str, str]]:
    before = None if old is None else {"spec": old}
    return [(cause.field, cause.message) for cause in rule_values.check(schema, {"spec": value}, before)]


def test_a_schema_without_rules_asks_nothing():
    assert rule_values.check({"type": "object", "properties": {"a": S, "b": True}}, {"a": 1}) == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"rule": "self.n > 5 "}, "Invalid value: failed rule: self.n > 5"),
        ({"rule": "self.n > 5", "message": " too small "}, "Invalid value: too small"),
        (
            {"rule": "self.n > 5", "messageExpression": "string(self.n) + ' is too small'"},
            "Invalid value: 1 is too small",
        ),
        ({"rule": "self.n > 5", "message": "m", "messageExpression": "self.s"}, "Invalid value: m"),
        ({"rule": "self.n > 5", "message": "m", "messageExpression": "'a\\nb'"}, "Invalid value: m"),
        ({"rule": "self.n > 5", "reason": "FieldValueForbidden"}, "Forbidden: failed rule: self.n > 5"),
        ({"rule": "self.n > 5", "reason": "FieldValueRequired"}, "Required value: failed rule: self.n > 5"),
        ({"rule": "self.n > 5", "reason": "FieldValueDuplicate"}, 'Duplicate value: "object": failed rule: self.n > 5'),
        ({"rule": "self.s == 'a'", "message": "m"}, "Invalid value: no such key: s evaluating rule: m"),
        ({"rule": "self.s == 'a'"}, "Invalid value: no such key: s evaluating rule: self.s == 'a'"),
        (
            {"rule": "self.any > 'a'"},
            "Invalid value: 'no such overload: _>_(int64, string)': call arguments did not match a supported operator, function or macro signature for rule: self.any > 'a'",
        ),
        ({"rule": "self ="}, "Invalid value: rule compile error: ERROR: <input>:1:6: Syntax error"),
        ({"rule": "true", "messageExpression": "1"}, "Invalid value: rule compile error: messageExpression must"),
    ],
)
def test_a_rule_that_does_not_hold_is_said(row, message):
    schema = spec(row, any={"x-kubernetes-int-or-string": True})
    ((field, said),) = check(schema, {"n": 1, "any": 2})
    assert field == "spec"
    assert said.startswith(message)


def test_the_field_is_the_one_that_the_rule_names():
    schema = spec({"rule": "self.n > 5", "fieldPath": ".map['a.b']"}, map={"type": "object", "additionalProperties": S})
    assert [field for field, _ in check(schema, {"n": 1})] == ["spec.map.a.b"]


def test_scalars_show_their_value():
    schema = spec(
        n={**INT, rules.KEY: [{"rule": "self > 5"}]},
        s={**S, rules.KEY: [{"rule": "self == 'b'", "reason": "FieldValueDuplicate"}]},
    )
    assert check(schema, {"n": 1, "s": "a"}) == [
        ("spec.n", "Invalid value: 1: failed rule: self > 5"),
        ("spec.s", "Duplicate value: \"a\": failed rule: self == 'b'"),
    ]


def test_transitions_are_judged_on_changes_only():
    schema = spec(n={**INT, rules.KEY: [{"rule": "self > oldSelf"}]})
    assert check(schema, {"n": 1}) == []
    assert check(schema, {"n": 1}, {}) == []
    assert check(schema, {"n": 3}, {"n": 2}) == []
    assert check(schema, {"n": 1}, {"n": 2}) == [("spec.n", "Invalid value: 1: failed rule: self > oldSelf")]


def test_an_optional_old_value_is_asked_for_at_once():
    schema = spec(n={**INT, rules.KEY: [{"rule": "oldSelf.orValue(7) == self", "optionalOldSelf": True}]})
    assert check(schema, {"n": 7}) == []
    assert check(schema, {"n": 3}, {"n": 3}) == []
    assert len(check(schema, {"n": 3})) == 1


def test_what_is_unchanged_is_not_asked_again():
    schema = spec({"rule": "self.n > 5"})
    assert check(schema, {"n": 1}, {"n": 1}) == []
    assert len(check(schema, {"n": 1}, {"n": 2})) == 1


def test_elements_are_found_by_their_keys():
    element = {"type": "object", "properties": {"k": S, "n": INT}, rules.KEY: [{"rule": "self.n >= oldSelf.n"}]}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    schema = spec(list={"type": "array", "items": element, **keyed})
    old = {"list": [{"k": "a", "n": 1}, {"k": "b", "n": 5}, "odd"]}
    assert check(schema, {"list": [{"k": "b", "n": 6}, {"k": "c", "n": 0}, {"k": "a", "n": 1}]}, old) == []
    assert [field for field, _ in check(schema, {"list": [{"k": "b", "n": 4}]}, old)] == ["spec.list[0]"]
    assert check(spec(list={"type": "array", "items": element}), {"list": [{"k": "b", "n": 4}]}, old) == []


def test_entries_of_maps_are_found_by_their_name():
    entries = {"type": "object", "additionalProperties": {**INT, rules.KEY: [{"rule": "self >= oldSelf"}]}}
    schema = spec(map=entries)
    assert [field for field, _ in check(schema, {"map": {"a": 1, "b": 2}}, {"map": {"a": 2}})] == ["spec.map[a]"]
    atomic = spec(map={**entries, "x-kubernetes-map-type": "atomic"})
    assert check(atomic, {"map": {"a": 1}}, {"map": {"a": 2}}) == []


def test_null_is_asked_nothing():
    assert check(spec(n={**INT, "nullable": True, rules.KEY: [{"rule": "self > 5"}]}), {"n": None}) == []
    assert check(spec(n={**INT, rules.KEY: [{"rule": "self > 5"}]}), {}) == []


def test_times_numbers_and_escaped_names_are_as_rules_expect_them():
    schema = spec(
        {"rule": "self.when < timestamp('2030-01-01T00:00:00Z') && self.every > duration('1h')"},
        {"rule": "self.ratio / 2.0 == 0.5 && self.a__dash__b == 'x'"},
        **{
            "when": {**S, "format": "date-time"},
            "every": {**S, "format": "duration"},
            "ratio": {"type": "number"},
            "a-b": S,
        },
    )
    assert check(schema, {"when": "2020-01-01T00:00:00Z", "every": "2h", "ratio": 1, "a-b": "x"}) == []
    assert len(check(schema, {"when": "2040-01-01T00:00:00Z", "every": "2h", "ratio": 1, "a-b": "y"})) == 2


def test_the_root_has_rules_of_its_own():
    schema = {"type": "object", rules.KEY: [{"rule": "self.metadata.name.startsWith('a')"}]}
    assert rule_values.check(schema, {"metadata": {"name": "abc", "labels": {}}}) == []
    (cause,) = rule_values.check(schema, {"metadata": {"name": "b"}})
    assert cause.field == ""


def test_an_evaluation_ends():
    schema = spec({"rule": "self.list.all(x, self.list.all(y, x == y))"})
    ((_, message),) = check(schema, {"list": [1] * 200})
    assert "call cost exceeds limit for rule: self.list.all(x" in message


def test_all_evaluations_of_an_object_end():
    element = {
        "type": "array",
        "items": INT,
        rules.KEY: [{"rule": "self.all(x, self.all(y, x >= y || x < y)) && size(oldSelf) >= 0"}],
    }
    keyed = {"type": "object", "additionalProperties": element}
    value = {"map": {str(index): [1] * 90 for index in range(60)}}
    (*_, (field, message)) = check(spec(map=keyed), value, value)
    assert (field, "running out of cost budget" in message) == ("", True)


def test_lists_that_a_rule_gathers_are_short():
    """An honest rule on 10,000 elements held the server for 2 s: what is gathered is copied in each round."""
    schema = spec({"rule": "self.list.filter(x, x > 0).size() < 5"})
    assert check(schema, {"list": [0] * 1400}) == []
    ((_, message),) = check(schema, {"list": [0] * 1500})
    assert "call cost exceeds limit for a list or map of 1500 elements" in message


def test_all_that_rules_gather_is_counted():
    schema = spec(*[{"rule": f"self.list.filter(x, x > 0).size() < {number}"} for number in range(1, 9)])
    (*_, (field, message)) = check(schema, {"list": [0] * 1400})
    assert (field, "running out of cost budget" in message) == ("", True)


def test_words_that_gather_too_much_are_not_said():
    row = {"rule": "self.n > 5", "message": "m", "messageExpression": "string(self.list.map(x, x).size())"}
    assert check(spec(row), {"n": 1, "list": [1] * 3}) == [("spec", "Invalid value: 3")]
    assert check(spec(row), {"n": 1, "list": [1] * 2000}) == [("spec", "Invalid value: m")]


def test_so_much_is_said_and_no_more():
    schema = spec(list={"type": "array", "items": {**INT, rules.KEY: [{"rule": "self > 5"}]}})
    assert len(check(schema, {"list": [1] * 500})) == 100


def test_without_the_evaluator_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert check(spec({"rule": "false"}), {}) == []


def test_plans_do_not_pile_up(monkeypatch):
    """A definition that is changed again and again leaves a schema each time."""
    monkeypatch.setattr(rule_values, "_plans", engine.Kept[Any](most=1000))
    schemas = [spec({"rule": "false"}) for _ in range(5)]
    assert all(len(check(schema, {})) == 1 for schema in schemas)
    assert [rule_values.is_ready(schema) for schema in schemas] == [False, False, True, True, True]


def test_all_rules_are_compiled_for_the_first_object():
    """So that the one with the odd field does not do it, where it would hold everybody up."""
    below = {**INT, rules.KEY: [{"rule": "self < 77 + 1"}]}
    schema = spec(list={"type": "array", "items": below}, map={"type": "object", "additionalProperties": below})
    assert not rule_values.is_ready(schema)
    rule_values.make_ready(schema)
    assert rule_values.is_ready(schema)
    assert check(schema, {}) == []
    place = rule_values._plan(schema)
    assert place is not None
    assert all(
        each.compiled
        for each in (place.fields["spec"].fields["list"].items, place.fields["spec"].fields["map"].rest)
        if each
    )


def test_what_no_rule_looks_at_is_not_handed_over():
    large = {"type": "object", "additionalProperties": S}
    schema = spec(
        {"rule": "self.n > 0 && has(self.s)", "messageExpression": "self.a__dash__b"},
        {"rule": "self ="},
        **{"a-b": S, "large": large},
    )
    odd = {"n": 0, "s": "x", "a-b": "words", "large": {"x": "\ud800"}}
    assert check(schema, odd)[0] == ("spec", "Invalid value: words")
    whole = spec({"rule": "self.n > 0 && size(self) > 0"}, large=large)
    assert len(check(whole, odd)) == 1
    counted = spec({"rule": "self.n > 0", "messageExpression": "'of ' + string(size(self))"})
    assert check(counted, {"n": 0, "s": "x"}) == [("spec", "Invalid value: of 2")]
    mapped = {"type": "object", "additionalProperties": {**S, "maxLength": 5}, rules.KEY: [{"rule": "self.x == 'a'"}]}
    assert rule_values.check({"type": "object", "properties": {"m": mapped}}, {"m": {"x": "a"}}) == []
