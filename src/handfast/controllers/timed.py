# SPDX-License-Identifier: Apache-2.0
"""Follows objects that have an instant at which something is due, and sets a timer for each.

No object is kept in memory, and nothing is polled. The handler gets the key at the instant, looks at the object again, and
returns the new instant of one that was put off. What is due then, and when, the controller says.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from handfast.client import partial, watch
from handfast.controllers import loop

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=partial.Viewed)


class Timed(Generic[V, K]):
    """Sets a timer for each object seen that has an instant; a deletion needs none."""

    def __init__(
        self,
        key: Callable[[V], K],
        due: Callable[[V], datetime.datetime | None],
        set_timer: Callable[[K, datetime.datetime], None],
    ) -> None:
        self._key = key
        self._due = due
        self._set_timer = set_timer
        self._synced = asyncio.Event()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def begin(self) -> None:
        """Timers that are set already stay."""

    def put(self, item: V) -> None:
        due = self._due(item)
        if due is not None:
            self._set_timer(self._key(item), due)

    def remove(self, item: V) -> None:
        """The timer finds nothing when it fires."""

    def end(self) -> None:
        self._synced.set()


def follow(
    context: loop.Context,
    controller: loop.Controller[K],
    source: watch.Source[V],
    key: Callable[[V], K],
    due: Callable[[V], datetime.datetime | None],
) -> None:
    """Have `controller` handle `key(object)` at `due(object)`, for each object of the source; None: never."""
    timed = Timed(key, due, controller.queue.add_at)
    context.informers.follow(source, timed)
    controller.needs(timed)
