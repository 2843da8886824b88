# SPDX-License-Identifier: Apache-2.0
"""The engines the contract is held against; a new engine is one more row of `ENGINES`.

It does not test anything. An engine is given a directory, and returns a function that opens the same data each
time it is called.
"""

from __future__ import annotations

import pathlib
from collections.abc import Awaitable, Callable

from handfast.store import protocol
from handfast.store.etcd import engine as etcd
from handfast.store.sqlite import engine
from handfast.wire import etcd_access
from tests.world import etcds

Opener = Callable[[], Awaitable[protocol.Store]]


def sqlite_engine(directory: pathlib.Path) -> Opener:
    async def opener() -> protocol.Store:
        return await engine.open_store(str(directory / "store.db"))

    return opener


def etcd_engine(_directory: pathlib.Path) -> Opener:
    place = etcds.shared().place()

    async def opener() -> protocol.Store:
        return await etcd.open_store(place, etcd_access.Access())

    return opener


ENGINES: dict[str, Callable[[pathlib.Path], Opener]] = {"etcd": etcd_engine, "sqlite": sqlite_engine}
