# SPDX-License-Identifier: Apache-2.0
"""Expressions of policies: their variables, and what they may cost."""

from __future__ import annotations

import pytest

from handfast.api.cel import engine, estimate, expressions

VARIABLES = (("a", "object.x"), ("b", "variables.a + 1"), ("unused", "object.nobody.has"))


def evaluate(expression: expressions.Expression, **data):
    values = {name: data.get(name) for name in expression.names}
    return expression.program.evaluate(engine.environment(*expression.names).values(values))


def test_variables_are_bound_where_they_are_used():
    expression = expressions.compiled("variables.b > 2 && variables.a == 2", VARIABLES)
    assert evaluate(expression, object={"x": 2}) is True
    assert evaluate(expression, object={"x": 1}) is False
    assert "unused" not in expression.program.text
    assert expression.text == "variables.b > 2 && variables.a == 2"


def test_a_variable_that_nobody_reaches_is_not_evaluated():
    expression = expressions.compiled("true || variables.unused == 1", VARIABLES)
    assert evaluate(expression, object={}) is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variables.nope == 1", "undefined field 'nope'"),
        ("variables == 1", "a variable is used by its name"),
        ("variables['a'] == 1", "a variable is used by its name"),
        ("has(variables.a)", "a variable is used by its name"),
        ("params.x == 1", "undeclared reference to 'params"),
        ("authorizer.group('').resource('pods').check('get').allowed()", "undeclared reference to 'authorizer'"),
        ("1", "must evaluate to bool"),
        ("object.x", ""),
        ("object.all(x, request.matches(object.y))", "estimated cost exceeds budget"),
    ],
)
def test_what_cannot_be(text, said):
    if said:
        with pytest.raises(estimate.InvalidExpression) as caught:
            expressions.compiled(text, VARIABLES)
        assert said in caught.value.message
    else:
        expressions.compiled(text, VARIABLES)


def test_params_are_named_where_there_is_a_kind_of_them():
    assert evaluate(expressions.compiled("params.x == 1", has_params=True), params={"x": 1}) is True


def test_annotations_are_texts_or_null():
    assert evaluate(expressions.annotation("'x' + object.y"), object={"y": "z"}) == "xz"
    assert evaluate(expressions.annotation("null")) is None
    with pytest.raises(estimate.InvalidExpression, match="string or null"):
        expressions.annotation("1")


def test_costly_expressions_are_for_small_objects():
    cheap = expressions.compiled("object.x == 1")
    costly = expressions.compiled("object.list.all(x, object.text.contains(x))")
    assert cheap.largest == expressions.SIZES[-1]
    assert 0 < costly.largest < expressions.SIZES[-1]


def test_what_a_text_costs_is_counted():
    """To count the letters of a megabyte takes a millisecond."""
    small, large = (expressions.Sizes({"object": "x" * size}) for size in (1000, 1_000_000))
    counted = expressions.compiled("object.size() > 1")
    assert counted.price(large) > 100 * counted.price(small)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("object.list.filter(x, x > 0).size() > 0", 1414),
        ("size(object.list) + object.list.map(x, 'a' + x + string(1) + x).size() > 0", 1414),
        ("(object.list + object.list).map(x, x).size() > 0", 707),
        ("object.list.all(x, x.filter(y, y > 0).size() > 0)", 200),
        ("object.list.all(x, x > 0)", 100_000),
        ("cel.bind(a, object.list, a.all(x, x > 0))", 100_000),
    ],
)
def test_lists_that_are_gathered_are_short(text, most):
    """The evaluator copies what it has gathered in each round: 10,000 elements took 2 s."""
    expression = expressions.compiled(text)
    sizes = [expressions.Sizes({"object": {"list": [1] * count}}) for count in (most, most + 1)]
    assert expression.price(sizes[0]) > 0
    if most < 100_000:
        with pytest.raises(engine.TooCostly, match=f"a list or map of {most + 1} elements"):
            expression.price(sizes[1])


@pytest.mark.parametrize(("text", "most"), [("split(',').size() > 0", 400_000), ("split(',').map(x, x) != []", 1414)])
def test_texts_that_are_cut_are_short(text, most):
    expression = expressions.compiled(f"object.text.{text}")
    assert expression.price(expressions.Sizes({"object": {"text": "x" * most}})) > 0
    with pytest.raises(engine.TooCostly, match=f"a text of {most + 1} letters"):
        expression.price(expressions.Sizes({"object": {"text": "x" * (most + 1)}}))


def test_what_grows_too_large_is_for_small_objects_too():
    grown = "(object.s + object.s).replace('', object.t).size() > 0"
    assert 0 < expressions.compiled(grown).largest < expressions.SIZES[-1]


def test_a_failure_names_the_expression():
    assert expressions.failure(" a ", "b") == "expression 'a' resulted in error: b"
