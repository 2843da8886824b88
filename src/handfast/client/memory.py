# SPDX-License-Identifier: Apache-2.0
"""A set that cannot grow without end: what was met before, as far back as its size allows.

It does not know how old its items are, only in which order they came.
"""

from __future__ import annotations


class Memory:
    """A bounded set of which the oldest is forgotten first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: dict[object, None] = {}

    def add(self, item: object) -> None:
        self._items[item] = None
        if len(self._items) > self._size:
            del self._items[next(iter(self._items))]

    def __contains__(self, item: object) -> bool:
        return item in self._items
