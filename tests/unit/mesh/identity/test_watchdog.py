# SPDX-License-Identifier: Apache-2.0
"""The watchdog: what the watch did not bring is taken up, what is stored and not used is told, and an end is told before it comes."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.mesh.identity import watchdog
from handfast.rules.mesh import control_plane, installation, issuer, settings
from handfast.runtime import tasks
from tests.unit.mesh.identity import identity_world
from tests.unit.mesh.identity.identity_world import NAMESPACE, NOW
from tests.world.clock import settle

DAY = datetime.timedelta(days=1)


class World(identity_world.World):
    """The objects are on the server, too: the watch may bring them, or not."""

    def put(self, material: issuer.Material | None = None, **chosen: Any) -> None:
        """Store it, without the watch bringing it."""
        anchors, secret = installation.trust(NAMESPACE, material or self.material, generated=False)
        config = settings.data(settings.Settings(**chosen))
        self.client.put("configmaps", control_plane.TRUST_ANCHOR, NAMESPACE, data=anchors.document["data"])
        self.client.put("secrets", control_plane.SIGNING, NAMESPACE, data=secret.document["data"])
        self.client.put("configmaps", control_plane.CONFIG, NAMESPACE, data=config)

    def both(self, material: issuer.Material | None = None, **chosen: Any) -> None:
        self.put(material, **chosen)
        self.install(material, **chosen)

    async def look(self) -> None:
        await self.clock.advance(watchdog.LOOK_SECONDS)
        await self.watchdog.look()
        await settle(20)

    @property
    def signer(self) -> str:
        assert self.trust.current is not None
        return self.trust.current.issuer.certificate.fingerprint


def not_in_use() -> float:
    """The metric, as it is scraped."""
    return next(iter(watchdog.NOT_IN_USE.collect())).samples[0].value


async def test_what_no_watch_has_brought_is_read_and_taken_up():
    world = World()
    world.both()
    async with world.running():
        first = world.signer
        await world.look()
        assert world.signer == first
        world.put(issuer.generate(NOW))
        await world.look()
        assert world.signer != first
        await world.look()
        assert world.watchdog.note() is None
    assert [reason for reason, _ in world.events()] == ["IssuerUpdated"]


async def test_what_the_watch_brings_later_counts_again():
    world = World()
    world.both()
    async with world.running():
        world.put(issuer.generate(NOW))
        await world.look()
        third = issuer.generate(NOW)
        world.both(third)
        await settle(20)
        await world.look()
        assert issuer.is_of(world.trust.current.issuer, third)  # type: ignore[union-attr]


async def test_what_is_stored_and_not_used_is_told_at_the_second_look():
    world = World()
    world.both()
    other = issuer.generate(NOW)
    async with world.running():
        await world.look()
        first = world.signer
        # An issuer that its anchors do not have.
        world.both(issuer.Material(other.certificate, other.key, world.material.anchors))
        await settle(20)
        await world.look()
        assert world.watchdog.note() is None
        await world.look()
        note = str(world.watchdog.note())
        assert "would not be believed" in note
        assert not_in_use() == 1
        for _ in range(5):
            await world.look()
        event = world.event("IssuerNotInUse")
        assert (event["type"], event["count"]) == ("Warning", 1)
        await world.clock.advance(3600)
        await world.look()
        assert world.event("IssuerNotInUse")["count"] == 2
        # It goes on signing, and when it is put right nothing is said any more.
        assert world.signer == first
        world.both()
        await settle(20)
        await world.look()
        assert world.watchdog.note() is None
        assert not_in_use() == 0


async def test_settings_that_are_not_used_count_as_well():
    world = World()
    world.both()
    async with world.running():
        world.store(control_plane.CONFIG, {"trustDomain": "not a domain"})
        world.client.put("configmaps", control_plane.CONFIG, NAMESPACE, data={"trustDomain": "not a domain"})
        await settle(20)
        await world.look()
        await world.look()
        assert "trustDomain" in str(world.watchdog.note())


async def test_what_cannot_be_read_changes_nothing_and_is_told_once():
    world = World()
    world.both()
    async with world.running():
        first = world.signer
        world.refuse(errors.Unavailable("nobody answers"), "secrets")
        with capture_logs() as lines:
            for _ in range(3):
                await world.look()
        assert [line["error"] for line in lines if line["event"] == "what is stored cannot be read anew"] == [
            "nobody answers"
        ]
        assert world.signer == first
        assert world.watchdog.note() is None


@pytest.mark.parametrize(
    ("left", "told"),
    [(61 * DAY, 0), (59 * DAY, 1), (6 * DAY, 1)],
    ids=["far", "soon", "urgent"],
)
async def test_an_end_is_told_before_it_comes(left, told):
    world = World()
    world.both()
    async with world.running():
        await world.clock.advance((365 * DAY - left).total_seconds())
        await world.look()
        assert len([reason for reason, _ in world.events() if reason == "IssuerExpiring"]) == told
        if told:
            assert world.event("IssuerExpiring")["message"] == "the issuer will expire on 2030-12-31T23:55:00Z"
            assert world.event("IssuerExpiring")["type"] == "Warning"


async def test_it_is_told_once_a_day_and_in_the_last_week_once_an_hour():
    world = World()
    world.both()
    async with world.running():
        await world.clock.advance((306 * DAY).total_seconds())
        for _ in range(3):
            await world.look()
        assert world.event("IssuerExpiring")["count"] == 1
        await world.clock.advance(DAY.total_seconds())
        await world.look()
        assert world.event("IssuerExpiring")["count"] == 2
        await world.clock.advance((53 * DAY).total_seconds())
        await world.look()
        assert world.event("IssuerExpiring")["count"] == 3
        await world.clock.advance(3600)
        await world.look()
        assert world.event("IssuerExpiring")["count"] == 4


async def test_it_looks_once_a_minute():
    world = World()
    world.both()
    async with world.running(), tasks.Group("dog") as group:
        group.start(world.watchdog.run(), name="dog")
        await settle()
        world.put(issuer.generate(NOW))
        first = world.signer
        await world.clock.advance(59)
        assert world.signer == first
        await world.clock.advance(2)
        await settle(20)
        assert world.signer != first
