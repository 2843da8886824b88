# SPDX-License-Identifier: Apache-2.0
"""A full disk: writes are refused with a reason, reads and watches go on, and all is well when space returns."""

from __future__ import annotations

import pathlib
from typing import Any

from handfast.store import protocol, sqlite
from tests.world import world as worlds


class FullDisk:
    """The real engine, whose writes fail as they do on a full disk while `full` is set."""

    def __init__(self, engine: sqlite.SqliteStore) -> None:
        self._engine = engine
        self.full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def create(self, key: str, value: bytes) -> int:
        if self.full:
            raise protocol.StoreUnavailable("the disk is full")
        return await self._engine.create(key, value)


async def test_writes_are_refused_and_reads_go_on(tmp_path: pathlib.Path) -> None:
    store = FullDisk(await sqlite.open_store(str(tmp_path / "store.db")))
    async with worlds.world(tmp_path / "d", store=store) as world:
        await world.create_config_map("before")
        store.full = True
        path = "/api/v1/namespaces/default/configmaps"
        answer = await world.request("POST", path, {"metadata": {"name": "lost"}})
        assert (answer.status, answer.reason, answer.message) == (503, "ServiceUnavailable", "the disk is full")
        assert answer.headers["Retry-After"] == "1"
        assert (await world.get(f"{path}/before")).status == 200
        assert (await world.get(f"{path}/lost")).status == 404
        ready = await world.get("/readyz")
        assert (ready.status, b"[-]store failed: the disk is full" in ready.body) == (500, True)
        stranger = await world.get("/readyz", context=world.anonymous_context())
        assert (stranger.status, b"[-]store failed: reason withheld" in stranger.body) == (500, True)
        assert (await world.get("/livez")).status == 200
        store.full = False
        await world.create_config_map("after")
        assert (await world.get("/readyz")).body == b"ok"
