# SPDX-License-Identifier: Apache-2.0
"""When to let others have a turn, for whoever goes through many objects: by how much was looked at, not by how many.

An object may be of 300 bytes or of 1.5 MB. It waits for nothing itself: the caller does, where `spent` says so.
"""

from __future__ import annotations

# Reading so much of JSON into a document takes some 2 ms, and 15 where it is all brackets.
_TURN_BYTES = 256 << 10
# What one more object costs, whatever its size: 512 of them are a turn.
_OBJECT_BYTES = 512


# What one more term of a selector costs, for each object: a fraction of a microsecond.
_TERM_BYTES = 32


class Turns:
    """Counts what was looked at since the last turn; `terms` are those of a selector, asked of every object."""

    __slots__ = ("_each", "_spent")

    def __init__(self, terms: int = 0) -> None:
        self._each = _OBJECT_BYTES + terms * _TERM_BYTES
        self._spent = 0

    def spent(self, size: int) -> bool:
        """One more object of that size; true if others should have their turn now."""
        self._spent += size + self._each
        if self._spent < _TURN_BYTES:
            return False
        self._spent = 0
        return True
