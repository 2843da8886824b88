# SPDX-License-Identifier: Apache-2.0
"""The injector's pair on a clock that tests move: it is renewed in time, believed before it is shown, and the same for all replicas."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator

import pytest

from handfast import errors
from handfast.mesh.injector import own_pair
from handfast.pki import pairs
from handfast.rules.mesh import injector_pair, settings, webhook
from tests.unit.controllers.fake_api import failing
from tests.unit.mesh.injector import injecting
from tests.world import clock as clocks

DAY = 86400.0


@contextlib.asynccontextmanager
async def running(*worlds: injecting.World) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(world.pair.run()) for world in worlds]
    try:
        await clocks.settle()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pass_time(seconds: float, *worlds: injecting.World) -> None:
    """Time goes by, and everybody sees what was written."""
    for world in worlds:
        world.deliver()
    await worlds[0].clock.advance(seconds)
    for world in worlds:
        world.deliver()
    await clocks.settle()


def bundle(world: injecting.World) -> bytes:
    return webhook.bundle(world.client.objects[webhook.PLURAL, "", webhook.NAME])


def shown(world: injecting.World) -> str:
    pair = world.pair.current()
    assert pair is not None
    return pair.leaf.serial


def stored(world: injecting.World) -> injector_pair.Stored:
    data = world.client.objects["secrets", injecting.NAMESPACE, webhook.PAIR].get("data") or {}
    return injector_pair.read(data, webhook.server_name(injecting.NAMESPACE), world.clock.now())


@pytest.fixture
def world() -> injecting.World:
    world = injecting.World()
    world.install()
    return world


async def test_an_empty_secret_becomes_a_pair_that_is_believed(world):
    assert world.pair.not_ready() == "nothing was read yet"
    async with running(world):
        await pass_time(1, world)
        assert world.pair.not_ready() is None
        first = stored(world).pair
        assert first is not None
        assert shown(world) == first.leaf.serial
        assert injector_pair.says(stored(world), bundle(world))
        # Only the leaf is sent.
        pair = world.pair.current()
        assert pair is not None
        assert len(pair.chain) == 1
    left = (first.leaf.not_after - world.clock.now()).total_seconds()
    assert world.pair._left() == left


async def test_a_renewal_is_in_the_bundle_before_it_is_shown(world):
    async with running(world):
        await pass_time(1, world)
        first = stored(world).pair
        assert first is not None
        world.clock.hold((injector_pair.due(first) - world.clock.now()).total_seconds())
        await pass_time(1, world)
        await pass_time(1, world)
        following = stored(world).following
        assert following is not None
        assert injector_pair.is_believed(following, bundle(world))
        assert shown(world) == first.leaf.serial
        await pass_time(5, world)
        assert shown(world) == first.leaf.serial
        await pass_time(7, world)
        await pass_time(1, world)
        assert shown(world) == following.leaf.serial
        # Both are believed for now.
        assert injector_pair.is_believed(first, bundle(world))
        assert world.pair.not_ready() is None


async def test_of_two_replicas_one_does_each_step(world):
    other = injecting.World(world.client, world.clock)
    async with running(world, other):
        for _ in range(3):
            await pass_time(1, world, other)
        assert shown(world) == shown(other)
        first = stored(world).pair
        assert first is not None
        world.clock.hold((injector_pair.due(first) - world.clock.now()).total_seconds())
        for _ in range(20):
            await pass_time(1, world, other)
        assert shown(world) == shown(other) != first.leaf.serial
    steps = [call for call in world.client.calls if call[:2] == ("patch", "secrets")]
    assert len(steps) == 3


async def test_a_bundle_that_somebody_changed_is_healed_once_a_second(world):
    async with running(world):
        await pass_time(1, world)
        good = bundle(world)
        await pass_time(1, world)
        for text in (b"", b"another"):
            document = webhook.with_bundle(await world.client.get(own_pair._WEBHOOKS, webhook.NAME), text)
            await world.client.update(own_pair._WEBHOOKS, document)
            await pass_time(2, world)
            assert bundle(world) == good
        # Whoever writes it all the time is not answered all the time.
        writes = len(world.client.calls)
        for _ in range(10):
            world.client.put(webhook.PLURAL, webhook.NAME, webhooks=webhook.with_bundle(document, b"x")["webhooks"])
            world.deliver()
            await clocks.settle()
        assert len(world.client.calls) <= writes + 1


async def test_the_webhook_of_another_mesh_is_left_alone(world):
    other = webhook.configuration("mesh-two", settings.Settings()).document
    # Seen a moment later than it was written.
    world.client.put(webhook.PLURAL, webhook.NAME, webhooks=other["webhooks"])
    async with running(world):
        await pass_time(2, world)
        assert bundle(world) == b""
        assert world.pair.not_ready() == "its root is not in the CA bundle"


async def test_an_emptied_secret_is_another_pair_and_no_old_trust(world):
    async with running(world):
        await pass_time(1, world)
        first = stored(world).pair
        assert first is not None
        world.client.put("secrets", webhook.PAIR, injecting.NAMESPACE)
        await pass_time(2, world)
        await pass_time(2, world)
        assert shown(world) != first.leaf.serial
        assert not injector_pair.is_believed(first, bundle(world))


async def test_what_fails_is_told_once_and_tried_again(world):
    world.client.before = failing(errors.Unavailable("the server hangs", reason="Timeout"))
    async with running(world):
        await pass_time(5, world)
        assert world.pair.current() is None
        assert world.pair.not_ready() == "the server hangs"
        world.client.before = lambda *_: None
        await pass_time(3, world)
        assert world.pair.not_ready() is None


@pytest.mark.parametrize("plural", ["secrets", webhook.PLURAL])
async def test_what_somebody_wrote_meanwhile_is_not_written_over(world, plural):
    def meanwhile(verb: str, of: str, name: str) -> None:
        if verb in {"patch", "update"} and of == plural:
            world.client.before = lambda *_: None
            document = next(each for key, each in world.client.objects.items() if key[0] == plural and key[2] == name)
            document["metadata"]["resourceVersion"] = "999"

    world.client.before = meanwhile
    async with running(world):
        for _ in range(4):
            await pass_time(1.5, world)
        assert world.pair.not_ready() is None


async def test_other_errors_of_the_server_are_told(world):
    refusal = errors.Refused("you may not", reason="Forbidden")
    for verb, plural in (("patch", "secrets"), ("update", webhook.PLURAL)):
        world.client.before = failing(refusal, verb=verb, plural=plural)
        async with running(world):
            await pass_time(3, world)
            assert world.pair.why_not == "you may not"


async def test_without_a_secret_it_says_who_makes_it(world):
    del world.client.objects["secrets", injecting.NAMESPACE, webhook.PAIR]
    world.deliver()
    async with running(world):
        await pass_time(2, world)
        assert world.pair.not_ready() == f"there is no Secret {webhook.PAIR} in namespace linkerd"


async def test_a_pair_that_ended_is_replaced(world):
    async with running(world):
        await pass_time(1, world)
        first = shown(world)
        # Nobody was there, and the time of renewal went by.
        world.clock.set_wall(8 * DAY)
        await pass_time(2, world)
        await pass_time(2, world)
        assert shown(world) != first
        assert world.pair.not_ready() is None


def test_nothing_of_the_key_is_printed(world):
    world.install()
    pair = injector_pair.make("a.test", settings.Settings(), world.clock.now())
    assert isinstance(pair, pairs.Pair)
    assert base64.b64encode(pair.key.to_der()).decode()[:20] not in repr(pair)
