# SPDX-License-Identifier: Apache-2.0
"""The destination service without sockets: objects in informers, and streams that are read one message at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from handfast.client import events, partial, revoked
from handfast.mesh.destination import discovery, publishers, withheld
from handfast.rules.mesh import control_plane
from handfast.runtime import tasks
from handfast.wire import mesh_messages, peers
from tests.unit.mesh import cluster_world
from tests.unit.rules.mesh import mesh_pods
from tests.world import discovery_client
from tests.world.clock import settle

NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
PATH = "web.shop.svc.cluster.local:80"
SOMEBODY = peers.Peer("ipv4:127.0.0.1:1")


class World(cluster_world.World):
    """A cluster, and the service."""

    def __init__(self, **limits: int) -> None:
        super().__init__()
        recorder = events.Recorder(self.client, self.clock, control_plane.CONTROLLER)
        self.reports = withheld.Reports(recorder, self.clock)
        self.revoking = self.informers.get(revoked.SOURCE)
        self.publishers = publishers.Publishers(self.cluster, self.informers, self.reports, self.clock)
        self.discovery = discovery.Discovery(self.cluster, self.publishers, **limits)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        """Everything listed, and the work going on."""
        self.configure()
        self.sync()
        self.revoking.end()
        async with tasks.Group("test") as group:
            group.start(self.publishers.run(), name="publishers")
            group.start(self.reports.run(), name="reports")
            await settle()
            yield self

    def serve(self, *entries: dict[str, Any], name: str = "web", slice_name: str = "", **spec: Any) -> None:
        """A Service with these endpoints."""
        self.put("services", cluster_world.service("shop", name, **spec))
        self.slice(*entries, name=name, slice_name=slice_name)

    def slice(self, *entries: dict[str, Any], name: str = "web", slice_name: str = "") -> None:
        self.put(
            "endpointslices",
            {
                "metadata": {
                    "namespace": "shop",
                    "name": slice_name or name,
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": "IPv4",
                "endpoints": list(entries),
                "ports": [{"name": "http", "port": 8080}],
            },
        )

    def meshed(self, name: str, ip: str, **more: Any) -> dict[str, Any]:
        """A Pod of the mesh; its endpoint."""
        self.put("pods", mesh_pods.meshed("shop", name, ip, **more))
        return entry(ip, name)

    def plain(self, name: str, ip: str) -> dict[str, Any]:
        self.put("pods", mesh_pods.plain("shop", name, ip))
        return entry(ip, name)

    def revoke(self, name: str, **spec: Any) -> None:
        meta = partial.Meta(name=name, resource_version=str(next(self._versions)))
        self.revoking.put(revoked.Revocation(meta, spec))

    def undo(self, name: str) -> None:
        self.revoking.remove(revoked.Revocation(partial.Meta(name=name)))

    def listen(self, path: str = PATH, token: str = "", peer: peers.Peer = SOMEBODY) -> Listener:
        message = mesh_messages.GetDestination(path=path, context_token=token)
        return Listener(self, self.discovery.get(message, peer))

    def profile(self, path: str = PATH) -> Listener:
        message = mesh_messages.GetDestination(path=path)
        return Listener(self, self.discovery.get_profile(message, SOMEBODY))

    def told(self) -> list[tuple[str, str]]:
        """The Events, by what they are about."""
        documents = [value for key, value in self.client.objects.items() if key[0] == "events"]
        return [(each["involvedObject"]["name"], each["message"]) for each in documents]


class Listener:
    """A stream, and what it said so far."""

    def __init__(self, world: World, said: Any) -> None:
        self._world = world
        self._said = said
        self.endpoints = discovery_client.Endpoints()
        self._next: asyncio.Task[bytes] | None = None

    async def octets(self) -> bytes | None:
        """The next message, with a moment's time; None: there is none."""
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._said))
        for _ in range(4):
            await settle()
            if self._next.done():
                done, self._next = self._next, None
                return done.result()
            await self._world.clock.advance(0.05)
        return None

    async def hear(self) -> dict[str, str]:
        """Whatever is said now; the addresses that are known then, with their identities."""
        while (octets := await self.octets()) is not None:
            self.endpoints.take(octets)
        return self.endpoints.identities

    async def profile(self) -> discovery_client.Profile:
        octets = await self.octets()
        assert octets is not None
        return discovery_client.profile(octets)

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await self._said.aclose()


def entry(ip: str, pod: str = "", **more: Any) -> dict[str, Any]:
    reference = {"kind": "Pod", "namespace": "shop", "name": pod, "uid": f"uid-{pod}"} if pod else None
    return {"addresses": [ip], "targetRef": reference, **more}
