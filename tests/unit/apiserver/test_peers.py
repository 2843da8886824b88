# SPDX-License-Identifier: Apache-2.0
"""Which servers count, how many at most, and whose Lease is removed when. On the real engine; two real servers are in the scenarios."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast.api import objects, resources
from handfast.apiserver import announcement, first_objects, peers
from handfast.apiserver.state import envelope, items, replica, storage
from handfast.pki import seal
from handfast.rules import stored_forms
from handfast.runtime import tasks
from handfast.store.sqlite import engine
from tests.world.clock import MovableClock

SEALER = seal.Sealer({"one": b"1" * 32}, "one")
THEIRS = seal.Sealer({"two": b"2" * 32}, "two")
HOUR = announcement.FORGOTTEN.total_seconds()


class Shared:
    """A store that several servers use, with their one copy of it."""

    def __init__(self, store: engine.SqliteStore) -> None:
        self.clock = MovableClock()
        self._store = store
        self._envelopes = envelope.Envelopes()
        self.replica = replica.Replica(store, self._envelopes, shared=True)
        self.storage = storage.Storage(store, self._envelopes, self.replica)
        self.counts: list[int] = []

    def announcer(self) -> announcement.Announcer:
        return announcement.Announcer(self._store, self.storage, self.clock, raise_form=self._envelopes.write_as)

    def server(self, number: int, sealer: seal.Sealer = SEALER) -> peers.Peers:
        address = first_objects.Server((f"10.0.{number // 250}.{number % 250 + 1}",), 6443)
        made = peers.Peers(
            self.storage,
            self.clock,
            sealer,
            self.announcer(),
            place=f"/d{number}",
            server=address,
            on_count=self.counts.append,
        )
        made.load()
        return made

    async def leases(self) -> dict[str, items.Item]:
        await self.replica.fresh()
        found = self.replica.collection(resources.LEASES.prefix).snapshot(peers.NAMESPACE)
        return {item.name: item for item in found}

    async def write(self, name: str, **changes: Any) -> None:
        """A Lease that was last renewed now."""
        renewed = {"renewTime": objects.micro_timestamp(self.clock.now())}
        document = announcement.new_lease(name, {"leaseDurationSeconds": 30, **renewed, **changes}, self.clock.now())
        await self.storage.create(resources.LEASES, document)


@pytest.fixture
async def shared(tmp_path: pathlib.Path) -> AsyncIterator[Shared]:
    store = await engine.open_store(str(tmp_path / "store.db"))
    made = Shared(store)
    await made.replica.load()
    async with tasks.Group("test") as group:
        group.start(made.replica.follow(), name="replica")
        yield made
        await group.stop(timeout=5.0)
    await store.close()


async def renewed(shared: Shared, server: peers.Peers) -> None:
    """One round of its own, as `run` makes it."""
    await server._announce()
    server._judge()
    await server._tidy()
    await shared.replica.fresh()


async def test_servers_count_one_another_as_soon_as_their_lease_is_there(shared: Shared) -> None:
    one, other = shared.server(1), shared.server(2)
    await one.begin()
    assert one.count == 1
    await other.begin()
    await shared.leases()
    assert (one.count, other.count) == (2, 2)
    await other.end()
    await shared.leases()
    assert one.count == 1


async def test_more_servers_than_most_count_as_most(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MOST", 6)
    one = shared.server(0)
    await one.begin()
    # Each Lease is a true one: whoever has the key may run so many.
    for number in range(1, peers.MOST + 6):
        await shared.server(number).begin()
    await shared.leases()
    assert len(one._others) == peers.MOST + 5
    assert one.count == peers.MOST
    assert max(shared.counts) == peers.MOST


async def test_a_lease_that_is_sealed_with_other_keys_counts_for_nothing(shared: Shared) -> None:
    one, stranger = shared.server(1), shared.server(2, THEIRS)
    await stranger.begin()
    await one.begin()
    await shared.leases()
    assert (one.count, stranger.count) == (1, 1)


async def test_a_server_that_is_silent_counts_until_its_time_is_over(shared: Shared) -> None:
    one, other = shared.server(1), shared.server(2)
    await one.begin()
    await other.begin()
    await shared.leases()
    await shared.clock.advance(peers.DURATION - 1)
    await renewed(shared, one)
    assert one.count == 2
    await shared.clock.advance(1)
    await renewed(shared, one)
    assert one.count == 1
    # Its Lease stays for now, and it counts again when it comes back.
    assert set(await shared.leases()) == {one.name, other.name}
    await renewed(shared, other)
    assert one.count == 2


async def test_a_lease_that_nobody_renewed_for_an_hour_is_removed(shared: Shared) -> None:
    one, gone = shared.server(1), shared.server(2)
    await gone.begin()
    await one.begin()
    await shared.clock.advance(HOUR)
    await renewed(shared, one)
    assert set(await shared.leases()) == {one.name, gone.name}
    await shared.clock.advance(1)
    await renewed(shared, one)
    assert set(await shared.leases()) == {one.name}


@pytest.mark.parametrize(
    "name, changes, labelled",
    [
        ("apiserver-x", {"renewTime": "1970-01-01T00:00:00.000000Z"}, False),
        ("somebody-elses", {"renewTime": "1970-01-01T00:00:00.000000Z"}, True),
        ("apiserver-y", {"renewTime": "never"}, True),
        ("apiserver-z", {"renewTime": None}, True),
    ],
)
async def test_what_is_no_servers_lease_or_names_no_time_is_left_alone(
    shared: Shared, name: str, changes: dict[str, Any], labelled: bool
) -> None:
    document = announcement.new_lease(name, changes, shared.clock.now())
    if not labelled:
        document["metadata"]["labels"] = {}
    await shared.storage.create(resources.LEASES, document)
    one = shared.server(1)
    await one.begin()
    await shared.clock.advance(10 * HOUR)
    await renewed(shared, one)
    assert set(await shared.leases()) == {one.name, name}


async def test_what_both_keepers_of_leases_remove_is_the_same(shared: Shared) -> None:
    """A store's only server (`announcement`) and one of several: after the same time."""
    for remove in ("peers", "announcement"):
        await shared.write(f"apiserver-{remove}")
        await shared.clock.advance(HOUR + 1)
        await shared.leases()
        if remove == "peers":
            await renewed(shared, shared.server(1))
        else:
            await shared.announcer().announce()
        assert f"apiserver-{remove}" not in await shared.leases()


async def test_a_server_ends_when_the_others_write_what_it_cannot_read(shared: Shared) -> None:
    one = shared.server(1)
    await one.begin()
    await shared._store.set_note(announcement.MARKER, str(envelope.KNOWN.newest + 1))
    running = asyncio.ensure_future(one.run())
    async with asyncio.timeout(30):
        while not running.done():
            await shared.clock.advance(peers.RENEW)
            await asyncio.sleep(0.01)
    assert isinstance(running.exception(), stored_forms.StoreTooNew)
