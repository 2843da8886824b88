# SPDX-License-Identifier: Apache-2.0
"""Reads Kubernetes quantities (`100m`, `1Gi`, `2e3`) as numbers, so that they can be compared and added, and writes sums.

Documents hold quantities as they were written: no canonical form is put in their place.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)\Z", re.ASCII)
_LONGEST = 128
_DECIMAL = ("", *"kMGTPE")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
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
    # No amount needs more digits; longer ones could leave the range of the arithmetic, and are not even looked at.
    match = _FORM.match(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    digits, exponent, suffix = match.groups()
    if exponent is not None:
        return Decimal(digits).scaleb(int(exponent))
    return Decimal(digits) * _SUFFIXES[suffix or ""]


def text(amount: Decimal, *, binary: bool = False) -> str:
    """The number as Kubernetes writes it: the largest suffix that leaves a whole number, rounded up to thousandths."""
    thousandths = int((amount * 1000).to_integral_value(rounding=ROUND_CEILING))
    if thousandths % 1000:
        return f"{thousandths}m"
    whole = thousandths // 1000
    step, suffixes = (1024, _BINARY) if binary and whole % 1024 == 0 else (1000, _DECIMAL)
    power = 0
    while whole and whole % step == 0 and power + 1 < len(suffixes):
        whole //= step
        power += 1
    return f"{whole}{suffixes[power]}"
