# SPDX-License-Identifier: Apache-2.0
"""After a restore no resource version is used twice, and whoever knows older ones is told to begin anew."""

from __future__ import annotations

import asyncio
import pathlib

import msgspec

from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.world import world as worlds

PATH = "/api/v1/namespaces/default/configmaps"


async def test_versions_jump_and_older_watches_expire(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "d"
    async with worlds.world(directory) as world:
        before = await world.create_config_map("a", k="v")
    store = await engine.open_store(str(directory / "store.db"))
    await store.raise_epoch()
    await store.close()
    async with worlds.world(directory) as world:
        after = (await world.get(f"{PATH}/a")).json()
        assert after["data"] == {"k": "v"}
        assert int(after["metadata"]["resourceVersion"]) >= protocol.EPOCH
        made = await world.create_config_map("b")
        assert int(made["metadata"]["resourceVersion"]) > int(after["metadata"]["resourceVersion"])
        # A client that remembers an older version neither overwrites nor misses anything.
        stale = await world.request("PUT", f"{PATH}/a", before)
        assert (stale.status, stale.reason) == (409, "Conflict")
        old = before["metadata"]["resourceVersion"]
        async with world.session().get(f"{PATH}?watch=1&resourceVersion={old}") as response, asyncio.timeout(5):
            event = msgspec.json.decode(await response.content.readline())
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        exact = await world.get(PATH, params={"resourceVersion": old, "resourceVersionMatch": "Exact"})
        assert (exact.status, exact.reason) == (410, "Expired")
