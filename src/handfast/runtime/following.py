# SPDX-License-Identifier: Apache-2.0
"""Notices that files have changed, by looking: whoever uses them is told, and told again while it cannot use them.

It does not read the files. Looking every few seconds instead of asking the kernel works on every file system, and costs
a few system calls.

1. A file has changed when its inode, its size or its time of modification has; one that is gone is a change as well.
2. Where several files belong together, a look between two of the writes sees a pair that does not fit. Whoever is told
   then refuses it, goes on with what it has, and is told again at the next look, until it takes what is there.
3. A refusal is logged once for each state of the files.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from handfast import errors
from handfast.runtime import clock as clocks

_log = structlog.get_logger("handfast.following")
SECONDS: Final = 5.0

Stamp = tuple[tuple[int, int, int] | None, ...]


def stamp(paths: Sequence[pathlib.Path]) -> Stamp:
    """What tells one state of these files from another (1)."""
    states: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            states.append(None)
        else:
            states.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(states)


class Follower:
    """Calls `changed` when a file differs from `since`, or without `since` from how it was when this was made."""

    def __init__(
        self,
        paths: Sequence[pathlib.Path],
        changed: Callable[[], None],
        clock: clocks.Clock,
        *,
        since: Stamp | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._changed = changed
        self._clock = clock
        self._taken = stamp(self._paths) if since is None else since
        self._refused: Stamp | None = None

    def look(self) -> None:
        """Look once."""
        current = stamp(self._paths)
        if current == self._taken:
            return
        try:
            self._changed()
        # 2. told again at the next look
        except errors.HandfastError as error:
            # 3. logged once for each state
            if current != self._refused:
                self._refused = current
                _log.warning(
                    "changed files cannot be used yet",
                    files=[str(path) for path in self._paths],
                    reason=error.reason,
                    error=error.message,
                )
            return
        self._taken, self._refused = current, None

    async def run(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            await self._clock.sleep(SECONDS)
            self.look()
