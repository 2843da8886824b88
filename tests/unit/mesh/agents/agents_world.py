# SPDX-License-Identifier: Apache-2.0
"""The agents' channel without sockets: objects in informers, a ledger that is handed over in segments, and agents that speak by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from handfast.client import partial, revoked
from handfast.mesh import installed, policies
from handfast.mesh.agents import announcement, issuance, watching, workloads
from handfast.pki import chains, names
from handfast.rules.ledger import entries, segments
from handfast.rules.mesh import control_plane, issued, issuer
from handfast.runtime import tasks
from handfast.wire import agent_messages, peers
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.mesh import cluster_world
from tests.unit.rules.mesh import issued_cases
from tests.world.clock import MovableClock, settle

NOW = issued_cases.NOW
ANCHORS = issuer.generate(NOW).anchors.decode()
WEB = issued_cases.entry()
NAME = issued.read(WEB).names[0]


class Client(FakeClient):
    """… which keeps the status of what is patched, and gives each object a UID of its own."""

    async def create(self, resource: Any, document: Any, **more: Any) -> dict[str, Any]:
        self._version += 1
        meta = {**document["metadata"], "uid": f"o-{self._version}"}
        return await super().create(resource, {**document, "metadata": meta}, **more)

    async def patch(self, resource: Any, name: str, patch: Any, *, namespace: str = "", **more: Any) -> dict[str, Any]:
        answer = await super().patch(resource, name, {"metadata": {}}, namespace=namespace, **more)
        assert patch["metadata"]["uid"] == answer["metadata"]["uid"]
        self.objects[resource.plural, namespace, name]["status"] = patch["status"]
        return answer


class World(cluster_world.World):
    """Everything that the channel is made of."""

    def __init__(self) -> None:
        self.api = Client()
        super().__init__(MovableClock(NOW), self.api)
        self.announcement = announcement.Announcement(self.informers, self.cluster, self.clock)
        self.policies = policies.Policies(self.informers, self.cluster)
        self.workloads = workloads.Workloads(self.api, self.clock)
        self.watching = watching.Watching(
            announcement=self.announcement,
            policies=self.policies,
            cluster=self.cluster,
            workloads=self.workloads,
            clock=self.clock,
        )
        self._segment = segments.following(None, segments.MESH)
        self.revocations = self.informers.get(revoked.SOURCE)
        self.configure()
        self.anchor(ANCHORS)

    def anchor(self, text: str, signer: str = "") -> None:
        meta = installed.Meta(
            name=control_plane.TRUST_ANCHOR,
            namespace=cluster_world.NAMESPACE,
            resource_version=str(next(self._versions)),
            annotations={"mesh.handfast.dev/signer": signer} if signer else None,
        )
        document = installed.Document(meta, {control_plane.ANCHORS_KEY: text})
        self.cluster.installed._informers[control_plane.TRUST_ANCHOR].put(document)

    def know(self) -> None:
        """Everything was listed."""
        self.sync()
        self.revocations.end()
        self.informers.get(policies.SOURCE).end()
        self.announcement.issuance.end()

    def issue(self, *rows: entries.Entry) -> None:
        """The ledger is continued."""
        self._segment = segments.extended(self._segment, [entries.encode(row) for row in rows])
        self.segment(self._segment)

    def segment(self, segment: segments.Segment) -> None:
        document = {"metadata": {"name": segment.name}, "spec": segments.spec_of(segment)}
        self.announcement.issuance.put(msgspec.convert(document, issuance.Segment))

    def revoke(self, name: str = "r", **spec: Any) -> None:
        meta = partial.Meta(name=name, resource_version=str(next(self._versions)))
        self.revocations.put(revoked.Revocation(meta, spec))

    def undo(self, name: str = "r") -> None:
        self.revocations.remove(revoked.Revocation(partial.Meta(name=name)))

    def policy(self, namespace: str, name: str, **spec: Any) -> None:
        meta = partial.Meta(name=name, namespace=namespace, resource_version=str(next(self._versions)))
        self.informers.get(policies.SOURCE).put(policies.MeshPolicy(meta, spec))

    def running_pod(self, name: str = "web-1", uid: str = "u-1", **more: Any) -> None:
        self.put("pods", cluster_world.pod("shop", name, account="web", uid=uid, **more))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        async with tasks.Group("test") as group:
            for work in (self.announcement.run(), self.workloads.run(), self.watching.run()):
                group.start(work, name="part")
            await settle()
            yield self

    async def tick(self) -> None:
        """What has changed is told."""
        for _ in range(4):
            await settle()
            await self.clock.advance(0.1)

    def workload(self, name: str = "web-1", namespace: str = "shop") -> Any:
        return self.api.objects.get(("meshworkloads", namespace, name))


def verified(entry: entries.Entry, name: str = NAME) -> chains.Verified:
    """What TLS proves of the holder of a certificate."""
    long = datetime.timedelta(days=1)
    return chains.Verified(
        subject=names.Subject(),
        sans=names.Sans(dns=(name,)),
        serial=entry.serial,
        fingerprint=entry.certificate,
        key_fingerprint=entry.key_fingerprint,
        not_before=NOW - long,
        not_after=entry.not_after,
        valid_from=NOW - long,
        valid_until=entry.not_after,
        anchor="",
    )


def peer(entry: entries.Entry | None = WEB, name: str = NAME) -> peers.Peer:
    return peers.Peer("192.0.2.7:1", None if entry is None else verified(entry, name))


class Agent:
    """One that watches: reports go in, updates come out."""

    def __init__(self, world: World, shown: peers.Peer) -> None:
        self._reports: asyncio.Queue[Any] = asyncio.Queue()
        self.read = 0
        self.stream = world.watching.watch(self._messages(), shown)

    async def _messages(self) -> AsyncIterator[Any]:
        while True:
            message = await self._reports.get()
            self.read += 1
            yield message

    def report(self, **fields: Any) -> None:
        self._reports.put_nowait(agent_messages.Report(**fields))

    async def update(self) -> Any:
        """The next one."""
        parts = await asyncio.wait_for(anext(self.stream), 5)
        return agent_messages.Update.FromString(parts.SerializeToString())

    async def close(self) -> None:
        await self.stream.aclose()  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def agent(world: World, entry: entries.Entry | None = WEB, **first: Any) -> AsyncIterator[Agent]:
    """One that has sent its first report."""
    one = Agent(world, peer(entry))
    one.report(**first)
    try:
        yield one
    finally:
        await one.close()
