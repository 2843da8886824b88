# SPDX-License-Identifier: Apache-2.0
"""Which requests are known as rivals, from when on, and until when."""

from __future__ import annotations

from handfast.api import signer_names
from handfast.controllers.machines import rivals as followed
from handfast.pki import keys
from handfast.rules.machines import inventory, rivals
from tests.unit.controllers.machines.machine_world import World


def anyone(_: rivals.Asking) -> bool:
    return True


async def before(world: World, machine: inventory.Machine, name: str) -> str:
    item = world.requests.get(name)
    assert item is not None
    older = await world.others.before(item, machine, anyone)
    return "" if older is None else older.facts.name


async def test_a_request_that_was_not_judged_yet_counts() -> None:
    world = World()
    machine = world.machine()
    for number in range(followed._AT_ONCE + 1):
        world.ask(f"r{number:03}", key=keys.generate())
    assert await before(world, machine, "r050") == "r000"
    assert await before(world, machine, "r000") == ""


async def test_the_version_of_the_beginning_counts_and_not_that_of_the_last_write() -> None:
    world = World()
    machine = world.machine()
    world.ask("own", key=keys.generate())
    world.ask("a", key=keys.generate())
    # Somebody writes on the first one, which has a later version then.
    world.add("own", "Waiting", metadata={"uid": "uid-own"}, request=world.stored("own")["spec"]["request"])
    assert await before(world, machine, "a") == "own"
    assert await before(world, machine, "own") == ""


async def test_a_request_that_is_made_anew_under_its_name_is_another_one() -> None:
    world = World()
    machine = world.machine()
    world.ask("own", key=keys.generate())
    world.ask("a", key=keys.generate())
    world.add("own", metadata={"uid": "another"}, common_name="system:node:w1")
    assert await before(world, machine, "a") == ""
    assert await before(world, machine, "own") == "a"


async def test_what_waits_no_more_counts_no_more_and_is_told_of() -> None:
    world = World()
    machine = world.machine("m", "w1", "w1.example")
    heard: list[object] = []
    world.others.subscribe(heard.append)
    for number, name in enumerate(("one", "two", "three", "four")):
        world.ask(name, key=keys.generate(), after=number)
    assert await before(world, machine, "four") == "one"
    # Nobody waits for this one.
    world.add("three", "Denied")
    assert heard == []
    world.add("one", "Approved")
    assert sorted(map(str, heard)) == ["w1", "w1.example"]
    assert await before(world, machine, "four") == "two"
    world.others.gone("two")
    assert await before(world, machine, "four") == ""


async def test_what_cannot_be_read_or_is_no_client_request_is_no_rival() -> None:
    world = World()
    machine = world.machine()
    world.ask("odd", request="bm8=")
    world.ask("serving", key=keys.generate(), signerName=signer_names.KUBELET_SERVING)
    world.ask("gone", key=keys.generate())
    world.ask("own", key=keys.generate(), after=1)
    world.requests.forget("gone")
    assert await before(world, machine, "own") == ""


async def test_a_leader_that_has_gone_unheard_is_not_waited_for() -> None:
    world = World()
    machine = world.machine()
    world.ask("one", key=keys.generate())
    world.ask("two", key=keys.generate(), after=1)
    assert await before(world, machine, "two") == "one"
    world.requests.forget("one")
    assert await before(world, machine, "two") == ""
