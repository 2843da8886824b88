# SPDX-License-Identifier: Apache-2.0
"""A new store in etcd that is being filled. etcd cannot rename, so a note says that the store is unfinished.

1. A store that has entries and is not unfinished is left alone, and refused with what is in it. So is a prefix with keys of
   something else: the engine sees that.
2. The note is there before the first entry. No server serves from a store that has it (`apiserver.announcement`).
3. When everything is there the epoch is raised, and then the note is removed.

What was begun and is given up is removed whole. What was cut short is gone on with.
"""

from __future__ import annotations

import datetime

from handfast import errors
from handfast.store import epochs, transfer
from handfast.store.etcd import engine, source
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access
from handfast.wire import etcd_messages as messages


class Target:
    """See `transfer.Target`; made by `open_target`."""

    def __init__(self, store: engine.EtcdStore, place: places.Place, access: etcd_access.Access) -> None:
        self._at = place
        self._access = access
        self.place = str(place)
        self.store = store

    async def finish(self, first_version: int, why: str, now: datetime.datetime) -> None:
        revision = await self.store.current_revision()
        # 3. the epoch, then the note
        await self.store.raise_epoch(first_version - revision - self.store.epoch_offset)
        await epochs.remember(self.store, why, now)
        await self.store.set_note(transfer.UNFINISHED, None)

    async def close(self, *, keep: bool) -> None:
        await self.store.close()
        if not keep:
            async with source.session_of(self._at, self._access) as session:
                await session.write(messages.DeleteRangeRequest(key=self._at.root, range_end=self._at.root_end))


async def open_target(place: places.Place, access: etcd_access.Access, identity: str) -> Target:
    """Begin to fill a store, or go on; it becomes a copy of the store with this identity."""
    store = await engine.open_store(place, access)
    try:
        # 1. what is there is left alone
        if await store.note(transfer.UNFINISHED) is None:
            await _require_empty(store, place, access)
            # 2. before the first entry
            await store.set_note(transfer.UNFINISHED, "a restore or a copy fills this store")
        await transfer.adopt(store, identity, str(place))
    except BaseException:
        await store.close()
        raise
    return Target(store, place, access)


async def _require_empty(store: engine.EtcdStore, place: places.Place, access: etcd_access.Access) -> None:
    async with source.session_of(place, access) as session:
        everything = sessions.range_of(place.objects, range_end=places.after_all(place.objects), count_only=True)
        count = int((await session.read(everything)).count)
    if count:
        raise errors.Refused(
            f"{place}: there is a store already, with {count} object{'s' * (count != 1)} at revision "
            f"{await store.current_revision()}",
            reason="StoreNotEmpty",
            hint=f"choose another prefix, or remove it if it is not needed: etcdctl del --prefix /{place.prefix}/",
        )
