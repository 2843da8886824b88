# SPDX-License-Identifier: Apache-2.0
"""Objects go with their owners: background, foreground and orphaning deletion.

Proves that dependents are deleted when, and only when, every owner is truly gone; that foreground deletion waits and
orphaning cuts loose; and that two copies at once do no harm.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from handfast.client import api
from tests.scenarios import controlled as c

pytestmark = [pytest.mark.slow, pytest.mark.measured]
copies = pytest.mark.parametrize("copies", [1, 2])
GC = "garbage-collector-controller"


@copies
async def test_dependents_go_with_the_last_owner(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, GC, copies=copies) as story:
        first, second = await story.config_map("first"), await story.config_map("second")
        await story.config_map("one", c.owner(first))
        await story.config_map("both", c.owner(first), c.owner(second))
        await story.config_map("grandchild", c.owner(await story.find(c.CONFIG_MAPS, "one")))
        await story.config_map("free")
        await story.client.delete(c.CONFIG_MAPS, "first", namespace="default")
        await story.gone(c.CONFIG_MAPS, "one", "grandchild")

        async def cut() -> bool:
            found = await story.find(c.CONFIG_MAPS, "both")
            return [row["name"] for row in found["metadata"]["ownerReferences"]] == ["second"]

        await story.eventually(cut)
        await story.quiet()
        assert await story.find(c.CONFIG_MAPS, "free") is not None
        await story.client.delete(c.CONFIG_MAPS, "second", namespace="default")
        await story.gone(c.CONFIG_MAPS, "both")


@copies
async def test_objects_born_to_a_dead_or_impostor_owner(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, GC, copies=copies) as story:
        real = await story.config_map("real")
        lost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-4000-8000-000000000000"}
        await story.config_map("dead", lost)
        # The name exists, but with another uid.
        await story.config_map("impostor", {**c.owner(real), "uid": lost["uid"]})
        # The uid exists, but in another namespace, where the reference cannot mean it.
        await story.client.create(c.NAMESPACES, {"metadata": {"name": "other"}})
        await story.config_map("abroad", c.owner(real), namespace="other")
        # A kind nobody knows is no reason to delete anything.
        await story.config_map("unknown", {**lost, "kind": "Unknown", "apiVersion": "example.dev/v1"})
        await story.gone(c.CONFIG_MAPS, "dead", "impostor")
        await story.gone(c.CONFIG_MAPS, "abroad", namespace="other")
        await story.quiet()
        assert await story.find(c.CONFIG_MAPS, "unknown") is not None


@copies
async def test_a_namespaced_owner_of_a_cluster_scoped_object_is_ignored_with_a_warning(
    tmp_path: pathlib.Path, copies: int
):
    async with c.controlled(tmp_path, GC, copies=copies) as story:
        owner = await story.config_map("owner")
        await story.client.create(c.NODES, {"metadata": {"name": "node", "ownerReferences": [c.owner(owner)]}})

        async def warned() -> Any:
            return [row for row in await story.client.list(c.EVENTS) if row["reason"] == "OwnerRefInvalidNamespace"]

        (event,) = await story.eventually(warned)
        assert event["type"] == "Warning"
        assert event["involvedObject"]["name"] == "node"
        await story.client.delete(c.CONFIG_MAPS, "owner", namespace="default")
        await story.quiet()
        assert await story.find(c.NODES, "node") is not None


@copies
async def test_foreground_deletion_waits_for_those_that_block(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, GC, copies=copies) as story:
        owner = await story.config_map("owner")
        await story.config_map("held", c.owner(owner, block=True), finalizers=["example.dev/hold"])
        await story.config_map("blocking", c.owner(owner, block=True))
        await story.client.delete(c.CONFIG_MAPS, "owner", namespace="default", propagation=api.FOREGROUND)
        await story.gone(c.CONFIG_MAPS, "blocking")

        async def deleting() -> bool:
            found = await story.find(c.CONFIG_MAPS, "held")
            return "deletionTimestamp" in found["metadata"]

        await story.eventually(deleting)
        await story.quiet()
        waiting = await story.find(c.CONFIG_MAPS, "owner")
        assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
        await story.client.patch(c.CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, namespace="default")
        await story.gone(c.CONFIG_MAPS, "held", "owner")


@copies
async def test_foreground_deletion_goes_down_and_a_circle_ends(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, GC, copies=copies) as story:
        top = await story.config_map("top")
        middle = await story.config_map("middle", c.owner(top, block=True))
        await story.config_map("bottom", c.owner(middle, block=True))
        await story.client.patch(
            c.CONFIG_MAPS,
            "top",
            {"metadata": {"ownerReferences": [c.owner(middle, block=True)]}},
            namespace="default",
        )
        await story.quiet()
        await story.client.delete(c.CONFIG_MAPS, "top", namespace="default", propagation=api.FOREGROUND)
        await story.gone(c.CONFIG_MAPS, "top", "middle", "bottom")


@copies
async def test_orphans_stay(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, GC, copies=copies) as story:
        owner = await story.config_map("owner")
        await story.config_map("a", c.owner(owner))
        await story.config_map("b", c.owner(owner))
        await story.quiet()
        await story.client.delete(c.CONFIG_MAPS, "owner", namespace="default", propagation=api.ORPHAN)
        await story.gone(c.CONFIG_MAPS, "owner")
        await story.quiet()
        for name in ("a", "b"):
            found = await story.find(c.CONFIG_MAPS, name)
            assert not found["metadata"].get("ownerReferences")
