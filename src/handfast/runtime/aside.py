# SPDX-License-Identifier: Apache-2.0
"""Work that would hold the event loop is done aside: in one thread, one piece after another, owners in turn.

One thread is enough. The interpreter runs one at a time anyway, and the loop gets its turn from a busy thread within the
switch interval (`share_the_interpreter`), unless that thread is inside one long call of a library. Callers see to that:
they bound what they hand over. Only functions that touch nothing but their arguments may be handed over.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, TypeVar

from handfast import errors

T = TypeVar("T")

# Pieces that one owner may have waiting: each belongs to a request that is in progress.
_WAITING_OF_ONE = 16
_WAITING = 256
# How long the loop waits for a busy thread to step aside. Python's own 5 ms would be most of what a request may take.
_SWITCH_SECONDS = 0.001


_BUSY = "too much heavy work waits already, please try again later"


class Busy(errors.Unavailable):
    """So much waits already that one more piece is refused; nothing was done."""

    reason = "Busy"


class Aside:
    """A thread that takes one piece of work after another. Owners take turns, so that nobody waits behind one of them."""

    def __init__(self, name: str) -> None:
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: OrderedDict[str, deque[tuple[asyncio.Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._count = 0
        self._working = False

    async def run(self, owner: str, do: Callable[..., T], *arguments: Any) -> T:
        """What `do` returns or raises. `Busy`, at once, if too much waits."""
        mine = self._waiting.get(owner, ())
        if len(mine) >= _WAITING_OF_ONE or (self._count >= _WAITING and not self._make_room(len(mine))):
            raise Busy(_BUSY)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((done, functools.partial(do, *arguments)))
        self._count += 1
        self._next()
        return await done

    def _make_room(self, waiting: int) -> bool:
        """Make room for an owner with `waiting` pieces: whoever has most, if it is more, loses its newest one."""
        owner = max(self._waiting, key=lambda each: len(self._waiting[each]))
        pieces = self._waiting[owner]
        if len(pieces) <= waiting + 1:
            return False
        done, _ = pieces.pop()
        self._count -= 1
        if not done.done():
            done.set_exception(Busy(_BUSY))
        return True

    def close(self) -> None:
        """Wait for nothing: what is being done ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> None:
        while not self._working and self._waiting:
            owner, pieces = self._waiting.popitem(last=False)
            done, piece = pieces.popleft()
            self._count -= 1
            if pieces:
                # At the end: the others come first.
                self._waiting[owner] = pieces
            if done.cancelled():
                continue
            self._working = True
            working = asyncio.get_running_loop().run_in_executor(self._thread, piece)
            working.add_done_callback(functools.partial(self._done, done))

    def _done(self, done: asyncio.Future[Any], working: asyncio.Future[Any]) -> None:
        self._working = False
        if not done.done():
            error = None if working.cancelled() else working.exception()
            if working.cancelled():
                done.cancel()
            elif error is not None:
                done.set_exception(error)
            else:
                done.set_result(working.result())
        elif not working.cancelled():
            # Nobody waits for it any more; its error is not missed.
            working.exception()
        self._next()


def share_the_interpreter() -> None:
    """Have threads of this process step aside for one another soon."""
    sys.setswitchinterval(_SWITCH_SECONDS)
