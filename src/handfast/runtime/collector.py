# SPDX-License-Identifier: Apache-2.0
"""The collector of cycles, in processes that run for long. It frees nothing itself."""

from __future__ import annotations

import gc


def calm() -> None:
    """What start-up made stays for good: cycles are looked for among newer objects only, and less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
