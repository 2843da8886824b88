# SPDX-License-Identifier: Apache-2.0
"""Machines over an API: which is meant by a name; and readmitting one: its key is forgotten, and its Node where that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.api import signer_names, status
from handfast.client import api, machines
from handfast.rules.machines import inventory
from tests.unit.cli.fleet_api import FleetApi
from tests.unit.controllers.csr_world import PLURAL, World
from tests.unit.controllers.fake_api import FakeClient

FLEET = "openshift-machine-api"


def fleet(*, key: str = "", node: str = "") -> FleetApi:
    server = FleetApi()
    metadata: dict[str, Any] = {"annotations": {inventory.APPROVED_KEY: key, "mine": "x"} if key else {"mine": "x"}}
    state = {"phase": "Running", **({"nodeRef": {"name": node, "uid": "u"}} if node else {})}
    server.put("machines", "w1", FLEET, metadata=metadata, spec={}, status=state)
    return server


async def readmitted(server: FleetApi) -> bool:
    known = await machines.read(server)
    return (await machines.readmit(server, known, known.one("w1"))).changed


async def test_key_and_lost_node_are_forgotten_and_nothing_else():
    server = fleet(key="ab", node="n1")
    assert await readmitted(server)
    assert server.machine("w1")["metadata"]["annotations"] == {"mine": "x"}
    assert server.machine("w1")["status"] == {"phase": "Running"}


async def test_who_waits_in_the_name_of_the_machine_then_does_not_count_any_more():
    server, world = fleet(key="ab"), World()
    server.machine("w1")["status"]["addresses"] = [{"type": "InternalDNS", "address": "w1"}]
    for number, (name, node, *kinds) in enumerate(
        [("own", "w1"), ("evil", "W1."), ("done", "w1", "Approved"), ("other", "w2")]
    ):
        stamp = f"2030-01-01T00:00:0{number}Z"
        world.add(name, *kinds, common_name=f"system:node:{node}", metadata={"creationTimestamp": stamp})
        server.objects[PLURAL, "", name] = world.stored(name)
    world.add("serving", common_name="system:node:w1", signerName=signer_names.KUBELET_SERVING)
    server.objects[PLURAL, "", "serving"] = world.stored("serving")
    server.put(PLURAL, "odd", spec={"request": "bm8=", "signerName": signer_names.KUBELET_CLIENT})
    known = await machines.read(server)
    answer = await machines.readmit(server, known, known.one("w1"))
    assert answer == machines.Readmission(changed=True, waited=("evil", "own"))
    marks = {"mine": "x", inventory.REQUESTS_AFTER: "2030-01-01T00:00:01Z"}
    assert server.machine("w1")["metadata"]["annotations"] == marks


async def test_a_node_that_is_there_keeps_its_machine():
    server = fleet(key="ab", node="n1")
    server.put("nodes", "n1")
    assert await readmitted(server)
    assert server.machine("w1")["status"]["nodeRef"]["name"] == "n1"
    assert not await readmitted(server)


@pytest.mark.parametrize(("node", "changed"), [("n1", True), ("", False)])
async def test_a_machine_without_a_key_may_have_lost_its_node(node, changed):
    assert await readmitted(fleet(node=node)) is changed


async def test_who_was_faster_makes_it_a_conflict():
    server = fleet(node="n1")
    known = await machines.read(server)
    one = known.one("w1")
    server.machine("w1")["metadata"]["resourceVersion"] = "99"
    with pytest.raises(status.StatusError) as error:
        await machines.readmit(server, known, one)
    assert error.value.reason == "Conflict"


async def test_links_of_cluster_api_are_its_own():
    server = fleet()
    known = machines.Machines(groups={inventory.CLUSTER_API: api.Resource("g", "v", "machines", True)})
    theirs = inventory.Machine(group=inventory.CLUSTER_API, namespace=FLEET, name="w1", node="n1")
    assert not (await machines.readmit(server, known, theirs)).changed
    assert server.calls == []


async def test_a_machine_is_found_by_its_name_in_whichever_group():
    client = FakeClient()
    client.groups = {inventory.CLUSTER_API}
    client.put("machines", "w1", "fleet")
    assert (await machines.find(client, "w1")).group == inventory.CLUSTER_API
    with pytest.raises(errors.Refused, match='no Machine "w2"') as refused:
        await machines.find(client, "w2")
    assert refused.value.reason == "NoMachine"


async def test_of_two_machines_of_one_name_the_namespace_has_to_be_named():
    client = FakeClient()
    for namespace in ("fleet", "lab"):
        client.put("machines", "w1", namespace)
    with pytest.raises(errors.Refused, match="Machine fleet/w1, Machine lab/w1") as refused:
        await machines.find(client, "w1")
    assert refused.value.reason == "AmbiguousMachine"
    assert (await machines.find(client, "lab/w1")).namespace == "lab"
    known = await machines.read(client)
    assert known.one("w1", "fleet") == known.one("fleet/w1", "fleet")
    with pytest.raises(errors.Refused, match='no Machine "fleet/w1" in the namespace lab'):
        known.one("fleet/w1", "lab")


async def test_machines_of_every_served_group_are_read():
    client = FakeClient()
    status = {"addresses": [{"type": "InternalDNS", "address": "n1"}]}
    client.put("machines", "m1", "fleet", status=status)
    assert [each.title for each in (await machines.read(client)).index.by_dns("n1")] == ["Machine fleet/m1"]
    client.groups = {inventory.CLUSTER_API}
    known = await machines.read(client)
    assert [each.title for each in known.index.by_dns("n1")] == ["Machine fleet/m1 of cluster.x-k8s.io"]


async def test_where_no_group_is_served_there_are_no_machines():
    client = FakeClient()
    client.groups = set()
    assert len((await machines.if_served(client)).index) == 0
    with pytest.raises(errors.Refused) as refused:
        await machines.read(client)
    assert refused.value.reason == machines.NO_KIND
