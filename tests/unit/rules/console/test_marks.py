# SPDX-License-Identifier: Apache-2.0
"""Texts of strangers: what cannot be seen is marked, and nothing is endless."""

from __future__ import annotations

import pytest

from handfast.rules.console import marks

P = marks.Piece


def test_a_plain_text_is_one_piece():
    assert marks.pieces("edge-0417") == (P("edge-0417"),)
    assert marks.pieces("<b>Ünïcode & שלום</b>") == (P("<b>Ünïcode & שלום</b>"),)


def test_a_change_of_direction_is_marked():
    assert marks.pieces("node-\u202etxt.exe") == (P("node-"), P("U+202E", marked=True), P("txt.exe"))


@pytest.mark.parametrize("character", ["\u200b", "\u2066", "\n", "\0", "\x1b", "\u2028", "\ud800", "\ue000", "\u00a0"])
def test_what_cannot_be_printed_is_marked(character: str):
    assert marks.pieces(f"{character}") == (P(f"U+{ord(character):04X}", marked=True),)


def test_a_text_has_an_end():
    shown = marks.pieces("x" * 100_000)
    assert len(shown[0].text) == marks.LONGEST
    assert shown[0].text.endswith("…")


def test_where_there_is_no_room_for_marks_it_stands_in_brackets():
    assert marks.flat("a\u202eb") == "a⟨U+202E⟩b"
    assert marks.flat("plain") == "plain"
