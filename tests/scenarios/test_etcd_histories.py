# SPDX-License-Identifier: Apache-2.0
"""Three members of etcd, of which the leader is killed, frozen, cut off, or cut off from the other members alone, while thirty-two clients of three servers write, read and watch.

What they saw can have been: linearizable, no acknowledged write lost, nothing that was called refused has happened, watches without gap or
repetition, revisions that never go back. Writes of which nobody could say are called uncertain. Afterwards all go on.

`HANDFAST_HISTORY_SECONDS=60` gives each failure so long; CI has as long as it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
from collections.abc import Callable, Iterator, Sequence

import pytest

from handfast.store import protocol
from handfast.store.etcd import engine
from handfast.store.etcd import place as places
from tests.scenarios import etcd_cluster
from tests.world import linearizability, recording
from tests.world import world as worlds
from tests.world.histories import Outcome

SECONDS = float(os.environ.get("HANDFAST_HISTORY_SECONDS", "0"))
# Operations that each server answers before, during and after.
THROUGH = 100
NEW = {"metadata": {"name": "c"}, "data": {"k": "new"}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[etcd_cluster.Cluster]:
    with etcd_cluster.running() as made:
        yield made


async def through(recorder: recording.Recorder, stores: Sequence[engine.EtcdStore]) -> None:
    """Until each server has answered so many more operations, and so long as somebody asked for."""
    before = recorder.done.copy()
    async with asyncio.timeout(SECONDS + 90):
        await asyncio.sleep(SECONDS)
        while any(recorder.done[store] - before[store] < THROUGH for store in stores):
            await asyncio.sleep(0.05)


async def compact(store: engine.EtcdStore) -> None:
    """Now and then, far enough behind that no watch is overtaken while its server looks for another member."""
    while True:
        await asyncio.sleep(1)
        with contextlib.suppress(protocol.StoreUnavailable, protocol.StoreUncertain):
            await store.compact(max(await store.current_revision() - 10_000, 0))


def kill(cluster: etcd_cluster.Cluster, leader: etcd_cluster.Member) -> Callable[[], None]:
    leader.kill()
    return lambda: leader.start(cluster.peers)


def freeze(_: etcd_cluster.Cluster, leader: etcd_cluster.Member) -> Callable[[], None]:
    leader.signal(signal.SIGSTOP)
    return lambda: leader.signal(signal.SIGCONT)


def cut_off(_: etcd_cluster.Cluster, leader: etcd_cluster.Member) -> Callable[[], None]:
    leader.plug(connected=False)
    return lambda: leader.plug(connected=True)


def cut_off_from_its_peers(cluster: etcd_cluster.Cluster, leader: etcd_cluster.Member) -> Callable[[], None]:
    """Servers reach it still, and it takes itself for the leader until it notices."""
    leader.route(cluster.but(leader), connected=False)
    return lambda: leader.route(cluster.but(leader), connected=True)


@pytest.mark.slow
@pytest.mark.timeout(300 + 5 * SECONDS)
@pytest.mark.parametrize("fail", [kill, freeze, cut_off, cut_off_from_its_peers])
async def test_what_clients_saw_while_the_leader_failed_can_have_been(
    cluster: etcd_cluster.Cluster, fail: Callable[..., Callable[[], None]]
) -> None:
    stores = [await engine.open_store(cluster.place(first), cluster.access()) for first in range(3)]
    recorder = recording.Recorder(prefix=f"/{fail.__name__}")
    leader = await asyncio.to_thread(cluster.leader)
    compacting = asyncio.create_task(compact(stores[0]))
    async with recorder.clients(stores):
        await through(recorder, stores)
        mend = fail(cluster, leader)
        try:
            # The others have a leader of their own, and every server finds them.
            await through(recorder, stores)
        finally:
            mend()
        await asyncio.to_thread(cluster.leader)
        await through(recorder, stores)
    compacting.cancel()
    for store in stores:
        await store.close()
    found = linearizability.check(recorder.history())
    print({outcome.value: recorder.count(outcome) for outcome in Outcome}, f"{len(recorder.operations)} operations")
    assert found == []
    assert recorder.count(Outcome.DONE) > THROUGH


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_leader_that_only_its_peers_have_lost_serves_nothing_stale(
    cluster: etcd_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """A server knows no other member than that one, which has the old value still, and answers whoever asks it for its status."""
    leader = await asyncio.to_thread(cluster.leader)
    prefix = "stale"
    alone = places.Place((leader.address,), prefix)
    others = places.Place(tuple(each.address for each in cluster.but(leader)), prefix)
    stores = [await engine.open_store(place, cluster.access()) for place in (alone, others)]
    async with (
        worlds.world(tmp_path / "d", store=stores[0], shared=True) as behind,
        worlds.world(tmp_path / "d", store=stores[1], shared=True) as ahead,
    ):
        old = await ahead.create_config_map("c", k="old")
        path = "/api/v1/namespaces/default/configmaps/c"
        assert (await behind.get(path)).json() == old
        mend = cut_off_from_its_peers(cluster, leader)
        try:
            await _serves_nothing_stale(behind, ahead, path)
            # It was there all the while: nobody but its peers has lost it.
            assert await asyncio.to_thread(leader.status) is not None
        finally:
            mend()
        async with asyncio.timeout(90):
            while (answer := await behind.get(path)).status != 200:
                await asyncio.sleep(0.1)
        assert answer.json()["data"] == {"k": "new"}


async def _serves_nothing_stale(behind: worlds.World, ahead: worlds.World, path: str) -> None:
    async with asyncio.timeout(90):
        # The first one is asked before anybody can have noticed, the last one when the others have a leader of their own.
        first = asyncio.ensure_future(behind.get(path))
        while (answer := await ahead.request("PUT", path, NEW)).status != 200:
            await asyncio.sleep(0.1)
    last = await behind.get(path)
    assert answer.json()["data"] == {"k": "new"}
    assert (last.status, last.headers["Retry-After"]) == (503, "1")
    # It was asked before the write was acknowledged: what was there by then is right, and nothing else.
    assert (await first).status in {200, 503}
    listed = await behind.get(path.rpartition("/")[0])
    assert listed.status == 503
