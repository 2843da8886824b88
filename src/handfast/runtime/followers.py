# SPDX-License-Identifier: Apache-2.0
"""Those who want to know when something has changed. What has, they look up: of several changes that come quickly they see the last.

with followers.one() as changed:
    while True:
        changed.clear()
        yield current()
        await changed.wait()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class Followers:
    """Of one thing that changes."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def __len__(self) -> int:
        return len(self._events)

    def tell(self) -> None:
        """It has changed."""
        for changed in self._events:
            changed.set()

    @contextlib.contextmanager
    def one(self) -> Iterator[asyncio.Event]:
        """One more, while the block runs: its event is set after each change, and cleared by nobody else."""
        changed = asyncio.Event()
        self._events.add(changed)
        try:
            yield changed
        finally:
            self._events.discard(changed)
