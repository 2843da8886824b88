# SPDX-License-Identifier: Apache-2.0
"""What a server says of itself in its Lease, and which form it writes by what the others say."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import pathlib
from collections.abc import AsyncIterator

import pytest

from handfast.apiserver import announcement
from handfast.apiserver.state import envelope, replica, storage
from handfast.rules import stored_forms
from handfast.runtime import tasks
from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.world.clock import MovableClock

OLD, NEW = stored_forms.Forms(1, 1), stored_forms.Forms(1, 2)


class Shared:
    """A store that several servers use, with their one copy of it."""

    def __init__(self, store: engine.SqliteStore) -> None:
        self.store = store
        self.clock = MovableClock()
        envelopes = envelope.Envelopes()
        self.replica = replica.Replica(store, envelopes)
        self.storage = storage.Storage(store, envelopes, self.replica)
        self.raised: list[int] = []

    def server(self, forms: stored_forms.Forms) -> announcement.Announcer:
        return announcement.Announcer(
            self.store,
            self.storage,
            self.clock,
            forms=forms,
            raise_form=self.raised.append,
            more_annotations=lambda: {"x": "y"},
        )

    async def leases(self) -> dict[str, stored_forms.Announcement]:
        await self.replica.fresh()
        collection = self.replica.collection("coordination.k8s.io/leases/")
        said = (announcement.of_lease(item.document()) for item in collection.iterate())
        return {each.server: each for each in said if each is not None}


@pytest.fixture
async def shared(tmp_path: pathlib.Path) -> AsyncIterator[Shared]:
    store = await engine.open_store(str(tmp_path / "store.db"))
    shared = Shared(store)
    await shared.replica.load()
    async with tasks.Group("test") as group:
        group.start(shared.replica.follow(), name="replica")
        yield shared
        await group.stop(timeout=5.0)
    await store.close()


async def test_a_server_says_what_it_is_and_is_gone_when_it_ends(shared: Shared) -> None:
    server = shared.server(OLD)
    await server.announce()
    said = (await shared.leases())[server.name]
    assert (said.forms, said.until) == (
        OLD,
        shared.clock.now() + datetime.timedelta(seconds=announcement.LEASE_SECONDS),
    )
    await server.announce()
    await shared.replica.fresh()
    await server.end()
    assert await shared.leases() == {}
    await server.end()


async def test_a_new_form_is_written_only_when_all_know_it(shared: Shared) -> None:
    before, after = shared.server(OLD), shared.server(NEW)
    await before.announce()
    await shared.leases()
    await after.announce()
    assert (after.form, await announcement.read_marker(shared.store), shared.raised) == (1, 1, [])
    # The old one is killed: its word counts until its Lease ends.
    await shared.leases()
    await shared.clock.advance(announcement.LEASE_SECONDS - 1)
    await after.announce()
    assert after.form == 1
    await shared.clock.advance(2)
    await shared.leases()
    await after.announce()
    assert (after.form, await announcement.read_marker(shared.store), shared.raised) == (2, 2, [2])
    # From now on it is refused, and what was begun is not taken back.
    with pytest.raises(stored_forms.StoreTooNew):
        await before.require_known()
    await after.require_known()
    # Nor does it go on, if it was only silent; and what it announces by then changes nothing.
    with pytest.raises(stored_forms.StoreTooNew):
        await before.announce()
    with pytest.raises(stored_forms.StoreTooNew):
        await before.try_to()
    await shared.leases()
    await after.announce()
    assert after.form == 2


async def test_the_marker_is_not_lowered_by_one_that_decides_at_the_same_time(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers, of which one knows a form more, decide in the same moment."""
    second, third = shared.server(NEW), shared.server(stored_forms.Forms(1, 3))
    note = shared.store.note

    async def then_raised(name: str) -> str | None:
        text = await note(name)
        monkeypatch.undo()
        await third.announce()
        return text

    monkeypatch.setattr(shared.store, "note", then_raised)
    await second.decide()
    assert await announcement.read_marker(shared.store) == 3
    assert third.form == 3


async def test_one_that_was_overtaken_decides_again_before_it_writes(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = shared.server(stored_forms.Forms(1, 3))

    async def overtaken(name: str, _expected: str | None, _text: str | None) -> str | None:
        await shared.store.set_note(name, "2")
        return "2"

    monkeypatch.setattr(shared.store, "swap_note", overtaken)
    await third.announce()
    assert (third.form, shared.raised) == (1, [])
    monkeypatch.undo()
    await third.announce()
    assert (third.form, await announcement.read_marker(shared.store)) == (3, 3)


async def test_leases_that_ended_long_ago_are_removed(shared: Shared) -> None:
    gone, here = shared.server(OLD), shared.server(OLD)
    await gone.announce()
    await shared.clock.advance(announcement.FORGOTTEN.total_seconds() - 1)
    await shared.leases()
    await here.announce()
    assert set(await shared.leases()) == {gone.name, here.name}
    await shared.clock.advance(2)
    await shared.leases()
    await here.announce()
    assert list(await shared.leases()) == [here.name]


async def test_whoever_looks_for_api_servers_finds_its_lease(shared: Shared) -> None:
    server = shared.server(OLD)
    await server.announce()
    await shared.leases()
    item = shared.replica.collection("coordination.k8s.io/leases/").get("kube-system", server.name)
    assert item is not None
    assert item.document()["metadata"]["labels"] == {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    assert server.name.startswith("apiserver-")


async def test_the_lease_is_renewed_for_as_long_as_the_server_runs(shared: Shared) -> None:
    server = shared.server(OLD)
    await server.announce()
    first = (await shared.leases())[server.name].until
    async with tasks.Group("keep") as group:
        group.start(server.keep(), name="keep")
        async with asyncio.timeout(30):
            while (await shared.leases())[server.name].until == first:
                await shared.clock.advance(announcement.INTERVAL)
                await asyncio.sleep(0.01)
        await group.stop(timeout=5.0)


async def test_a_store_that_takes_no_writes_is_served_all_the_same(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = shared.server(OLD)
    room = shared.store.room()
    monkeypatch.setattr(shared.store, "room", lambda: dataclasses.replace(room, full=True))
    await server.try_to()
    assert await shared.leases() == {}
    monkeypatch.undo()

    async def refused(*_: object) -> int:
        raise protocol.StoreFull("full")

    monkeypatch.setattr(shared.store, "create", refused)
    await server.try_to()
    assert await shared.leases() == {}
    monkeypatch.undo()
    await server.try_to()
    assert list(await shared.leases()) == [server.name]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": {"name": "l", "annotations": {announcement.FORMS: "1-1"}}, "spec": {}},
        {"metadata": {"name": "l", "labels": {announcement.LABEL: "x"}}, "spec": {}},
        {
            "metadata": {"name": "l", "labels": {announcement.LABEL: "x"}, "annotations": {announcement.FORMS: "1-1"}},
            "spec": {"renewTime": "never", "leaseDurationSeconds": 1},
        },
        {"metadata": "x", "spec": []},
        {"metadata": {"name": "l", "annotations": "x", "labels": 7}},
        {"metadata": {"name": "l", "labels": {announcement.LABEL: "x"}, "annotations": {announcement.FORMS: 1}}},
    ],
)
def test_other_leases_announce_nothing(document: dict[str, object]) -> None:
    assert announcement.of_lease(document) is None


async def test_a_lease_is_carried_into_another_store_unless_a_server_wrote_it(shared: Shared) -> None:
    await shared.server(OLD).announce()
    (written,) = (await shared.store.list_at(announcement.KEYS)).entries
    unreadable = dataclasses.replace(written, value=b"")
    elsewhere = dataclasses.replace(written, key="core/configmaps/default/a")
    assert announcement.carried([written, unreadable, elsewhere]) == [unreadable, elsewhere]
