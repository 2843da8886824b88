# SPDX-License-Identifier: Apache-2.0
"""The collector is calmed: looked for less often, and not among what is there already."""

from __future__ import annotations

import gc

from handfast.runtime import collector


def test_calm() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        collector.calm()
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
