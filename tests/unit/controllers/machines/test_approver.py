# SPDX-License-Identifier: Apache-2.0
"""What the machine-approver writes, says, parks, and looks at again."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pytest

from handfast.controllers.machines import approver, crowds, flood_guard
from handfast.pki import keys
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval
from tests.unit.controllers.csr_world import NODE
from tests.unit.controllers.machines.machine_world import World

APPROVED = ("Approved", "NodeCSRApprove", "This CSR was approved by the Node CSR Approver (cluster-machine-approver)")


async def test_a_known_machine_is_approved_and_named() -> None:
    world = World()
    world.machine()
    world.ask()
    assert await world.handler.reconcile("x") is None
    assert world.conditions() == [APPROVED, ("MatchedMachine", "MatchedMachine", "Machine fleet/w1")]
    assert world.said_of("CertificateSigningRequest") == []
    # What was written counts at once: nothing is done a second time.
    calls = len(world.client.calls)
    await world.handler.reconcile("x")
    assert len(world.client.calls) == calls


async def test_an_intruder_without_a_machine_gets_nothing_and_is_told_of() -> None:
    world = World()
    world.machine("tigers")
    world.ask(node="panda")
    for _ in range(3):
        assert await world.handler.reconcile("x") is None
    assert (world.conditions(), world.updates()) == ([], [])
    ((reason, message),) = world.said_of("CertificateSigningRequest")
    assert reason == "NoMachine"
    assert message.startswith('Pending: Machine: no Machine has the InternalDNS name "panda"; to change that: make a ')


async def test_a_group_that_is_missing_is_told_here_and_not_by_csrapproving() -> None:
    world = World()
    world.machine()
    item = world.ask(groups=["system:authenticated"])
    assert world.settings.judges(item.spec)
    await world.handler.reconcile("x")
    ((reason, message),) = world.said_of("CertificateSigningRequest")
    assert (reason, "system:serviceaccounts is missing" in message) == ("NotABootstrapIdentity", True)


@pytest.mark.parametrize(
    "spec", [{"username": NODE, "groups": ["system:nodes"]}, {"username": "system:bootstrap:abcdef"}]
)
async def test_what_is_csrapprovings_is_left_to_it(spec: dict[str, object]) -> None:
    world = World()
    world.machine("n1")
    world.add(**spec)  # type: ignore[arg-type]
    await world.handler.reconcile("x")
    assert world.client.calls == []


async def test_what_cannot_be_read_is_told_of() -> None:
    world = World()
    world.ask(request="junk")
    assert await world.handler.reconcile("x") is None
    assert [row[0] for row in world.said_of("CertificateSigningRequest")] == ["MalformedPEM"]


async def test_a_revoked_name_is_denied() -> None:
    world = World()
    world.machine()
    world.revoke("r", user="system:node:w1")
    world.ask()
    await world.handler.reconcile("x")
    assert [row[0] for row in world.conditions()] == ["Denied"]
    assert "patch" not in [call[0] for call in world.updates()]


async def test_without_settings_nothing_is_approved() -> None:
    world = World(answered=False)
    world.machine()
    world.configure("joinWithin: soon")
    world.ask()
    assert await world.handler.reconcile("x") is None
    ((reason, message),) = world.said_of("CertificateSigningRequest")
    assert (reason, 'joinWithin: "soon" is not allowed' in message) == ("SettingsUnreadable", True)
    assert world.conditions() == []
    world.configure("joinWithin: 3h")
    await world.handler.reconcile("x")
    assert world.conditions()[0] == APPROVED


async def test_settings_that_may_not_be_read_let_nobody_in() -> None:
    world = World(answered=False)
    world.machine()
    world.ask()
    world.config.refused("configmaps is forbidden")
    assert await world.handler.reconcile("x") == 30.0
    ((reason, message),) = world.said_of("CertificateSigningRequest")
    assert (reason, "configmaps is forbidden" in message) == ("SettingsForbidden", True)


async def test_settings_that_were_not_read_yet_let_nobody_in() -> None:
    world = World(answered=False)
    world.machine()
    world.ask()
    await world.handler.reconcile("x")
    assert [row[0] for row in world.said_of("CertificateSigningRequest")] == ["SettingsUnreadable"]


async def test_only_what_can_turn_it_has_a_request_judged_again() -> None:
    world = World()
    world.ask(node="w1")
    await world.handler.reconcile("x")
    world.looked.clear()
    world.handler.of_node(kubelet.canonical("w2"), approval.MACHINE)
    world.handler.of_node(kubelet.canonical("w1"), approval.NODE)
    assert world.looked == []
    world.handler.of_node(kubelet.canonical("W1."), approval.MACHINE)
    assert world.looked == ["x"]
    # A Node that is in the way.
    world.machine()
    world.node("w1")
    await world.handler.reconcile("x")
    world.handler.of_node(kubelet.canonical("w1"), approval.NODE)
    assert world.looked == ["x", "x"]
    world.handler.gone("x")
    world.handler.of_node(kubelet.canonical("w1"), approval.NODE)
    assert world.looked == ["x", "x"]


async def test_above_a_hundred_alike_it_is_one_event_for_all() -> None:
    world = World()
    for number in range(2 * crowds.MOST):
        # Below the limit of the flood guard, by one node that asks again and again.
        world.ask(f"r{number}", node="ghost")
        await world.handler.reconcile(f"r{number}")
    assert len(world.said_of("CertificateSigningRequest")) == crowds.MOST
    ((reason, message),) = world.said_of("ConfigMap")
    assert (reason, "more than 100 requests wait for this reason" in message) == ("NoMachine", True)
    # An hour later each is told again.
    await world.clock.advance(3600)
    world.ask("later", node="ghost")
    await world.handler.reconcile("later")
    assert len(world.said_of("CertificateSigningRequest")) == crowds.MOST + 1


def gauge(name: str) -> float:
    (family,) = {
        "pending": flood_guard.PENDING,
        "limit": flood_guard.LIMIT,
        "parked": flood_guard.PARKED,
    }[name].collect()
    return family.samples[0].value


async def flooded(nodes: int) -> World:
    world = World()
    world.machine("w1")
    for number in range(nodes):
        world.ask(f"r{number}", node=f"ghost-{number}")
        await world.handler.reconcile(f"r{number}")
    return world


async def test_as_many_as_the_limit_may_wait() -> None:
    await flooded(101)
    assert (gauge("pending"), gauge("limit"), gauge("parked")) == (101, 101, 0)


async def test_a_flood_parks_what_has_no_machine_and_the_others_go_on() -> None:
    world = await flooded(150)
    assert (gauge("pending"), gauge("limit"), gauge("parked")) == (150, 101, 49)
    assert len(world.said_of("CertificateSigningRequest")) == crowds.MOST
    assert [row[0] for row in world.said_of("ConfigMap")] == ["NoMachine", "TooManyPending"]
    assert world.looked.count(approver.PRESSURE) == 1
    world.ask("honest", node="w1")
    await world.handler.reconcile("honest")
    assert world.conditions("honest")[0] == APPROVED
    # A Machine comes for one that is parked.
    world.machine("ghost-149")
    world.looked.clear()
    world.handler.of_node(kubelet.canonical("ghost-149"), approval.MACHINE)
    assert world.looked == ["r149"]
    await world.handler.reconcile("r149")
    assert world.conditions("r149")[0] == APPROVED
    assert gauge("parked") == 48


async def test_who_is_parked_is_released_when_the_pressure_drops() -> None:
    world = await flooded(150)
    world.looked.clear()
    # As long as it lasts, it is looked at when the oldest ceases to count.
    assert await world.handler.relieve() == world.clock.now() + datetime.timedelta(hours=1)
    for number in range(49):
        world.handler.gone(f"r{number}")
    assert set(world.looked) == {approver.PRESSURE}
    world.looked.clear()
    assert await world.handler.relieve() is None
    assert (len(world.looked), gauge("parked")) == (49, 0)
    # And judged as the others: said once for all that are alike.
    for name in list(world.looked):
        await world.handler.reconcile(name)
    assert gauge("parked") == 0


async def test_an_hour_ends_a_flood() -> None:
    world = await flooded(150)
    await world.clock.advance(3600)
    world.looked.clear()
    assert await world.handler.relieve() is None
    assert (gauge("pending"), len(world.looked)) == (0, 49)


async def test_more_machines_make_room() -> None:
    world = await flooded(150)
    world.looked.clear()
    world.handler.of_size(grown=False)
    assert world.looked == []
    world.handler.of_size(grown=True)
    assert world.looked == [approver.PRESSURE]


async def test_a_long_name_is_kept_nowhere() -> None:
    """What is remembered of a request that can never be approved does not grow with what is in it."""
    world, key = World(), keys.generate()
    for number in range(150):
        world.ask(f"long-{number}", node=f"{number}" + "a" * 20_000, key=key)
        await world.handler.reconcile(f"long-{number}")
    world.machine("w2")
    world.ask("own", node="w2", key=keys.generate())
    await world.handler.reconcile("own")
    assert world.conditions("own")[0][0] == "Approved"
    ours = (world.handler._waiting, world.handler._waits, world.handler._verdicts._reported)
    kept: list[Mapping[Any, Any]] = [*ours, world.guard.pending._requests, world.others._names, world.others._node_of]
    assert max(len(repr(value)) for index in kept for row in index.items() for value in row) < 5000
    # They count as one, of no node.
    assert world.guard.count() == 1


async def test_what_nothing_can_turn_is_parked_in_a_flood() -> None:
    world, key = World(), keys.generate()
    for number in range(120):
        world.ask(f"junk-{number}", node=f"g{number}")
        await world.handler.reconcile(f"junk-{number}")
    world.ask("odd", node="/odd", key=key)
    await world.handler.reconcile("odd")
    assert "odd" in world.guard.parked
