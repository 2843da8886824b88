# SPDX-License-Identifier: Apache-2.0
"""A new store in etcd that is being filled. etcd cannot rename, so a note says that the store is unfinished.

1. A store that has entries and is not unfinished is left alone, and refused with what is in it. So is a prefix with keys of
   something else: the engine sees that.
2. The store is claimed before the first entry (`transfer.CLAIM`), by compare-and-swap. Where a server has begun, it is refused; and no
   server begins where it was claimed. The note is there, too.
3. When everything is there the epoch is raised, the note is removed, and then the claim is.
4. Whoever goes on with what was cut short takes the claim over. Who has lost it finishes nothing, and removes nothing.

What was begun and is given up is removed whole, in one step with a look at the claim. What was cut short is gone on with.
"""

from __future__ import annotations

import datetime
import secrets

from handfast import errors
from handfast.store import epochs, transfer
from handfast.store.etcd import engine, marks, source
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access
from handfast.wire import etcd_messages as messages


class Target:
    """See `transfer.Target`; made by `open_target`."""

    def __init__(self, store: engine.EtcdStore, place: places.Place, access: etcd_access.Access, claim: str) -> None:
        self._at = place
        self._claim = claim
        self._access = access
        self.place = str(place)
        self.store = store

    async def finish(self, first_version: int, why: str, now: datetime.datetime) -> None:
        # 4. still our own
        if await self.store.note(transfer.CLAIM) != self._claim:
            raise _taken_over(self._at)
        revision = await self.store.current_revision()
        # 3. the epoch, then the note, then the claim
        await self.store.raise_epoch(first_version - revision - self.store.epoch_offset)
        await epochs.remember(self.store, why, now)
        await self.store.set_note(transfer.UNFINISHED, None)
        if await self.store.swap_note(transfer.CLAIM, self._claim, None) is not None:
            raise _taken_over(self._at)

    async def close(self, *, keep: bool) -> None:
        await self.store.close()
        if not keep:
            everything = messages.DeleteRangeRequest(key=self._at.root, range_end=self._at.root_end)
            async with source.session_of(self._at, self._access) as session:
                await session.write(
                    messages.TxnRequest(
                        # 4. who has lost the claim removes nothing
                        compare=[marks.same(self._at.own(engine.NOTES + transfer.CLAIM), self._claim)],
                        success=[messages.RequestOp(request_delete_range=everything)],
                    )
                )


async def open_target(place: places.Place, access: etcd_access.Access, identity: str) -> Target:
    """Begin to fill a store, or go on; it becomes a copy of the store with this identity."""
    store = await engine.open_store(place, access)
    try:
        # 1. what is there is left alone; one that was cut short between the note and the claim has the claim alone
        claimed = (await store.note(transfer.CLAIM) or "").startswith(transfer.FILLING)
        if not claimed and await store.note(transfer.UNFINISHED) is None:
            await _require_empty(store, place, access)
        # 2. claimed before the first entry
        own = await claim(store, place)
        await store.set_note(transfer.UNFINISHED, "a restore or a copy fills this store")
        await transfer.adopt(store, identity, str(place))
    except BaseException:
        await store.close()
        raise
    return Target(store, place, access, own)


async def claim(store: engine.EtcdStore, place: places.Place) -> str:
    """Have the store for whoever fills it; the text of the claim, by which it is known to be ours."""
    own = transfer.FILLING + secrets.token_hex(8)
    there = await store.swap_note(transfer.CLAIM, None, own)
    if there is not None and there != own and there.startswith(transfer.FILLING):
        # 4. of what was cut short
        there = await store.swap_note(transfer.CLAIM, there, own)
    if there == own:
        return own
    if there is None or there.startswith(transfer.FILLING):
        raise _taken_over(place)
    raise errors.Refused(
        f"{place}: a server has begun a store there",
        reason="StoreNotEmpty",
        hint=f"choose another prefix; or stop the server, and remove what it has begun: etcdctl del --prefix /{place.prefix}/",
    )


def _taken_over(place: places.Place) -> errors.Refused:
    return errors.Refused(
        f"{place}: another restore or copy fills the same store",
        reason="StoreInUse",
        hint="let one of them end, then begin this one again if it is still wanted",
    )


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
