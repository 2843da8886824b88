# SPDX-License-Identifier: Apache-2.0
"""The service's own certificate: got from itself, renewed in time, and kept where the next one is not to be had."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from handfast import errors
from handfast.client import ledger
from handfast.mesh.identity import own_pair
from handfast.rules.ledger import segments
from handfast.rules.mesh import issuer, names
from handfast.runtime import tasks
from tests.unit.mesh.identity import identity_world
from tests.unit.mesh.identity.identity_world import NAMESPACE, NOW
from tests.world.clock import settle

OWN = "linkerd-identity.linkerd.sa.linkerd-identity.linkerd.cluster.local"
DAY = 86400


class Api(identity_world.Api):
    """It says who asks, too."""

    async def create(self, resource: Any, document: Any, **more: Any) -> dict[str, Any]:
        if resource.plural != "selfsubjectreviews":
            return await super().create(resource, document, **more)
        self.before("create", resource.plural, "")
        return {"status": {"userInfo": {"uid": "u-7"}}}


class World(identity_world.World):
    """The service's objects, and its own pair."""

    def __init__(self) -> None:
        super().__init__(client=Api())
        chain = ledger.Ledger(self.client, self.clock, segments.MESH)
        self.own = own_pair.OwnPair(self.client, self.trust, chain, NAMESPACE, self.clock)

    @contextlib.asynccontextmanager
    async def keeping(self) -> AsyncIterator[World]:
        async with self.running(), tasks.Group("own") as group:
            group.start(self.own.run(), name="own")
            await settle(20)
            yield self

    async def later(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await settle(20)

    @property
    def serial(self) -> str:
        pair = self.own.current()
        assert pair is not None
        return pair.leaf.serial


async def test_it_has_a_certificate_in_its_own_name_that_is_written_down():
    world = World()
    world.install()
    assert world.own.current() is None
    assert world.own.anchors().ders == ()
    async with world.keeping():
        pair = world.own.current()
        assert pair is not None
        assert pair.leaf.sans.texts() == [f"DNS:{OWN}"]
        assert world.own.anchors() == world.trust.current.issuer.anchors  # type: ignore[union-attr]
        (entry,) = world.entries()
        assert (entry.rule.partition(":")[0], entry.serial) == ("MeshOwn", pair.leaf.serial)
        assert entry.requester == "system:serviceaccount:linkerd:linkerd-identity"


async def test_it_is_renewed_when_most_of_its_life_is_over():
    world = World()
    world.install()
    async with world.keeping():
        first = world.serial
        await world.later(0.6 * DAY)
        assert world.serial == first
        await world.later(0.11 * DAY)
        assert world.serial != first


async def test_another_issuer_means_another_certificate():
    world = World()
    world.install()
    async with world.keeping():
        first = world.serial
        world.install(issuer.generate(NOW))
        await settle(20)
        await world.later(1)
        assert world.serial != first


async def test_the_one_before_stays_while_the_next_is_not_to_be_had():
    world = World()
    world.install()
    async with world.keeping():
        first = world.serial
        world.refuse(errors.Unavailable("the disk is full"), "issuancelogs")
        await world.later(0.72 * DAY)
        await world.later(1)
        assert world.serial == first
        world.client.before = lambda *_: None
        await world.later(1)
        assert world.serial != first


async def test_where_names_have_a_uid_it_has_its_own():
    world = World()
    world.install(scheme=names.Scheme.UID)
    async with world.keeping():
        pair = world.own.current()
        assert pair is not None
        assert pair.leaf.sans.dns == (f"u-7.{OWN}",)
