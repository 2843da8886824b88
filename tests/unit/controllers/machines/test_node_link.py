# SPDX-License-Identifier: Apache-2.0
"""Nodes are linked with their Machines, and who is not is told why, once. Which is which is tested with the rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.api import status
from handfast.client import cache
from handfast.client import machine_inventory as followed
from handfast.controllers import loop, views
from handfast.controllers.machines import node_link
from handfast.rules.machines import inventory, linking
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock


class Client(FakeClient):
    """… whose merge patches reach status."""

    async def patch(self, resource: Any, name: str, patch: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        found = self._find("patch", resource, name, namespace)
        if more.get("subresource") == "status":
            found.setdefault("status", {}).update(patch["status"])
        if "spec" in patch:
            found.setdefault("spec", {}).update(patch["spec"])
        return await super().patch(resource, name, patch, namespace=namespace)


class World:
    """Nodes and Machines on a server, and one copy of the controller that follows them."""

    def __init__(self, management: Client | None = None) -> None:
        self.client = Client()
        self.management = management or self.client
        clock = MovableClock()
        informers = cache.Informers(self.client, clock)
        self.context = loop.Context(client=self.client, informers=informers, clock=clock)
        self.options = followed.Options(client=management)
        self.controller = node_link.build(self.context, options=self.options)
        self.machines = followed.follow(self.context.client, self.context.informers, self.options)
        self.nodes = informers.get(views.ALL_NODES)

    def machine(self, name: str = "m1", dns: str = "n1", ip: str = "10.0.0.1", **more: Any) -> None:
        addresses = [{"type": "InternalDNS", "address": dns}, {"type": "InternalIP", "address": ip}]
        document = self.management.put("machines", name, "fleet", status={"addresses": addresses}, **more)
        self.follow(document)

    def follow(self, document: Any) -> None:
        """The watch tells of a Machine."""
        self.machines._groups[inventory.OPENSHIFT].put(msgspec.convert(document, followed.View))

    def node(self, name: str = "n1", ip: str = "10.0.0.1") -> None:
        self.client.put("nodes", name, status={"addresses": [{"type": "InternalIP", "address": ip}]})
        self.nodes.put(msgspec.convert(self.client.objects["nodes", "", name], views.Node))

    async def look(self, name: str = "n1") -> None:
        await self.controller._reconcile(name)

    def told(self) -> list[tuple[str, str, int]]:
        return sorted(
            (event["reason"], event["type"], event["count"])
            for (plural, _, _), event in self.client.objects.items()
            if plural == "events"
        )

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        return [row for row in self.client.calls if row[1] != "events"]


async def test_a_node_is_linked_with_its_machine_and_both_say_so():
    world = World()
    world.machine()
    world.node()
    await world.look()
    reference = world.client.objects["machines", "fleet", "m1"]["status"]["nodeRef"]
    assert reference == {"kind": "Node", "name": "n1", "uid": "uid-n1"}
    annotations = world.client.objects["nodes", "", "n1"]["metadata"]["annotations"]
    assert annotations == {linking.ANNOTATION: "fleet/m1"}
    assert world.told() == [(node_link.LINKED, "Normal", 1)]


async def test_what_is_linked_is_not_written_again():
    world = World()
    world.machine()
    world.node()
    await world.look()
    world.follow(world.client.objects["machines", "fleet", "m1"])
    world.nodes.put(msgspec.convert(world.client.objects["nodes", "", "n1"], views.Node))
    before = list(world.client.calls)
    await world.look()
    assert world.client.calls == before


async def test_a_machine_that_changed_meanwhile_is_looked_at_again():
    world = World()
    world.machine()
    world.node()
    world.client.objects["machines", "fleet", "m1"]["metadata"]["resourceVersion"] = "99"
    with pytest.raises(status.StatusError) as error:
        await world.look()
    assert error.value.reason in loop.RACES
    assert world.writes == []


async def test_an_ambiguous_node_is_told_of_once_with_all_its_machines():
    world = World()
    world.machine()
    world.machine("m2")
    world.node()
    await world.look()
    await world.look()
    assert world.writes == []
    assert world.told() == [(linking.AMBIGUOUS, "Warning", 1)]
    (event,) = [one for (plural, _, _), one in world.client.objects.items() if plural == "events"]
    assert "Machine fleet/m1, Machine fleet/m2" in event["message"]
    assert event["involvedObject"]["name"] == "n1"


async def test_a_node_without_a_machine_is_nobodys_business():
    world = World()
    world.node()
    await world.look()
    assert world.client.calls == []


async def test_a_node_that_is_gone_leaves_its_machine_as_it_is():
    world = World()
    world.machine()
    world.node()
    await world.look()
    world.nodes.remove(views.Node(metadata=msgspec.structs.replace(views.Node().metadata, name="n1")))
    del world.client.objects["nodes", "", "n1"]
    await world.look()
    assert world.client.objects["machines", "fleet", "m1"]["status"]["nodeRef"]["name"] == "n1"


async def test_a_node_that_goes_while_it_is_linked_is_no_failure():
    world = World()
    world.machine()
    world.node()
    del world.client.objects["nodes", "", "n1"]
    await world.look()
    assert world.client.objects["machines", "fleet", "m1"]["status"]["nodeRef"]["name"] == "n1"
    assert not [key for key in world.client.objects if key[0] == "nodes"]


async def test_machines_on_another_cluster_are_written_there():
    management = Client()
    world = World(management)
    world.machine()
    world.node()
    await world.look()
    assert [row[:2] for row in management.calls] == [("patch", "machines")]
    assert [row[:2] for row in world.writes] == [("patch", "nodes")]


async def test_nobody_is_linked_while_machines_cannot_be_read():
    world = World()
    world.machine()
    world.node()
    world.machines._groups[inventory.OPENSHIFT].refused("no right")
    with pytest.raises(loop.NotYet, match="no right"):
        await world.look()
    assert world.client.calls == []


async def test_a_machine_that_comes_changes_or_goes_has_its_nodes_looked_at():
    world = World()
    queue = world.controller.queue
    world.machine()
    assert await queue.get() == "n1"
    queue.done("n1")
    gone = world.management.put("machines", "m1", "fleet")
    world.machines._groups[inventory.OPENSHIFT].remove(msgspec.convert(gone, followed.View))
    assert await queue.get() == "n1"


def test_it_follows_nodes_as_others_do():
    """Else two controllers of one process could not run together."""
    world = World()
    assert world.context.informers.get(views.ALL_NODES) is world.nodes
