# SPDX-License-Identifier: Apache-2.0
"""Has the certificates of a data directory looked after, while an API server runs from it without a supervisor.

`preparation` says what is renewed, and when; `served_files` has the server take it up. Under `handfast up` a child of
the supervisor does the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from handfast import errors
from handfast.runtime import clock as clocks

_log = structlog.get_logger("handfast.renewal")
_HOUR: Final = 3600.0
# Seconds between two renewals at least, and after one that failed.
_LEAST: Final = 5.0
_AGAIN: Final = 60.0


async def keep_renewed(renew: Callable[[], float], clock: clocks.Clock) -> None:
    """Call `renew` every hour, and when it says that something is due; its failures are told, and tried again."""
    seconds = 0.0
    while True:
        await clock.sleep(min(_HOUR, max(_LEAST, seconds + 1.0)))
        try:
            seconds = await asyncio.to_thread(renew)
        except errors.HandfastError as error:
            _log.warning("certificates were not renewed", reason=error.reason, error=error.message)
            seconds = _AGAIN
