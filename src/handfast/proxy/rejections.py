# SPDX-License-Identifier: Apache-2.0
"""What Envoy rejects is sent again, for ever, after a delay that grows. What it is, and whether it ever will be taken, is not known here.

1. A rejection may pass: a port that was taken becomes free. So everything that is rejected now is sent again, each resource alone.
2. The delay grows while there are rejections, and begins anew after a minute without one.
"""

from __future__ import annotations

from typing import Final

from handfast.runtime import backoff
from handfast.runtime import clock as clocks
from handfast.wire import ads

_SCHEDULE: Final = backoff.Schedule(initial=0.5, cap=30.0)
_STEADY: Final = 60.0


async def retry(sent: ads.Ads, clock: clocks.Clock) -> None:
    """Until cancelled."""
    delays, last = backoff.Backoff(_SCHEDULE), clock.monotonic()
    while True:
        await sent.rejection()
        if clock.monotonic() - last >= _STEADY:
            # 2. anew
            delays.reset()
        await clock.sleep(next(delays))
        last = clock.monotonic()
        for key in sent.rejected():
            # 1. again
            sent.again(key)
