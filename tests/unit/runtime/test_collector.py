# SPDX-License-Identifier: Apache-2.0
"""The collector is calmed: looked for less often, and not among what is there already."""

from __future__ import annotations

import gc

from handfast.runtime import collector


def test_importing_is_not_interrupted_as_often() -> None:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        collector.patient()
        assert gc.get_threshold()[0] > 700
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)


def test_what_start_up_made_is_no_longer_looked_at() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    # Python's own: a test before this one may have run a role in this very process.
    gc.set_threshold(700, 10, 10)
    try:
        collector.calm()
        assert gc.get_threshold()[0] > 700
        assert gc.get_freeze_count() > frozen
    finally:
        # What was frozen before this test began is to stay so.
        if not frozen:
            gc.unfreeze()
        gc.set_threshold(*before)
