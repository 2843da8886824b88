# SPDX-License-Identifier: Apache-2.0
"""Objects that expressions make: how they are written for the evaluator, and what is read from their values."""

from __future__ import annotations

import pytest

from handfast.api.cel import engine, estimate, expressions, mutations

DATA = {"object": {"spec": {"n": 3, "c": [{"name": "a"}, {"name": "b"}]}}}


def value(text: str) -> object:
    names = expressions.names(has_params=False)
    program = engine.program(mutations.plain(text), *names)
    return program.evaluate(engine.environment(*names).values({name: DATA.get(name) for name in names}))


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Object{}", {}),
        ("Object{spec: Object.spec{replicas: 1337}}", {"spec": {"replicas": 1337}}),
        ("Object { spec : Object . spec { n : object.spec.n + 1 , } }", {"spec": {"n": 4}}),
        ("Object{metadata: Object.metadata{annotations: {'a/b': 'Object{x: 1}'}}}", {"metadata": {"annotations": {"a/b": "Object{x: 1}"}}}),
        ("Object{ // Object{a: 1}, no '\nn: 1}", {"n": 1}),
        ("Object{a: '''it's\n{'''}", {"a": "it's\n{"}),
        (r"Object{a: r'\d', b: b'x' == b'x', c: '\'{', d: 0x1F, e: 1u}", {"a": "\\d", "b": True, "c": "'{", "d": 31, "e": 1}),
        ("Object{a: object.spec.n > 2 ? n1 : n2}".replace("n1", "'x'").replace("n2", "'y'"), {"a": "x"}),
        ("Object{a: true ? object : object.spec}", {"a": DATA["object"]}),
        ("Object{?a: optional.none(), ?b: optional.of(1)}", {"b": 1}),
        ("Object{a__dash__b: 1, __namespace__: 2, c__dot__d__slash__e: 3, f__underscores__g: 4}", {"a-b": 1, "namespace": 2, "c.d/e": 3, "f__g": 4}),
        (
            "Object{spec: Object.spec{c: object.spec.c.map(x, Object.spec.c{name: x.name + '!'})}}",
            {"spec": {"c": [{"name": "a!"}, {"name": "b!"}]}},
        ),
        ("object.spec.n == 3 ? Object{a: null} : Object{}", {"a": None}),
        ("Object{a: Object.a{`b-c`: [1.5, true]}}", {"a": {"b-c": [1.5, True]}}),
    ],
)  # fmt: skip
def test_a_configuration_is_made(text, made):
    assert mutations.configuration(value(text)) == made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{'a': 1}", "must evaluate to Object"),
        ("1", "must evaluate to Object"),
        ("Object.spec{}", "must evaluate to Object"),
        ("Object{spec: Object.wrong{}}", 'unexpected type name "Object.wrong", expected "Object.spec"'),
        ("Object{spec: Object.spec{c: [Object.spec.d{}]}}", 'unexpected type name "Object.spec.d"'),
        ("Object{a: {1: 2}}", "keys that are no texts"),
        ("Object{a: timestamp('2026-01-01T00:00:00Z')}", "a value of the type datetime"),
        ("Object{a: b'x'}", "a value of the type bytearray"),
        ("Object{a: double('NaN')}", "a value of the type float"),
    ],
)
def test_what_is_no_configuration_is_an_error(text, said):
    with pytest.raises(engine.NotEvaluated) as caught:
        mutations.configuration(value(text))
    assert said in caught.value.message


def test_a_patch_is_made():
    text = """[
        JSONPatch{op: "test", path: "/spec/n", value: 3},
        JSONPatch{op: "add", path: "/a/" + jsonpatch.escapeKey("b/c~d"), value: Object.spec.selector{matchLabels: {"e": "f"}}},
        JSONPatch{op: "copy", from: "/a", path: "/b"},
    ]"""
    assert mutations.operations(value(text)) == [
        {"op": "test", "path": "/spec/n", "value": 3},
        {"op": "add", "path": "/a/b~1c~0d", "value": {"matchLabels": {"e": "f"}}},
        {"op": "copy", "from": "/a", "path": "/b"},
    ]


@pytest.mark.parametrize("text", ["JSONPatch{op: 'a'}", "[{'op': 'a'}]", "[1]", "[Object{}]"])
def test_what_is_no_patch_is_an_error(text):
    with pytest.raises(engine.NotEvaluated, match="must evaluate to a list of JSONPatch"):
        mutations.operations(value(text))


def test_a_part_of_a_patch_stands_in_its_own_place():
    with pytest.raises(engine.NotEvaluated, match="type mismatch"):
        mutations.operations(value("[JSONPatch{op: 'add', path: '/a', value: Object.a{b: Object.c{}}}]"))


def test_other_members_are_refused_when_it_is_compiled():
    with pytest.raises(estimate.InvalidExpression) as caught:
        mutations.plain("[JSONPatch{op: 'add', where: '/a'}]")
    assert caught.value.message == "undefined field 'where' of JSONPatch"


@pytest.mark.parametrize(
    "text",
    [
        "object.spec",
        "object.Object{a: 1}",
        "Object",
        "Object.spec",
        "Object.1{",
        "JSONPatch.a{}",
        "Object.",
        "x}Object)",
    ],
)
def test_what_makes_no_object_is_left_alone(text):
    assert mutations.plain(text) == text


@pytest.mark.parametrize(
    ("compile_one", "text", "wrong"),
    [
        (expressions.configuration, "Object{a: variables.v}", "[JSONPatch{op: 'remove', path: '/a'}]"),
        (expressions.patch, "[JSONPatch{op: 'add', path: '/a', value: variables.v}]", "Object{}"),
    ],
)
def test_they_are_compiled_with_their_variables(compile_one, text, wrong):
    expression = compile_one(text, [("v", "Object.a{b: 1}")])
    assert expression.largest > 0
    assert expressions.making_variable("Object{a: variables.v}", [("v", "Object.a{}")]).largest > 0
    with pytest.raises(estimate.InvalidExpression, match="must evaluate to"):
        compile_one(wrong)


def test_an_escaped_key_may_be_twice_as_long():
    expression = expressions.configuration("Object{a: jsonpatch.escapeKey(string(object.spec))}")
    assert expression.largest > 0


@pytest.mark.parametrize(
    "text", ["Object{a: 'b}", 'Object{a: """b}', "Object" + "'''\\" * 4000, "Object{" + " " * engine.MAX_TEXT + "}"]
)
def test_a_text_without_an_end_is_no_work(text):
    with pytest.raises(estimate.InvalidExpression):
        mutations.plain(text)
