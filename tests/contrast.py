# SPDX-License-Identifier: Apache-2.0
"""How far two colours stand apart, as WCAG 2.2 counts it (1.4.3): for pictures. It reads no style."""

from __future__ import annotations

from typing import Final

# For text of ordinary size, level AA.
LEAST: Final = 4.5


def ratio(one: str, other: str) -> float:
    """The contrast of two colours, as #24292f or #fff."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
