# SPDX-License-Identifier: Apache-2.0
"""The door to the evaluator: what compiles, what it is worth, and in which words it fails."""

from __future__ import annotations

import sys

import pytest

from handfast.api.cel import engine, estimate, patterns


def value(text: str, **data):
    return engine.program(text, "self").evaluate(engine.environment("self").values(data))


def test_an_expression_has_a_value():
    assert value("self.a + 1 == 3 && self.b.startsWith('x')", self={"a": 2, "b": "xy"}) is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("self.b", "no such key: b"),
        ("self.a + 'x' == 'y'", "no such overload: _+_(int64, string)"),
        ("1 / (self.a - 2) > 1", "division by zero"),
        ("self.a + 9223372036854775807 > 1", "integer overflow"),
        ("other", ""),
        ("optional.of(1)", ""),
        ("quantity('x') == quantity('y')", "quantities must match"),
    ],
)
def test_errors_are_in_the_words_of_kubernetes(text, said):
    program = engine.program(text, "self", "other")
    with pytest.raises(engine.NotEvaluated) as caught:
        program.evaluate(engine.environment("self", "other").values({"self": {"a": 2}}))
    assert caught.value.message.startswith(said)


def test_loops_end():
    with pytest.raises(engine.TooCostly, match="actual cost limit exceeded"):
        value("self.all(x, self.all(y, y == x))", self=[1] * 200)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("self = 1", "ERROR: <input>:1:6: Syntax error"),
        ("nobody", "ERROR: <input>:1:1: undeclared reference to 'nobody'\n"),
        ("1 + 'a'", "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'"),
        ("format.named('x')", "ERROR: <input>:1:1: undeclared reference to 'format'"),
        ("[1].all(i, v, i < v)", "ERROR: <input>:1:9: undeclared reference to 'i'"),
        ("+".join(["1"] * 50), "ERROR: <input>:-1:-1: Exceeded max recursion depth"),
        ("'" + "x" * engine.MAX_TEXT + "'", "the expression has more than 16384 characters"),
        # 14 KB of these held the interpreter for half a second.
        (f"[{'{},' * 1400}]", "the expression has more than 4096 words and signs"),
        ("'" + "-" * 4096 + "' == ''", "the expression has more than 4096 words and signs"),
    ],
)
def test_what_does_not_compile(text, said):
    with pytest.raises(estimate.InvalidExpression) as caught:
        engine.program(text, "self")
    assert caught.value.message.startswith(said)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("self.matches('^a+$')", True),
        ("matches(self, 'b')", False),
        ("'x'.matches (\n'x') && self. matches('a')", True),
        ("self.matches // left to the evaluator\n('a')", True),
        ("'é.matches('.matches('é[.]matches[(]') && [self].all(x, x.matches(self))", True),
    ],
)
def test_matches_is_that_of_the_evaluator(text, verdict):
    assert value(text, self="aa") is verdict


def test_a_pattern_is_compiled_once():
    """The evaluator compiled it at every call: that of a DNS name, in a loop over 9,000 texts, took 150 ms."""
    patterns._matched.cache_clear()
    assert value("self.all(x, x.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))", self=["a-b"] * 100)
    assert patterns._matched.cache_info().misses == 1


@pytest.mark.parametrize(
    ("own", "said"), [(1, r"no such overload: \(int64\)\.matches\(string\)"), ("a", "RE2 does not take this pattern")]
)
def test_what_cannot_be_matched_is_said_of_matches(own, said):
    with pytest.raises(engine.NotEvaluated, match=said):
        value("self.matches('(')", self=own)


def test_a_long_expression_of_few_words_compiles():
    assert value(f"self == '{'x' * 4_000}' || {' || '.join(['self.contains(self)'] * 500)}", self="a") is True


def test_what_is_said_of_many_errors_is_short():
    with pytest.raises(estimate.InvalidExpression, match="undeclared reference to 'z'") as caught:
        engine.program(f"[{','.join(['z'] * 2000)}] == []", "self")
    assert len(caught.value.message) == 4096


def test_a_verdict_is_true_or_false_and_words_are_text():
    values = engine.environment("self").values({"self": "a"})
    assert engine.program("self == 'a'", "self").is_true(values)
    assert engine.program("self + 'b'", "self").words(values) == "ab"
    with pytest.raises(engine.NotEvaluated, match="neither true nor false"):
        engine.program("self", "self").is_true(values)
    with pytest.raises(engine.NotEvaluated, match="no text"):
        engine.program("1", "self").words(values)


def test_a_program_knows_its_variables():
    program = engine.program("self.all(x, x > 1)", "self", "oldSelf")
    assert program.uses("self")
    assert not program.uses("oldSelf")


def test_a_text_that_is_no_unicode_is_an_error():
    with pytest.raises(engine.NotEvaluated):
        value("self.a == 'x'", self={"a": "\ud800"})


def test_without_the_extra_it_says_so(monkeypatch):
    assert engine.is_available()
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    assert engine._cel.__wrapped__() is None


def test_compiled_expressions_are_kept_up_to_so_many_characters():
    kept = engine.Kept[str](most=3 * 256 + 300)
    made: list[str] = []

    def get(text: str) -> None:
        def make() -> str:
            made.append(text)
            return text

        assert kept.get(text, make, len) == text

    for text in ("a" * 100, "b" * 100, "a" * 100, "c" * 100):
        get(text)
    assert [text[0] for text in made] == ["a", "b", "c"]
    get("d" * 100)  # "b" was used longest ago
    get("a" * 100)
    get("b" * 100)
    assert [text[0] for text in made] == ["a", "b", "c", "d", "b"]
    get("e" * 5000)  # more than is kept at all
    get("e" * 5000)
    assert [text[0] for text in made][-2:] == ["e", "e"]
