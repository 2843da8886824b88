# SPDX-License-Identifier: Apache-2.0
"""Tables, which fit the width of a terminal. The commands fill them.

1. Where the result does not go to a terminal, every column is as wide as its widest cell, and nothing is left out.
2. On a terminal that is too narrow, columns that the command calls less important are shortened, the least important
   first, each to eight characters at least; `…` shows where. One that holds sentences keeps forty characters, so that they can be read:
   others are left out before it. Where it is the only one that is left, it is shortened as any other.
3. Where that is not enough, the least important column is left out, and so on.
4. Where a command names no such column, the last one is wrapped: it holds sentences.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

from handfast.cli import output

_GAP: Final = "   "
_LEAST: Final = 8
_LEAST_SENTENCE: Final = 24
_SENTENCE: Final = 40

Row = Sequence[str]


def room() -> int | None:
    """How many characters fit into a line; None: as many as there are (1)."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(head: Row, rows: Sequence[Row], *, minor: Sequence[str] = (), sentences: str = "") -> str:
    """Columns as kubectl prints them; `minor` are heads of columns that may be shortened, the least important first. `sentences` is the
    one of these that holds sentences (2)."""
    minor = [name for name in minor if name in head]
    whole = [[output.printable(cell) for cell in row] for row in (head, *rows)]
    limit = room()
    if limit is None or _width(_widths(whole)) <= limit:
        return _text(whole, _widths(whole))
    # 4. sentences are wrapped
    if not minor:
        wrapped = _wrapped(whole, limit)
        return _text(wrapped, _widths(wrapped))
    # 3. columns are left out until it fits
    for gone in range(len(minor) + 1):
        kept = [index for index, name in enumerate(head) if name not in minor[:gone]]
        less = [[row[index] for index in kept] for row in whole]
        widths = _shortened(less, minor[gone:], limit, sentences)
        if _width(widths) <= limit:
            break
    return _text(less, widths)


def _widths(rows: Sequence[Row]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _shortened(rows: Sequence[Row], minor: Sequence[str], limit: int, sentences: str) -> list[int]:
    """The widths of columns after shortening (2)."""
    widths = _widths(rows)
    for name in minor:
        index = rows[0].index(name)
        over = max(_width(widths) - limit, 0)
        # Where it is the last that is left to give way, it does.
        least = _SENTENCE if name == sentences and minor != [sentences] else _LEAST
        widths[index] = max(widths[index] - over, min(widths[index], least))
    return widths


def _wrapped(rows: Sequence[Row], limit: int) -> list[Row]:
    """Each row as one or more, so that the last column fits; not below a width in which nobody would read."""
    left = _width(_widths([row[:-1] for row in rows])) + len(_GAP)
    # Names and hashes stay in one piece, so that they can be copied.
    wrapper = textwrap.TextWrapper(max(limit - left, _LEAST_SENTENCE), break_long_words=False, break_on_hyphens=False)
    lines: list[Row] = []
    for row in rows:
        first, *more = wrapper.wrap(row[-1]) or [""]
        lines += [[*row[:-1], first], *([*[""] * (len(row) - 1), each] for each in more)]
    return lines


def _text(rows: Sequence[Row], widths: Sequence[int]) -> str:
    lines = (_GAP.join(_cell(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _cell(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[: width - 1]}…"
