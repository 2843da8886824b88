# SPDX-License-Identifier: Apache-2.0
"""What is asked of the API to explain a machine's request."""

from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.api import signing_requests
from handfast.client import machine_reviews
from handfast.rules.machines import bootstrapper, settings
from tests.unit.controllers.csr_world import World

GROUPS = [*bootstrapper.GROUPS, "system:authenticated"]


def configured(text: str) -> World:
    world = World()
    world.client.put("configmaps", settings.NAME, settings.NAMESPACE, data={settings.KEY: text})
    return world


def machine(world: World, name: str, dns: str) -> None:
    status = {"addresses": [{"type": "InternalDNS", "address": dns}]}
    world.client.put("machines", name, "fleet", metadata={"creationTimestamp": "2030-01-01T00:00:00Z"}, status=status)


async def verdict(world: World, **more: Any) -> Any:
    item = world.add(**{"username": bootstrapper.USER, "groups": GROUPS, **more})
    return await machine_reviews.verdict(world.client, item, world.requests.facts(item), settings.DEFAULT)


async def test_a_machine_approver_runs_where_its_settings_are():
    assert await machine_reviews.settings(World().client) is None
    known = await machine_reviews.settings(configured("nodeClientCert: {disabled: true}").client)
    assert known is not None
    assert (known.settings.disabled, known.trouble) == (True, "")
    known = await machine_reviews.settings(configured("joinWithin: soon").client)
    assert known is not None
    assert (known.settings, known.trouble) == (settings.DEFAULT, 'joinWithin: "soon" is not allowed')


async def test_machines_of_every_served_group_are_read():
    world = World()
    machine(world, "m1", "n1")
    index = await machine_reviews.machines(world.client)
    assert [each.title for each in index.by_dns("n1")] == ["Machine fleet/m1"]
    world.client.groups = {"cluster.x-k8s.io"}
    index = await machine_reviews.machines(world.client)
    assert [each.title for each in index.by_dns("n1")] == ["Machine fleet/m1 of cluster.x-k8s.io"]
    world.client.groups = set()
    assert len(await machine_reviews.machines(world.client)) == 0


async def test_a_request_of_a_bootstrap_identity_is_judged_as_the_machine_approver_does():
    world = World()
    assert (await verdict(world)).failed.reason == "NoMachine"
    machine(world, "m1", "n1")
    assert (await verdict(world)).failed is None
    world.client.put("nodes", "n1")
    assert (await verdict(world)).failed.reason == "NodeExists"
    assert (await verdict(world, common_name="system:node:/odd")).failed.reason == "NotRecognised"
    assert await verdict(world, username="system:bootstrap:abcdef") is None


def test_a_request_without_a_creation_time_is_no_answer():
    with pytest.raises(errors.Unavailable, match="does not say when it was created"):
        machine_reviews.created(signing_requests.Request(signing_requests.Meta(name="x")))
