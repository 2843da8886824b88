# SPDX-License-Identifier: Apache-2.0
"""How long a new bootstrap token lives, as people write it: `90m`, `24h`, `7d`, `1h30m`; `0` is for ever. It makes no token."""

from __future__ import annotations

import datetime
import json
import re
from typing import Final

from handfast import errors

DEFAULT: Final = "24h"
_GRAMMAR: Final = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|[dhms]))+", re.ASCII)
_PART: Final = re.compile(r"([0-9.]+)(ms|[dhms])", re.ASCII)
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_SHORTEST: Final = datetime.timedelta(seconds=1)
_LONGEST: Final = datetime.timedelta(days=36500)
_FOR_EVER: Final = frozenset({"0", "0ms", "0s", "0m", "0h", "0d"})
# No lifetime that is allowed needs more; a sum of very many parts is not begun.
_MAX_LENGTH: Final = 256
_MAX_QUOTED: Final = 64


def parse(text: str, where: str) -> datetime.timedelta | None:
    """A lifetime, None: for ever; `where` is what an error calls it: an option of a command, or a field of a form."""
    if text in _FOR_EVER:
        return None
    if len(text) <= _MAX_LENGTH and _GRAMMAR.fullmatch(text) is not None:
        parts = (datetime.timedelta(**{_UNITS[unit]: float(count)}) for count, unit in _PART.findall(text))
        total = sum(parts, datetime.timedelta())
        if _SHORTEST <= total <= _LONGEST:
            return total
    shown = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
    raise errors.Refused(
        f"{where}: {json.dumps(shown, ensure_ascii=not shown.isprintable())} is no duration",
        reason="BadTokenLifetime",
        hint="give numbers with d, h, m, s or ms, as in 7d or 1h30m, of at least 1s and at most 36500d; 0 is for ever",
    )
