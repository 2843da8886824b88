# SPDX-License-Identifier: Apache-2.0
"""Colour for people at a terminal: few styles, and none where they would be in the way.

1. What is written to a file or a pipe has no colour.
2. `NO_COLOR`, set to anything, turns it off (no-color.org), and so does `TERM=dumb`.
3. Colour only repeats what the words say: without it nothing is lost.

It writes nothing, and cleans no text of what a terminal would obey: that is done before.
"""

from __future__ import annotations

import enum
import os
from typing import IO, Any


class Style(enum.Enum):
    """What a text is, with the parameters of its ANSI escape sequence (ECMA-48, SGR)."""

    PLAIN = ""
    STRONG = "1"
    TITLE = "1;36"
    FAINT = "2"
    GOOD = "1;32"
    WARNING = "33"
    ERROR = "1;31"


LEVELS = {
    "debug": Style.FAINT,
    "info": Style.PLAIN,
    "warning": Style.WARNING,
    "error": Style.ERROR,
    "critical": Style.ERROR,
}


def wanted(stream: IO[Any]) -> bool:
    """Whether what is written to `stream` may have colour (1, 2)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: Style) -> str:
    return f"\x1b[{style.value}m{text}\x1b[0m" if style.value and text else text
