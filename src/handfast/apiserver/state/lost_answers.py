# SPDX-License-Identifier: Apache-2.0
"""What becomes of a write whose answer was lost: it is never tried again blindly.

The store may have taken it, or may yet take it (`protocol.StoreUncertain`). So the key is read:

1. What was to be written is there: it was done, at the revision that is there.
2. The state that was to be replaced is still there: the same compare-and-swap is made once more, and no third time.
3. Anything else is there: somebody was faster, and it is a conflict.
4. The key cannot be read, or the second answer is lost, too: 504, which says that it may have been done. It has no `Retry-After`:
   clients repeat by themselves what has one.

It encodes and seals nothing: `storage` does, and makes every write through `Attempts`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from handfast import errors
from handfast.api import status
from handfast.store import protocol


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One compare-and-swap: `value` None deletes, `expected` 0 creates."""

    key: str
    value: bytes | None
    expected: int
    removing: bool = False


class Attempts:
    """Makes writes to a store. `on_lost` is told of an answer that was lost, before the outcome is looked for."""

    def __init__(self, store: protocol.Store, on_lost: Callable[[str], None]) -> None:
        self._store = store
        self._on_lost = on_lost
        # Writes whose answer was lost, and those of them whose outcome was never found out.
        self.uncertain = 0
        self.unknown = 0

    async def make(self, attempt: Attempt) -> int:
        """The revision of the write. Mismatch if somebody was faster; 504 if nobody knows whether it was done."""
        try:
            return await self._send(attempt)
        except protocol.StoreUncertain as error:
            self._on_lost(error.message)
            return await self._settle(attempt)

    async def _send(self, attempt: Attempt) -> int:
        key, value, expected = attempt.key, attempt.value, attempt.expected
        if value is None:
            return await self._store.delete(key, expected=expected)
        if not expected:
            return await self._store.create(key, value)
        return await self._store.update(key, value, expected=expected, removing=attempt.removing)

    async def _settle(self, attempt: Attempt) -> int:
        """The revision of a write whose answer was lost, if it was done or can be done now."""
        self.uncertain += 1
        revision = await self._done_already(attempt)
        if revision is not None:
            return revision
        # 2. the old state is still there: once more
        try:
            return await self._send(attempt)
        except protocol.Mismatch as mismatch:
            # 1. it was done: the first try came through after the key was read
            revision = await self._revision_of(attempt, mismatch.actual)
            if revision is None:
                raise
            return revision
        except protocol.StoreUncertain:
            revision = await self._done_already(attempt)
        except protocol.StoreUnavailable:
            # The first try may still come through.
            revision = None
        if revision is None:
            raise self._not_known(attempt)
        return revision

    async def _done_already(self, attempt: Attempt) -> int | None:
        """The revision at which the write is there; None if the state that it was to replace is."""
        try:
            entry = await self._store.get(attempt.key)
            revision = await self._revision_of(attempt, entry)
        except errors.Unavailable:
            raise self._not_known(attempt) from None
        # 3. anything else: somebody was faster
        if revision is None and (entry.revision if entry else 0) != attempt.expected:
            raise protocol.Mismatch(attempt.key, entry)
        return revision

    async def _revision_of(self, attempt: Attempt, entry: protocol.Entry | None) -> int | None:
        """The revision of the write, if what is there is what it was to leave behind (1)."""
        if entry is None:
            # A delete leaves no revision behind. Its event is at the current one, or before.
            return await self._store.current_revision() if attempt.value is None else None
        return entry.revision if entry.value == attempt.value and entry.revision > attempt.expected else None

    def _not_known(self, attempt: Attempt) -> status.StatusError:
        # 4. it may have been done
        self.unknown += 1
        return status.StatusError(
            "Timeout",
            f"{attempt.key}: the store did not say whether this write was done; it may have been: read the object "
            "before you try again",
        )
