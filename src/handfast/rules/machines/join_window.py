# SPDX-License-Identifier: Apache-2.0
"""How long after its Machine a machine may ask for its first certificate: the default, and what may be said instead.

Apart from the other settings of the machine-approver, since every command reads it with the settings of `up`. It judges nothing.
"""

from __future__ import annotations

import datetime
from typing import Final

from handfast.api import durations

DEFAULT: Final = datetime.timedelta(hours=2)
SHORTEST: Final = datetime.timedelta(minutes=1)
LONGEST: Final = datetime.timedelta(days=365)
ALLOWED: Final = f"a duration of {durations.text(SHORTEST)} to {durations.text(LONGEST)}, as in 2h"


def parse(text: str) -> datetime.timedelta:
    """The duration that a text says; ValueError where it is not allowed."""
    duration = durations.parse(text)
    if not SHORTEST <= duration <= LONGEST:
        raise ValueError("is too short" if duration < SHORTEST else "is too long")
    return duration
