# SPDX-License-Identifier: Apache-2.0
"""What expires in the next 30 days, day by day, and what happened since yesterday. It reads nothing and draws nothing but numbers.

1. Of each node the newest client certificate counts: the others were replaced.
2. One whose renewal is late is nobody's to renew, as far as anybody can tell; every other is renewed before its end, or is not due yet.
3. A day is one of UTC, counted from now on: the first is today.
4. A bar's height is in proportion to the day with the most; a day with any has a bar that can be seen.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from handfast.pki import renewal
from handfast.rules.console import ledger_index
from handfast.rules.nodes import join_failures

DAYS: Final = 30
DAY: Final = datetime.timedelta(days=1)
_DAY_SECONDS: Final = 24 * 60 * 60
# 2. how much of its life has passed when the latest renewal was due
_LATE: Final = renewal.EARLIEST + renewal.SPREAD * renewal.LATEST
# The picture: so high, so wide for each day, with so much between two.
HEIGHT: Final = 110
WIDTH: Final = 20
_GAP: Final = 5
_LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Day:
    """One day: how many certificates end on it that will be renewed, and how many that nobody renews."""

    date: datetime.date
    renewed: int = 0
    late: int = 0

    @property
    def count(self) -> int:
        return self.renewed + self.late


@dataclass(frozen=True, slots=True)
class Bar:
    """A day in the picture: where it begins, and its two parts from the ground up, the late one below."""

    day: Day
    x: int
    width: int
    late: int
    renewed: int

    @property
    def late_top(self) -> int:
        return HEIGHT - self.late

    @property
    def renewed_top(self) -> int:
        return HEIGHT - self.late - self.renewed


@dataclass(frozen=True, slots=True)
class Since:
    """What happened within a day."""

    issued: int
    joined: int
    refused: int
    revoked: int


def days(lifetimes: Iterable[tuple[int, int]], now: datetime.datetime) -> list[Day]:
    """The next days, the first of them today (3); of each certificate that counts, when it was issued and when it ends (1)."""
    counts = [[0, 0] for _ in range(DAYS)]
    today = now.astimezone(datetime.UTC).date()
    midnight = int(datetime.datetime.combine(today, datetime.time(), datetime.UTC).timestamp())
    instant = now.timestamp()
    # Seconds, not instants: ten thousand nodes take 5 ms.
    for issued, ends in lifetimes:
        ahead = (ends - midnight) // _DAY_SECONDS
        if instant < ends and ahead < DAYS:
            # 2. late ones
            counts[ahead][instant >= issued + (ends - issued) * _LATE] += 1
    return [Day(today + number * DAY, renewed, late) for number, (renewed, late) in enumerate(counts)]


def bars(of: Sequence[Day]) -> list[Bar]:
    """The picture (4)."""
    most = max((day.count for day in of), default=0) or 1
    shown = []
    for number, day in enumerate(of):
        late, renewed = _height(day.late, most), _height(day.renewed, most)
        shown.append(Bar(day, number * WIDTH + _GAP // 2, WIDTH - _GAP, late, renewed))
    return shown


def _height(count: int, most: int) -> int:
    return max(_LEAST, round((HEIGHT - 10) * count / most)) if count else 0


def in_words(of: Sequence[Day]) -> str:
    """The picture as a sentence, for who does not see it."""
    total, late = sum(day.count for day in of), sum(day.late for day in of)
    if not total:
        return "No certificate of a node ends in the next 30 days."
    most = max(of, key=lambda day: day.count)
    which = "all of them" if most.count == total else f"most of them ({most.count:,})"
    red = (
        f"{late:,} of them {'are' if late > 1 else 'is'} late, and nobody renews {'them' if late > 1 else 'it'}"
        if late
        else "none is late"
    )
    return f"{total:,} certificates of nodes end in the next 30 days, {which} on {most.date:%-d %B}; {red}."


def since_yesterday(
    issued: ledger_index.Issued,
    joins: Iterable[join_failures.Failed],
    revoked: Iterable[datetime.datetime | None],
    now: datetime.datetime,
) -> Since:
    """What happened within a day; `issued` are the certificates of that day, `revoked` the instants at which Revocations were made."""
    begin = now - DAY
    return Since(
        issued=issued.count,
        joined=issued.joins,
        refused=sum(each.count for each in joins if each.last >= begin),
        revoked=sum(at is not None and at >= begin for at in revoked),
    )
