# SPDX-License-Identifier: Apache-2.0
"""Machines without a provider on a real server: declared, imported, linked with their Nodes, listed and deleted."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from handfast.api import machine_kinds
from handfast.assembly import controllers
from handfast.client import machine_inventory as inventory
from handfast.controllers.machines import node_link
from handfast.rules.machines import group_versions, linking
from tests.scenarios import certified, controlled
from tests.scenarios import fleet_story as f

pytestmark = pytest.mark.slow


async def handfast(story: f.Story, *words: str) -> str:
    """A command on machines, as an operator types it; what it prints."""
    return await story.operator("machine", *words)


async def register(story: f.Story, name: str, *ips: str) -> None:
    """What a kubelet does once it has its certificate."""
    await story.client.create(controlled.NODES, {"metadata": {"name": name}})
    rows = [{"type": "InternalIP", "address": address} for address in ips]
    await story.client.patch(controlled.NODES, name, {"status": {"addresses": rows}}, subresource="status")


async def linked(story: f.Story, name: str) -> dict[str, Any]:
    async def reference() -> Any:
        machine = await story.find(f.MACHINES, name, f.FLEET)
        return machine if machine.get("status", {}).get("nodeRef") else None

    found: dict[str, Any] = await story.eventually(reference, f"{name} linked")
    return found


async def test_declared_machines_are_linked_listed_and_deleted(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "rack.csv"
    file.write_text("name,dns,ip,role\nm1,m1.example,10.0.0.1,master\nw1,w1.example,10.0.0.11,\nw2,w2.example,,\n")
    async with f.told(tmp_path) as story, certified.running(story.world, node_link.NAME):
        await handfast(story, "import", str(file))
        await handfast(story, "create", "w3", "--dns", "w3.example", "--serial", "S3")
        await register(story, "m1.example", "10.0.0.1")
        await register(story, "w2.example", "10.0.0.12")
        machine = await linked(story, "m1")
        assert machine["status"]["nodeRef"]["kind"] == "Node"
        assert machine["status"]["phase"] == "Running"
        await linked(story, "w2")

        async def labelled() -> bool:
            node = await story.find(controlled.NODES, "m1.example", "")
            meta = node["metadata"]
            return (
                meta.get("annotations", {}).get(linking.ANNOTATION) == f"{f.FLEET}/m1"
                and "node-role.kubernetes.io/control-plane" in meta["labels"]
            )

        await story.eventually(labelled, "the Node labelled")
        rows = json.loads(await handfast(story, "list", "-o", "json"))["machines"]
        assert {row["name"]: row["state"] for row in rows} == {
            "m1": "joined",
            "w1": "waiting",
            "w2": "joined",
            "w3": "waiting",
        }
        # A Node that is deleted frees nothing.
        await story.client.delete(controlled.NODES, "m1.example")
        await story.quiet()
        assert (await linked(story, "m1"))["status"]["nodeRef"]["name"] == "m1.example"
        # … and one that is made anew is linked anew.
        before = (await linked(story, "m1"))["status"]["nodeRef"]["uid"]
        await register(story, "m1.example", "10.0.0.1")

        async def anew() -> bool:
            return bool((await linked(story, "m1"))["status"]["nodeRef"]["uid"] != before)

        await story.eventually(anew, "linked anew")
        # What the file no longer has goes, and nothing else.
        file.write_text("name,dns,ip,role\nm1,m1.example,10.0.0.1,master\n")
        await handfast(story, "import", str(file), "--prune")
        await handfast(story, "delete", "w3")
        machines = await story.client.list(f.MACHINES)
        assert [each["metadata"]["name"] for each in machines] == ["m1"]


async def test_a_node_that_lies_is_linked_with_none_and_told_of(tmp_path: pathlib.Path) -> None:
    async with f.told(tmp_path) as story, certified.running(story.world, node_link.NAME):
        await handfast(story, "create", "w1", "--dns", "w1.example", "--ip", "10.0.0.11")
        await register(story, "evil.example", "10.0.0.11")

        async def told() -> list[tuple[str, str]]:
            return await story.told_of("default", "evil.example")

        ((reason, message),) = await story.eventually(told, "an Event")
        assert reason == linking.NOT_ITS_MACHINE
        assert f"Machine {f.FLEET}/w1" in message
        # The machine itself is linked all the same.
        await register(story, "w1.example", "10.0.0.11")
        assert (await linked(story, "w1"))["status"]["nodeRef"]["name"] == "w1.example"


async def test_machines_of_another_server_and_kinds_that_come_later_are_followed(tmp_path: pathlib.Path) -> None:
    """The Nodes are here, the Machines there; their kind is defined when the controller runs already."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    async with f.told(here) as story, controlled.story_of(f.Story, there) as management:
        options = inventory.Options(groups=group_versions.parse(("machine.openshift.io",)), client=management.client)
        async with certified.running(story.world, node_link.NAME, machines=options):
            await register(story, "w1", "10.0.0.1")
            await management.define()
            await management.machine("w1", "w1")
            # A kind that was not there is asked for again within half a minute.
            for _ in range(4):
                await story.clock.advance(10)
            await linked(management, "w1")
            assert await story.find(f.MACHINES, "w1", f.FLEET) is None
    assert controllers.MachineSource().options == inventory.DEFAULT
    assert machine_kinds.NAMESPACE == f.FLEET
