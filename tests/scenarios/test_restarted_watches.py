# SPDX-License-Identifier: Apache-2.0
"""The API server of a running control plane is killed: every client goes on watching where it was, and none lists again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from urllib import parse as urls

import pytest

from tests.scenarios import outliving, up_world, wire

pytestmark = pytest.mark.slow
WATCHES = 200
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MARK = "story"
# Watched too, and not written by the test: resources whose last event is long ago, or that have none.
QUIET = ("/api/v1/nodes", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/api/v1/persistentvolumes")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_world.Up]:
    """Without the limits of connections from one address: 200 clients come back at once."""
    with up_world.Up(tmp_path_factory.mktemp("plane") / "data", "--unsafe-lift-limits") as made:
        yield made.ready()


@pytest.fixture
def client(plane: up_world.Up) -> outliving.Client:
    return outliving.Client((urls.urlsplit(plane.facts["apiserver"]).port or 0,), plane.context())


async def create(client: outliving.Client, name: str) -> None:
    reply = await client.ask("POST", CONFIG_MAPS, {"metadata": {"name": name, "labels": {MARK: "restart"}}})
    # Stored by a server that died before it could say so.
    assert reply.status in {201, 409}, reply.body


async def test_two_hundred_watches_go_on_after_kill_9_and_none_lists_again(
    plane: up_world.Up, client: outliving.Client
) -> None:
    version = await client.version_of(CONFIG_MAPS)
    versions = {path: await client.version_of(path) for path in QUIET}
    query = f"&labelSelector={MARK}"
    watchers = [outliving.Watcher(client, CONFIG_MAPS, version, query) for _ in range(WATCHES)]
    names = [f"before-{number}" for number in range(5)]
    for name in names:
        await create(client, name)
    # Half of them are there when it dies, having seen everything; the others come with the version of before.
    there, late = watchers[::2], watchers[1::2]
    following = [asyncio.ensure_future(watcher.follow("after")) for watcher in there]
    async with asyncio.timeout(60):
        while not all(watcher.names == names for watcher in there):
            await asyncio.sleep(0.05)
    os.kill(plane.pids()["apiserver"], signal.SIGKILL)
    following += [asyncio.ensure_future(watcher.follow("after")) for watcher in late]
    await create(client, "after")
    async with asyncio.timeout(90):
        await asyncio.gather(*following)
    assert sum(watcher.relists for watcher in watchers) == 0
    assert {tuple(watcher.names) for watcher in watchers} == {(*names, "after")}
    assert min(watcher.begun for watcher in there) == 2
    # A version of before is good for resources without an event, too.
    for path, quiet in versions.items():
        async with wire.line(client.ports[0], client.context) as line:
            await line.send(wire.request("GET", f"{path}?watch=1&resourceVersion={quiet}&timeoutSeconds=1"))
            reply = await line.reply()
        assert (reply.status, reply.body) == (200, b""), path
