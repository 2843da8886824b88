# SPDX-License-Identifier: Apache-2.0
"""Rows of a page: those that a filter lets through, in an order, and of these a range. The browser never has more of them. It draws none.

1. Every word of a filter is in a row's text, whatever its case. Words are separated by spaces.
2. Rows are sorted by a column that the page has. Without one, or with another, they are as the page gives them: the most urgent first.
   Equal rows stay in that order.
3. A range that begins after the last row is the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from handfast.rules.console import questions

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(Generic[T]):
    """Some rows: the first has the number `start`, of `total` that the filter lets through, of `everything` that there is."""

    items: Sequence[T]
    start: int
    total: int
    everything: int

    @property
    def end(self) -> int:
        """The number after the last row."""
        return self.start + len(self.items)


def select(
    everything: Sequence[T],
    question: questions.Question,
    *,
    text: Callable[[T], str],
    columns: Mapping[str, Callable[[T], Any]],
) -> Range[T]:
    """The rows that are asked for; `text` is what a filter looks at, `columns` are what may be sorted by."""
    # 1. those that fit
    words = question.filter.casefold().split()
    rows = [row for row in everything if _fits(text(row).casefold(), words)] if words else everything
    # 2. in order
    key = columns.get(question.sort)
    if key is not None:
        rows = sorted(rows, key=key, reverse=question.descending)
    # 3. the range
    start = min(question.start, max(0, len(rows) - 1) // question.count * question.count)
    shown = rows[start : start + question.count]
    return Range(items=shown, start=start, total=len(rows), everything=len(everything))


def _fits(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)
