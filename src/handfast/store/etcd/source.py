# SPDX-License-Identifier: Apache-2.0
"""Reads a store in etcd at one revision, beside the servers that use it: for backups and copies, and to say how it is.

1. A store that is not there is not begun.
2. Entries are read in pages of one revision, which the engine does.
3. Of the members of the etcd those are asked that the URL names.

It writes nothing but the fence that an engine writes when it is opened, and that a backup was taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from handfast import errors
from handfast.store import protocol, transfer
from handfast.store.etcd import engine, marks, members
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access, etcd_client


@contextlib.asynccontextmanager
async def session_of(place: places.Place, access: etcd_access.Access) -> AsyncIterator[sessions.Session]:
    """Calls to an etcd for as long as the block runs."""
    client = etcd_client.Client(place.endpoints, access)
    try:
        yield sessions.Session(client, place, _changed)
    finally:
        await client.close()


def _changed(reason: str, why: str) -> None:
    raise protocol.StoreUnavailable(why, reason=reason, hint="try again")


class EtcdSource(transfer.StoreSource):
    """See `transfer.Described`; made by `open_source`."""

    def __init__(self, store: engine.EtcdStore, revision: int, place: places.Place, objects: int) -> None:
        super().__init__(store, revision, "etcd", str(place))
        self.objects = objects

    async def note(self, name: str) -> str | None:
        return await self._store.note(name)

    async def stats(self) -> protocol.Stats:
        await self._store.floor()
        # 3. each endpoint for itself
        return await self._store.stats()

    async def keep_note(self, name: str, text: str) -> bool:
        await self._store.set_note(name, text)
        return True


async def members_of(place: places.Place, access: etcd_access.Access) -> Sequence[protocol.Member]:
    """The members that the URL names: each says it for itself, so that no majority is needed."""
    async with session_of(place, access) as session:
        return (await members.ask(session.client, place.endpoints))[1]


async def open_source(place: places.Place, access: etcd_access.Access) -> EtcdSource:
    async with session_of(place, access) as session:
        try:
            found = await marks.read(session)
        except protocol.StoreUnavailable as error:
            raise await members.explained(session.client, place.endpoints, error) from None
        # 1. not begun here
        if found is None:
            raise errors.Refused(f"{place}: there is no store", reason="NoStore", hint="check the prefix of --store")
    store = await engine.open_store(place, access)
    try:
        revision = await store.current_revision()
        async with session_of(place, access) as session:
            count = sessions.range_of(
                place.objects, range_end=places.after_all(place.objects), revision=revision, count_only=True
            )
            objects = int((await session.read(count)).count)
    except BaseException:
        await store.close()
        raise
    return EtcdSource(store, revision, place, objects)
