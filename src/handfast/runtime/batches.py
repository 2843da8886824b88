# SPDX-License-Identifier: Apache-2.0
"""Work that is done for many at once: while one batch is under way, what comes for the same key gathers for the next.

What a batch is, and what comes of each item in it, the handler says: it settles each one that is `Waiting`, or fails it.

1. Whoever gets the turn of a key handles everybody who waits, and nobody who comes later.
2. Who goes away takes nobody along: the others of a batch that was cancelled are handled in the next turn.
3. An error of the handler that is nobody's fault (`Unavailable`) is the answer to all who are not settled. Any other is one
   item's fault: those who are left are handled again, each alone, so that it fails that one only.
4. Where a batch costs far more than an item, who has the turn may wait for more to gather (`gather`), before it is settled who is in it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from handfast import errors

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class Waiting(Generic[T, R]):
    """One item that waits, and what came of it."""

    __slots__ = ("_answers", "_error", "item")

    def __init__(self, item: T) -> None:
        self.item = item
        self._answers: tuple[R, ...] = ()
        self._error: Exception | None = None

    @property
    def settled(self) -> bool:
        return bool(self._answers) or self._error is not None

    def settle(self, answer: R) -> None:
        self._answers = (answer,)

    def fail(self, error: Exception) -> None:
        self._error = error

    def result(self) -> R:
        """The answer, or the error, raised."""
        if self._error is not None:
            raise self._error
        if not self._answers:
            raise errors.Misuse("the handler of a batch left an item without an answer")
        return self._answers[0]


class _Line(Generic[T, R]):
    """Those who wait for one key."""

    __slots__ = ("__weakref__", "queue", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.queue: list[Waiting[T, R]] = []


class Batches(Generic[K, T, R]):
    """`handle` gets a key and all who wait for it. A key takes memory only while somebody waits for it."""

    def __init__(
        self,
        handle: Callable[[K, Sequence[Waiting[T, R]]], Awaitable[None]],
        gather: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._handle = handle
        self._gather = gather
        self._lines: weakref.WeakValueDictionary[K, _Line[T, R]] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        """How many keys somebody waits for."""
        return len(self._lines)

    async def join(self, key: K, item: T) -> R:
        """What comes of `item`, handled with the others of its key."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        waiting: Waiting[T, R] = Waiting(item)
        line.queue.append(waiting)
        try:
            # 1. one turn for all who wait
            async with line.turn:
                if not waiting.settled:
                    await self._turn(key, line)
        finally:
            if waiting in line.queue:
                line.queue.remove(waiting)
        return waiting.result()

    async def _turn(self, key: K, line: _Line[T, R]) -> None:
        # 4. wait for more
        if self._gather is not None:
            await self._gather()
        batch, line.queue = line.queue, []
        try:
            await self._handled(key, batch)
        finally:
            # 2. after a cancellation the others are still there
            line.queue[:0] = [waiting for waiting in batch if not waiting.settled]

    async def _handled(self, key: K, batch: Sequence[Waiting[T, R]]) -> None:
        try:
            await self._handle(key, batch)
        except Exception as error:  # noqa: BLE001 - it is raised where the item was joined
            left = [waiting for waiting in batch if not waiting.settled]
            # 3. nobody's fault, or that of one
            if isinstance(error, errors.Unavailable) or len(left) == 1:
                for waiting in left:
                    waiting.fail(error)
            else:
                for waiting in left:
                    await self._handled(key, [waiting])
