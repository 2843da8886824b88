# SPDX-License-Identifier: Apache-2.0
"""Readmitting a machine: its key is forgotten, and its Node where that is gone. What else is read is tested with the commands."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import signer_names, status
from handfast.client import api, machines
from handfast.rules.machines import inventory
from tests.unit.cli.fleet_api import FleetApi
from tests.unit.controllers.csr_world import PLURAL, World

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
