# SPDX-License-Identifier: Apache-2.0
"""Work in the foreground until a signal stops it. What the work is, and that it is started again, is for others."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

import uvloop

from handfast import errors
from handfast.telemetry import log


def run(work: Coroutine[Any, Any, None], log_level: str) -> None:
    """Log as asked, and run `work` to its end or until SIGTERM or Ctrl-C."""
    log.configure(level=log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_stopped(work))


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; a signal cancels it, which is a good end. Only a second Ctrl-C also cuts the stopping short."""
    task = asyncio.current_task()
    if task is None:
        raise errors.Misuse("what runs in the foreground runs inside a task")
    seen: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if not seen or number is signal.SIGINT:
            task.cancel()
        seen.append(number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    with contextlib.suppress(asyncio.CancelledError):
        await work
