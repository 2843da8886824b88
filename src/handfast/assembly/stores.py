# SPDX-License-Identifier: Apache-2.0
"""Which engine a setting names, and opening it: the one place that knows all of them. It decides nothing else.

An engine is imported when it is chosen: gRPC costs memory that a store in a file need not pay.
"""

from __future__ import annotations

from handfast import errors
from handfast.assembly import config
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.store import protocol
from handfast.store.etcd import place as places
from handfast.wire import etcd_access, extra


def named(place: layout.Layout, store: str) -> str:
    """The store of a data directory: a URL as it is, or the path of a file."""
    return store if store.startswith(places.SCHEME) else str(place.store(store))


def require(configuration: config.Configuration) -> None:
    """Return if the store can be opened as far as the settings tell, else refuse."""
    access(configuration)
    if configuration.store.startswith(places.SCHEME):
        extra.require_etcd()


def access(configuration: config.Configuration) -> etcd_access.Access:
    """How an etcd is reached; Refused where a part is missing."""
    for one, other in (
        ("etcd_cert_file", "etcd_key_file"),
        ("etcd_key_file", "etcd_cert_file"),
        ("etcd_username", "etcd_password_file"),
        ("etcd_password_file", "etcd_username"),
        ("etcd_cert_file", "etcd_ca_file"),
    ):
        if getattr(configuration, one) is not None and getattr(configuration, other) is None:
            flags = [f"--{name.replace('_', '-')}" for name in (one, other)]
            raise config.Invalid(f"{flags[0]} is given without {flags[1]}", hint="give both", from_flag=True)
    return etcd_access.Access(
        ca_file=configuration.etcd_ca_file,
        cert_file=configuration.etcd_cert_file,
        key_file=configuration.etcd_key_file,
        username=configuration.etcd_username,
        password_file=configuration.etcd_password_file,
    )


async def opened(store: str, access: etcd_access.Access | None, *, reserve: int, clock: clocks.Clock) -> protocol.Store:
    """The store, open; `reserve` is what a file keeps for removals."""
    if not store.startswith(places.SCHEME):
        from handfast.store.sqlite import engine as sqlite

        return await sqlite.open_store(store, reserve=reserve, clock=clock)
    extra.require_etcd()
    from handfast.store.etcd import engine as etcd

    return await etcd.open_store(etcd_place(store), access or etcd_access.Access())


def etcd_place(store: str) -> places.Place:
    """Where in an etcd a store is that settings have named: they were checked."""
    try:
        return places.parse(store)
    except ValueError as error:
        raise errors.Misuse(f"store: {store} {error}") from None
