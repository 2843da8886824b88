# SPDX-License-Identifier: Apache-2.0
"""What a browser asks a page for: which object, which rows, in which order. Read from an address, within bounds. It answers nothing.

1. `from` and `count` are numbers. A range has at most `MOST` rows; a larger one is cut, since the next range is one request away.
2. A filter has at most `LONGEST` characters.
3. `sort` is the name of a column, with `-` before it for the other way round. Which columns there are is the page's to say.
4. Whatever else is in the address is in `more`, at most `MANY` words of it: a page takes what it knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from handfast import errors

FIRST: Final = 100
MOST: Final = 200
LONGEST: Final = 200
MANY: Final = 16
_OWN: Final = frozenset({"from", "count", "sort", "filter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question. `of` is the object that the path names; empty: none."""

    path: str
    of: str = ""
    start: int = 0
    count: int = FIRST
    sort: str = ""
    descending: bool = False
    filter: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    def query(self, **changes: str | int) -> dict[str, str]:
        """The words of its address, with some of them changed; empty ones are left out."""
        sort = f"-{self.sort}" if self.descending and self.sort else self.sort
        words: dict[str, str | int] = {**self.more, "filter": self.filter, "sort": sort, "from": self.start or ""}
        words |= {"count": "" if self.count == FIRST else self.count, **changes}
        return {key: str(value) for key, value in words.items() if str(value)}

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two of them the same."""
        return (self.path, self.of, *(f"{key}={value}" for key, value in sorted(self.query().items())))


def read(path: str, query: Mapping[str, str], of: str = "") -> Question:
    """The question of an address; what cannot be one is refused."""
    sort = query.get("sort", "")
    text = query.get("filter", "")
    # 2. a filter is short
    if len(text) > LONGEST:
        raise _bad("filter", f"{len(text)} characters", f"at most {LONGEST}")
    # 4. the page's own words
    more = dict([(key, value[:LONGEST]) for key, value in query.items() if key not in _OWN][:MANY])
    return Question(
        path=path,
        of=of,
        start=_number("from", query.get("from", ""), 0),
        # 1. a range is short
        count=min(MOST, max(1, _number("count", query.get("count", ""), FIRST))),
        # 3. one column
        sort=sort.removeprefix("-")[:LONGEST],
        descending=sort.startswith("-"),
        filter=text,
        more=more,
    )


def _number(name: str, text: str, otherwise: int) -> int:
    if not text:
        return otherwise
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise _bad(name, repr(text[:20]), "a number such as 100")
    return int(text)


def _bad(name: str, value: str, allowed: str) -> errors.Refused:
    return errors.Refused(f"the address has {name} = {value}; allowed: {allowed}", reason="BadQuestion")
