# SPDX-License-Identifier: Apache-2.0
"""Stores by the setting that names them: to read what one holds, or to fill a new one. For the commands of `handfast store`.

It names the engines, and holds no behaviour of theirs.
"""

from __future__ import annotations

from handfast.store import transfer
from handfast.store.sqlite import file as sqlite_file
from handfast.store.sqlite import snapshot, target


async def source(place: str) -> transfer.Described:
    """What the store at `place` holds now, at one revision; a server may be using it."""
    return snapshot.Snapshot(place)


async def new(place: str, identity: str) -> transfer.Target:
    """A store to fill, where there is none, or an unfinished one; a copy of the store with this identity."""
    return await target.open_target(place, identity)


async def served(place: str) -> bool:
    """Whether a server uses the store at `place` now."""
    return sqlite_file.is_owned(place)
