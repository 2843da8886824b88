# SPDX-License-Identifier: Apache-2.0
"""A kubelet that says nothing holds nobody up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from handfast.api import signer_names
from handfast.client import cache
from handfast.controllers import loop
from handfast.controllers.machines import approver, dials, kubelet_dial, serving_judge
from handfast.pki import names
from handfast.rules.machines import approval, serving
from handfast.runtime import tasks
from tests.unit.controllers.csr_world import SERVING
from tests.unit.controllers.machines.machine_world import World
from tests.unit.controllers.machines.test_kubelet_dial import CA
from tests.world.clock import MovableClock, settle

AWAY, ELSEWHERE = (serving.Place(names.ip_address(text), 10250) for text in ("192.0.2.1", "192.0.2.2"))


class Silent(kubelet_dial.KubeletDial):
    """Nobody ever answers; `places` are those that were asked."""

    def __init__(self, clock: MovableClock) -> None:
        super().__init__(clock)
        self.places: list[serving.Place] = []
        self._time = clock

    async def chain(self, place: serving.Place) -> kubelet_dial.Chain:
        self.places.append(place)
        await self._time.sleep(kubelet_dial.SECONDS)
        raise kubelet_dial.KubeletUnreachable(f"{place} did not answer")


async def test_two_hundred_requests_of_a_silent_node_hold_nobody_up() -> None:
    world = World()
    egress = cache.Informer(serving_judge.EGRESS_IPS, {"node": serving_judge._nodes})
    dial = Silent(world.clock)
    judge = serving_judge.ServingJudge(
        world.client, world.clock, world.known, egress, cache.Informer(serving_judge.CA), kubelet_ca=CA.pem, dial=dial
    )
    world.handler._judges = {**world.handler._judges, signer_names.KUBELET_SERVING: judge}
    status = {
        "addresses": [{"type": "InternalIP", "address": str(AWAY.address)}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": AWAY.port}},
    }
    world.client.put("nodes", "n1", status=status)
    controller = loop.Controller("test", world.handler.reconcile, clock=world.clock, workers=approver.WORKERS)
    controller.beside(judge.dials.run, "dials")
    judge.subscribe(lambda node: world.handler.of_node(node or "", approval.MACHINE))
    spec: dict[str, Any] = {"signerName": signer_names.KUBELET_SERVING, "usages": list(SERVING)}
    who: dict[str, Any] = {"username": "system:node:n1", "groups": ["system:nodes", "system:authenticated"]}
    for number in range(200):
        world.add(f"s{number}", sans=names.Sans(dns=("n1",)), **spec, **who)
        controller.queue.add(f"s{number}")
    world.machine()
    world.ask("honest")
    controller.queue.add("honest")
    async with tasks.Group("test") as group:
        group.start(controller.run(), name="controller")
        await settle()
        # No time has passed: nobody waits for a handshake, and there is one for all.
        assert world.conditions("honest")[0][0] == "Approved"
        assert dial.places == [AWAY]
        assert world.said_of("CertificateSigningRequest") == []
        await world.clock.advance(kubelet_dial.SECONDS)
        assert len({name for name in world.looked if name.startswith("s")}) == 200
        await world.handler.reconcile("s0")
    assert [why for why, _ in world.said_of("CertificateSigningRequest")] == [serving.NOT_SERVED]
    assert dial.places == [AWAY]


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


async def test_of_one_node_one_handshake_is_under_way(clock: MovableClock) -> None:
    dial = Silent(clock)
    asking, heard = dials.Dials(dial, clock), list[str]()
    asking.subscribe(heard.append)
    async with tasks.Group("test") as group:
        group.start(asking.run(), name="dials")
        for place in (AWAY, ELSEWHERE, AWAY):
            assert asking.ask("n1", place, "x") is None
            await settle()
        assert asking.ask("n2", AWAY, "y") is None
        await settle()
        assert dial.places == [AWAY, AWAY]
        await clock.advance(kubelet_dial.SECONDS)
        assert sorted(heard) == ["n1", "n2"]


async def test_what_was_presented_counts_for_those_who_waited(clock: MovableClock) -> None:
    class Answering(Silent):
        async def chain(self, place: serving.Place) -> kubelet_dial.Chain:
            self.places.append(place)
            return (b"leaf",)

    dial = Answering(clock)
    asking = dials.Dials(dial, clock)
    async with tasks.Group("test") as group:
        group.start(asking.run(), name="dials")
        assert asking.ask("n1", AWAY, "x") is None
        await settle()
        answer = asking.ask("n1", AWAY, "x")
        assert answer is not None
        assert answer.chain == (b"leaf",)
        # Who comes later has it asked again.
        assert asking.ask("n1", AWAY, "y") is None
        await settle()
        assert asking.ask("n1", AWAY, "y") is not None
        await clock.advance(dials.ANSWERED_SECONDS)
        assert asking.ask("n1", AWAY, "y") is None
        await settle()
    assert dial.places == [AWAY] * 3


async def test_a_silent_place_is_not_asked_again_for_a_minute(clock: MovableClock) -> None:
    dial = Silent(clock)
    asking = dials.Dials(dial, clock)
    async with tasks.Group("test") as group:
        group.start(asking.run(), name="dials")
        asking.ask("n1", AWAY, "x")
        await settle()
        assert asking.joins("n1", "y")
        await clock.advance(kubelet_dial.SECONDS)
        answer = asking.ask("n1", AWAY, "x")
        assert answer is not None
        assert answer.trouble == "192.0.2.1:10250 did not answer"
        # Another place is.
        assert asking.ask("n1", ELSEWHERE, "x") is None
        await settle()
        await clock.advance(kubelet_dial.SECONDS)
        await clock.advance(dials.SILENT_SECONDS)
        assert asking.ask("n1", ELSEWHERE, "x") is None
        await settle()
    assert dial.places == [AWAY, ELSEWHERE, ELSEWHERE]
    assert asyncio.all_tasks() == {asyncio.current_task()}
