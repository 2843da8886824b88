# SPDX-License-Identifier: Apache-2.0
"""Reads Kubernetes quantities (`100m`, `1Gi`, `2e3`) as numbers, so that they can be compared.

It keeps no canonical form and prints nothing: documents hold quantities as they were written.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)\Z", re.ASCII)
_LONGEST = 128
_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", start=1)},
}


def parse(value: Any) -> Decimal | None:
    """The number, or None if `value` is no quantity; JSON numbers are quantities too."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, int):
        return Decimal(value)
    text = str(value)
    match = _FORM.match(text)
    # No amount needs more digits; longer ones could leave the range of the arithmetic.
    if match is None or len(text) > _LONGEST:
        return None
    digits, exponent, suffix = match.groups()
    if exponent is not None:
        return Decimal(digits).scaleb(int(exponent))
    return Decimal(digits) * _SUFFIXES[suffix or ""]
