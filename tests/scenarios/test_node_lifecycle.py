# SPDX-License-Identifier: Apache-2.0
"""Nodes that fall silent or are revoked, on a real server with real watches, as the credential of the controllers.

Proves: what Kubernetes says of a silent node is said, once, also by two copies without a lock; a revoked node is not ready at
once, and is ready again by its own word; and with real `up` and agent the same. That nobody dies because the controller itself
was away is shown with its unit tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from handfast.api import handfast_kinds
from handfast.controllers.cluster import node_lifecycle
from tests.scenarios import callers, controlled, up_world
from tests.scenarios import certified as c
from tests.scenarios.test_living_names import renew
from tests.scenarios.test_node_agent import Machine

pytestmark = pytest.mark.slow
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


async def registered(story: c.Story, name: str = "n1") -> None:
    row = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"}
    await story.client.create(controlled.NODES, {"metadata": {"name": name}, "status": {"conditions": [row]}})
    await renew(story, name)


async def ready(story: c.Story, name: str = "n1") -> tuple[str, str]:
    node = await story.find(controlled.NODES, name, "")
    (row,) = [row for row in node["status"]["conditions"] if row["type"] == "Ready"]
    return row["status"], row["reason"]


async def taints(story: c.Story, name: str = "n1") -> set[tuple[str, str]]:
    node = await story.find(controlled.NODES, name, "")
    return {(row["key"], row["effect"]) for row in node["spec"].get("taints") or ()}


def both(key: str) -> set[tuple[str, str]]:
    return {(key, "NoSchedule"), (key, "NoExecute")}


async def live(story: c.Story, seconds: int, *renewing: str) -> None:
    """Time passes slowly enough for controllers to look after themselves."""
    for second in range(seconds):
        await story.clock.advance(1)
        await asyncio.sleep(0.005)
        if second % 10 == 0:
            for name in renewing:
                await renew(story, name)


async def test_a_silent_node(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, contextlib.AsyncExitStack() as stack:
        for name in ("n1", "n2"):
            await registered(story, name)
        for _ in range(2):
            made = await stack.enter_async_context(c.running(story.world, node_lifecycle.NAME, copies=1))

            async def all_ready(made: Any = made) -> bool:
                return all(controller.ready for controller in made)

            await story.eventually(all_ready, "ready")
        await live(story, 40, "n1", "n2")
        assert await ready(story) == ("True", "KubeletReady")
        await live(story, 60, "n2")

        async def unknown() -> bool:
            return await taints(story) == both(UNREACHABLE)

        await story.eventually(unknown, "unreachable")
        assert await ready(story) == ("Unknown", "NodeStatusUnknown")
        assert await story.told("n1") == [("NodeNotReady", "Node n1 status is now: NodeNotReady", 1)]
        # The other one lives on.
        assert (await ready(story, "n2"), await taints(story, "n2")) == (("True", "KubeletReady"), set())
        # Its own word brings it back.
        await renew(story)
        row = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"}
        answer = await story.world.request(
            "PATCH",
            "/api/v1/nodes/n1/status",
            {"status": {"conditions": [row]}},
            context=story.node("n1"),
            headers={"Content-Type": "application/strategic-merge-patch+json"},
        )
        assert answer.status == 200, answer.body

        async def untainted() -> bool:
            return await taints(story) == set()

        await story.eventually(untainted, "untainted")
        assert await ready(story) == ("True", "KubeletReady")


async def test_a_revoked_node(tmp_path: pathlib.Path) -> None:
    async with c.told(tmp_path) as story, c.running(story.world, node_lifecycle.NAME):
        await registered(story)
        begun = story.clock.monotonic()
        await callers.revoke(story.world, "gone", node="n1", reason="stolen from the rack")

        def tainted(key: str) -> Callable[[], Any]:
            async def found() -> bool:
                return await taints(story) == both(key)

            return found

        await story.eventually(tainted(NOT_READY), "not ready")
        assert story.clock.monotonic() - begun < 20
        assert await ready(story) == ("False", "NodeRevoked")

        async def all_told() -> bool:
            # One copy may have set the taint before the other one tells of what it did.
            return {reason: message for reason, message, _ in await story.told("n1")} == {
                "NodeNotReady": "Node n1 status is now: NodeNotReady",
                "NodeRevoked": 'the node is refused by Revocation "gone": stolen from the rack',
            }

        await story.eventually(all_told, "told")
        # It stays so, and it is not the node that can say otherwise.
        answer = await story.world.request("GET", "/api/v1/nodes/n1", context=story.node("n1"))
        assert answer.status == 401
        await story.client.delete(handfast_kinds.REVOCATION, "gone")
        await story.eventually(tainted(UNREACHABLE), "unknown")
        assert await ready(story) == ("Unknown", "NodeStatusUnknown")


@pytest.fixture
def plane(tmp_path: pathlib.Path) -> Iterator[up_world.Up]:
    with up_world.Up(tmp_path / "data") as made:
        yield made.ready()


@pytest.mark.timeout(180)
def test_with_an_agent_that_is_revoked_and_let_in_again(plane: up_world.Up, tmp_path: pathlib.Path) -> None:
    (tmp_path / "w1").mkdir()
    admin = ("--kubeconfig", plane.directory / "admin.conf")

    def shown() -> tuple[str, str]:
        node = plane.call("GET", "/api/v1/nodes/w1")[1]
        (row,) = [row for row in node["status"]["conditions"] if row["type"] == "Ready"]
        return row["status"], row["reason"]

    with Machine(plane, tmp_path / "w1", "w1").joined().agent() as agent:
        agent.until_well()
        up_world.until(lambda: shown() == ("True", "AgentReady"), 30, "a node that is ready")
        done = up_world.run("node", "revoke", "w1", *admin, "--reason", "stolen")
        assert done.returncode == 0, done.stderr
        up_world.until(lambda: shown() == ("False", "NodeRevoked"), 10, "a node that is not ready")
        done = up_world.run("node", "revoke", "w1", *admin, "--undo")
        assert done.returncode == 0, done.stderr
        up_world.until(lambda: shown() == ("True", "AgentReady"), 60, f"its own word: {shown()}")
        up_world.until(lambda: not _unready(plane), 20, "its taints gone")


def _unready(plane: up_world.Up) -> list[Any]:
    found = plane.call("GET", "/api/v1/nodes/w1")[1]["spec"].get("taints") or ()
    return [row for row in found if row["key"].startswith("node.kubernetes.io/")]
