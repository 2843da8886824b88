# SPDX-License-Identifier: Apache-2.0
"""A disk that fails, and is read-only from then on: writes are refused with the reason, reads go on, and what was acknowledged is
there when the disk is mended. A store is not opened on a read-only disk, and says so.

The disk is a real one: ext4 on a file of its own, which the kernel itself makes read-only under the open store.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.world import small_disk
from tests.world import world as worlds

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def disk() -> Iterator[small_disk.FailingDisk]:
    with small_disk.failing() as made:
        yield made


@pytest.mark.slow
async def test_what_was_acknowledged_outlives_a_disk_that_turns_read_only(
    disk: small_disk.FailingDisk, tmp_path: pathlib.Path
) -> None:
    path = str(disk.directory / "store.db")
    async with worlds.world(tmp_path / "d", store=await engine.open_store(path)) as world:
        before = [(await world.create_config_map(f"c{n}"))["metadata"]["resourceVersion"] for n in range(5)]
        disk.fail()
        for method, name in (("POST", ""), ("DELETE", "/c0")):
            document = {"metadata": {"name": "late"}} if method == "POST" else None
            answer = await world.request(method, f"{PATH}{name}", document)
            # Nothing was written, or nobody can say whether it was: never that it was done.
            assert (answer.status, answer.reason) in {(503, "ServiceUnavailable"), (504, "Timeout")}
        ready = await world.get("/readyz")
        assert (ready.status, b"[-]store failed: " in ready.body, b"disk failed" in ready.body) == (500, True, True)
        # The copy in memory answers; nobody is told of what was not acknowledged.
        found = (await world.get(f"{PATH}/c4")).json()
        assert found["metadata"]["resourceVersion"] == before[-1]
        assert (await world.get(f"{PATH}/late")).status == 404
        assert (await world.get("/livez")).status == 200
    disk.mend()
    async with worlds.world(tmp_path / "d", store=await engine.open_store(path)) as world:
        # (The first of them may be gone: its delete was not acknowledged, and not denied.)
        for n, version in list(enumerate(before))[1:]:
            assert (await world.get(f"{PATH}/c{n}")).json()["metadata"]["resourceVersion"] == version
        after = await world.create_config_map("after")
        assert int(after["metadata"]["resourceVersion"]) > int(before[-1])


@pytest.mark.slow
async def test_on_a_read_only_disk_no_store_is_opened(disk: small_disk.FailingDisk) -> None:
    path = disk.directory / "store.db"
    store = await engine.open_store(str(path))
    await store.create("a", b"kept")
    await store.close()
    disk.unmount()
    disk.mount("ro")
    for name in ("store.db", "new.db"):
        with pytest.raises(protocol.StoreUnavailable, match="Read-only file system") as refusal:
            await engine.open_store(str(path.with_name(name)))
        assert name in refusal.value.message
    disk.unmount()
    disk.mount()
    store = await engine.open_store(str(path))
    assert await store.get("a") == protocol.Entry("a", b"kept", 1, 1)
    await store.close()
