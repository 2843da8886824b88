# SPDX-License-Identifier: Apache-2.0
"""Shapes: types and sizes at most."""

from __future__ import annotations

from handfast.api.cel import shapes


def test_weights_add_up_and_end():
    assert shapes.array(shapes.INT, 3).weight == 2 + 3 * 9
    assert shapes.mapping(shapes.BOOL, 2).weight == 2 + 2 * 65
    assert shapes.record({"ab": shapes.INT}).weight == 12
    assert shapes.array(shapes.anything(1 << 60), 1 << 60).weight == shapes.ENDLESS


def test_what_is_one_or_the_other():
    assert shapes.joined(shapes.text(3), shapes.text(5)) == shapes.text(5)
    assert shapes.joined(shapes.INT, shapes.text(9)).kind == "dyn"
    lists = shapes.joined(shapes.array(shapes.INT, 2), shapes.array(shapes.BOOL, 5))
    assert (lists.kind, lists.size) == ("list", 5)
    assert lists.element is not None
    assert lists.element.kind == "dyn"
    assert shapes.joined(shapes.Shape("list"), shapes.array(shapes.INT, 2)).element == shapes.INT
