# SPDX-License-Identifier: Apache-2.0
"""Texts that strangers wrote."""

from __future__ import annotations

from handfast.rules.console import marks


def test_a_change_of_direction_is_marked():
    assert marks.pieces("a\u202eb") == (marks.Piece("a"), marks.Piece("U+202E", marked=True), marks.Piece("b"))
    assert marks.pieces("\u202e") == (marks.Piece("U+202E", marked=True),)


def test_where_there_is_no_room_for_marks_it_stands_in_brackets():
    assert marks.flat("a\u202eb") == "a⟨U+202E⟩b"
    assert marks.flat("plain") == "plain"


def test_a_text_has_an_end():
    (piece,) = marks.pieces("x" * 1000)
    assert len(piece.text) == marks.LONGEST
