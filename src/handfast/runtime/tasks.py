# SPDX-License-Identifier: Apache-2.0
"""Supervised tasks: they start here, in `crowd` where nobody waits for them one by one, or in `serving.connection`, which
holds its own.

Only `supervisor`, which runs processes, has an asyncio.TaskGroup instead: there, the first error cancels all at
once, and the order is that of the processes. A `Group` knows its tasks by name, ends as a whole when one of them fails, and stops them in the reverse order of
their start. It does not restart anything: whoever owns the group decides whether to begin again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from handfast import errors
from handfast.runtime import clock as clocks

T = TypeVar("T")

_log = structlog.get_logger("handfast.tasks")


class Group:
    """Tasks that live and die together.

    1. A task that returns is simply done; a task that raises ends the group, and `wait` raises its error.
    2. `stop` cancels the newest task first and waits for it before it turns to the next, because later tasks use
       what earlier ones provide. What has not ended within the time allowed is named in the log and abandoned.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: list[asyncio.Task[Any]] = []
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._stopping = False
        self._finished = False

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run `work` under supervision."""
        task = asyncio.create_task(work, name=f"{self._name}/{name}")
        self._tasks.append(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        if not self._stopping:
            self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._failure is None:
            self._failure = error
            if isinstance(error, errors.Refused | errors.Unavailable):
                # It says what is wrong; where that was noticed is of no use to who reads it.
                _log.error("task failed", task=task.get_name(), reason=error.reason, error=error.message)
            else:
                _log.error("task failed", task=task.get_name(), error=repr(error), exc_info=error)
            self._ended.set()
        if not self._tasks:
            self._ended.set()

    async def wait(self) -> None:
        """Until every task is done, one has failed (its error is raised), or the group is stopped."""
        if self._tasks and self._failure is None and not self._finished:
            self._ended.clear()
            await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Let `wait` return now; for a task that finds that its group has nothing more to do."""
        self._finished = True
        self._ended.set()

    async def stop(self, *, timeout: float) -> None:  # noqa: ASYNC109 - one deadline for many tasks, kept below
        """Cancel everything, newest first, within `timeout` seconds altogether."""
        self._stopping = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        tasks, self._tasks = self._tasks[::-1], []
        for task in tasks:
            task.cancel()
            await asyncio.wait([task], timeout=max(0.0, deadline - loop.time()))
        left = [task.get_name() for task in tasks if not task.done()]
        if left:
            _log.warning("tasks did not stop in time", group=self._name, tasks=left, seconds=timeout)
        self._ended.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(timeout=5.0)


@contextlib.asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Give the block up, quietly, after so many seconds of real time; for clean-up that must not hold up an end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield


async def wait_for_event(event: asyncio.Event, clock: clocks.Clock, seconds: float) -> bool:
    """Until `event` is set (True) or `seconds` have passed on `clock` (False)."""
    if event.is_set():
        return True
    return await within(event.wait(), clock, seconds)


async def within(work: Coroutine[Any, Any, Any], clock: clocks.Clock, seconds: float) -> bool:
    """Until `work` is done (True; its error is raised) or `seconds` have passed on `clock` (False; it is cancelled)."""
    working = asyncio.create_task(work, name="work")
    sleeping = asyncio.create_task(clock.sleep(seconds), name="sleep")
    try:
        await asyncio.wait([working, sleeping], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        working.result()
        return True
    finally:
        await _cancel([working, sleeping])


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
