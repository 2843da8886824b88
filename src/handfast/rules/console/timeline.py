# SPDX-License-Identifier: Apache-2.0
"""Lifetimes of certificates as bars on one axis: issued, renewal window, end, now. It draws nothing: it gives numbers and words.

1. One axis for all rows of a page, from one span before now to one span after. A certificate in force fits if it lives no longer than
   the span.
2. Positions are thousandths of the axis. What lies beyond its ends is cut a little outside, so that nobody's clock makes a number
   that no browser draws.
3. A bar has words that say the same: who sees no picture loses nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from handfast.api import objects
from handfast.rules.console import moments

# 2. how long the axis is in the units of a drawing, and how far outside of it something may begin or end
WIDTH: Final = 1000
_BEYOND: Final = 20 * WIDTH
_MINUTE: Final = datetime.timedelta(minutes=1)
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
# The spans that may be chosen, the shortest first.
SPANS: Final[Mapping[str, datetime.timedelta]] = {
    "1h": _HOUR,
    "6h": 6 * _HOUR,
    "1d": _DAY,
    "7d": 7 * _DAY,
    "14d": 14 * _DAY,
    "30d": 30 * _DAY,
    "90d": 90 * _DAY,
    "1y": 366 * _DAY,
    "5y": 5 * 366 * _DAY,
}
# How far apart the marks of an axis may be, the closest first; and how many there are at most.
_STEPS: Final = (
    *(each * _MINUTE for each in (10, 30)),
    *(each * _HOUR for each in (1, 3, 6, 12)),
    *(each * _DAY for each in (1, 2, 7, 14, 30, 90, 180, 366, 732)),
)
_MOST_MARKS: Final = 5


@dataclass(frozen=True, slots=True)
class Mark:
    """One instant on the axis, with the words beside it."""

    x: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One lifetime: where it begins, where its renewal begins and should be over, and where it ends."""

    issued: float
    opens: float
    closes: float
    ends: float
    over: bool
    late: bool
    words: str


@dataclass(frozen=True, slots=True)
class Axis:
    """From one span before now to one after (1)."""

    now: datetime.datetime
    name: str

    @property
    def span(self) -> datetime.timedelta:
        return SPANS[self.name]

    def x(self, instant: datetime.datetime) -> float:
        """Where an instant lies, in thousandths of the axis."""
        # 2. cut a little outside
        place = WIDTH / 2 * (1 + (instant - self.now) / self.span)
        return round(min(max(place, -_BEYOND), WIDTH + _BEYOND), 1)

    def marks(self) -> tuple[Mark, ...]:
        """Round instants in order, a few at most; now is none of them."""
        step = next((each for each in _STEPS if 2 * self.span <= each * _MOST_MARKS), _STEPS[-1])
        first = self.now - self.span
        # Round in UTC: whole days, hours or minutes since midnight of the day in which the axis begins.
        midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
        instant = midnight + -((midnight - first) // step) * step
        marks = []
        while instant <= self.now + self.span:
            marks.append(Mark(self.x(instant), _words(instant, step)))
            instant += step
        return tuple(marks)


def _words(instant: datetime.datetime, step: datetime.timedelta) -> str:
    if step < _DAY:
        return f"{instant:%H:%M}" if instant.hour or instant.minute else _day(instant)
    return _day(instant) if step < 90 * _DAY else f"{instant:%b %Y}"


def _day(instant: datetime.datetime) -> str:
    return f"{instant.day} {instant:%b}"


def fitting(lifetimes: Iterable[datetime.timedelta]) -> str:
    """The name of the shortest span in which these lifetimes fit; a month where there are none."""
    longest = max(lifetimes, default=SPANS["30d"])
    return next((name for name, span in SPANS.items() if longest <= span), list(SPANS)[-1])


def chosen(name: str, lifetimes: Iterable[datetime.timedelta], now: datetime.datetime) -> Axis:
    """The axis that somebody asked for, or one in which these fit where nobody did, or nobody could."""
    return Axis(now, name if name in SPANS else fitting(lifetimes))


def closer(name: str) -> str:
    """The next shorter span; empty: there is none."""
    names = ["", *SPANS]
    return names[names.index(name) - 1]


def wider(name: str) -> str:
    """The next longer span; empty: there is none."""
    names = [*SPANS, ""]
    return names[names.index(name) + 1]


def bar(
    axis: Axis,
    issued: datetime.datetime,
    window: tuple[datetime.datetime, datetime.datetime],
    ends: datetime.datetime,
) -> Bar:
    """One lifetime on the axis, with its words (3)."""
    opens, closes = window
    now = axis.now
    over, late = now >= ends, closes <= now < ends
    renewal = _renewal(window, now)
    words = (
        f"issued {moments.relative(issued, now)}, {renewal}, {'ended' if over else 'ends'} {moments.relative(ends, now)}"
        f" ({objects.timestamp(ends)})"
    )
    return Bar(
        issued=axis.x(issued),
        opens=axis.x(opens),
        closes=axis.x(closes),
        ends=axis.x(ends),
        over=over,
        late=late,
        words=words,
    )


def _renewal(window: tuple[datetime.datetime, datetime.datetime], now: datetime.datetime) -> str:
    opens, closes = window
    if now < opens:
        return f"renewed between {moments.relative(opens, now)} and {moments.relative(closes, now)}"
    if now < closes:
        return f"renewal is due, until {moments.relative(closes, now)}"
    return f"renewal was due until {moments.relative(closes, now)}"
