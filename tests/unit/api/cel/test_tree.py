# SPDX-License-Identifier: Apache-2.0
"""The syntax tree of an expression, from the evaluator's bytes."""

from __future__ import annotations

from handfast.api.cel import engine, tree


def read(text: str) -> tree.Node:
    return engine.program(text, "self").root


def shown(node: tree.Node) -> str:
    inner = ", ".join(map(shown, node.parts))
    return f"{node.kind}:{node.name}({inner})" if inner else f"{node.kind}:{node.name}"


def test_every_form_is_read():
    assert shown(read("self.a == 'x' ? [1, 2.5] : [true, null]")).startswith(
        "call:_?_:_(call:_==_(select:a(ident:self), const:string)"
    )
    assert shown(read("{'a': b'x', 'b': 3u}")) == "map:(const:string, const:bytes, const:string, const:uint)"
    assert shown(read("[0, 1.5, true, null]")) == "list:(const:int, const:double, const:bool, const:null)"
    test = read("has(self.a)")
    assert (test.kind, test.name, test.is_test) == (tree.SELECT, "a", True)
    member = read("self.a.contains('x')")
    assert (member.name, member.is_member, len(member.parts)) == ("contains", True, 2)


def test_a_loop_has_its_range_and_what_it_gathers():
    loop = read("self.all(x, x > 1)")
    assert (loop.kind, loop.name, loop.accumulator, len(loop.parts)) == (tree.LOOP, "x", "@result", 5)


def test_nodes_know_where_they_stand():
    assert {(node.name, node.offset) for node in read("1 == self.ab").walk()} >= {("_==_", 2), ("self", 5), ("ab", 9)}


def test_texts_are_kept():
    assert [node.value for node in read("'ä' == self").walk() if node.value] == ["ä"]
