# SPDX-License-Identifier: Apache-2.0
"""How long to wait before looking again at something that other processes do. It looks at nothing itself."""

from __future__ import annotations

# Seconds.
_SHORTEST = 0.02
# For who has waited for long: what comes and goes again lasts longer than that.
_LONG = 0.25
_LONGEST = 1.0


def pause(took: float, waited: float) -> float:
    """Looking takes processor time from those who are looked at: whoever took long, or has waited for long, looks less often."""
    return min(_LONGEST, max(_SHORTEST, 2 * took, min(_LONG, waited / 50)))
