# SPDX-License-Identifier: Apache-2.0
"""The pages of machines and pools, in process: who waits and why, and how far a roll-out is."""

from __future__ import annotations

from handfast.api import machine_config_kinds, machine_kinds
from tests.scenarios import console_nodes
from tests.unit.console import served
from tests.world import world as worlds

MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{machine_kinds.NAMESPACE}/machines"
POOLS = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"


def machine(name: str) -> dict[str, object]:
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": name, "labels": {machine_kinds.ROLE_LABEL: "worker"}},
        "spec": {},
    }


async def create(world: worlds.World, path: str, document: object) -> None:
    answer = await world.request("POST", path, document)
    assert answer.status == 201, answer.body


async def test_machines_say_what_they_wait_for_and_pools_how_far_they_are(world: worlds.World, browser: served.Browser):
    for document in machine_kinds.definitions():
        await create(world, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
    await create(world, "/api/v1/namespaces", {"metadata": {"name": machine_kinds.NAMESPACE}})
    await create(world, MACHINES, machine("m-1"))
    await create(world, MACHINES, machine("m-2"))
    status = {"status": {"addresses": [{"type": "InternalDNS", "address": "m-2.example"}]}}
    head = {"Content-Type": "application/merge-patch+json"}
    await world.request("PATCH", f"{MACHINES}/m-2/status", status, headers=head)
    await create(world, POOLS, machine_config_kinds.pool("worker"))
    node = console_nodes.node_document("n-1")
    node["metadata"]["labels"]["node-role.kubernetes.io/worker"] = ""
    await create(world, "/api/v1/nodes", node)
    async with served.console(world) as late:
        reply = await late.until("/machines", lambda reply: "nobody has asked in its name yet" in reply.text)
        assert "2 machines are declared." in reply.text
        assert "it has no InternalDNS name" in reply.text
        reply = await late.until("/machines", lambda reply: "1 behind: <code>NoAgent</code>" in reply.text)
        assert 'href="/nodes/n-1"' in reply.text
        assert (await late.get("/machines/rows?from=0&state=waiting")).headers["Handfast-Total"] == "1"
        assert "No machine fits" in (await late.get("/machines?filter=nobody")).text
        one = await late.get(f"/machines/{machine_kinds.NAMESPACE}%2Fm-2")
        assert "no request for its node name has come" in one.text or "no bootstrap credential counts" in one.text
