# SPDX-License-Identifier: Apache-2.0
"""The policy service without sockets: a cluster in informers, policies as a watch brings them, and streams that are read."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from handfast.mesh import policies as policies_module
from handfast.mesh.policy import inbound, outbound
from handfast.wire import peers, policy_messages, server
from tests.unit.mesh import cluster_world
from tests.world.clock import settle

NOBODY = peers.Peer("ipv4:127.0.0.1:1")
ENDING = "sa.linkerd-identity.linkerd.cluster.local"
WEB = f"web.shop.{ENDING}"


class World(cluster_world.World):
    """A cluster with one Pod `shop/db-0`, all of it read."""

    def __init__(self) -> None:
        super().__init__()
        self.policies = policies_module.Policies(self.informers, self.cluster)
        self.inbound = inbound.Inbound(self.cluster, self.policies)
        self.outbound = outbound.Outbound(self.cluster)
        self._policy_versions = itertools.count(1)

    @property
    def policy_informer(self) -> Any:
        return self.informers.get(policies_module.SOURCE)

    def begin(self, **chosen: Any) -> World:
        self.put("pods", cluster_world.pod("shop", "db-0", "10.0.0.5", account="db", labels={"app": "db"}))
        self.configure(**chosen)
        self.sync()
        self.policy_informer.end()
        return self

    def policy(self, name: str = "p", namespace: str = "shop", **spec: Any) -> None:
        meta = {"name": name, "namespace": namespace, "resourceVersion": str(next(self._policy_versions))}
        self.policy_informer.put(msgspec.convert({"metadata": meta, "spec": spec}, policies_module.MeshPolicy))

    def forget(self, name: str = "p", namespace: str = "shop") -> None:
        self.policy_informer.remove(self.policy_informer.get(namespace, name))

    async def get(self, workload: str = '{"ns":"shop","pod":"db-0"}', port: int = 5433) -> Any:
        return await self.inbound.get(policy_messages.PortSpec(workload=workload, port=port), NOBODY)

    @contextlib.asynccontextmanager
    async def watching(self, workload: str = "shop:db-0", port: int = 5433) -> AsyncIterator[Stream]:
        message = policy_messages.PortSpec(workload=workload, port=port)
        async with reading(self.inbound.watch(message, NOBODY)) as stream:
            yield stream


class Stream:
    """What has come out of one."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.refusal: server.Refusal | None = None

    async def read(self, source: AsyncIterator[Any]) -> None:
        try:
            async for message in source:
                self.messages.append(message)
        except server.Refusal as refusal:
            self.refusal = refusal


@contextlib.asynccontextmanager
async def reading(source: AsyncIterator[Any]) -> AsyncIterator[Stream]:
    stream = Stream()
    task = asyncio.create_task(stream.read(source))
    await settle()
    try:
        yield stream
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(server.Refusal) as refusal:
        await call
    return refusal.value.code, refusal.value.message


def names(message: Any) -> list[str]:
    """What its authorizations are called."""
    return [row.labels["name"] for row in message.authorizations]
