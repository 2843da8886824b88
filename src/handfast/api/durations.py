# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them: `90m`, `1h30m` or `7d`. How long one may be, whoever reads it says."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Final

_FORM: Final = re.compile(r"(?:[0-9]{1,6}[dhms])+", re.ASCII)
# Of 365 days, as Kubernetes counts; nobody writes one.
_YEAR: Final = {"y": 365 * 86400}
_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse(text: str) -> datetime.timedelta:
    """The sum of its parts; ValueError where it is no duration."""
    if _FORM.fullmatch(text) is None:
        raise ValueError("is no duration")
    parts = re.findall(r"([0-9]+)([dhms])", text)
    return datetime.timedelta(seconds=sum(int(count) * _UNITS[unit] for count, unit in parts))


def text(duration: datetime.timedelta) -> str:
    """In whole units, largest first, as `parse` reads it."""
    return "".join(_words(duration)) or "0s"


def short(duration: datetime.timedelta) -> str:
    """For a sentence: the two largest units, as in `1h29m`, `3d4h` or `9y364d`. What is less than nothing is `0s`."""
    return "".join(_words(max(duration, datetime.timedelta()), _YEAR | _UNITS)[:2]) or "0s"


def _words(duration: datetime.timedelta, units: Mapping[str, int] = _UNITS) -> list[str]:
    left = int(duration.total_seconds())
    words = []
    for unit, seconds in units.items():
        count, left = divmod(left, seconds)
        words += [f"{count}{unit}"] if count else []
    return words
