# SPDX-License-Identifier: Apache-2.0
"""How instants and lengths of time are written on a page: relative to now, in words. The exact instant stands beside it. It asks no clock."""

from __future__ import annotations

import datetime
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400
# In days: a calendar would be needed for more, and the exact instant stands beside it.
_YEAR: Final = 365
# Below this an instant is now: clocks differ, and a page that counts seconds is never still.
_NOW: Final = 10


def length(duration: datetime.timedelta) -> str:
    """`3 h 12 min`: two units while the first is small. Never negative."""
    seconds = max(0, int(duration.total_seconds()))
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min"
    if seconds < 2 * _DAY:
        return _two(seconds // _HOUR, "h", seconds % _HOUR // _MINUTE, "min", 12)
    days = seconds // _DAY
    if days >= 2 * _YEAR:
        return _two(days // _YEAR, "y", days % _YEAR, "d", 100)
    return _two(days, "d", seconds % _DAY // _HOUR, "h", 4)


def _two(first: int, unit: str, second: int, small: str, until: int) -> str:
    return f"{first} {unit} {second} {small}" if second and first < until else f"{first} {unit}"


def relative(instant: datetime.datetime, now: datetime.datetime) -> str:
    """`in 3 h`, `26 min ago`, or `now`."""
    ahead = instant - now
    if abs(ahead.total_seconds()) < _NOW:
        return "now"
    return f"in {length(ahead)}" if ahead > datetime.timedelta() else f"{length(-ahead)} ago"


def exact(instant: datetime.datetime) -> str:
    """`2026-11-18 09:00:00 UTC`."""
    return instant.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
