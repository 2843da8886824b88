# SPDX-License-Identifier: Apache-2.0
"""Compacts the store's history: every five minutes, everything before the version of five minutes ago.

The interval is Kubernetes' own. A paged list or an exact read may take that long. The engine does the work in small steps.

Of several servers on one store, one does it: whoever finds that the floor has risen since its last round leaves it at that.
"""

from __future__ import annotations

import structlog

from handfast import errors
from handfast.apiserver.state import storage
from handfast.runtime import clock as clocks

INTERVAL = 300.0
_log = structlog.get_logger("handfast.compaction")


async def run(store: storage.Storage, clock: clocks.Clock) -> None:
    """Compact for ever; the caller runs it as a task."""
    before, floor = store.replica.version, -1
    while True:
        await clock.sleep(INTERVAL)
        now = store.replica.version
        try:
            if floor in {-1, await store.floor()}:
                await store.compact(before)
                store.compacted_at = clock.now()
            floor = await store.floor()
        except errors.Unavailable as error:
            # A full disk, say: history stays, and the next round tries again.
            _log.warning("compaction failed", reason=error.reason, error=error.message)
        before = now
