# SPDX-License-Identifier: Apache-2.0
"""What the console says of the checks of `handfast check`: how many are not well, in a sentence, and which come first. It judges nothing.

1. The rows are those of the command. What is not well stands first, the worst first, else in its order: who mends the first failure first mends most. None is left out.
2. The sentence counts what fails, warns and could not be made; what is well is counted last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from handfast.rules import check

_WORDS: Final[Mapping[check.Verdict, tuple[str, str]]] = {
    check.Verdict.FAILED: ("fails", "fail"),
    check.Verdict.WARNING: ("warns", "warn"),
    check.Verdict.UNKNOWN: ("could not be made", "could not be made"),
}


def ordered(checks: Sequence[check.Check]) -> list[check.Check]:
    """The worst first (1)."""
    worst = list(reversed(check.Verdict))
    return sorted(checks, key=lambda each: worst.index(each.verdict))


def counts(checks: Sequence[check.Check]) -> dict[str, int]:
    """How many of each verdict there are, the worst first; those of which there are none are left out."""
    rows = {verdict: sum(each.verdict is verdict for each in checks) for verdict in reversed(check.Verdict)}
    return {str(verdict): count for verdict, count in rows.items() if count}


def sentence(checks: Sequence[check.Check]) -> str:
    """All of it in a few words (2)."""
    parts = []
    for verdict, (one, many) in _WORDS.items():
        if count := sum(each.verdict is verdict for each in checks):
            parts.append(f"{count} {one if count == 1 else many}")
    if not parts:
        return f"All {len(checks)} checks are well"
    return f"Of {len(checks)} checks {', '.join(parts)}"
