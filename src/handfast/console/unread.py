# SPDX-License-Identifier: Apache-2.0
"""Objects that no rule can read: each is told to the log, counted while it is there, and left out. It reads none of them.

Whatever is wrong with one object, it takes no other with it, and no task: whoever may write an object could otherwise end the console.
"""

from __future__ import annotations

from typing import Final

import structlog

from handfast.client import memory

_log = structlog.get_logger("handfast.console")
# An object that is written again and again is told of once. So many are remembered, and counted.
_MOST: Final = 1024
# What it is one of, its namespace and its name.
Key = tuple[str, str, str]


class Unread:
    """Those that are there now, and those that the log has."""

    def __init__(self) -> None:
        self._there: dict[Key, None] = {}
        self._told = memory.Memory(_MOST)

    def __len__(self) -> int:
        return len(self._there)

    def __contains__(self, key: Key) -> bool:
        return key in self._there

    def forget(self, plural: str, namespace: str, name: str) -> None:
        """It has changed, or is gone: what was wrong with it is no matter."""
        self._there.pop((plural, namespace, name), None)

    def failed(self, plural: str, namespace: str, name: str, error: Exception) -> None:
        """It cannot be read."""
        key = (plural, namespace, name)
        if len(self._there) < _MOST:
            self._there[key] = None
        if key not in self._told:
            self._told.add(key)
            _log.error(
                "an object cannot be read and is left out",
                resource=plural,
                namespace=namespace,
                name=name,
                exc_info=error,
            )
