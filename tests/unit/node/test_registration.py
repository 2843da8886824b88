# SPDX-License-Identifier: Apache-2.0
"""The Node object: what it says, whose fields it leaves alone, and how it follows the agent's health."""

from __future__ import annotations

import asyncio
import copy

import pytest
import structlog

from handfast import errors
from handfast.api import objects, status
from handfast.node import machine, registration
from handfast.rules.nodes import restricted_write, restriction
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock, settle

MACHINE = machine.Machine(
    name="worker-1", hostname="worker-1.example", addresses=("192.0.2.7", "2001:db8::7"), port=10250, kernel="6.1"
)


class Nodes(FakeClient):
    """… whose patches reach the whole object, and are remembered."""

    def __init__(self):
        super().__init__()
        self.patches = []

    async def patch(self, resource, name, patch, *, subresource="", content_type="", **_):
        found = self._find("patch", resource, name, "")
        self.patches.append((subresource, copy.deepcopy(patch)))
        found["metadata"].setdefault("labels", {}).update(patch["metadata"].get("labels", {}))
        if "status" in patch:
            found["status"] = copy.deepcopy(patch["status"])
        return self._wrote("patch", resource, name, found)


class Agent:
    """A registration and what is wrong with its agent."""

    def __init__(self):
        self.wrong = None
        self.clock = MovableClock()
        self.client = Nodes()
        self.node = registration.Registration(self.client, MACHINE, self.clock, lambda: self.wrong)

    @property
    def stored(self):
        return self.client.objects["nodes", "", "worker-1"]

    def ready(self):
        (condition,) = self.node.status()["conditions"]
        return condition


@pytest.fixture
def agent():
    return Agent()


class TestNode:
    async def test_a_new_one(self, agent):
        await agent.node.register()
        assert agent.stored["spec"]["taints"] == [{"key": registration.TAINT, "effect": "NoSchedule"}]
        assert agent.stored["metadata"]["labels"] == MACHINE.labels
        assert agent.stored["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
        assert agent.stored["status"]["nodeInfo"]["kubeletVersion"].startswith("handfast-")
        assert agent.node.uid == "uid-worker-1"
        assert agent.node.registered.is_set()

    def test_node_restriction_allows_it(self, agent):
        write = restricted_write.Write(
            user="system:node:worker-1",
            groups=("system:nodes",),
            operation=restricted_write.CREATE,
            resource=("", "nodes"),
            document=agent.node.document(),
        )
        known = restricted_write.Known(lambda *_: None, lambda _: pytest.fail("nobody is asked"))
        assert restriction.decide(write, known) is restriction._ALLOWED

    async def test_one_that_is_there_keeps_what_others_set(self, agent):
        agent.client.put(
            "nodes",
            "worker-1",
            metadata={"labels": {"team": "a", "kubernetes.io/arch": "arm64"}},
            spec={"taints": []},
            status={
                "conditions": [{"type": "Other"}, {"type": "Ready", "status": "True", "lastTransitionTime": "then"}]
            },
        )
        await agent.node.register()
        changed = {**MACHINE.labels, "team": "a"}
        assert agent.stored["metadata"]["labels"] == changed
        assert agent.stored["spec"] == {"taints": []}
        assert agent.client.patches == [("", {"metadata": {"labels": MACHINE.labels}})]
        # Since when it is ready is not forgotten.
        assert agent.ready()["lastTransitionTime"] == "then"

    async def test_nothing_to_change(self, agent):
        agent.client.put("nodes", "worker-1", metadata={"labels": dict(MACHINE.labels)})
        await agent.node.register()
        assert agent.client.patches == []

    async def test_a_refusal_is_raised_and_nothing_is_registered(self, agent):
        agent.client.before = failing(status.forbidden("nodes", "", "worker-1", "no"))
        with pytest.raises(status.StatusError) as caught:
            await agent.node.register()
        assert (caught.value.reason, agent.client.calls, agent.client.objects) == ("Forbidden", [], {})


class TestStatus:
    async def test_ready_and_why_not(self, agent):
        assert (agent.ready()["status"], agent.ready()["reason"]) == ("True", "AgentReady")
        since = agent.ready()["lastTransitionTime"]
        await agent.clock.advance(60)
        assert agent.ready()["lastTransitionTime"] == since
        assert agent.ready()["lastHeartbeatTime"] != since
        agent.wrong = "static-pods: a.yaml: kind: unknown"
        found = agent.ready()
        assert (found["status"], found["reason"], found["message"]) == ("False", "AgentNotReady", agent.wrong)
        assert found["lastTransitionTime"] == objects.timestamp(agent.clock.now())

    async def test_written_when_it_changes_and_now_and_then(self, agent):
        task = asyncio.ensure_future(agent.node.run())
        await settle()

        def reports():
            return [patch["status"] for subresource, patch in agent.client.patches if subresource == "status"]

        assert len(reports()) == 1
        # Merged by type, two addresses of one type would be one.
        assert reports()[0]["addresses"] == [*MACHINE.node_addresses, {"$patch": "replace"}]
        await agent.clock.advance(100)
        assert len(reports()) == 1
        agent.wrong = "lease: lost"
        await agent.clock.advance(10)
        assert [row["conditions"][0]["status"] for row in reports()] == ["True", "False"]
        await agent.clock.advance(300)
        assert len(reports()) == 3
        task.cancel()

    async def test_what_others_said_of_it_is_taken_back(self, agent):
        """A control plane that did not hear of the node says so, and only the node knows better."""
        task = asyncio.ensure_future(agent.node.run())
        await settle()
        (row,) = agent.stored["status"]["conditions"]
        row |= {"status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        written = len(agent.client.patches)
        await agent.clock.advance(10)
        (row,) = agent.stored["status"]["conditions"]
        assert (row["status"], row["reason"]) == ("True", registration.READY)
        # From now on, not since ever.
        assert row["lastTransitionTime"] == objects.timestamp(agent.clock.now())
        assert len(agent.client.patches) == written + 1
        await agent.clock.advance(100)
        assert len(agent.client.patches) == written + 1
        # One who deletes the condition is answered as well.
        agent.stored["status"]["conditions"] = []
        await agent.clock.advance(10)
        assert len(agent.client.patches) == written + 2
        task.cancel()

    async def test_an_outage_is_told_once(self, agent):
        def fail(*_):
            raise errors.Unavailable("https://x cannot be reached", reason="Unreachable")

        agent.client.before = fail
        assert agent.node.problem() == "the Node is not registered yet"
        with structlog.testing.capture_logs() as lines:
            task = asyncio.ensure_future(agent.node.run())
            await agent.clock.advance(35)
            assert agent.node.problem() == "the Node is not registered: https://x cannot be reached"
            agent.client.before = lambda *_: None
            await agent.clock.advance(10)
            assert agent.node.problem() is None
            agent.client.before = fail
            agent.wrong = "something"
            await agent.clock.advance(10)
            assert agent.node.problem() == "the Node's status was not written: https://x cannot be reached"
        task.cancel()
        assert [line["event"] for line in lines] == [
            "the Node was not written",
            "registered",
            "the Node was not written",
        ]

    async def test_a_node_that_was_deleted_is_registered_again(self, agent):
        task = asyncio.ensure_future(agent.node.run())
        await settle()
        agent.client.objects.clear()
        agent.wrong = "anything, so that it is written"
        await agent.clock.advance(10)
        assert not agent.node.registered.is_set()
        await agent.clock.advance(10)
        assert agent.node.registered.is_set()
        assert agent.stored["metadata"]["labels"] == MACHINE.labels
        task.cancel()


def test_without_a_port_no_endpoint_is_named():
    made = registration.Registration(
        Nodes(), machine.Machine(name="n", hostname="n", addresses=()), MovableClock(), lambda: None
    )
    assert "daemonEndpoints" not in made.status()
