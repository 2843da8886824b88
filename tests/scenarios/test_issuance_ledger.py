# SPDX-License-Identifier: Apache-2.0
"""The issuance ledger on a real server: several signers at once, nobody changes the past, and old segments go."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from handfast.client import api, connection, transport
from handfast.client import ledger as ledger_module
from handfast.controllers.certificates import ledger_retention
from handfast.rules.ledger import entries, verification
from handfast.rules.ledger import segments as ledger
from tests.scenarios import certified, controlled
from tests.unit.rules import ledger_cases
from tests.world import world as worlds

PATH = "/apis/handfast.dev/v1alpha1/issuancelogs"
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
KEEP = 7


def entry(world: worlds.World, number: int, signer: str = "kube-apiserver-client-kubelet") -> entries.Entry:
    now = world.clock.now()
    return ledger_cases.entry(
        number, signer=f"kubernetes.io/{signer}", issued_at=now, not_after=now + datetime.timedelta(days=1)
    )


class Late(api.Client):
    """Somebody else does something between what it reads and the first segment that it makes."""

    before: Callable[[], Awaitable[None]] | None = None

    async def create(self, *words: Any, **more: Any) -> dict[str, Any]:
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super().create(*words, **more)


@contextlib.asynccontextmanager
async def signer(
    world: worlds.World, before: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[ledger_module.Ledger]:
    """A ledger with the credential of the controllers, which is all that a signer has."""
    place = dataclasses.replace(connection.load(str(world.place.controllers_kubeconfig)), server=world.base)
    link = transport.Transport(place, clock=world.clock)
    try:
        client = Late(link)
        client.before = before
        yield ledger_module.Ledger(client, world.clock)
    finally:
        await link.close()


async def segments(world: worlds.World) -> list[ledger.Segment]:
    return [ledger.read(item) for item in (await world.get(PATH)).json()["items"]]


async def test_two_signers_at_once(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world, signer(world) as one, signer(world) as other:
        await asyncio.gather(
            *(one.append(entry(world, number)) for number in range(100)),
            *(other.append(entry(world, number)) for number in range(100, 200)),
        )
        found = await segments(world)
        assert verification.verify(found) == ()
        lines = [entries.decode_stored(line).request for segment in found for line in segment.entries]
        assert sorted(lines) == sorted(f"node-csr-{number}" for number in range(200))
        assert [segment.sealed for segment in found] == [True] * (len(found) - 1) + [False]


async def test_of_two_signers_that_begin_a_chain_at_once_the_second_looks_again(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world, signer(world) as one:
        async with signer(world, lambda: one.append(entry(world, 1))) as other:
            await other.append(entry(world, 2))
        (segment,) = await segments(world)
        lines = [entries.decode_stored(line).request for line in segment.entries]
        assert lines == ["node-csr-1", "node-csr-2"]


async def test_nobody_changes_the_past(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world, signer(world) as ledger_:
        for number in range(3):
            await ledger_.append(entry(world, number))
        (before,) = await segments(world)
        at = f"{PATH}/{before.name}"
        for change in (
            [{"op": "remove", "path": "/spec/entries/0"}],
            [{"op": "replace", "path": "/spec/entries/1", "value": before.entries[0]}],
            [{"op": "replace", "path": "/spec/previous", "value": "1" * 64}],
            [{"op": "add", "path": "/spec/entries/-", "value": before.entries[0]}],
        ):
            answer = await world.request("PATCH", at, change, headers=dict(JSON_PATCH))
            assert (answer.status, answer.reason) == (403, "Forbidden"), answer.body
        assert (await world.request("DELETE", at)).status == 403
        assert (await world.request("DELETE", PATH)).status == 403
        beside = {"metadata": {"name": "segment-0000000002"}, "spec": ledger.spec_of(ledger.following(None))}
        assert (await world.request("POST", PATH, beside)).status == 403
        # Nor does an apply, or an update that leaves something out.
        whole = (await world.get(at)).json()
        whole["spec"]["entries"] = whole["spec"]["entries"][:1]
        assert (await world.request("PUT", at, whole)).status == 403
        assert await segments(world) == [before]


async def test_who_reads_and_who_writes(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world, signer(world) as ledger_:
        await ledger_.append(entry(world, 1))
        node = world.context_for("system:node:node-1", "system:nodes")
        assert (await world.get(PATH, context=node)).status == 403
        binding = {
            "metadata": {"name": "viewers"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:aggregate-to-view",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "vera"}],
        }
        made = await world.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        assert made.status == 201
        vera = world.context_for("vera")
        assert (await world.get(PATH, context=vera)).status == 200
        change = {"metadata": {"labels": {"a": "b"}}}
        at = f"{PATH}/segment-0000000001"
        assert (await world.request("PATCH", at, change, headers=dict(MERGE), context=vera)).status == 403


@pytest.mark.slow
async def test_old_segments_go_and_the_chain_stays(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world, signer(world) as ledger_, controlled.connected(world) as client:
        for number in range(3):
            await ledger_.append(entry(world, number))
            await world.movable().advance(3600)
        first, second, third = await segments(world)
        retention = ledger_retention.Retention(client, world.clock, KEEP)
        await retention.reconcile(ledger_retention.KEY)
        assert await segments(world) == [first, second, third]
        await world.movable().advance(7 * 86400 + 86400)
        await retention.reconcile(ledger_retention.KEY)
        (left,) = await segments(world)
        assert left == third
        assert [found.reason for found in verification.verify([left])] == [verification.SHORTENED]
        assert verification.verify([left], second.hash) == ()
        assert left.previous == second.hash
        await ledger_.append(entry(world, 4))
        assert verification.verify(await segments(world), left.last_link) == ()


async def later(story: certified.Story, seconds: float) -> None:
    """So much later, without living through it: timers look again within a minute after the clock was set."""
    story.clock.set_wall(seconds - 61)
    await story.clock.advance(61)


@pytest.mark.slow
async def test_the_running_cleaner_deletes_old_segments_when_they_are_due(tmp_path: pathlib.Path) -> None:
    async with certified.told(tmp_path) as story, signer(story.world) as ledger_:
        for number in range(3):
            await ledger_.append(entry(story.world, number))
            await story.clock.advance(3600)
        first, second, third = await segments(story.world)
        async with certified.running(story.world, ledger_retention.NAME, ledger_days=KEEP):
            # The first certificate was issued three hours ago, and lives for a day.
            await later(story, (KEEP + 1) * 86400 - 3 * 3600 - 60)
            await story.quiet()
            assert await segments(story.world) == [first, second, third]
            await story.clock.advance(120)

            async def first_is_gone() -> bool:
                return await segments(story.world) == [second, third]

            await story.eventually(first_is_gone, "the oldest segment gone")
            await later(story, 30 * 86400)

            async def newest_is_left() -> bool:
                return await segments(story.world) == [third]

            await story.eventually(newest_is_left, "the newest is never deleted")
