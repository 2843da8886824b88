# SPDX-License-Identifier: Apache-2.0
"""How many machines of a pool may be unavailable at once, as `spec.maxUnavailable` says it. It counts no machine.

1. Absent: one. Of arbiters never more than one, whatever it says.
2. A number from 0, or a percentage from 0% to 100% of the pool's machines, rounded down. If that is none, it counts as one: else
   nothing would ever be rolled out.
3. Anything else is refused by name. The schema of the kind takes every number and every text, so it is judged here alone.
"""

from __future__ import annotations

import re
from typing import Final

from handfast import errors

REFUSED: Final = "MaxUnavailableRefused"
FIELD: Final = "spec.maxUnavailable"
_ALLOWED: Final = 'a number from 0, or a percentage from "0%" to "100%" without a space'
_ARBITER: Final = "arbiter"
_PERCENTAGE: Final = re.compile(r"(0|[1-9][0-9]?|100)%", re.ASCII)
# As much as is quoted of what was written there.
_QUOTED: Final = 60


class Refused(errors.Refused):
    """What is written there says no number of machines."""

    reason = REFUSED


def of(value: object, machines: int, pool: str = "") -> int:
    """How many of so many machines; at least one."""
    # 1. absent, or arbiters
    if value is None or pool == _ARBITER:
        return 1
    # 2. a number, or a percentage; True is no number, though Python has it for one
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return max(value, 1)
    if isinstance(value, str) and _PERCENTAGE.fullmatch(value):
        return max(int(value[:-1]) * machines // 100, 1)
    # 3. anything else
    raise Refused(
        f"{FIELD}: {str(value)[:_QUOTED]!r} is not allowed: it is to be {_ALLOWED}",
        hint="until it is corrected, only a new bootstrap credential goes to the machines of the pool",
    )
