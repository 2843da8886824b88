# SPDX-License-Identifier: Apache-2.0
"""Stores by what names them: to read what one holds, or to fill a new one. For the commands of `handfast store`.

It names the engines, and holds no behaviour of theirs. An engine is imported when it is chosen.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from handfast.apiserver import announcement
from handfast.apiserver.state import envelope
from handfast.assembly import stores
from handfast.store import protocol, transfer
from handfast.store.etcd import place as places
from handfast.wire import etcd_access, extra


async def source(store: str, access: etcd_access.Access) -> transfer.Described:
    """What the store holds now, at one revision; servers may be using it."""
    if not store.startswith(places.SCHEME):
        from handfast.store.sqlite import snapshot

        return snapshot.Snapshot(store)
    extra.require_etcd()
    from handfast.store.etcd import source as etcd

    return await etcd.open_source(stores.etcd_place(store), access)


async def members(store: str, access: etcd_access.Access) -> Sequence[protocol.Member]:
    """Who keeps the store together, also where too few of them are there; nobody, where it is a file."""
    if not store.startswith(places.SCHEME):
        return ()
    from handfast.store.etcd import source as etcd

    return await etcd.members_of(stores.etcd_place(store), access)


async def new(store: str, access: etcd_access.Access, identity: str) -> transfer.Target:
    """A store to fill, where there is none, or an unfinished one; a copy of the store with this identity."""
    if not store.startswith(places.SCHEME):
        from handfast.store.sqlite import target as sqlite

        return await sqlite.open_target(store, identity)
    extra.require_etcd()
    from handfast.store.etcd import target as etcd

    return await etcd.open_target(stores.etcd_place(store), access, identity)


async def written_since(store: str, access: etcd_access.Access, revision: int) -> bool:
    """Whether an entry of the store was written after a revision, also by a server that is gone by now."""
    if not store.startswith(places.SCHEME):
        from handfast.store.sqlite import snapshot

        opened = snapshot.Snapshot(store)
        opened.end()
        return opened.revision != revision
    from handfast.store.etcd import engine

    looking = await engine.open_store(stores.etcd_place(store), access)
    try:
        return await transfer.written_since(looking, revision)
    finally:
        await looking.close()


async def served(store: str, access: etcd_access.Access, now: datetime.datetime) -> bool:
    """Whether a server uses the store. A file has a lock that tells; in an etcd the Leases of the servers do."""
    if not store.startswith(places.SCHEME):
        from handfast.store.sqlite import file

        return file.is_owned(store)
    opened = await source(store, access)
    try:
        async for entries in opened.pages(announcement.KEYS):
            for entry in entries:
                said = announcement.of_lease(envelope.read_document(entry.key, entry.value))
                if said is not None and said.until > now:
                    return True
    finally:
        await opened.close()
    return False
