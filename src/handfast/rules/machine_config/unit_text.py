# SPDX-License-Identifier: Apache-2.0
"""Whether Ignition can read the text of a unit. What its options mean is systemd's to say.

1. What stands before the first section is ignored.
2. From there on a line is empty, a comment, a section in brackets with nothing after it, or an option with an equals sign.
3. A line that ends in a backslash goes on in the next one.
4. No line is longer than `MAX_LINE`: systemd would cut it.
"""

from __future__ import annotations

import re
from typing import Final

MAX_LINE: Final = 2048
# 3. the rest of a line, with those that continue it. Possessive repetition is not used: Python 3.11.2 ends it in a wrong place.
_REST: Final = r"(?:[^\\\n]+|\\(?:\r\n|[\s\S]|\Z))*"
# 1. what stands before the first section
_BEFORE: Final = re.compile(rf"(?:[^\[#;]+|[#;]{_REST})*")
# 2. an empty line, a comment, a section or an option; nothing follows what repeats, so that it takes time in proportion to the text
_LINE: Final = re.compile(rf"\s+|[#;]{_REST}|\[[^\]]*\][^\S\n]*(?=\n|\Z)|(?![\s\[#;])[^\n\r=]*={_REST}")


def problem(text: str) -> str | None:
    """What is wrong with it, with the number of the line; None: nothing."""
    end = _read(text)
    if end != len(text):
        line = text.count("\n", 0, end) + 1
        what = "is no section in brackets" if text[end] == "[" else "has no equals sign"
        return f"line {line} {what}"
    # 4. not too long
    if len(text) > MAX_LINE:
        for number, row in enumerate(text.split("\n"), 1):
            if len(row) > MAX_LINE:
                return f"line {number} has {len(row):,} characters, and may have {MAX_LINE:,}"
    return None


def _read(text: str) -> int:
    """How far it can be read."""
    before = _BEFORE.match(text)
    end = before.end() if before else 0
    while (line := _LINE.match(text, end)) is not None:
        end = line.end()
    return end
