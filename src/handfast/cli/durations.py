# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them, `90m`, `1h30m` or `7d`. What a command does with one is not known here."""

from __future__ import annotations

import datetime
import re
from typing import Final

from handfast.cli import output

_FORM: Final = re.compile(r"(?:[0-9]{1,6}[dhms])+", re.ASCII)
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def parse(text: str, flag: str, longest: str) -> datetime.timedelta:
    """More than nothing, and at most `longest`; `flag` is what gave it."""
    if _FORM.fullmatch(text) is not None:
        found = _sum(text)
        if datetime.timedelta() < found <= _sum(longest):
            return found
    raise output.Usage(
        f'{flag}: "{text}" is no duration',
        hint=f"give numbers with d, h, m or s, as in 7d or 1h30m, of at most {longest}",
    )


def _sum(text: str) -> datetime.timedelta:
    parts = re.findall(r"([0-9]+)([dhms])", text)
    return sum((datetime.timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts), datetime.timedelta())
