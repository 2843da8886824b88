# SPDX-License-Identifier: Apache-2.0
"""The collector of cycles, while a process starts and while it runs for long. It frees nothing itself."""

from __future__ import annotations

import gc


def patient() -> None:
    """Cycles are looked for less often: importing makes few, and many objects."""
    gc.set_threshold(10_000, 20, 50)


def calm() -> None:
    """What start-up made stays for good: cycles are looked for among newer objects only, and less often."""
    gc.collect()
    gc.freeze()
    patient()
