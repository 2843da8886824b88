# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them, `90m`, `1h30m` or `7d`. What a command does with one is not known here."""

from __future__ import annotations

import datetime

from handfast.api import durations
from handfast.cli import output


def parse(text: str, flag: str, longest: str) -> datetime.timedelta:
    """More than nothing, and at most `longest`; `flag` is what gave it."""
    try:
        duration = durations.parse(text)
    except ValueError:
        duration = datetime.timedelta()
    if datetime.timedelta() < duration <= durations.parse(longest):
        return duration
    raise output.Usage(
        f'{flag}: "{text}" is no duration',
        hint=f"give numbers with d, h, m or s, as in 7d or 1h30m, of at most {longest}",
    )
