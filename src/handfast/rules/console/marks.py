# SPDX-License-Identifier: Apache-2.0
"""Texts that strangers wrote, for a page: what could make one text look like another is marked. It writes no HTML.

1. A character that cannot be printed (a control, a change of direction, a line break, a character of no width) stands as its number, marked.
2. A text ends after `LONGEST` characters: one name must not push everything else off a page.

| who | holding | tries | stopped by | shown in tests/unit/rules/console/test_marks.py |
|---|---|---|---|---|
| whoever names a node | U+202E in the name | have it read backwards, as another | 1 | test_a_change_of_direction_is_marked |
| … | a very long name | push the others off the page | 2 | test_a_text_has_an_end |

Markup in a text is the template's to escape: it has no way to mean anything here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONGEST: Final = 512


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text; a marked one stands for a character that is not shown as it is."""

    text: str
    marked: bool = False


def pieces(text: str) -> tuple[Piece, ...]:
    """The text in parts: as it is, and marked."""
    # 2. an end
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    if cut.isprintable():
        return (Piece(cut),)
    parts: list[Piece] = []
    plain = ""
    for character in cut:
        if character.isprintable():
            plain += character
            continue
        # 1. as its number
        parts += [Piece(plain)] if plain else []
        parts.append(Piece(f"U+{ord(character):04X}", marked=True))
        plain = ""
    return (*parts, Piece(plain)) if plain else tuple(parts)


def flat(text: str) -> str:
    """The same as one text, for places that have no room for marks: an attribute, or a picture. What is marked stands in brackets."""
    return "".join(f"⟨{piece.text}⟩" if piece.marked else piece.text for piece in pieces(text))
