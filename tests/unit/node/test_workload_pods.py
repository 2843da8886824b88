# SPDX-License-Identifier: Apache-2.0
"""The Pod of a workload in the API: made or found, and what is told where it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import connection
from handfast.node import workload_pods
from handfast.rules.mesh import workload_pod
from handfast.runtime import clock as clocks
from tests.unit.node import workload_world
from tests.unit.pki import making
from tests.world.clock import MovableClock

WANTED = workload_pod.Wanted(namespace="shop", account="web", name="w", run="r")


@pytest.fixture
def client() -> workload_world.Api:
    return workload_world.Api()


def pods(client: workload_world.Api, node: str = "") -> workload_pods.Pods:
    return workload_pods.Pods(workload_world.access(client, node), clocks.SystemClock())


async def test_a_pod_without_a_proxy_is_removed_at_once_and_made_again_a_few_times(client):
    client.injects = False
    clock = MovableClock()
    of_run = workload_pods.Pods(workload_world.access(client, ""), clock)
    async with asyncio.TaskGroup() as group:
        making_it = group.create_task(refused(of_run.make(WANTED)))
        for seconds in (1, 2, 4):
            await asyncio.sleep(0)
            # While it waits nobody can take it for one of the mesh.
            assert (client.pods, making_it.done()) == ({}, False)
            await clock.advance(seconds)
    assert making_it.result() == "PodNotInjected"
    assert client.pods == {}


async def test_an_injector_that_is_a_moment_late_stops_nobody(client):
    client.injects = False
    clock = MovableClock()
    of_run = workload_pods.Pods(workload_world.access(client, ""), clock)
    async with asyncio.TaskGroup() as group:
        making_it = group.create_task(of_run.make(WANTED))
        await asyncio.sleep(0)
        client.injects = True
        await clock.advance(1)
    workload_pod.require_injected(making_it.result())
    assert list(client.pods) == ["w"]


async def refused(making_it: Awaitable[object]) -> str:
    with pytest.raises(errors.Refused) as refusal:
        await making_it
    return refusal.value.reason


async def test_an_account_that_is_not_there_is_told_as_such(client):
    client.accounts.clear()
    with pytest.raises(errors.Refused) as refused:
        await pods(client).make(WANTED)
    assert (refused.value.reason, refused.value.message) == (
        "AccountNotFound",
        "there is no service account shop/web",
    )


async def test_another_refusal_is_told_as_it_is(client, monkeypatch):
    async def refuse(*_words, **_more):
        raise status.forbidden("pods", "", "w", "not you")

    monkeypatch.setattr(client, "create", refuse)
    with pytest.raises(status.StatusError, match="not you"):
        await pods(client).make(WANTED)
    # Nor can it be seen whether there is an account.
    monkeypatch.setattr(client, "get", refuse)
    with pytest.raises(status.StatusError, match="not you"):
        await pods(client).make(WANTED)


async def test_a_name_that_is_taken_has_a_next_step(client):
    await pods(client).make(WANTED)
    with pytest.raises(status.StatusError) as refused:
        await pods(client).make(WANTED)
    assert "--name" in (refused.value.hint or "")
    # Nor is the other one removed.
    await pods(client).remove_of_run("shop", "w", "another run")
    assert list(client.pods) == ["w"]
    await pods(client).remove_of_run("shop", "w", "r")
    await pods(client).remove_of_run("shop", "w", "r")
    assert client.pods == {}


async def test_a_pod_that_a_node_does_not_see_is_told_as_not_its_own(client, monkeypatch):
    with pytest.raises(errors.Refused) as refused:
        await pods(client, "n1").find("shop", "absent")
    assert (refused.value.reason, "of node n1" in refused.value.message) == ("PodNotFound", True)
    client.away = True
    with pytest.raises(errors.Unavailable):
        await pods(client).find("shop", "absent")

    async def broken(*_words, **_more):
        raise status.bad_request("broken")

    monkeypatch.setattr(client, "get", broken)
    for question in (
        pods(client).find("shop", "w"),
        pods(client).is_there({"metadata": {"name": "w", "namespace": "s"}}),
    ):
        with pytest.raises(status.StatusError, match="broken"):
            await question


async def test_a_pod_is_there_while_it_is_the_same_and_does_not_end(client):
    pod = await pods(client).make(WANTED)
    assert await pods(client).is_there(pod)
    client.pods["w"]["metadata"]["deletionTimestamp"] = "2026-11-17T12:00:00Z"
    assert not await pods(client).is_there(pod)
    client.pods["w"]["metadata"] = {"uid": "another"}
    assert not await pods(client).is_there(pod)
    client.pods.clear()
    assert not await pods(client).is_there(pod)


async def test_other_credentials_are_used_once_they_are_there(client):
    used: list[connection.Connection] = []
    files = [connection.Connection(server="https://s", token=text) for text in ("a", "a", "b")]

    class Transport:
        async def use(self, loaded: connection.Connection) -> None:
            used.append(loaded)

    client.transport = Transport()
    access = workload_pods.Access(client, lambda: files.pop(0), "", "https://s")
    found = workload_pods.Pods(access, clocks.SystemClock())
    for _ in range(2):
        await found.refresh()
    assert [each.token for each in used] == ["b"]

    def unreadable() -> connection.Connection:
        raise errors.Refused("gone")

    found._load = unreadable
    await found.refresh()
    assert len(used) == 1


def test_a_node_is_known_by_its_certificate():
    ca = making.ca()
    for name, node in (("system:node:n1", "n1"), ("admin", "")):
        pem = making.leaf(ca, subject=name).pem
        assert workload_pods.node_of(connection.Connection(server="s", cert_pem=pem)) == node
    assert workload_pods.node_of(connection.Connection(server="s")) == ""
