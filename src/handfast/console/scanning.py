# SPDX-License-Identifier: Apache-2.0
"""A text as a QR code, for a camera: which squares are dark, as the path of an SVG. What the text is, it does not know, and it keeps none.

The picture is part of the page, with attributes alone: the policy of the pages lets in no style in line, and a picture of its own address would have to
be kept until it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import segno

# What the standard asks for around a code, so that a camera finds it.
QUIET: Final = 4


@dataclass(frozen=True, slots=True)
class Code:
    """A square of so many modules, with its quiet zone, and the path of the dark ones. It is as secret as its text, and does not print."""

    size: int
    path: str = field(repr=False)


def code(text: str) -> Code:
    """The smallest code for a text that stands up to a seventh of it being hidden."""
    # micro=False: few cameras read the small form.
    matrix = segno.make(text, error="m", micro=False, boost_error=False).matrix
    runs = [_runs(y, row) for y, row in enumerate(matrix)]
    return Code(len(matrix) + 2 * QUIET, "".join(runs))


def _runs(y: int, row: bytearray | tuple[int, ...]) -> str:
    """The dark modules of one line, each run of them as one bar."""
    parts: list[str] = []
    x, width = 0, len(row)
    while x < width:
        start = x
        while x < width and row[x] & 1:
            x += 1
        if x > start:
            parts.append(f"M{start + QUIET} {y + QUIET}h{x - start}v1h-{x - start}z")
        x += 1
    return "".join(parts)
