# SPDX-License-Identifier: Apache-2.0
"""The followed inventory: one index of Machines for a process, from whichever groups and whichever cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handfast import errors
from handfast.client import cache
from handfast.client import machine_inventory as inventory
from handfast.controllers import loop
from handfast.rules.machines import group_versions
from handfast.rules.machines import inventory as rules
from handfast.runtime import tasks
from tests.unit.client import scripted
from tests.world.clock import MovableClock

BOTH = group_versions.parse(("machine.openshift.io", "cluster.x-k8s.io/v1beta1"))


def machine(name: str, version: int, **status: Any) -> dict[str, Any]:
    meta = {"annotations": {rules.APPROVED_KEY: "ab"}, "creationTimestamp": "2026-01-31T12:00:00Z"}
    return {
        **scripted.thing(name, version, **meta),
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "spec": {"providerID": f"metal://{name}", "lifecycleHooks": {}},
        "status": {"addresses": [{"type": "InternalDNS", "address": name}], **status},
    }


def event(kind: str, name: str, version: int, **status: Any) -> dict[str, Any]:
    return {"type": kind, "object": machine(name, version, **status)}


class Following:
    """A context whose watches run, with a log of what its inventory told."""

    def __init__(self, context: loop.Context) -> None:
        self.context = context
        self.changes: list[str] = []

    def follow(self, options: inventory.Options = inventory.DEFAULT) -> inventory.Inventory:
        known = inventory.follow(self.context.client, self.context.informers, options)
        known.subscribe(self.changed)
        return known

    def changed(self, old: rules.Machine | None, new: rules.Machine | None) -> None:
        sign = "+" if old is None else "-" if new is None else "~"
        self.changes.append(sign + (new or old or pytest.fail("neither")).name)

    async def saw(self, *changes: str) -> None:
        while self.changes[-len(changes) :] != list(changes):
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def following(server: scripted.Server) -> AsyncIterator[Following]:
    clock = MovableClock()
    async with scripted.client_of(server, clock) as client, tasks.Group("test") as group:
        informers = cache.Informers(client, clock)
        informers.start(group)
        yield Following(loop.Context(client=client, informers=informers, clock=clock))
        group.end()


async def test_machines_are_found_as_they_come_change_and_go():
    async with (
        scripted.serving(
            scripted.listing("10", machine("m1", 1), machine("m2", 2)),
            scripted.stream(
                event("MODIFIED", "m1", 11, nodeRef={"name": "n1", "uid": "u1"}, phase="Running"),
                event("DELETED", "m2", 12),
                event("DELETED", "m3", 13),
                then="hold",
            ),
        ) as server,
        following(server) as world,
    ):
        known = world.follow()
        await known.wait_answered()
        await world.saw("+m1", "+m2", "~m1", "-m2")
        (found,) = known.index.by_dns("M1.")
        assert (found.node, found.node_uid, found.phase, found.version) == ("n1", "u1", "Running", "11")
        assert (found.group, found.provider_id, found.approved_key) == (rules.OPENSHIFT, "metal://m1", "ab")
        assert server.requests[0].path == "/apis/machine.openshift.io/v1beta1/machines"
        assert known.refusals == ()


async def test_a_new_list_tells_what_is_gone_and_what_has_changed():
    async with (
        scripted.serving(
            scripted.listing("10", machine("m1", 1), machine("m2", 2), machine("m3", 3)),
            scripted.status(410, "Expired"),
            scripted.listing("20", machine("m1", 1), machine("m2", 15)),
            scripted.stream(then="hold"),
        ) as server,
        following(server) as world,
    ):
        known = world.follow()
        await world.saw("~m2", "-m3")
        assert sorted(each.name for each in known.index) == ["m1", "m2"]
        assert world.changes.count("+m1") == 1


async def test_all_controllers_of_a_process_share_one_watch():
    async with (
        scripted.serving(scripted.listing("10", machine("m1", 1)), scripted.stream(then="hold")) as server,
        following(server) as world,
    ):
        first = world.follow()
        await world.saw("+m1")
        assert world.follow() is first
        # Who comes later is told of what is there.
        assert world.changes == ["+m1", "+m1"]
        assert len(server.requests) <= 2


async def test_one_namespace_may_be_followed():
    async with scripted.serving(scripted.listing("10")) as server, following(server) as world:
        await world.follow(inventory.Options(namespace="fleet")).wait_answered()
        assert server.requests[0].path == "/apis/machine.openshift.io/v1beta1/namespaces/fleet/machines"


async def test_both_groups_are_one_index_and_each_is_written_where_it_is_followed():
    async with scripted.serving() as server, following(server) as world:
        openshift, cluster_api = machine("m1", 1, authoritativeAPI="ClusterAPI"), machine("m1", 2)
        # Where OpenShift migrates machines.
        openshift["metadata"]["namespace"] = "openshift-machine-api"
        cluster_api["metadata"]["namespace"] = "openshift-cluster-api"
        server.add_at(f"/apis/{rules.OPENSHIFT}/v1beta1/machines", scripted.listing("10", openshift))
        server.add_at(f"/apis/{rules.CLUSTER_API}/v1beta1/machines", scripted.listing("10", cluster_api))
        known = world.follow(inventory.Options(groups=BOTH))
        await known.wait_answered()
        assert len(known.index) == 2
        (found,) = known.index.by_dns("m1")
        assert found.group == rules.CLUSTER_API
        resource = known.resource(found)
        assert (resource.group, resource.version, resource.plural) == (rules.CLUSTER_API, "v1beta1", "machines")


async def test_machines_may_be_on_another_cluster():
    async with (
        scripted.serving() as ours,
        scripted.serving(scripted.listing("10", machine("m1", 1))) as theirs,
        scripted.client_of(theirs) as management,
        following(ours) as world,
    ):
        known = world.follow(inventory.Options(client=management))
        await known.wait_answered()
        assert [each.name for each in known.index] == ["m1"]
        assert known.client is management
        assert ours.requests == []


async def test_where_there_is_no_such_group_there_are_no_machines():
    absent = scripted.status(404, "NotFound")
    async with scripted.serving(absent, absent) as server, following(server) as world:
        known = world.follow()
        await known.wait_answered()
        assert (len(known.index), known.refusals) == (0, ())


async def test_where_machines_may_not_be_read_that_is_told_and_nothing_is_known():
    async with (
        scripted.serving(
            scripted.status(403, "Forbidden"),
            scripted.answer(200, {"resources": [{"name": "machines"}]}),
        ) as server,
        following(server) as world,
    ):
        known = world.follow()
        await known.wait_answered()
        assert known.refusals == ("because Forbidden",)


async def test_a_machine_that_is_not_followed_is_written_nowhere():
    async with scripted.serving() as server, scripted.client_of(server) as client:
        known = inventory.Inventory(client)
        known._groups[rules.OPENSHIFT] = inventory._Group(rules.OPENSHIFT, known.index, known._tell)
        with pytest.raises(errors.Misuse):
            known.resource(rules.Machine(group=rules.OPENSHIFT, namespace="fleet", name="m1"))
