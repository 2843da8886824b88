# SPDX-License-Identifier: Apache-2.0
"""The nodes of a pool are sent to its rendering, on a real server; what agents write there is written by the nodes themselves."""

from __future__ import annotations

import pathlib

import pytest

from handfast.controllers.machines import machine_config_pools
from handfast.rules.machine_config import max_unavailable, names
from tests.scenarios import controlled
from tests.scenarios import pool_story as p

pytestmark = pytest.mark.slow

WORKERS = tuple(f"w{number}" for number in range(1, 6))


async def begun(story: p.Story, *workers: str) -> str:
    """Workers that have what their pool goes to."""
    target = await story.target()
    await story.nodes(*(workers or WORKERS), current=target)
    await story.are_sent(target, *(workers or WORKERS))
    await story.says("Updated", "True", target)
    return target


async def test_a_new_configuration_goes_to_one_node_after_the_other(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await begun(story)
        status = (await story.pool())["status"]
        assert (status["machineCount"], status["updatedMachineCount"], status["readyMachineCount"]) == (5, 5, 5)
        await story.config("00-worker", p.file("/dummy", "new"))
        target = await story.target(first)
        for count, name in enumerate(WORKERS):
            await story.are_sent(target, name)
            await story.quiet()
            # One at a time, and the next when it is done.
            assert await story.sent(target, WORKERS) == list(WORKERS[: count + 1])
            status = (await story.pool())["status"]
            assert (status["updatedMachineCount"], status["unavailableMachineCount"]) == (count, 1)
            assert status["configuration"]["name"] == first
            assert (await story.condition("Updating"))["status"] == "True"
            await story.reports(name, **{names.STATE: names.WORKING})
            await story.apply(name)
        await story.says("Updated", "True", target)
        pool = await story.pool()
        assert pool["status"]["configuration"] == pool["spec"]["configuration"]
        assert pool["status"]["observedGeneration"] == pool["metadata"]["generation"]
        assert machine_config_pools.COMPLETED in dict(await story.events())


async def test_max_unavailable_says_how_many_at_once(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await begun(story)
        await story.change(maxUnavailable="60%")
        await story.ready("w5", "False")
        await story.config("00-worker", p.file("/dummy", "new"))
        target = await story.target(first)
        # Three of five, and one of them is dead already.
        await story.are_sent(target, "w1", "w2")
        await story.quiet()
        assert await story.sent(target, WORKERS) == ["w1", "w2"]
        await story.change(maxUnavailable=5)
        await story.are_sent(target, "w1", "w2", "w3", "w4")


async def test_a_new_credential_goes_to_all_nodes_at_once(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await begun(story)
        await story.ready("w5", "False")
        await story.token("second.worker.token")
        target = await story.target(first)
        # Nobody has applied anything, and one is dead.
        await story.are_sent(target, *WORKERS)
        # It makes nobody unavailable but the dead one.
        await story.apply("w1")

        async def counted() -> bool:
            status = (await story.pool())["status"]
            return (status["updatedMachineCount"], status["unavailableMachineCount"]) == (1, 1)

        await story.eventually(counted, "counted")
        await story.apply(*WORKERS[1:])
        await story.ready("w5")
        await story.says("Updated", "True", target)


async def test_a_paused_pool_gets_nothing_and_says_so(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await begun(story, "w1", "w2")
        await story.change(paused=True)
        await story.token("second.worker.token")
        target = await story.target(first)
        await story.says("Updating", "False", "Paused", target)
        await story.quiet()
        assert await story.sent(target, ["w1", "w2"]) == []
        await story.change(paused=False)
        await story.rolled_out(target, "w1", "w2")


async def test_max_unavailable_that_says_no_number_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await begun(story, "w1", "w2")
        await story.change(maxUnavailable="50 percent")
        row = await story.says("Degraded", "True", max_unavailable.REFUSED, "spec.maxUnavailable", "'50 percent'")
        assert '"0%" to "100%"' in row["message"]
        assert max_unavailable.REFUSED in dict(await story.events())
        await story.config("00-worker", p.file("/dummy", "new"))
        second = await story.target(first)
        await story.says("Updating", "False", max_unavailable.REFUSED)
        await story.quiet()
        assert await story.sent(second, ["w1", "w2"]) == []
        # Back to what the nodes have, with a new credential: that goes out all the same.
        await story.token("second.worker.token")
        await story.config("00-worker", p.file("/dummy/00-worker"))

        async def alike() -> bool:
            wanted = (await story.pool())["spec"]["configuration"]["name"]
            return wanted not in {first, second} and await story.sent(wanted, ["w1", "w2"]) == ["w1", "w2"]

        await story.eventually(alike, "the new credential sent")
        await story.change(maxUnavailable="50%")
        await story.says("Degraded", "False")


async def test_a_node_that_lies_changes_nobody_but_itself(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await begun(story, "w1", "w2", "w3")
        # It chooses what it is to have: it is sent back.
        await story.reports("w3", **{names.DESIRED: "rendered-master-0", names.CURRENT: "rendered-master-0"})
        await story.are_sent(first, "w3")
        await story.apply("w3")
        await story.says("Updated", "True", first)
        # It labels itself a master: it may not.
        answer = await story.world.request(
            "PATCH",
            "/api/v1/nodes/w3",
            {"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}},
            context=story.node("w3"),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.status == 403
        # It says that it is done before it was sent anywhere: the others go one by one all the same.
        await story.config("00-worker", p.file("/dummy", "new"))
        target = await story.target(first)
        await story.reports("w3", **{names.DESIRED: target, names.CURRENT: target, names.STATE: names.DONE})
        await story.are_sent(target, "w1")
        await story.quiet()
        assert await story.sent(target, ["w1", "w2", "w3"]) == ["w1", "w3"]
        # It can write on no other Node.
        answer = await story.world.request(
            "PATCH",
            "/api/v1/nodes/w2",
            {"metadata": {"annotations": {names.DESIRED: target}}},
            context=story.node("w3"),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.status == 403


async def test_a_node_that_could_not_apply_it_is_named_and_goes_back(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await begun(story, "w1", "w2")
        await story.config("99-worker", p.file("/dummy/1"), osImageURL="example.com/os")
        bad = await story.target(first)
        await story.are_sent(bad, "w1")
        await story.reports("w1", **{names.STATE: names.DEGRADED, names.REASON: "osImageURL cannot be applied"})
        await story.says("NodeDegraded", "True", "w1", "osImageURL cannot be applied")
        await story.quiet()
        assert await story.sent(bad, ["w1", "w2"]) == ["w1"]
        await story.client.delete(p.CONFIGS, "99-worker")
        assert await story.target(bad) == first
        await story.are_sent(first, "w1", "w2")
        await story.apply("w1")
        await story.says("Updated", "True", first)
        await story.says("NodeDegraded", "False")


async def test_nodes_without_an_agent_are_counted_and_never_sent(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        target = await story.target()
        await story.nodes("old", agent=False)
        await story.nodes("w1")
        await story.rolled_out_to(target, "w1")
        await story.says("Updated", "False", "1 of 2 machines")
        assert await story.desired("old") == [""]


async def test_a_node_follows_its_labels_into_another_pool(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await begun(story, "w1", "w2")
        await story.own_pool("infra")
        infra = await story.target(name="infra")
        patch = {"metadata": {"labels": {"node-role.kubernetes.io/infra": ""}}}
        await story.client.patch(controlled.NODES, "w2", patch)
        await story.are_sent(infra, "w2")
        await story.apply("w2")
        await story.says("Updated", "True", infra, name="infra")
        assert (await story.pool("infra"))["status"]["machineCount"] == 1
        assert (await story.pool())["status"]["machineCount"] == 1
        assert await story.desired("w1") == [first]


async def test_a_restart_and_a_second_copy_send_no_more_than_may_be(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"):
        async with p.running(story):
            first = await begun(story)
            await story.config("00-worker", p.file("/dummy", "new"))
            target = await story.target(first)
            await story.are_sent(target, "w1")
        async with p.running(story), p.running(story):
            await story.quiet()
            assert await story.sent(target, WORKERS) == ["w1"]
            for count, name in enumerate(WORKERS):
                await story.are_sent(target, name)
                assert len(await story.sent(target, WORKERS)) == count + 1
                await story.apply(name)
            await story.says("Updated", "True", target)
