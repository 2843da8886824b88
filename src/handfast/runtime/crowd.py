# SPDX-License-Identifier: Apache-2.0
"""Many short tasks nobody waits for one by one, counted, and ended together.

Unlike `tasks.Group`, a member that fails ends alone: its work handles its own errors. It starts nothing by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Crowd:
    """Holds its tasks, so that none is garbage-collected while running."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def __len__(self) -> int:
        return len(self._tasks)

    async def stop(self) -> None:
        """Cancel what runs and wait for it."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
