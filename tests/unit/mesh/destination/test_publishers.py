# SPDX-License-Identifier: Apache-2.0
"""One computation for each subject: when it happens, who is told, and how a slow stream catches up."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from handfast.api import objects
from handfast.mesh.destination import subjects
from handfast.rules.mesh import authorities, endpoints
from handfast.wire import server
from tests.unit.mesh.destination.destination_world import NAME, World, entry
from tests.world.clock import settle

USER = "system:serviceaccount:shop:web"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The computations of endpoints from now on."""
    done: list[Any] = []
    original = endpoints.chosen

    def chosen(*facts: Any) -> Any:
        done.append(facts)
        return original(*facts)

    monkeypatch.setattr(endpoints, "chosen", chosen)
    return done


async def test_a_change_is_computed_once_however_many_listen(monkeypatch):
    async with World().running() as world:
        one = world.meshed("a", "10.0.0.1")
        world.serve(one)
        listeners = [world.listen() for _ in range(20)]
        for listener in listeners:
            await listener.hear()
        done = counted(monkeypatch)
        world.slice(one, world.meshed("b", "10.0.0.2"))
        for listener in listeners:
            assert len(await listener.hear()) == 2
        assert len(done) == 1
        assert len(world.publishers) == 1


async def test_what_is_encoded_for_one_is_what_all_are_sent():
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        listeners = [world.listen(), world.listen()]
        first = [await listener.octets() for listener in listeners]
        assert first[0] is first[1]


async def test_changes_of_others_cost_nothing(monkeypatch):
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        listener = world.listen()
        await listener.hear()
        done = counted(monkeypatch)
        world.meshed("z", "10.0.9.9")
        world.serve(entry("192.0.2.1"), name="other")
        await listener.hear()
        assert done == []


async def test_a_change_that_changes_no_answer_is_not_told():
    async with World().running() as world:
        one = world.meshed("a", "10.0.0.1")
        world.serve(one)
        listener = world.listen()
        await listener.hear()
        world.slice(one)
        world.meshed("a", "10.0.0.1")
        await listener.hear()
        assert listener.endpoints.messages == 1


async def test_a_slow_stream_is_told_where_things_stand_and_not_every_step():
    async with World().running() as world:
        rows = [world.meshed(f"p{number}", f"10.0.0.{number}") for number in range(1, 30)]
        world.serve(rows[0])
        slow, quick = world.listen(), world.listen()
        await slow.hear()
        for number in range(2, 30):
            world.slice(*rows[:number])
            await quick.hear()
        before = slow.endpoints.messages
        assert await slow.hear() == quick.endpoints.identities
        assert slow.endpoints.messages - before == 2


async def test_a_large_service_is_told_in_several_messages():
    async with World().running() as world:
        rows = [entry(f"10.{number >> 8}.{number & 255}.1") for number in range(1200)]
        world.serve(*rows)
        listener = world.listen()
        assert len(await listener.hear()) == 1200
        assert listener.endpoints.messages == 3
        world.slice()
        assert await listener.hear() == {}
        assert listener.endpoints.messages == 6


async def test_a_change_between_two_steps_of_a_computation_is_not_lost():
    async with World().running() as world:
        rows = [world.plain(f"p{number}", f"10.{number >> 8}.{number & 255}.1") for number in range(600)]
        world.serve(*rows)
        listener = world.listen()
        waiting = asyncio.ensure_future(listener.octets())
        while world.publishers._looking is None:
            await asyncio.sleep(0)
        world.meshed("p0", "10.0.0.1")
        octets = await waiting
        assert octets is not None
        listener.endpoints.take(octets)
        assert (await listener.hear())["10.0.0.1:8080"] == NAME


async def test_nobody_is_left_behind_when_streams_end():
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        listeners = [world.listen(), world.profile()]
        await listeners[0].hear()
        await listeners[1].profile()
        for listener in listeners:
            await listener.close()
        assert len(world.publishers) == 0
        assert world.publishers._dependents == {}


async def test_who_leaves_before_the_first_answer_leaves_nothing():
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        stream = world.publishers.stream(subjects.ServiceProfile(authorities.Service("shop", "web", 80)))
        publisher_task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        publisher_task.cancel()
        await settle()
        assert len(world.publishers) == 0


async def test_when_the_service_stops_every_stream_ends():
    async with World().running() as world:
        world.serve()
        listener = world.listen()
        await listener.hear()
        world.publishers.close()
        for each in (listener, world.listen()):
            with pytest.raises(server.Refusal, match="the service stops") as refusal:
                await each.octets()
            assert refusal.value.code == "UNAVAILABLE"


@pytest.mark.parametrize(
    "spec",
    [
        {"user": USER},
        {"pod": {"namespace": "shop", "name": "a"}},
        {"pod": {"namespace": "shop", "name": "a", "uid": "uid-a"}},
    ],
)
async def test_who_is_revoked_is_withheld_until_that_is_undone(spec):
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        listener = world.listen()
        assert await listener.hear() == {"10.0.0.1:8080": NAME}
        world.revoke("r1", **spec)
        assert await listener.hear() == {}
        world.undo("r1")
        assert await listener.hear() == {"10.0.0.1:8080": NAME}


async def test_a_revocation_that_ends_by_itself_is_noticed():
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        ends = objects.timestamp(world.clock.now() + datetime.timedelta(seconds=30))
        world.revoke("r1", user=USER, expires=ends)
        listener = world.listen()
        assert await listener.hear() == {}
        await world.clock.passes(40)
        assert await listener.hear() == {"10.0.0.1:8080": NAME}


async def test_other_settings_are_taken_up():
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        listener = world.listen()
        await listener.hear()
        world.configure(trust_domain="mesh.example")
        assert list((await listener.hear()).values()) == [NAME.replace("cluster.local", "mesh.example")]


async def test_where_names_have_the_uid_of_the_account_another_account_is_another_name():
    async with World().running() as world:
        world.configure({"trustDomain": "cluster.local", "identity.nameScheme": "uid"})
        world.serve(world.meshed("a", "10.0.0.1"))
        listener = world.listen()
        assert await listener.hear() == {}
        for uid in ("u1", "u2"):
            world.put("serviceaccounts", {"metadata": {"namespace": "shop", "name": "web", "uid": uid}})
            assert await listener.hear() == {"10.0.0.1:8080": f"{uid}.{NAME}"}


async def test_what_nobody_expected_ends_one_subject_and_no_other(monkeypatch):
    async with World().running() as world:
        world.serve(world.meshed("a", "10.0.0.1"))
        world.serve(world.meshed("b", "10.0.0.2"), name="other")
        original = endpoints.chosen

        def chosen(service: Any, rows: Any) -> Any:
            if service.metadata.name == "web":
                raise ValueError
            return original(service, rows)

        monkeypatch.setattr(endpoints, "chosen", chosen)
        with pytest.raises(server.Refusal) as refusal:
            await world.listen().hear()
        assert (refusal.value.code, refusal.value.message) == ("UNAVAILABLE", "internal error")
        assert await world.listen("other.shop.svc.cluster.local:80").hear() == {"10.0.0.2:8080": NAME}
