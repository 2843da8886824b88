# SPDX-License-Identifier: Apache-2.0
"""What is told of endpoints that are withheld: what lasts, once, and in bounds."""

from __future__ import annotations

from handfast.mesh.destination import withheld
from handfast.rules.mesh import meshed
from tests.unit.mesh.destination.destination_world import World, entry


def figure(reason: meshed.Reason) -> float:
    return float(withheld.WITHHELD.labels(reason.value)._value.get())


async def test_what_lasts_is_told_once_on_the_service():
    async with World().running() as world:
        world.serve(entry("10.0.0.1", "a"), entry("10.0.0.2", "b"))
        listener = world.listen()
        assert await listener.hear() == {}
        assert figure(meshed.Reason.POD_UNKNOWN) == 2
        assert world.told() == []
        await world.clock.passes(60)
        ((name, text),) = world.told()
        assert name == "web"
        assert text.startswith("PodUnknown: 10.0.0.1:8080 (Pod shop/a is not there")
        world.meshed("a", "10.0.0.1")
        world.meshed("b", "10.0.0.2")
        assert len(await listener.hear()) == 2
        assert figure(meshed.Reason.POD_UNKNOWN) == 0


async def test_what_lasts_no_longer_than_a_moment_is_not_told():
    async with World().running() as world:
        world.serve(entry("10.0.0.1", "a"))
        listener = world.listen()
        await listener.hear()
        world.meshed("a", "10.0.0.1")
        await listener.hear()
        await world.clock.passes(30)
        assert world.told() == []


async def test_it_is_told_again_after_minutes():
    async with World().running() as world:
        world.serve(entry("10.0.0.1", "a"))
        await world.listen().hear()
        await world.clock.passes(withheld.AGAIN_SECONDS + 60)
        (event,) = [value for key, value in world.client.objects.items() if key[0] == "events"]
        assert event["count"] == 2


async def test_many_endpoints_are_one_event_with_a_few_of_them():
    async with World().running() as world:
        world.serve(*(entry(f"10.0.0.{number}", f"p{number}") for number in range(1, 100)))
        await world.listen().hear()
        await world.clock.passes(30)
        ((_, text),) = world.told()
        assert text.endswith("; and 96 more")


async def test_so_many_are_told_in_a_minute_and_no_more():
    async with World().running() as world:
        listeners = []
        for number in range(withheld.MOST_A_MINUTE + 10):
            world.serve(entry("10.0.0.1", "a"), name=f"s{number}")
            listeners.append(world.listen(f"s{number}.shop.svc.cluster.local:80"))
        for listener in listeners:
            await listener.octets()
        await world.clock.passes(20)
        assert len(world.told()) == withheld.MOST_A_MINUTE
        await world.clock.passes(120)
        assert len(world.told()) == withheld.MOST_A_MINUTE + 10


async def test_an_address_that_is_withheld_is_told_on_its_pod():
    async with World().running() as world:
        world.meshed("a", "10.0.0.1")
        listener = world.profile("10.0.0.1:8080")
        await listener.profile()
        world.reports.note("subject", None, ())
        world.revoke("r1", user="system:serviceaccount:shop:web")
        await world.clock.passes(1)
        assert figure(meshed.Reason.REVOKED) == 1
        await listener.close()
        assert figure(meshed.Reason.REVOKED) == 0
