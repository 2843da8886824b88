# SPDX-License-Identifier: Apache-2.0
"""How Kubernetes writes durations for people: `5s`, `2m30s`, `3h`, `5d3h`.

Two units while the first is small, one after that. `now` is an argument; nothing here reads a clock.
"""

from __future__ import annotations

import datetime
from typing import Any

from handfast.api import objects

UNKNOWN = "<unknown>"
INVALID = "<invalid>"


def human_duration(duration: datetime.timedelta) -> str:
    """The short form; clocks that differ by less than two seconds are taken as equal."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return INVALID
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 2:
        return f"{max(seconds, 0)}s"
    if minutes < 180:
        return _two(minutes, "m", seconds % 60, "s") if minutes < 10 else f"{minutes}m"
    if hours < 48:
        return _two(hours, "h", minutes % 60, "m") if hours < 8 else f"{hours}h"
    days = hours // 24
    if days < 365 * 2:
        return _two(days, "d", hours % 24, "h") if days < 8 else f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 365 * 8 else f"{days // 365}y"


def _two(first: int, unit: str, second: int, small_unit: str) -> str:
    return f"{first}{unit}{second}{small_unit}" if second else f"{first}{unit}"


def instant(value: Any) -> datetime.datetime | None:
    """The instant a timestamp names, or None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        return objects.parse_timestamp(value)
    except ValueError:
        return None


def since(value: Any, now: datetime.datetime) -> str:
    """How long ago a timestamp is."""
    start = instant(value)
    return UNKNOWN if start is None else human_duration(now - start)
