# SPDX-License-Identifier: Apache-2.0
"""Expressions judged before they run: fields, types, costs."""

from __future__ import annotations

import pytest

from handfast.api.cel import engine, estimate, library, shapes

NAME = shapes.text(10)
SELF = shapes.record(
    {
        "s": NAME,
        "long": shapes.text(shapes.REQUEST_BYTES),
        "n": shapes.INT,
        "d": shapes.DOUBLE,
        "yes": shapes.BOOL,
        "names": shapes.array(NAME, 20),
        "list": shapes.array(shapes.record({"name": NAME, "of": shapes.array(shapes.INT, 5)}), 50),
        "map": shapes.mapping(NAME, 30),
        "any": shapes.ANY,
        "when": shapes.Shape("timestamp", 1, 32, is_text=True),
        "whens": shapes.array(shapes.Shape("timestamp", 1, 32, is_text=True), 3),
    }
)


def judge(text: str, *, is_bounded: bool = False, **scope: shapes.Shape) -> estimate.Judgement:
    known = {"self": SELF, **scope}
    program = engine.program(text, *sorted(known))
    return estimate.judge(text, program.root, known, library.NAMES, is_bounded=is_bounded)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("self.s + 'a' == 'b'", "bool"),
        ("self.s + 'a'", "string"),
        ("self.names + ['a', 'b']", "list"),
        ("self.n * 2 % 3", "int"),
        ("self.d / 2.0", "double"),
        ("self.any + 1", "dyn"),
        ("self.any.x.y", "dyn"),
        ("self.map.x", "string"),
        ("self.map['x']", "string"),
        ("self.any['x']", "dyn"),
        ("self.yes ? self.s : 'a'", "string"),
        ("self.yes ? self.n : self.any", "dyn"),
        ("has(self.s)", "bool"),
        ("size(self.names)", "int"),
        ("string(self.n)", "string"),
        ("self.s.split(',')", "list"),
        ("self.s.replace('a', 'b')", "string"),
        ("self.names.join()", "string"),
        ("self.names.join(',')", "string"),
        ("'%s'.format([self.s])", "string"),
        ("duration('1h') + duration('1m')", "duration"),
        ("timestamp('2020-01-01T00:00:00Z') - duration('1m')", "timestamp"),
        ("{'a': 1}", "map"),
        ("[]", "list"),
        ("self.names.map(x, x + 'a')", "list"),
        ("self.list.filter(x, x.name == 'a')", "list"),
        ("self.map.all(k, self.map[k] == 'a')", "bool"),
        ("self.any.exists(x, x == 1)", "bool"),
        ("self.any.map(x, x.y)", "list"),
        ("cel.bind(a, self.s, a + a)", "string"),
        ("self.s == null", "bool"),
        ("self.n < self.d", "bool"),
        ("type(self.s) == string", "bool"),
        ("self.any == self.list", "bool"),
        ("dyn(self.s)", "dyn"),
        ("self.s.matches('^a') && 'b'.matches(self.s)", "bool"),
        ("self.names.isSorted()", "bool"),
        ("!self.yes", "bool"),
    ],
)
def test_shapes_follow(text, kind):
    assert judge(text).shape.kind == kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("self.nope == 1", "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^"),
        ("has(self.nope)", "undefined field 'nope'"),
        ("self.list.all(x,\n x.nope == 1)", "ERROR: <input>:2:3: undefined field 'nope'\n |  x.nope == 1)\n | ..^"),
        ("self.s.x == 1", "type 'string' does not support field selection"),
        ("self.names.x == 1", "type 'list(string)' does not support field selection"),
        ("self.s > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
        ("self.s == 1", "found no matching overload for '_==_' applied to '(string, int)'"),
        ("self.map == 1", "applied to '(map(string, string), int)'"),
        ("[] == self.n", "found no matching overload for '_==_' applied to '(list(dyn), int)'"),
        ("self.list > self.list", "found no matching overload for '_>_'"),
        ("self.s - self.s == 'a'", "found no matching overload for '_-_'"),
        ("self.s + self.n == 'a'", "found no matching overload for '_+_'"),
        ("self.d % self.d == 1.0", "found no matching overload for '_%_'"),
        ("self.s && true", "found no matching overload for '_&&_'"),
        ("self.s.all(x, x == 'a')", "expression of type 'string' cannot be range of a comprehension"),
        ("self.s.matches('(')", "RE2 does not take this pattern"),
        ("google.protobuf.Int32Value{value: 1} == 1", "there are no messages here"),
        ("self.long.replace('a', self.long) == ''", "a value could take more than 64 MiB"),
        ("self.names.map(x, x + self.long).size() == 1", ""),
        ("self.any.map(x, x == 1 ? x : self.long).size() == 1", "a value could take more than 64 MiB"),
        ("self.whens[0] == timestamp('2020-01-01T00:00:00Z')", "a timestamp of the object is used by its name"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(text, said):
    with pytest.raises(estimate.InvalidExpression) as caught:
        judge(text)
    assert said in caught.value.message


def test_loops_are_nested_so_deep_and_no_deeper():
    text = "true"
    for depth in range(7):
        text = f"self.names.all(x{depth}, {text})"
        if depth < 6:
            judge(text)
    with pytest.raises(estimate.InvalidExpression, match="nested at most 6 deep"):
        judge(text)


def test_a_loop_costs_as_often_as_it_runs():
    one, nested = (
        judge("self.names.all(x, x == 'a')").cost,
        judge("self.names.all(y, self.names.all(x, x == 'a'))").cost,
    )
    assert 15 * one < nested < 25 * one


def test_a_pattern_costs_what_its_program_does():
    small, large = judge("self.long.matches('a')").cost, judge("self.long.matches('(.{1,200}){1,5}z')").cost
    assert small < 1_000_000
    assert large > 10_000 * small
    assert judge("self.long.matches(self.s)").cost > large
    assert judge("self.s.find('a') == 'a'").cost > 50


def test_times_are_noted_where_they_are_named():
    text = "self.when < timestamp('2020-01-01T00:00:00Z') && self.whens.all(w, w < self.when) && has(self.when)"
    assert judge(text).times == {
        (0, "self.when"): "timestamp",
        (text.index("w < "), "w"): "timestamp",
        (text.index("self.when)"), "self.when"): "timestamp",
    }


def test_a_time_with_spaces_in_its_name_is_refused():
    with pytest.raises(estimate.InvalidExpression, match="by its name"):
        judge("self . when == self.when")


def test_bounded_loops_are_counted_as_they_are_run():
    """Elements share the bytes of the object, and the evaluator ends after so many rounds in all."""
    thing = shapes.anything(20_000)
    single = judge("thing.all(x, x.a.matches('^a'))", is_bounded=True, thing=thing).cost
    nested = judge("thing.all(x, thing.all(y, x.a == y.a))", is_bounded=True, thing=thing).cost
    assert single < 1_000_000
    assert nested < 50_000_000
    assert judge("thing.all(x, thing.all(y, x.a == y.a))", thing=thing).cost > 100_000_000


def test_a_chain_is_a_name_and_nothing_else():
    roots = {text: estimate.chain(engine.program(text, "self").root) for text in ("self.a.b", "self[0]", "has(self.a)")}
    assert roots == {"self.a.b": (0, "self.a.b"), "self[0]": None, "has(self.a)": None}


def test_what_stands_in_loops_in_loops_is_not_looked_at_for_ever():
    text = " && ".join(["thing.a == 1"] * 500)
    for index in range(6):
        text = f"thing.all(v{index}, {text})"
    with pytest.raises(estimate.InvalidExpression, match="too much stands in loops"):
        judge(text, thing=shapes.anything(100))


@pytest.mark.parametrize("call", ["contains({})", "indexOf({})", "lastIndexOf({})", "split({})", "replace({}, '')"])
def test_a_search_costs_what_both_texts_do(call):
    """400 kB of one letter, searched for 200 kB of it and another letter, took 1.4 s, and nothing else ran."""
    a, b = shapes.text(400_000), shapes.text(200_000)
    for is_bounded in (False, True):
        assert judge(f"a.{call.format('b')}", is_bounded=is_bounded, a=a, b=b).cost > 10_000_000
        assert judge(f"a.{call.format(repr('some'))}", is_bounded=is_bounded, a=a, b=b).cost < 4_000_000


def test_each_match_and_each_pair_costs():
    text, many = shapes.text(200_000), shapes.array(shapes.INT, 1000)
    assert judge("a.findAll('a').size() > 0", a=text).cost > 10_000_000
    assert judge("a.find('a') == ''", a=text).cost < 1_000_000
    assert 1_000_000 < judge("sets.contains(l, l)", l=many).cost < 10_000_000
    assert judge("l.all(x, sets.intersects(l, l))", l=many).cost > 1_000_000_000
    assert judge("l.indexOf(1) == 0", l=many).cost < 100_000
