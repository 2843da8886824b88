# SPDX-License-Identifier: Apache-2.0
"""Where boxes and lines of a picture lie."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from handfast.rules.console import graph


def place(picture: graph.Picture) -> dict[str, tuple[int, int]]:
    return {box.key: (box.x, box.y) for box in picture.boxes}


def require_sound(picture: graph.Picture) -> None:
    """Everything lies within the picture, and no box on another."""
    seen = sorted((box.x, box.y) for box in picture.boxes)
    for x, y in seen:
        assert 0 <= x <= picture.width - graph.WIDTH
        assert 0 <= y <= picture.height - graph.HEIGHT
    for at, (x, y) in enumerate(seen):
        for other_x, other_y in seen[at + 1 :]:
            assert abs(x - other_x) >= graph.WIDTH or abs(y - other_y) >= graph.HEIGHT


def test_who_calls_stands_to_the_left_of_whom_it_calls():
    picture = graph.lay_out("abcd", [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")])
    at = place(picture)
    assert at["a"][0] < at["b"][0] < at["c"][0]
    assert at["d"][0] < at["c"][0]
    require_sound(picture)


def test_the_same_boxes_and_lines_give_the_same_picture_whatever_their_order():
    boxes = [f"b{number}" for number in range(40)]
    source = random.Random(7)
    lines = [(source.choice(boxes), source.choice(boxes)) for _ in range(120)]
    first = graph.lay_out(boxes, lines)
    for _ in range(3):
        source.shuffle(boxes)
        source.shuffle(lines)
        again = graph.lay_out(boxes, lines)
        assert again.boxes == first.boxes
        assert sorted(map(str, again.lines)) == sorted(map(str, first.lines))
    require_sound(first)


def test_of_a_circle_one_line_leads_back_and_the_others_forward():
    picture = graph.lay_out("abc", [("a", "b"), ("b", "c"), ("c", "a")])
    at = place(picture)
    assert at["a"][0] < at["b"][0] < at["c"][0]
    (back,) = [line for line in picture.lines if line.client == "c"]
    assert back.path.startswith(f"M{at['c'][0]} ")
    assert back.path.endswith(f" {at['a'][0] + graph.WIDTH} {at['a'][1] + graph.HEIGHT // 2}")


def test_who_calls_itself_has_a_bow_of_its_own():
    picture = graph.lay_out("a", [("a", "a")])
    (line,) = picture.lines
    assert (line.client, line.server) == ("a", "a")
    require_sound(picture)


def test_nobody_stands_in_one_column_with_whom_it_calls():
    source = random.Random(3)
    boxes = [f"b{number}" for number in range(30)]
    for _ in range(20):
        lines = [(source.choice(boxes), source.choice(boxes)) for _ in range(60)]
        at = place(graph.lay_out(boxes, lines))
        assert all(at[client][0] != at[server][0] for client, server in lines if client != server)


def test_a_layer_that_is_too_tall_becomes_several_columns():
    many = [f"s{number:03}" for number in range(150)]
    picture = graph.lay_out(["a", *many], [("a", each) for each in many])
    columns = {box.x for box in picture.boxes if box.key != "a"}
    assert len(columns) == 10
    assert picture.height <= 2 * 16 + 16 * (graph.HEIGHT + 14)
    require_sound(picture)


def test_boxes_without_lines_lie_below_the_others():
    picture = graph.lay_out("abxyz", [("a", "b")])
    at = place(picture)
    assert {at[key][1] for key in "xyz"} == {at["x"][1]}
    assert at["x"][1] > max(at["a"][1], at["b"][1]) + graph.HEIGHT
    require_sound(picture)


@pytest.mark.parametrize("boxes", ["", "x", "vwxyz"])
def test_a_picture_without_lines_has_its_boxes(boxes: str):
    picture = graph.lay_out(boxes, [])
    assert [box.key for box in picture.boxes] == list(boxes)
    assert (picture.lines, picture.left_out) == ((), 0)
    require_sound(picture)


def test_lines_of_boxes_that_are_not_there_do_not_count():
    assert graph.lay_out("a", [("a", "b")]).lines == ()


def test_what_there_is_no_room_for_is_counted():
    boxes = [f"b{number:02}" for number in range(60)]
    lines = [(client, server) for client in boxes for server in boxes]
    picture = graph.lay_out(boxes, lines)
    assert len(picture.lines) == graph.MOST_LINES
    assert picture.left_out == 3600 - graph.MOST_LINES
    assert picture.lines[0].client == "b00"
    too_many = graph.lay_out([f"{number:04}" for number in range(900)], [])
    assert len(too_many.boxes) == graph.MOST_BOXES


def test_the_longest_chain_is_laid_out_without_recursion():
    chain = [f"{number:03}" for number in range(graph.MOST_BOXES)]
    picture = graph.lay_out(chain, list(itertools.pairwise(chain)))
    at = place(picture)
    assert [key for key, _ in sorted(at.items(), key=lambda row: row[1][0])] == chain


def test_boxes_lie_where_those_lie_that_they_talk_to():
    # Straight lines, not a weave: each client has a server of its own.
    pairs = [("c1", "z"), ("c2", "y"), ("c3", "x")]
    picture = graph.lay_out({end for pair in pairs for end in pair}, pairs)
    at = place(picture)
    assert all(at[client][1] == at[server][1] for client, server in pairs)


def test_paths_are_numbers_and_nothing_else():
    lines = [("a", "b"), ("b", "a"), ("a", "a"), ("c", "b"), ("b", "c")]
    for line in graph.lay_out("abc", lines).lines:
        assert re.fullmatch(r"M-?\d+ -?\d+C(-?\d+ ?){6}", line.path)
