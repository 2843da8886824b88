# SPDX-License-Identifier: Apache-2.0
"""Following definitions on a real store: rows come and go with them, and their objects go first."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from handfast import errors
from handfast.api import kinds
from handfast.api.custom import definitions
from handfast.apiserver import discovery
from handfast.apiserver.state import envelope, items, replica, storage
from handfast.apiserver.strategy import custom
from handfast.apiserver.verbs import definitions as customs
from handfast.runtime import tasks
from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.world import clock as clocks

NAME = "widgets.example.com"
NOW = "2024-01-01T00:00:00Z"
DEFINITION = next(row for row in kinds.builtin() if row.resource == definitions.RESOURCE)
LEASE = next(row for row in kinds.builtin() if row.plural == "leases")


def definition(name: str = NAME, kind: str = "Widget", **metadata: Any) -> dict[str, Any]:
    plural, _, group = name.partition(".")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    document: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, **metadata},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    definitions.prepare(document, [], NOW)
    return document


def thing(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "g/v1", "kind": kind, "metadata": {"name": name, "namespace": "default", **metadata}}


class FragileStorage(storage.Storage):
    """Storage whose next write fails as told."""

    failure: errors.HandfastError | None = None
    failures = 0

    async def replace(self, kind: kinds.Kind, document: dict[str, Any], old: items.Item) -> items.Item:
        failure, self.failure = self.failure, None
        if failure is not None:
            self.failures += 1
            raise failure
        return await super().replace(kind, document, old)


class Followed:
    """A store, its copy, and what follows it."""

    def __init__(self, store: engine.SqliteStore) -> None:
        envelopes = envelope.Envelopes(None, ())
        self.clock = clocks.MovableClock()
        self.copy = replica.Replica(store, envelopes)
        self.storage = FragileStorage(store, envelopes, self.copy)
        self.table = kinds.Table(kinds.builtin())
        self.discovery = discovery.Discovery(self.table)
        self.customs = customs.Customs(self.table, self.storage, self.discovery, self.clock)
        self.group = tasks.Group("test")

    async def start(self, *, settle: bool = True) -> None:
        await self.copy.load()
        self.customs.load()
        self.group.start(self.copy.follow(), name="follow")
        if settle:
            self.group.start(self.customs.run(), name="customs")

    async def put(self, kind: kinds.Kind, document: dict[str, Any]) -> items.Item:
        found = await self.find(kind, document["metadata"]["name"])
        if found is None:
            return await self.storage.create(kind, document)
        return await self.storage.replace(kind, document, found)

    async def find(self, kind: kinds.Kind, name: str) -> items.Item | None:
        return await self.storage.find(kind, "default" if kind.namespaced else "", name)

    async def mark(self, name: str = NAME) -> None:
        """Mark a definition for deletion, as `deletes` does."""
        found = await self.find(DEFINITION, name)
        assert found is not None
        document = found.document()
        document["metadata"]["deletionTimestamp"] = NOW
        await self.storage.replace(DEFINITION, document, found)

    def rows(self) -> list[kinds.Kind]:
        return [row for row in self.table if not row.message]


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)


async def until_gone(made: Followed, name: str = NAME) -> None:
    async with asyncio.timeout(10):
        while await made.find(DEFINITION, name) is not None:
            await asyncio.sleep(0)


@pytest.fixture
async def made(tmp_path: pathlib.Path) -> AsyncIterator[Followed]:
    store = await engine.open_store(str(tmp_path / "store.db"))
    followed = Followed(store)
    yield followed
    await followed.group.stop(timeout=2.0)
    await store.close()


def groups(made: Followed) -> str:
    return made.discovery.answer("/apis", "")[0].decode()


async def test_rows_are_there_from_the_start(made: Followed) -> None:
    await made.storage.create(DEFINITION, definition())
    await made.start()
    assert [row.api_version for row in made.rows()] == ["example.com/v1"]


async def test_rows_and_discovery_follow_definitions(made: Followed) -> None:
    await made.start()
    assert "example.com" not in groups(made)
    await made.put(DEFINITION, definition())
    await made.customs.fresh()
    assert [row.plural for row in made.rows()] == ["widgets"]
    assert "example.com" in groups(made)
    changed = definition()
    changed["spec"]["versions"][0]["name"] = "v2"
    await made.put(DEFINITION, changed)
    await made.customs.fresh()
    assert [row.version for row in made.rows()] == ["v2"]
    assert '"preferredVersion":{"groupVersion":"example.com/v2","version":"v2"}' in groups(made)


async def test_deleting_takes_objects_then_rows(made: Followed) -> None:
    await made.start()
    await made.put(DEFINITION, definition())
    await made.customs.fresh()
    kind = made.rows()[0]
    for name in ("a", "b"):
        await made.storage.create(kind, thing("Widget", name))
    seen: list[tuple[int, int]] = []
    made.copy.on_batch.append(lambda: seen.append((made.copy.collection(kind.prefix).count(), len(made.rows()))))
    await made.mark()
    await until_gone(made)
    assert made.copy.collection(kind.prefix).count() == 0
    assert made.rows() == []
    assert "example.com" not in groups(made)
    assert (2, 1) in seen
    assert {rows for objects, rows in seen if objects} == {1}, "no object is left that has no row"


async def test_an_object_with_a_finalizer_is_marked_once_and_waited_for(made: Followed) -> None:
    await made.start()
    await made.put(DEFINITION, definition(finalizers=["example.com/mine", definitions.FINALIZER]))
    await made.customs.fresh()
    kind = made.rows()[0]
    await made.storage.create(kind, thing("Widget", "held", finalizers=["example.com/hold"], generation=1))
    await made.mark()
    collection = made.copy.collection(kind.prefix)
    await until(lambda: b"deletionTimestamp" in collection.snapshot()[0].body)
    held = collection.snapshot()[0]
    # Something else happens to it: it is looked at again, and left alone.
    document = held.document()
    document["metadata"]["labels"] = {"a": "b"}
    await made.storage.replace(kind, document, held)
    await made.customs.fresh()
    await clocks.settle()
    held = collection.snapshot()[0]
    assert held.document()["metadata"]["generation"] == 2
    await made.storage.delete(kind, held)
    await until(lambda: definitions.FINALIZER.encode() not in made.copy.collection(custom.PREFIX).snapshot()[0].body)
    # Another's finalizer is not ours to take, and the kind stays until it is given back.
    found = await made.find(DEFINITION, NAME)
    assert found is not None
    assert found.document()["metadata"]["finalizers"] == ["example.com/mine"]
    assert "create" not in made.rows()[0].verbs
    await made.storage.delete(DEFINITION, found)
    await made.customs.fresh()
    assert made.rows() == []


async def test_what_another_server_wrote_at_the_last_moment_goes_too(made: Followed) -> None:
    await made.start(settle=False)
    item = await made.put(DEFINITION, definition())
    await made.customs.fresh()
    kind = made.rows()[0]
    late = await made.storage.create(kind, thing("Widget", "late"))
    await made.storage.delete(DEFINITION, item)
    await made.copy.reached(late.version)
    assert made.copy.collection(kind.prefix).count() == 1
    made.group.start(made.customs.run(), name="customs")
    await until(lambda: made.copy.collection(kind.prefix).count() == 0)
    assert await made.find(kind, "late") is None


async def test_a_definition_that_comes_back_keeps_its_objects(made: Followed) -> None:
    await made.start(settle=False)
    item = await made.put(DEFINITION, definition())
    await made.customs.fresh()
    kind = made.rows()[0]
    await made.storage.create(kind, thing("Widget", "kept"))
    await made.storage.delete(DEFINITION, item)
    await made.put(DEFINITION, definition())
    await made.customs.fresh()
    made.group.start(made.customs.run(), name="customs")
    await clocks.settle(50)
    assert await made.find(kind, "kept") is not None


async def test_a_definition_with_a_taken_name_touches_nothing_when_it_goes(made: Followed) -> None:
    await made.start()
    await made.storage.create(LEASE, thing("Lease", "one"))
    rival = definition("leases.coordination.k8s.io", kind="Lease")
    assert not definitions.is_established(rival)
    await made.put(DEFINITION, rival)
    await made.customs.fresh()
    assert made.rows() == []
    await made.mark("leases.coordination.k8s.io")
    await until_gone(made, "leases.coordination.k8s.io")
    await clocks.settle(50)
    assert await made.find(LEASE, "one") is not None
    assert made.table.find("coordination.k8s.io", "v1", "leases") is LEASE


async def test_a_forged_status_neither_replaces_nor_empties_a_built_in_kind(made: Followed) -> None:
    name = "leases.coordination.k8s.io"
    rival = definition(name, kind="Lease")
    rival["status"]["acceptedNames"] = rival["spec"]["names"]
    rival["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    # From a time, or a server, that let it through.
    await made.storage.create(DEFINITION, rival)
    await made.storage.create(LEASE, thing("Lease", "one"))
    await made.start(settle=False)
    assert made.rows() == []
    assert made.table.find("coordination.k8s.io", "v1", "leases") is LEASE
    made.group.start(made.customs.run(), name="customs")
    await made.mark(name)
    await until_gone(made, name)
    await clocks.settle(50)
    assert await made.find(LEASE, "one") is not None


async def test_objects_of_built_in_kinds_are_no_definitions_to_delete(made: Followed) -> None:
    await made.start()
    await made.storage.create(LEASE, thing("Lease", "one"))
    await made.copy.fresh()
    assert await made.customs._empty(LEASE)
    assert await made.find(LEASE, "one") is not None


async def test_names_are_given_when_they_are_free(made: Followed) -> None:
    await made.start()
    first = await made.put(DEFINITION, definition())
    second = definition("gadgets.example.com", kind="Widget")
    second["status"] = definitions.accept({**second, "status": {}}, [definitions.claim(definition())], NOW)
    await made.put(DEFINITION, second)
    await made.customs.fresh()
    assert [row.plural for row in made.rows()] == ["widgets"]
    await made.storage.delete(DEFINITION, first)
    await until(lambda: [row.plural for row in made.rows()] == ["gadgets"])


async def test_what_fails_is_tried_again_a_little_later(made: Followed) -> None:
    await made.start()
    bare = definition()
    del bare["status"]
    made.storage.failure = errors.Unavailable("the disk is full")
    await made.storage.create(DEFINITION, bare)
    await made.customs.fresh()
    await until(lambda: made.storage.failure is None)
    await clocks.settle()
    assert made.rows() == []
    await made.clock.advance(1.0)
    await until(made.rows)


async def test_another_writer_who_was_faster_is_no_failure(made: Followed) -> None:
    await made.start()
    bare = definition()
    del bare["status"]
    made.storage.failure = protocol.Mismatch("key", None)
    await made.storage.create(DEFINITION, bare)
    await until(made.rows)
    assert made.storage.failures == 1
    assert made.clock.monotonic() == 0.0, "it was waited for"


async def test_watches_end_when_what_they_show_changes(made: Followed) -> None:
    await made.start()
    await made.put(DEFINITION, definition())
    await made.customs.fresh()
    kind = made.rows()[0]
    ended: list[str] = []
    hooks = {lambda: ended.append("widgets")}
    with made.customs.following(kind, hooks), made.customs.following(kind, set()):
        await made.put(DEFINITION, definition(labels={"a": "b"}))
        await made.customs.fresh()
        assert ended == []
        changed = definition()
        changed["spec"]["versions"][0]["additionalPrinterColumns"] = [{"name": "A"}]
        await made.put(DEFINITION, changed)
        await made.customs.fresh()
        assert ended == ["widgets"]
    with made.customs.following(LEASE, hooks):
        await made.put(DEFINITION, definition())
        await made.customs.fresh()
    assert ended == ["widgets"]
