# SPDX-License-Identifier: Apache-2.0
"""Serving requests, judged by what is followed, and by a kubelet that really answers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest

from handfast.api import signing_requests
from handfast.client import cache, partial
from handfast.client import machine_inventory as inventory
from handfast.controllers import views
from handfast.controllers.machines import kubelet_dial, serving_judge
from handfast.pki import authority, keys, names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, linking, serving, settings
from handfast.rules.machines import inventory as facts_of_machines
from handfast.runtime import tasks
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.controllers.machines.test_kubelet_dial import CA, kubelet_context, listening
from tests.unit.rules import csr_cases
from tests.world.clock import START, MovableClock

NODE = "system:node:w1"
OTHER_CA = authority.self_signed_ca(names.Subject(common_name="another"), keys.generate(), START)


def asks(*sans: str, **rest: Any) -> kubelet.Facts:
    return kubelet.read(csr_cases.serving(*sans, **{"cn": NODE, "user": NODE, **rest}))


AWAY = serving.Place(names.ip_address("192.0.2.1"), 10250)


class Dial(kubelet_dial.KubeletDial):
    """Whoever is asked for is on this machine, at `there`."""

    there: serving.Place | None = None

    async def chain(self, place: serving.Place) -> kubelet_dial.Chain:
        assert place == AWAY
        return await super().chain(self.there or place)


class World:
    """What is followed, and a judge of it."""

    def __init__(self, *, kubelet_ca: bytes = b"") -> None:
        self.clock, self.number = MovableClock(), 0
        self.dial = Dial(self.clock)
        self.client = FakeClient()
        self.machines = inventory.Inventory(self.client)
        nodes = {"node": serving_judge._nodes}
        self.egress = cache.Informer(serving_judge.EGRESS_IPS, nodes)
        self.authority = cache.Informer(serving_judge.CA)
        self.judge = serving_judge.ServingJudge(
            self.client,
            self.clock,
            self.machines,
            self.egress,
            self.authority,
            kubelet_ca=kubelet_ca,
            dial=self.dial,
        )

    def link(self, *rows: tuple[str, str], name: str = "m1") -> None:
        addresses = tuple(facts_of_machines.Address(*row) for row in rows)
        self.machines.index.put(
            facts_of_machines.Machine(
                group=facts_of_machines.OPENSHIFT, namespace="fleet", name=name, addresses=addresses, node="w1"
            )
        )

    def assign(self, node: str, address: str) -> None:
        row = serving_judge._Assignment(node, address)
        meta = partial.Meta(name=f"egress-{address}", resource_version=node)
        self.egress.put(serving_judge.EgressIP(meta, serving_judge._Status([row])))

    def ca(self, **data: str) -> None:
        meta = partial.Meta(
            name=serving.CA_CONFIG_MAP, namespace=bootstrapper.MANAGED_NAMESPACE, resource_version=str(data)
        )
        self.authority.put(views.ConfigMap(meta, data or None))

    def node(self, there: serving.Place | None = None, place: serving.Place = AWAY) -> None:
        self.dial.there = there
        status = {
            "addresses": [{"type": "InternalIP", "address": str(place.address)}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": place.port}},
        }
        self.client.put("nodes", "w1", status=status)

    async def verdict(self, facts: kubelet.Facts) -> approval.Verdict:
        self.number += 1
        facts = dataclasses.replace(facts, name=f"csr-{self.number}")
        item = signing_requests.Request(signing_requests.Meta())
        verdict = await self.judge.judge(item, facts, settings.DEFAULT)
        if verdict.failed is not None and not verdict.failed.reason:
            assert "is being asked" in verdict.failed.check.compared
            # Nor does it ask twice.
            assert await self.judge.judge(item, facts, settings.DEFAULT) == verdict
            await self.asked()
            verdict = await self.judge.judge(item, facts, settings.DEFAULT)
        assert await self.judge.confirm(item, facts, verdict) is verdict
        self.judge.gone(facts.name)
        return verdict

    async def asked(self) -> None:
        """Until the kubelet was asked."""
        over = asyncio.Event()
        self.judge.dials.subscribe(lambda _: over.set())
        async with tasks.Group("test") as group:
            group.start(self.judge.dials.run(), name="dials")
            await over.wait()

    async def reason(self, facts: kubelet.Facts) -> str:
        step = (await self.verdict(facts)).failed
        return "" if step is None else step.reason


async def test_nobody_is_asked_for_a_request_that_has_no_form():
    world = World()
    world.client.before = lambda *_: pytest.fail("somebody asks")
    assert await world.reason(asks("DNS:w1", user="mike")) == approval.MALFORMED


async def test_a_linked_machine_decides_with_the_egress_addresses_of_its_node():
    world = World()
    world.client.before = lambda *_: pytest.fail("somebody asks")
    world.link(("InternalDNS", "w1"), ("InternalIP", "10.0.0.5"))
    assert await world.reason(asks("DNS:w1", "IP:10.0.0.5")) == ""
    assert await world.reason(asks("DNS:w1", "IP:99.0.1.1")) == serving.NOT_ITS_ADDRESS
    world.assign("w1", "99.0.1.1")
    assert await world.reason(asks("DNS:w1", "IP:99.0.1.1")) == ""
    world.link(("InternalDNS", "w1"), name="m2")
    verdict = await world.verdict(asks("DNS:w1"))
    assert verdict.machine is None
    assert verdict.failed is not None
    assert verdict.failed.reason == linking.AMBIGUOUS_LINK


async def test_without_a_machine_the_kubelet_decides():
    world = World(kubelet_ca=CA.pem)
    async with listening(kubelet_context("w1", "IP:192.0.2.1", "DNS:w1")) as there:
        world.node(there.place)
        assert await world.reason(asks("DNS:w1", "IP:192.0.2.1")) == ""
        assert await world.reason(asks("DNS:w1")) == serving.NOT_AS_SERVED
    assert await world.reason(asks("DNS:w1", "IP:192.0.2.1")) == serving.NOT_SERVED


async def test_a_kubelet_of_another_node_decides_nothing():
    world = World(kubelet_ca=CA.pem)
    async with listening(kubelet_context("w2", "IP:192.0.2.1", "DNS:w1")) as there:
        world.node(there.place)
        assert await world.reason(asks("DNS:w1", "IP:192.0.2.1")) == serving.NOT_SERVED


async def said(world: World) -> str:
    verdict = await world.verdict(asks("DNS:w1"))
    assert verdict.failed is not None
    return verdict.failed.check.compared


async def test_why_nothing_is_known_of_a_kubelet_is_said():
    world = World(kubelet_ca=CA.pem)
    assert 'there is no Node "w1"' in await said(world)
    world.client.put("nodes", "w1", status={})
    assert "the Node has no internal addresses" in await said(world)
    world.node(place=serving.Place(names.ip_address("127.0.0.1"), 10250))
    assert "is one of every machine" in await said(world)


async def test_the_config_map_of_the_kubelets_ca_comes_first():
    world = World(kubelet_ca=CA.pem)
    async with listening(kubelet_context("w1", "IP:192.0.2.1")) as there:
        world.node(there.place)
        world.ca(**{bootstrapper.BUNDLE_KEY: OTHER_CA.pem.decode()})
        assert await world.reason(asks("DNS:w1")) == serving.NOT_SERVED
        world.ca(**{bootstrapper.BUNDLE_KEY: CA.pem.decode()})
        assert await world.reason(asks("DNS:w1")) == serving.NOT_AS_SERVED


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "no CA of kubelets is known"),
        ({bootstrapper.BUNDLE_KEY: "no PEM"}, "the ConfigMap csr-controller-ca, cannot be read"),
    ],
)
async def test_a_config_map_that_cannot_be_read_is_not_replaced_by_the_other_ca(data: dict[str, str], words: str):
    world = World(kubelet_ca=CA.pem)
    world.client.put("nodes", "w1", status={})
    world.ca(**data)
    assert words in await said(world)


async def test_a_ca_that_may_not_be_read_is_no_reason_to_take_the_other():
    world = World(kubelet_ca=CA.pem)
    world.client.put("nodes", "w1", status={})
    world.authority.refused("configmaps is forbidden")
    assert "configmaps is forbidden" in await said(world)


async def test_without_any_ca_nobody_is_verified():
    world = World()
    world.client.put("nodes", "w1", status={})
    assert "no CA of kubelets is known" in await said(world)
    broken = World(kubelet_ca=b"no PEM")
    broken.client.put("nodes", "w1", status={})
    assert "that of this process, cannot be read" in await said(broken)


async def test_whoever_subscribes_hears_which_nodes_to_judge_again():
    world, heard = World(), list[str | None]()
    world.judge.subscribe(heard.append)
    world.assign("w1", "99.0.1.1")
    world.assign("w2", "99.0.1.1")
    assert sorted(map(str, heard)) == ["w1", "w1", "w2"]
    world.ca(**{bootstrapper.BUNDLE_KEY: CA.pem.decode()})
    assert heard[-1] is None
    world.egress.end()
    world.authority.end()
    await world.judge.wait_answered()


async def test_an_unreachable_kubelet_is_told_by_its_place():
    world = World(kubelet_ca=CA.pem)
    async with contextlib.AsyncExitStack() as stack:
        there = await stack.enter_async_context(listening(None))
        place = there.place
    world.node(place)
    assert f"{place} cannot be reached" in await said(world)
