# SPDX-License-Identifier: Apache-2.0
"""The races and corners that the real server does not show on demand; the rest is in tests/scenarios."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.api import handfast_kinds, status
from handfast.client import api, cache, events, partial
from handfast.controllers import loop, served
from handfast.controllers.cluster import garbage_collector, ownership
from handfast.runtime import tasks
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock, settle

THINGS = served.Served("", "v1", "things", True, "Thing")
REF = {"apiVersion": "v1", "kind": "Thing", "name": "owner", "uid": "uid-owner"}


class World:
    """A collector on a fake server, with its graph fed by hand."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.changed: list[str] = []
        self.graph = ownership.Graph(self.changed.append)
        recorder = events.Recorder(self.client, MovableClock(), "test")
        self.collector = garbage_collector.GarbageCollector(self.client, self.graph, recorder, self.changed.append)
        self.collector.know(THINGS)
        self.sink = ownership.ResourceSink(self.graph, THINGS)

    def have(self, name: str, *owners: Any, **metadata: Any) -> None:
        """An object on the server, which the graph has seen."""
        metadata = {**metadata, **({"ownerReferences": list(owners)} if owners else {})}
        document = self.client.put("things", name, "ns", metadata=metadata)
        self.see(document)

    def see(self, document: Any) -> None:
        self.sink.put(msgspec.convert(document, partial.OwnedPartial))

    async def handle(self, name: str) -> float | None:
        return await self.collector.reconcile(f"uid-{name}")


async def test_the_picture_alone_deletes_nothing():
    world = World()
    world.have("child", REF)
    # The owner is there, although no watch has told so yet.
    world.client.put("things", "owner", "ns")
    await world.handle("child")
    assert world.client.calls == []
    assert "uid-owner" in world.graph.present
    # And the child has lost its reference, although no watch has told so yet.
    world.graph.removed("uid-owner")
    world.client.objects.clear()
    world.client.put("things", "child", "ns")
    await world.handle("child")
    assert world.client.calls == []


async def test_an_object_that_changes_under_the_verdict_is_kept():
    world = World()
    world.have("child", REF)

    def change(verb: str, _plural: str, name: str) -> None:
        if verb == "delete":
            world.client.put("things", name, "ns")

    world.client.before = change
    with pytest.raises(status.StatusError) as caught:
        await world.handle("child")
    assert caught.value.reason == "Conflict"
    assert ("things", "ns", "child") in world.client.objects


async def test_an_owner_lost_while_it_was_looked_at_is_not_taken_for_present():
    world = World()
    world.have("child", REF)
    world.have("owner")

    def lose(verb: str, _plural: str, name: str) -> None:
        if verb == "get" and name == "owner":
            world.graph.removed("uid-owner")

    world.graph.present.clear()
    world.client.before = lose
    await world.handle("child")
    assert "uid-owner" not in world.graph.present
    # The loss has put the child into the queue again, and now the owner is looked for anew.
    assert world.changed[-1] == "uid-child"
    world.client.before = lambda *_: None
    del world.client.objects["things", "ns", "owner"]
    await world.handle("child")
    assert world.client.calls == [("delete Background", "things", "child")]


async def test_an_absent_owner_is_looked_for_once():
    world = World()
    for number in range(5):
        world.have(f"child{number}", REF)
    asked = []
    world.client.before = lambda verb, _plural, name: asked.append(name) if verb == "get" else None
    for number in range(5):
        await world.handle(f"child{number}")
    assert asked.count("owner") == 1
    assert len(world.client.calls) == 5


async def test_many_owners_are_found_by_one_list():
    world = World()
    for number in range(60):
        ref = {**REF, "name": f"owner{number}", "uid": f"uid-owner{number}"}
        world.have(f"child{number}", ref, {**REF, "kind": "Unknown"})
        if number:
            world.client.put("things", f"owner{number}", "ns")
    asked: list[tuple[str, str]] = []
    world.client.before = lambda verb, _plural, name: asked.append((verb, name))
    await world.collector.prime()
    assert asked == [("list", "")]
    assert len(world.graph.present) == 59
    for number in range(60):
        await world.handle(f"child{number}")
    assert [name for verb, name in asked if name.startswith("owner")] == ["owner0"]
    # It has another owner, of a kind that nobody knows.
    assert world.client.calls == [("patch", "things", "child0")]


async def test_few_owners_and_lists_that_fail_or_are_overtaken_change_nothing():
    world = World()
    world.have("child", REF)
    world.client.put("things", "owner", "ns")
    asked: list[str] = []
    world.client.before = lambda verb, *_: asked.append(verb)
    await world.collector.prime()
    assert asked == []
    for number in range(60):
        world.have(f"child{number}", {**REF, "uid": f"uid-owner{number}"})

    def overtake(*_: str) -> None:
        world.graph.removed("uid-owner1")

    world.client.before = overtake
    await world.collector.prime()
    assert world.graph.present == {}
    world.client.before = failing(errors.Unavailable("no server"))
    with capture_logs() as lines:
        await world.collector.prime()
    assert [line["error"] for line in lines] == ["no server"]


async def test_errors_are_never_taken_for_absence():
    world = World()
    world.have("child", REF)

    def refuse(verb: str, plural: str, name: str) -> None:
        if name == "owner":
            raise status.forbidden(plural, "", name, "no")

    world.client.before = refuse
    with pytest.raises(errors.Refused, match="forbidden"):
        await world.handle("child")
    assert world.client.calls == []


async def test_an_owner_that_cannot_be_decoded_is_not_taken_for_absent():
    world = World()
    world.have("child", REF)
    world.client.put("things", "owner", "ns", metadata={"finalizers": [None]})
    with pytest.raises(errors.Unavailable, match="cannot be decoded"):
        await world.handle("child")
    assert world.client.calls == []


async def test_nulls_among_references_do_not_stop_an_orphaning():
    world = World()
    world.have("owner", deletionTimestamp="2030-01-01T00:00:00Z", finalizers=["orphan"])
    world.have("child", REF)
    world.client.objects["things", "ns", "child"]["metadata"]["ownerReferences"].insert(0, None)
    assert await world.handle("owner") is not None
    await world.handle("owner")
    assert world.client.objects["things", "ns", "child"]["metadata"]["ownerReferences"] is None


async def test_a_child_with_its_own_finalizers_asks_for_its_own_kind_of_end():
    world = World()
    for name, finalizer in (("f", "foregroundDeletion"), ("o", "orphan"), ("x", "example.dev/x")):
        world.have(name, REF, finalizers=[finalizer])
        await world.handle(name)
    assert [call[0] for call in world.client.calls] == ["delete Foreground", "delete Orphan", "delete Background"]


async def test_gone_already():
    world = World()
    world.have("child", REF)
    world.client.objects.clear()
    await world.handle("child")
    assert world.graph.nodes == {}
    await world.handle("child")
    world.have("child", REF)

    def race(verb: str, *_: str) -> None:
        if verb == "delete":
            world.client.objects.clear()

    world.client.before = race
    await world.handle("child")
    assert world.client.calls == []


async def test_an_ordinary_deletion_is_left_to_its_finalizers():
    world = World()
    world.have("child", REF, deletionTimestamp="2030-01-01T00:00:00Z", finalizers=["example.dev/x"])
    await world.handle("child")
    assert world.client.calls == []


async def test_orphaning_survives_dependents_that_vanish():
    world = World()
    world.have("owner", deletionTimestamp="2030-01-01T00:00:00Z", finalizers=["orphan", "other"])
    world.have("stays", REF, {**REF, "uid": "uid-second", "name": "second"})
    world.have("vanished", REF)
    del world.client.objects["things", "ns", "vanished"]
    # First it waits for watches that may be behind.
    assert await world.handle("owner") == 1.0
    assert world.client.calls == []
    assert await world.handle("owner") is None
    owners = world.client.objects["things", "ns", "stays"]["metadata"]["ownerReferences"]
    assert [row["uid"] for row in owners] == ["uid-second"]
    assert world.client.objects["things", "ns", "owner"]["metadata"]["finalizers"] == ["other"]


def definition(*, established: bool = True, version: str = "v1") -> dict[str, Any]:
    return {
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {"name": "v1alpha1", "served": True, "storage": False},
                {"name": version, "served": True, "storage": True},
            ],
        },
        "status": {"conditions": [{"type": "Established", "status": "True" if established else "False"}]},
    }


def test_what_a_definition_serves():
    def serves(document: dict[str, Any]) -> served.Served | None:
        return msgspec.convert(document, served.Definition).served()

    assert serves(definition()) == served.Served("example.dev", "v1", "widgets", True, "Widget")
    assert serves(definition(established=False)) is None
    assert serves({}) is None


def test_built_in_kinds_come_once():
    rows = served.builtin()
    assert len({(row.group, row.plural) for row in rows}) == len(rows)
    assert [row.group for row in rows if row.plural == "events"] == [""]


class _Informers(cache.Informers):
    """Remembers what is followed, by its path, instead of following it."""

    def __init__(self) -> None:
        super().__init__(FakeClient(), MovableClock())
        self.followed: dict[str, cache.Following] = {}

    def follow(self, source: Any, sink: Any, refused: Any = None) -> cache.Following:
        path = api.path(source.resource)
        self.followed[path] = cache.Following(source.resource.plural, sink)
        return self.followed[path]


async def test_custom_resources_are_followed_while_they_are_served():
    informers = _Informers()
    context = loop.Context(client=FakeClient(), informers=informers, clock=MovableClock())
    controller = garbage_collector.build(context)
    definitions = informers.get(garbage_collector.definitions())
    before = len(informers.followed)

    def put(version: int, document: dict[str, Any]) -> None:
        meta = {"name": "widgets.example.dev", "resourceVersion": str(version)}
        definitions.put(msgspec.convert({"metadata": meta, **document}, served.Definition))

    widgets = served.Served("example.dev", "v1", "widgets", True, "Widget")
    put(1, definition(established=False))
    assert len(informers.followed) == before
    put(2, definition())
    assert api.path(widgets) in informers.followed
    following = informers.followed.pop(api.path(widgets))
    put(3, definition())
    assert api.path(widgets) not in informers.followed
    put(4, definition(version="v2"))
    assert following.stopped
    newer = api.path(served.Served("example.dev", "v2", "widgets", True, "Widget"))
    assert newer in informers.followed
    definitions.remove(definitions.get("", "widgets.example.dev"))  # type: ignore[arg-type]
    assert informers.followed[newer].stopped
    async with tasks.Group("test") as group:
        group.start(controller.run(), name="gc")
        await settle()
        # Nothing has synced, so it must not have begun.
        assert not controller.ready
        await asyncio.sleep(0)


def test_handfasts_own_kinds_are_followed_where_they_are_served():
    workloads = next(each for each in served.own() if each.plural == "meshworkloads")
    assert garbage_collector.source(workloads).if_served
    assert not garbage_collector.source(THINGS).if_served


def test_a_definition_of_a_kind_of_handfasts_own_is_not_followed_twice():
    row = handfast_kinds.definition(handfast_kinds.MESH_WORKLOAD)
    row["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    definition = msgspec.convert(row, served.Definition, strict=False)
    world = World()
    informers = cache.Informers(world.client, MovableClock())
    customs = garbage_collector._CustomResources(informers, world.graph, world.collector)
    customs.changed(None, definition)
    customs.changed(definition, None)
    assert customs._following == {}
