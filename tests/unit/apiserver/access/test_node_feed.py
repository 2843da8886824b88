# SPDX-License-Identifier: Apache-2.0
"""The node graph follows the server's copy: at the start, with every write, and without work where nothing changes."""

from __future__ import annotations

import copy as copying
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from handfast.api import kinds
from handfast.apiserver.access import node_feed
from handfast.apiserver.state import envelope, replica, storage
from handfast.apiserver.state import items as items_module
from handfast.rules.nodes import graph as node_graph
from handfast.rules.nodes import references
from handfast.runtime import tasks
from handfast.store.sqlite import engine

KINDS = {row.plural: row for row in kinds.builtin() if row.plural in {"pods", "persistentvolumes", "volumeattachments"}}


def pod(node: str | None = "a", name: str = "p") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "annotations": {"note": "x"}},
        "spec": {
            **({} if node is None else {"nodeName": node}),
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [
                {"name": "s", "secret": {"secretName": "s"}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
            ],
        },
        "status": {"phase": "Pending"},
    }


def volume(secret: str = "csi") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "claimRef": {"namespace": "ns", "name": "data"},
            "csi": {"driver": "d", "nodeStageSecretRef": {"namespace": "storage", "name": secret}},
        },
    }


def attachment(node: str = "a") -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "va"},
        "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "pv"}},
    }


def item(document: dict[str, Any], version: int = 1) -> items_module.Item:
    metadata = document["metadata"]
    return items_module.Item(
        metadata.get("namespace", ""), metadata["name"], version, envelope.encode_document(document)
    )


class World:
    """A store, its copy and the feed."""

    def __init__(self, store: engine.SqliteStore) -> None:
        envelopes = envelope.Envelopes(None, ())
        self.copy = replica.Replica(store, envelopes)
        self.storage = storage.Storage(store, envelopes, self.copy)
        self.feed = node_feed.NodeFeed(self.copy)

    def graph(self) -> node_graph.NodeGraph:
        return self.feed.graph

    def tell(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        """One change of a Pod, given to the feed as the copy would."""
        self.feed._pod(
            items_module.Change(2, None if before is None else item(before), None if after is None else item(after, 2))
        )


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[World]:
    store = await engine.open_store(str(tmp_path / "store.db"))
    try:
        yield World(store)
    finally:
        await store.close()


def leads(graph: node_graph.NodeGraph, node: str = "a") -> set[str]:
    asked = {
        "pod": ("pods", "ns", "p"),
        "secret": ("secrets", "ns", "s"),
        "claim": ("persistentvolumeclaims", "ns", "data"),
        "volume": ("persistentvolumes", "", "pv"),
        "volume secret": ("secrets", "storage", "csi"),
        "attachment": ("volumeattachments", "", "va"),
    }
    return {name for name, key in asked.items() if graph.reaches(*key, node)}


EVERYTHING = {"pod", "secret", "claim", "volume", "volume secret", "attachment"}


async def test_what_is_stored_is_loaded(world: World) -> None:
    for document, kind in ((pod(), "pods"), (volume(), "persistentvolumes"), (attachment(), "volumeattachments")):
        await world.storage.create(KINDS[kind], document)
    await world.copy.load()
    world.feed.load()
    assert leads(world.graph()) == EVERYTHING
    assert leads(world.graph(), "b") == set()


async def test_every_write_is_followed(world: World) -> None:
    await world.copy.load()
    world.feed.load()
    group = tasks.Group("test")
    group.start(world.copy.follow(), name="follow")
    try:
        items = {}
        for document, kind in (
            (pod(None), "pods"),
            (volume(), "persistentvolumes"),
            (attachment(), "volumeattachments"),
        ):
            items[kind] = await world.storage.create(KINDS[kind], document)
        await world.copy.reached(items["volumeattachments"].version)
        assert leads(world.graph()) == {"attachment"}
        items["pods"] = await world.storage.replace(KINDS["pods"], pod("a"), items["pods"])
        await world.copy.reached(items["pods"].version)
        assert leads(world.graph()) == EVERYTHING
        items["persistentvolumes"] = await world.storage.replace(
            KINDS["persistentvolumes"], volume("other"), items["persistentvolumes"]
        )
        items["volumeattachments"] = await world.storage.replace(
            KINDS["volumeattachments"], attachment("b"), items["volumeattachments"]
        )
        await world.copy.reached(items["volumeattachments"].version)
        assert leads(world.graph()) == EVERYTHING - {"volume secret", "attachment"}
        assert leads(world.graph(), "b") == {"attachment"}
        last = 0
        for kind, stored in items.items():
            last = (await world.storage.delete(KINDS[kind], stored)).version
        await world.copy.reached(last)
        assert leads(world.graph()) == leads(world.graph(), "b") == set()
    finally:
        await group.stop(timeout=2.0)


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = copying.deepcopy(pod())
    change(document)
    return document


def claims(document: dict[str, Any]) -> None:
    document["status"]["resourceClaimStatuses"] = [{"name": "n", "resourceClaimName": "made"}]


class TestWhatChanges:
    @pytest.mark.parametrize(
        "change",
        [
            lambda document: document["status"].update(phase="Running", podIP="10.0.0.1"),
            lambda document: document["metadata"].update(labels={"a": "b"}),
            lambda document: document["metadata"].update(managedFields=[{"manager": "kubelet"}]),
            lambda document: document["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
            lambda document: document.pop("status"),
            lambda document: document.update(status=dict(document["status"])),
        ],
    )
    async def test_reports_cost_no_second_look(
        self, world: World, change: Callable[[dict[str, Any]], object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unexpected(pod: references.Pod) -> None:
            raise AssertionError(f"{pod.name} was read again")

        world.tell(None, pod())
        monkeypatch.setattr(world.feed.graph, "set_pod", unexpected)
        world.tell(pod(), changed(change))
        assert leads(world.graph()) >= {"pod", "secret", "claim"}

    async def test_a_pod_that_is_bound_leads_to_its_node(self, world: World) -> None:
        world.tell(None, pod(None))
        assert leads(world.graph()) == set()
        world.tell(pod(None), pod("a"))
        assert leads(world.graph()) == {"pod", "secret", "claim"}

    async def test_an_ephemeral_container(self, world: World) -> None:
        world.tell(None, pod())
        added = {"name": "debug", "envFrom": [{"secretRef": {"name": "debug"}}]}
        world.tell(pod(), changed(lambda document: document["spec"].update(ephemeralContainers=[added])))
        assert world.graph().reaches("secrets", "ns", "debug", "a")
        assert leads(world.graph()) == {"pod", "secret", "claim"}

    async def test_a_claim_made_later(self, world: World) -> None:
        asked = {"resourceClaims": [{"name": "n", "resourceClaimTemplateName": "t"}]}
        before = changed(lambda document: document["spec"].update(asked))
        after = copying.deepcopy(before)
        claims(after)
        world.tell(None, before)
        world.tell(before, after)
        assert world.graph().reaches("resourceclaims", "ns", "made", "a")
        extended = copying.deepcopy(after)
        extended["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "extended"}
        world.tell(after, extended)
        assert world.graph().reaches("resourceclaims", "ns", "extended", "a")

    async def test_the_annotation_of_a_mirror_pod(self, world: World) -> None:
        mirror = changed(lambda document: document["metadata"]["annotations"].update({references.MIRROR: "x"}))
        world.tell(None, mirror)
        assert leads(world.graph()) == {"pod"}
        world.tell(mirror, pod())
        assert leads(world.graph()) == {"pod", "secret", "claim"}
        world.tell(pod(), mirror)
        assert leads(world.graph()) == {"pod"}

    async def test_a_pod_that_has_ended_still_counts_and_a_deleted_one_does_not(self, world: World) -> None:
        ended = changed(lambda document: document["status"].update(phase="Succeeded"))
        world.tell(None, ended)
        assert leads(world.graph()) == {"pod", "secret", "claim"}
        world.tell(ended, None)
        assert leads(world.graph()) == set()

    @pytest.mark.parametrize("wrong", [None, "text", 7, [], ["x"]])
    @pytest.mark.parametrize("field", ["status", "spec", "annotations"])
    async def test_odd_pods_grant_nothing_and_stop_nothing(self, world: World, field: str, wrong: Any) -> None:
        document = pod()
        if field == "annotations":
            document["metadata"]["annotations"] = wrong
        else:
            document[field] = wrong
        for before in (None, document, pod()):
            world.tell(before, document)
            assert leads(world.graph()) == (set() if field == "spec" else {"pod", "secret", "claim"})
        world.tell(document, pod())
        assert leads(world.graph()) == {"pod", "secret", "claim"}


async def test_parts_say_the_same_as_the_whole() -> None:
    document = pod()
    claims(document)
    document["spec"]["resourceClaims"] = [{"name": "n", "resourceClaimTemplateName": "t"}]
    document["metadata"]["managedFields"] = [{"fieldsV1": {"f:spec": {}}}]
    whole = references.pod("ns", "p", document)
    assert whole == references.pod("ns", "p", node_feed._document(item(document)))
    assert whole == references.pod("ns", "p", msgspec.json.decode(item(document).body))
    assert ("resourceclaims", "made") in whole.references


async def test_one_string_for_one_name(world: World) -> None:
    """Decoded anew with every object, names of nodes and namespaces would be most of the graph's memory."""
    for name in ("p", "q"):
        world.tell(None, pod(name=name))
    pods = world.graph()._pods["ns"]
    assert pods["p"].node is pods["q"].node
    assert pods["p"].vertices != ()
    assert set(map(id, pods["p"].vertices)) == set(map(id, pods["q"].vertices))
