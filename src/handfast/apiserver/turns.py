# SPDX-License-Identifier: Apache-2.0
"""When a loop over many objects lets other requests have a turn: counted in bytes, not in objects.

An object can have 300 bytes or 1.5 MB. Nothing waits here: the caller does, where `spent` says so.
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
